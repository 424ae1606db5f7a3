//! TLS for connections from Envoys, with client certificates if `--client-ca` is set.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

use crate::files;
use crate::options::Options;

/// Creates the TLS acceptor, or returns `None` if the options do not specify a certificate. Errors name the option.
pub(crate) fn acceptor(options: &Options) -> Result<Option<TlsAcceptor>, String> {
    let (Some(cert), Some(key)) = (&options.tls_cert, &options.tls_key) else {
        return Ok(None);
    };
    let chain = certificates("--tls-cert", cert)?;
    let pem = files::bytes("--tls-key", key)?;
    let key = PrivateKeyDer::from_pem_slice(&pem).map_err(|error| {
        format!(
            "--tls-key {}: {error}; allowed: a key in PEM",
            key.display()
        )
    })?;
    let builder = ServerConfig::builder();
    let builder = match &options.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates("--client-ca", path)? {
                let added = roots.add(certificate);
                added.map_err(|error| format!("--client-ca {}: {error}", path.display()))?;
            }
            let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build();
            let verifier = verifier.map_err(|error| format!("--client-ca: {error}"))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|error| format!("--tls-cert, --tls-key: {error}"))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Some(TlsAcceptor::from(Arc::new(config))))
}

/// Reads the certificates in a PEM file. A file without certificates is an error. Errors name the option.
pub(crate) fn certificates(
    option: &str,
    path: &std::path::Path,
) -> Result<Vec<CertificateDer<'static>>, String> {
    let pem = files::bytes(option, path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let found = found.map_err(|error| format!("{option} {}: {error}", path.display()))?;
    if found.is_empty() {
        let path = path.display();
        return Err(format!(
            "{option} {path}: no certificate; allowed: certificates in PEM"
        ));
    }
    Ok(found)
}
