//! TLS for connections from Envoys. A client without a certificate of the right CA is refused.
//!
//! The certificates in `certs/` were made with openssl and are valid for a hundred years.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use loudou_tests::{Relay, Valkey};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::support::file;

/// Sends `GET /healthz` over TLS, with this client certificate.
fn health(relay: &Relay, certificate: Option<&str>) -> Result<String> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(file("ca.pem"))?)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let config = match certificate {
        None => builder.with_no_client_auth(),
        Some(name) => {
            let certificate = CertificateDer::from_pem_file(file(&format!("{name}.pem")))?;
            let key = PrivateKeyDer::from_pem_file(file(&format!("{name}.key")))?;
            builder.with_client_auth_cert(vec![certificate], key)?
        }
    };
    let name = ServerName::try_from("localhost")?;
    let connection = ClientConnection::new(Arc::new(config), name)?;
    let socket = TcpStream::connect(relay.address())?;
    socket.set_read_timeout(Some(Duration::from_secs(20)))?;
    let mut stream = StreamOwned::new(connection, socket);
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
fn a_client_shows_its_certificate() -> Result<()> {
    let valkey = Valkey::start()?;
    let engine = valkey.url();
    let (cert, key, ca) = (file("server.pem"), file("server.key"), file("ca.pem"));
    let tls = ["--engine", &engine, "--tls-cert", &cert, "--tls-key", &key];
    let relay = Relay::launch(&[&tls[..], &["--client-ca", &ca]].concat())?;
    let answer = health(&relay, Some("client"))?;
    assert!(answer.starts_with("HTTP/1.1 "), "{answer}");
    assert!(health(&relay, None).is_err(), "no certificate was needed");
    // A server certificate is not accepted as a client certificate.
    assert!(health(&relay, Some("server")).is_err());
    assert!(relay.http().get("/healthz").is_err(), "no TLS was needed");
    // Without --client-ca, clients need no certificate.
    let relay = Relay::launch(&tls)?;
    assert!(health(&relay, None)?.starts_with("HTTP/1.1 "));
    Ok(())
}

#[test]
fn what_is_wrong_with_files_is_told() {
    let refused = |options: &[&str]| Relay::launch(options).expect_err("refused").to_string();
    let message = refused(&["--tls-cert", "/no/such/file", "--tls-key", "/no/such/file"]);
    assert!(
        message.contains("error: --tls-cert /no/such/file: "),
        "{message}"
    );
    let key = file("server.key");
    let message = refused(&["--tls-cert", &key, "--tls-key", &key]);
    assert!(
        message.contains("no certificate; allowed: certificates in PEM"),
        "{message}"
    );
    let message = refused(&["--engine", "http://user:wine@valkey"]);
    assert!(
        message.contains("\"http://…@valkey\" is not an engine URL; allowed: "),
        "{message}"
    );
    let message = refused(&["--engine", "redis://a", "--engine", "redis://b"]);
    assert!(
        message.contains("--engine: 2 URLs; allowed: one, or several with"),
        "{message}"
    );
    let ca = file("ca.pem");
    let message = refused(&["--engine", "redis://a", "--engine-ca", &ca]);
    assert!(
        message.contains("allowed: URLs that begin with rediss://"),
        "{message}"
    );
    let message = refused(&["--engine", "rediss://a", "--engine-ca", &key]);
    assert!(
        message.contains(&format!("--engine-ca {key}: no certificate; allowed: ")),
        "{message}"
    );
    let message = refused(&["--engine-user", "loudou"]);
    assert!(message.contains("--engine-password-file"), "{message}");
}
