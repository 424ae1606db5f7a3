//! Connects to a single server, to a cluster node, or to the master reported by the sentinels.

use std::error::Error as _;
use std::fmt;
use std::path::PathBuf;

use futures_util::future::select_ok;
use redis::aio::MultiplexedConnection;
use redis::sentinel::{SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, ErrorKind,
    IntoConnectionInfo as _, RedisError, RedisResult, TlsCertificates, TlsMode,
};
use serde_json::{Value, json};

use super::PATIENCE;
use super::advice::advice;
use super::node::run;
use crate::files;
use crate::options::Options;
use crate::tls;

/// Address of a cluster node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Address {
    pub(super) host: String,
    pub(super) port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// The engine to connect to, as specified by the options.
#[derive(Clone)]
pub struct Target {
    kind: Kind,
    nodes: Vec<ConnectionInfo>,
    certificates: Option<TlsCertificates>,
    /// The master's user name and password, if sentinels are used. The URLs in `nodes` then contain the sentinels'
    /// credentials.
    master: (Option<String>, Option<String>),
    /// Value of `--engine-ca`, for [`advice`].
    ca: Option<PathBuf>,
}

#[derive(Clone)]
enum Kind {
    Single,
    Cluster,
    Sentinel(String),
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target").finish_non_exhaustive()
    }
}

impl Target {
    /// Parses the URLs and reads the files specified in the options. Errors name the option.
    pub fn new(options: &Options) -> Result<Self, String> {
        let kind = match (&options.sentinel_master, options.cluster) {
            (Some(name), _) => Kind::Sentinel(name.clone()),
            (None, true) => Kind::Cluster,
            (None, false) => Kind::Single,
        };
        if matches!(kind, Kind::Single) && options.engine.len() > 1 {
            return Err(format!(
                "--engine: {} URLs; allowed: one, or several with --cluster or --sentinel-master",
                options.engine.len()
            ));
        }
        let password = options.engine_password_file.as_ref();
        let password = password
            .map(|path| files::secret("--engine-password-file", path))
            .transpose()?;
        let nodes = options.engine.iter().map(|url| {
            let info = connection_info(url)?;
            let mut settings = info.redis_settings().clone();
            if matches!(kind, Kind::Sentinel(_)) {
                return Ok(info);
            }
            if let Some(user) = &options.engine_user {
                settings = settings.set_username(user);
            }
            if let Some(password) = &password {
                settings = settings.set_password(password);
            }
            Ok(info.set_redis_settings(settings))
        });
        let nodes = nodes.collect::<Result<Vec<_>, String>>()?;
        let tls = |node: &ConnectionInfo| matches!(node.addr(), ConnectionAddr::TcpTls { .. });
        let certificates = certificates(options)?;
        if certificates.is_some() && !nodes.iter().all(tls) {
            return Err(
                "--engine-ca and --engine-cert are for TLS; allowed: URLs that begin with rediss://"
                    .to_owned(),
            );
        }
        let target = Self {
            kind,
            nodes,
            certificates,
            master: (options.engine_user.clone(), password),
            ca: options.engine_ca.clone(),
        };
        target.check()?;
        Ok(target)
    }

    /// Verifies that the Redis client can parse the certificates and the key.
    fn check(&self) -> Result<(), String> {
        let Some(certificates) = &self.certificates else {
            return Ok(());
        };
        for node in &self.nodes {
            Client::build_with_tls(node.clone(), certificates.clone())
                .map_err(|error| format!("--engine-ca, --engine-cert, --engine-key: {error}"))?;
        }
        Ok(())
    }

    /// Returns true if the engine is a cluster.
    pub(super) const fn is_cluster(&self) -> bool {
        matches!(self.kind, Kind::Cluster)
    }

    /// Opens a connection and verifies it with a `PING`. If `address` is given, connects to that cluster node.
    /// Otherwise, connects to the single server or the master.
    pub(super) async fn connect(
        &self,
        address: Option<&Address>,
    ) -> RedisResult<MultiplexedConnection> {
        let mut connection = match (&self.kind, address) {
            (Kind::Sentinel(name), _) => self.sentinels(name).await,
            (_, Some(address)) => self.connect_to(self.at(address)?).await,
            (_, None) => self.connect_to(self.first()?).await,
        }?;
        // If the engine requires credentials but the options contain none, the server does not report the error until
        // it receives a command.
        run(&mut connection, &redis::cmd("PING")).await?;
        Ok(connection)
    }

    /// Returns the nodes given in `--engine`, each with its host name.
    pub(super) fn seeds(&self) -> impl Iterator<Item = (ConnectionInfo, String)> {
        self.nodes.iter().map(|node| {
            let host = match node.addr() {
                ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host.clone(),
                _ => String::new(),
            };
            (node.clone(), host)
        })
    }

    fn first(&self) -> RedisResult<ConnectionInfo> {
        let missing = || RedisError::from((ErrorKind::InvalidClientConfig, "no URL"));
        self.nodes.first().cloned().ok_or_else(missing)
    }

