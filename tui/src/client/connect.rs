//! How calls reach an admin listener: TCP, TLS, a Unix socket, or a proxy.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};
use ureq::{Agent, Proxy};

use super::address::{self, bad, base};
use super::unix::UnixConnector;
use super::{ClientError, Target};

/// The scheme of the address of a Unix socket.
const UNIX: &str = "unix:";

/// The settings of an `https://` address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// PEM: the certificates that the server's may be signed by, instead of those of the system.
    pub ca: Option<Vec<u8>>,
    /// PEM: the certificate chain of this client, and its key.
    pub client: Option<(Vec<u8>, Vec<u8>)>,
    /// The name in the server's certificate, if the address has another.
    pub server_name: Option<String>,
}

/// Where calls go, and the agent that brings them there.
pub(super) struct Connection {
    pub(super) agent: Agent,
    /// The beginning of each request's address.
    pub(super) base: String,
}

/// The connection to `target`, for calls that take at most `timeout`.
pub(super) fn connection(target: &Target, timeout: Duration) -> Result<Connection, ClientError> {
    if let Some(path) = target.url.strip_prefix(UNIX) {
        return socket(&target.url, path, timeout);
    }
    let base = base(&target.url)?;
    let Some(rest) = base.strip_prefix("https://") else {
        if target.tls != Tls::default() {
            let why = "the options for TLS need an address that begins with https://";
            return Err(ClientError::BadTarget {
                why: why.to_owned(),
            });
        }
        return Ok(Connection {
            agent: config(timeout, None, None).new_agent(),
            base,
        });
    };
    if target.proxy.is_some() && target.tls.server_name.is_some() {
        // The proxy would be asked for the name in the certificate.
        let why = "--tls-name does not work through a proxy; except this host with no_proxy";
        return Err(ClientError::BadTarget {
            why: why.to_owned(),
        });
    }
    let proxy = target.proxy.as_deref().map(proxy);
    let config = config(timeout, Some(tls(&target.tls)?), proxy.transpose()?);
    match &target.tls.server_name {
        None => Ok(Connection {
            agent: config.new_agent(),
            base,
        }),
        Some(name) => named(&target.url, rest, name, config),
    }
}

/// The proxy of this address.
fn proxy(url: &str) -> Result<Proxy, ClientError> {
    let wrong = |why: String| ClientError::BadTarget {
        why: format!(
            "the proxy {:?} {why}; write http://HOST:PORT",
            address::without_user(url)
        ),
    };
    let uri: Uri = url
        .parse()
        .ok()
        .ok_or_else(|| wrong("is invalid".to_owned()))?;
    let is_http = matches!(uri.scheme_str(), None | Some("http" | "https"));
    if !is_http {
        // ureq would connect without it.
        return Err(wrong("is not one of HTTP".to_owned()));
    }
    address::check_authority(&uri).map_err(wrong)?;
    Proxy::new(url).map_err(|error| wrong(format!("cannot be used: {error}")))
}

/// A connection to the Unix socket of this path.
fn socket(url: &str, path: &str, timeout: Duration) -> Result<Connection, ClientError> {
    // `unix:///run/x.sock` is the same as `unix:/run/x.sock`.
    let path = path.strip_prefix("//").unwrap_or(path);
    if !path.starts_with('/') {
        return Err(bad(url, "has no absolute path"));
    }
    let connector = UnixConnector(PathBuf::from(path));
    Ok(Connection {
        agent: Agent::with_parts(config(timeout, None, None), connector, Nowhere),
        // The admin API takes this name from anybody on the same machine.
        base: "http://localhost".to_owned(),
    })
}

/// A connection to an address, `rest`, whose certificate has this name.
fn named(url: &str, rest: &str, name: &str, config: Config) -> Result<Connection, ClientError> {
    let (authority, path) = match rest.split_once('/') {
        Some((authority, path)) => (authority, format!("/{path}")),
        None => (rest, String::new()),
    };
    let there = format!("https://{authority}/");
    let there: Uri = there.parse().ok().ok_or_else(|| bad(url, "is invalid"))?;
    let port = there.port_u16();
    let port = port.map_or_else(String::new, |port| format!(":{port}"));
    let base = format!("https://{name}{port}{path}");
    if base.parse::<Uri>().is_err() {
        let why = format!(
            "the server name {name:?} is invalid; write a host name such as envoy.example.com"
        );
        return Err(ClientError::BadTarget { why });
    }
    let connector = DefaultConnector::new();
    Ok(Connection {
        agent: Agent::with_parts(config, connector, Elsewhere(there)),
        base,
    })
}

