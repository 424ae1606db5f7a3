//! An engine with TLS: certificates of both sides, users, and the advice in the log if they are wrong.
//!
//! The Valkey of the tests has no TLS, so a proxy in front of it terminates TLS.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::Result;
use loudou_tests::{TempDir, Valkey};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, UnixStream};
use tokio::runtime::{Builder, Runtime};
use tokio_rustls::TlsAcceptor;

use crate::support::{USER, fails, file, works};

/// TLS proxy in front of a Valkey. Dropping it stops the proxy.
struct Tls {
    address: SocketAddr,
    _runtime: Runtime,
}

impl Tls {
    /// Starts a proxy with this certificate. With `is_mutual`, clients need a certificate, too.
    fn start(valkey: &Valkey, certificate: &str, is_mutual: bool) -> Result<Self> {
        let acceptor = TlsAcceptor::from(Arc::new(server(certificate, is_mutual)?));
        let runtime = Builder::new_multi_thread().enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
        let address = listener.local_addr()?;
        let socket = valkey.socket();
        runtime.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (acceptor, socket) = (acceptor.clone(), socket.clone());
                tokio::spawn(async move {
                    let mut client = acceptor.accept(client).await?;
                    let mut server = UnixStream::connect(socket).await?;
                    copy_bidirectional(&mut client, &mut server).await
                });
            }
        });
        Ok(Self {
            address,
            _runtime: runtime,
        })
    }

    /// Returns the URL of the proxy with this host name.
    fn url(&self, host: &str) -> String {
        format!("rediss://{host}:{}", self.address.port())
    }
}

fn server(name: &str, is_mutual: bool) -> Result<ServerConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?;
    let builder = if is_mutual {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(file("ca.pem"))?)?;
        let roots = Arc::new(roots);
        let clients = WebPkiClientVerifier::builder_with_provider(roots, provider).build()?;
        builder.with_client_cert_verifier(clients)
    } else {
        builder.with_no_client_auth()
    };
    let certificate = CertificateDer::from_pem_file(file(&format!("{name}.pem")))?;
    let key = PrivateKeyDer::from_pem_file(file(&format!("{name}.key")))?;
    Ok(builder.with_single_cert(vec![certificate], key)?)
}

#[test]
fn the_engine_shows_its_certificate() -> Result<()> {
    let valkey = Valkey::start()?;
    let tls = Tls::start(&valkey, "server", false)?;
    let (ca, other) = (file("ca.pem"), file("other-ca.pem"));
    for host in ["localhost", "127.0.0.1"] {
        works(&tls.url(host), &["--engine-ca", &ca])?;
    }
    let advice = format!(
        "the engine's certificate is not signed by a CA in --engine-ca {other}; pass the file with its CA \
         certificate"
    );
    for options in [
        &["--engine-ca", &other][..],
        &["--engine-ca", &other, "--cluster"],
    ] {
        fails(&tls.url("localhost"), options, &advice)?;
    }
    let advice = "the engine's certificate is not signed by the system's CA certificates; pass the file with its CA \
                  certificate in --engine-ca";
    fails(&tls.url("localhost"), &[], advice)?;
    let advice =
        "the engine's certificate is not valid for the host in --engine; use a host that it names";
    let elsewhere = Tls::start(&valkey, "elsewhere", false)?;
    fails(
        &elsewhere.url("localhost"),
        &["--engine-ca", &other],
        advice,
    )?;
    let plain = format!("redis://{}", tls.address);
    fails(
        &plain,
        &[],
        "the server does not answer in the Redis protocol; with TLS, the URL begins with rediss://",
    )
}

#[test]
fn the_relay_shows_its_certificate() -> Result<()> {
    let valkey = Valkey::start()?;
    let tls = Tls::start(&valkey, "server", true)?;
    let (ca, cert, key) = (file("ca.pem"), file("client.pem"), file("client.key"));
    let own = [
        "--engine-ca",
        &ca,
        "--engine-cert",
        &cert,
        "--engine-key",
        &key,
    ];
    works(&tls.url("localhost"), &own)?;
    let advice =
        "the engine rejected the relay's certificate; check --engine-cert and --engine-key";
    fails(&tls.url("localhost"), &["--engine-ca", &ca], advice)
}

#[test]
fn a_user_with_a_password() -> Result<()> {
    let valkey = Valkey::start()?;
    valkey.run(&USER)?;
    valkey.run(&["ACL", "SETUSER", "default", "resetpass", ">other"])?;
    let tls = Tls::start(&valkey, "server", false)?;
    let (url, ca, dir) = (
        tls.url("localhost"),
        file("ca.pem"),
        TempDir::new("password")?,
    );
    let as_user = |password: &str, check: &dyn Fn(&[&str]) -> Result<()>| {
        let path = dir.write(password, password)?.display().to_string();
        check(&[
            "--engine-ca",
            &ca,
            "--engine-user",
            "loudou",
            "--engine-password-file",
            &path,
        ])
    };
    as_user("wine", &|options| works(&url, options))?;
    let advice = "the engine rejected the user or the password; check --engine-user and --engine-password-file, \
                  or for a sentinel, its URL";
    as_user("water", &|options| fails(&url, options, advice))?;
    fails(&url, &["--engine-ca", &ca], advice)
}