    /// Returns the connection settings for a cluster node. The user name, password and TLS settings are copied from the
    /// first URL.
    fn at(&self, address: &Address) -> RedisResult<ConnectionInfo> {
        let first = self.first()?;
        let Address { host, port } = address.clone();
        let address = match first.addr() {
            ConnectionAddr::TcpTls { insecure, .. } => ConnectionAddr::TcpTls {
                host,
                port,
                insecure: *insecure,
                tls_params: None,
            },
            _ => ConnectionAddr::Tcp(host, port),
        };
        Ok(first.set_addr(address))
    }

    /// Converts an error from [`Target::connect`] to log fields.
    pub(super) fn explain(&self, error: &RedisError) -> Value {
        let kind = format!("{:?}", error.kind());
        // Log the text of I/O errors only. The text of a server error may echo parts of a command.
        let system = error.source().filter(|_| error.is_io_error());
        let system = system.map(ToString::to_string);
        json!({ "kind": kind, "error": system, "advice": advice(error, self.ca.as_deref()) })
    }

    /// Opens a connection to a server.
    pub(super) async fn connect_to(
        &self,
        server: ConnectionInfo,
    ) -> RedisResult<MultiplexedConnection> {
        let client = match &self.certificates {
            Some(certificates) => Client::build_with_tls(server, certificates.clone())?,
            None => Client::open(server)?,
        };
        client
            .get_multiplexed_async_connection_with_config(&config())
            .await
    }

    /// Queries all sentinels for the master concurrently, and returns the first successful connection. A hung sentinel,
    /// for example on the old master's failed host, does not cause a delay.
    async fn sentinels(&self, name: &str) -> RedisResult<MultiplexedConnection> {
        let asked = self
            .nodes
            .iter()
            .map(|node| Box::pin(self.sentinel(node, name)));
        let (connection, _others) = select_ok(asked).await?;
        Ok(connection)
    }

    async fn sentinel(
        &self,
        node: &ConnectionInfo,
        name: &str,
    ) -> RedisResult<MultiplexedConnection> {
        let address = [node.addr().clone()];
        let mut builder = SentinelClientBuilder::new(address, name, SentinelServerType::Master)?;
        if matches!(node.addr(), ConnectionAddr::TcpTls { .. }) {
            builder = builder
                .set_client_to_redis_tls_mode(TlsMode::Secure)
                .set_client_to_sentinel_tls_mode(TlsMode::Secure);
        }
        if let Some(certificates) = &self.certificates {
            builder = builder
                .set_client_to_redis_certificates(certificates.clone())
                .set_client_to_sentinel_certificates(certificates.clone());
        }
        let settings = node.redis_settings();
        builder = builder.set_client_to_redis_db(settings.db());
        if let Some(user) = settings.username() {
            builder = builder.set_client_to_sentinel_username(user);
        }
        if let Some(password) = settings.password() {
            builder = builder.set_client_to_sentinel_password(password);
        }
        let (user, password) = &self.master;
        if let Some(user) = user {
            builder = builder.set_client_to_redis_username(user);
        }
        if let Some(password) = password {
            builder = builder.set_client_to_redis_password(password);
        }
        let mut client = builder.build()?;
        client.get_async_connection_with_config(&config()).await
    }
}

fn config() -> AsyncConnectionConfig {
    // No response timeout is set, because every call has its own deadline.
    AsyncConnectionConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(None)
}

/// Parses a URL. The error never contains the password.
fn connection_info(url: &str) -> Result<ConnectionInfo, String> {
    url.into_connection_info().map_err(|_quoted| {
        let shown = match (url.split_once("://"), url.rsplit_once('@')) {
            (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://…@{rest}"),
            _ => url.to_owned(),
        };
        format!(
            "--engine: {shown:?} is not an engine URL; allowed: redis://HOST:PORT, rediss://HOST:PORT, \
             unix:///PATH"
        )
    })
}

fn certificates(options: &Options) -> Result<Option<TlsCertificates>, String> {
    let read = |option: &str, path: Option<&PathBuf>| {
        path.map(|path| files::bytes(option, path)).transpose()
    };
    if let Some(path) = &options.engine_ca {
        // Validate the file first. The Redis client would accept a file that contains no certificates and then trust no
        // server.
        tls::certificates("--engine-ca", path)?;
    }
    let root_cert = read("--engine-ca", options.engine_ca.as_ref())?;
    let cert = read("--engine-cert", options.engine_cert.as_ref())?;
    let key = read("--engine-key", options.engine_key.as_ref())?;
    let client_tls = cert
        .zip(key)
        .map(|(client_cert, client_key)| ClientTlsConfig {
            client_cert,
            client_key,
        });
    let any = client_tls.is_some() || root_cert.is_some();
    Ok(any.then_some(TlsCertificates {
        client_tls,
        root_cert,
    }))
}