fn config(timeout: Duration, tls: Option<TlsConfig>, proxy: Option<Proxy>) -> Config {
    let builder = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .proxy(proxy)
        .timeout_global(Some(timeout))
        .user_agent(concat!("loudou/", env!("CARGO_PKG_VERSION")))
        .accept("application/json, application/problem+json");
    match tls {
        None => builder.build(),
        Some(tls) => builder.tls_config(tls).build(),
    }
}

fn tls(tls: &Tls) -> Result<TlsConfig, ClientError> {
    let roots = match &tls.ca {
        Some(pem) => certificates(pem, "the CA file")?,
        None => system_roots()?,
    };
    let client = tls.client.as_ref().map(|(chain, key)| {
        let chain = certificates(chain, "the client certificate")?;
        let key = PrivateKey::from_pem(key).map_err(|error| ClientError::BadTarget {
            why: format!("the key of the client certificate has no private key in PEM: {error}"),
        })?;
        Ok(ClientCert::new_with_certs(&chain, key))
    });
    Ok(TlsConfig::builder()
        .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()))
        .root_certs(RootCerts::new_with_certs(&roots))
        .client_cert(client.transpose()?)
        .build())
}

/// The certificates of a PEM file; at least one.
fn certificates(pem: &[u8], what: &str) -> Result<Vec<Certificate<'static>>, ClientError> {
    let found: Vec<Certificate<'static>> = parse_pem(pem)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    if found.is_empty() {
        let why = format!("{what} has no certificate in PEM (-----BEGIN CERTIFICATE-----)");
        return Err(ClientError::BadTarget { why });
    }
    Ok(found)
}

fn system_roots() -> Result<Vec<Certificate<'static>>, ClientError> {
    let found = rustls_native_certs::load_native_certs();
    let roots: Vec<Certificate<'static>> = found
        .certs
        .iter()
        .map(|der| Certificate::from_der(der).to_owned())
        .collect();
    if roots.is_empty() {
        let why = "this system has no CA certificates; name the file with that of the server with --tls-ca";
        return Err(ClientError::BadTarget {
            why: why.to_owned(),
        });
    }
    Ok(roots)
}

/// The error of TLS in that of a connection.
pub(super) fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

/// Why TLS failed, with a remedy.
pub(super) fn tls_cause(error: &rustls::Error) -> String {
    use rustls::{AlertDescription as Alert, CertificateError as Bad, Error};
    match error {
        Error::InvalidCertificate(Bad::UnknownIssuer) => {
            "its certificate is signed by an unknown CA; name the file with that CA with --tls-ca"
                .to_owned()
        }
        Error::InvalidCertificate(Bad::Expired | Bad::ExpiredContext { .. }) => {
            format!("{error}; renew it")
        }
        Error::InvalidCertificate(Bad::NotValidForName | Bad::NotValidForNameContext { .. }) => {
            format!("{error}; give the name in the certificate with --tls-name")
        }
        Error::AlertReceived(
            Alert::CertificateRequired
            | Alert::BadCertificate
            | Alert::UnknownCA
            | Alert::HandshakeFailure
            | Alert::CertificateUnknown,
        ) => format!(
            "{error}; does it want a client certificate (--tls-cert and --tls-key), and another one?"
        ),
        Error::InvalidMessage(_) => format!("{error}; is it TLS that this port expects?"),
        _ => error.to_string(),
    }
}

/// Resolves every name to the addresses of one host: the server's certificate has another name than its address.
#[derive(Debug)]
struct Elsewhere(Uri);

impl Resolver for Elsewhere {
    fn resolve(
        &self,
        _uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        DefaultResolver::default().resolve(&self.0, config, timeout)
    }
}

/// Resolves nothing: a socket has no address.
#[derive(Debug)]
struct Nowhere;

impl Resolver for Nowhere {
    fn resolve(
        &self,
        _uri: &Uri,
        _config: &Config,
        _timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        Ok(self.empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_checked_before_it_is_used() {
        for (url, told) in [
            ("http://127.0.0.1:99999", "has the port \"99999\""),
            ("127.0.0.1:0", "has the port \"0\""),
            ("socks5://127.0.0.1:1080", "is not one of HTTP"),
            ("http://u:geheim@127.0.0.1:", "has the port \"\""),
            ("http://", "is invalid"),
        ] {
            let error = proxy(url).expect_err(url).to_string();
            assert!(error.contains(told), "{url}: {error}");
            assert!(!error.contains("geheim"), "{error}");
        }
        for good in ["http://127.0.0.1:3128", "proxy:3128", "https://u:p@proxy"] {
            assert!(proxy(good).is_ok(), "{good}");
        }
    }
}
