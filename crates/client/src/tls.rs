//! TLS settings, validated before a connection is opened, and TLS errors, with suggested remedies.

use std::io;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{CertificateError, ClientConfig, RootCertStore};
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};

use super::ClientError;

/// Marker found in the PEM file of an encrypted key. Both formats of encrypted keys contain it.
const ENCRYPTED: &[u8] = b"ENCRYPTED";

/// A PEM file that has been read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pem {
    /// Name of the file.
    pub file: String,
    /// Contents of the file.
    pub bytes: Vec<u8>,
}

/// TLS settings for an `https://` address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// CA certificates used to verify the server's certificate. `None` to use the system's CAs.
    pub ca: Option<Pem>,
    /// Certificate chain and private key of this client.
    pub client: Option<(Pem, Pem)>,
    /// Name in the server's certificate, if different from the host in the address.
    pub server_name: Option<String>,
}

/// Converts the settings to a ureq configuration.
pub(super) fn config(tls: &Tls) -> Result<TlsConfig, ClientError> {
    let roots = match &tls.ca {
        Some(pem) => authorities(pem)?,
        None => system_roots()?,
    };
    let client = tls
        .client
        .as_ref()
        .map(|(chain, key)| client_cert(chain, key));
    Ok(TlsConfig::builder()
        .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()))
        .root_certs(RootCerts::new_with_certs(&roots))
        .client_cert(client.transpose()?)
        .build())
}

fn wrong(why: String) -> ClientError {
    ClientError::BadTarget { why }
}

/// Returns the certificates in a PEM file, or an error if there are none.
fn certificates(pem: &Pem, what: &str) -> Result<Vec<CertificateDer<'static>>, ClientError> {
    let found = CertificateDer::pem_slice_iter(&pem.bytes).collect::<Result<Vec<_>, _>>();
    let file = &pem.file;
    let found = found.map_err(|error| wrong(format!("{what} {file} is not valid PEM: {error}")))?;
    if found.is_empty() {
        return Err(wrong(format!(
            "{what} {file} has no certificate in PEM (-----BEGIN CERTIFICATE-----)"
        )));
    }
    Ok(found)
}

/// Returns the CA certificates in a file. At least one of them must be valid.
fn authorities(pem: &Pem) -> Result<Vec<Certificate<'static>>, ClientError> {
    let found = certificates(pem, "the CA file")?;
    let (valid, _) = RootCertStore::empty().add_parsable_certificates(found.iter().cloned());
    if valid == 0 {
        let file = &pem.file;
        return Err(wrong(format!(
            "the CA file {file} has no certificate that can be read"
        )));
    }
    Ok(found.iter().map(for_ureq).collect())
}

fn for_ureq(certificate: &CertificateDer<'_>) -> Certificate<'static> {
    Certificate::from_der(certificate).to_owned()
}

/// Returns the client certificate and its key. The certificate is validated first, because ureq
/// would panic on one that rustls rejects.
fn client_cert(chain: &Pem, key: &Pem) -> Result<ClientCert, ClientError> {
    let certificates = certificates(chain, "the client certificate")?;
    let file = &key.file;
    let der = PrivateKeyDer::from_pem_slice(&key.bytes).map_err(|error| {
        let is_encrypted = key.bytes.windows(ENCRYPTED.len()).any(|it| it == ENCRYPTED);
        wrong(if is_encrypted {
            format!("the key {file} is encrypted; decrypt it: openssl pkey -in {file} -out FILE")
        } else {
            format!("the key {file} has no private key in PEM: {error}")
        })
    })?;
    let provider = Arc::new(ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let checked = builder.and_then(|builder| {
        let builder = builder.with_root_certificates(RootCertStore::empty());
        builder.with_client_auth_cert(certificates.clone(), der)
    });
    checked.map_err(|error| {
        let why = match error {
            rustls::Error::InconsistentKeys(_) => {
                "the key is that of another certificate".to_owned()
            }
            error => error.to_string(),
        };
        let chain = &chain.file;
        wrong(format!(
            "the client certificate {chain} and the key {file} cannot be used: {why}"
        ))
    })?;
    let key = PrivateKey::from_pem(&key.bytes)
        .map_err(|error| wrong(format!("the key {file} has no private key in PEM: {error}")))?;
    let certificates: Vec<Certificate<'static>> = certificates.iter().map(for_ureq).collect();
    Ok(ClientCert::new_with_certs(&certificates, key))
}

fn system_roots() -> Result<Vec<Certificate<'static>>, ClientError> {
    let found = rustls_native_certs::load_native_certs();
    let roots: Vec<Certificate<'static>> = found.certs.iter().map(for_ureq).collect();
    if roots.is_empty() {
        let why = "this system has no CA certificates; name the file with that of the server with --tls-ca";
        return Err(wrong(why.to_owned()));
    }
    Ok(roots)
}

/// Returns the TLS error that caused a connection error, if any.
pub(super) fn error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

/// Explains why TLS failed, and suggests a remedy.
pub(super) fn cause(error: &rustls::Error, has_proxy: bool) -> String {
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
            // `--tls-name` does not work through a proxy, so the message suggests exempting the
            // host from the proxy first.
            let before = if has_proxy {
                "except this host with no_proxy, and "
            } else {
                ""
            };
            format!("{error}; {before}give the name in the certificate with --tls-name")
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
        Error::InvalidCertificate(bad) => certificate(bad),
        Error::AlertReceived(Alert::ProtocolVersion) | Error::PeerIncompatible(_) => {
            format!("the server offers no version or cipher of TLS 1.2 or 1.3 in common ({error})")
        }
        Error::InvalidMessage(_) => {
            "this port does not answer in TLS; if it is right, write http:// instead".to_owned()
        }
        _ => error.to_string(),
    }
}

/// Explains why the server's certificate is not trusted, and suggests a remedy.
fn certificate(bad: &CertificateError) -> String {
    use CertificateError as Bad;
    let why = match bad {
        Bad::BadSignature => {
            "its certificate is not signed by the CA that it names: another CA has this name, too; name the file with \
             the CA that signed it with --tls-ca"
        }
        Bad::NotValidYet | Bad::NotValidYetContext { .. } => {
            "its certificate is not valid yet; compare the clocks of both machines"
        }
        Bad::Revoked => "its certificate was revoked; renew it",
        Bad::BadEncoding => "its certificate cannot be read; renew it",
        // rustls does not export this error's type, so match on its text.
        Bad::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            "its certificate is self-signed, and that of a CA, which no server may show; make one without CA:TRUE \
             (openssl req -x509 -addext basicConstraints=critical,CA:FALSE) and name its file with --tls-ca"
        }
        _ => {
            return format!(
                "its certificate is not trusted ({bad}); renew it, or name its CA with --tls-ca"
            );
        }
    };
    why.to_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier as _;
    use rustls::pki_types::UnixTime;

    use super::*;

    /// Reads a certificate or key used by the relay's tests.
    fn pem(name: &str) -> Pem {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../relay/tests/relay/certs");
        Pem {
            file: name.to_owned(),
            bytes: std::fs::read(format!("{folder}/{name}")).expect(name),
        }
    }

    fn text(name: &str, label: &str, base64: &str) -> Pem {
        let text = format!("-----BEGIN {label}-----\n{base64}\n-----END {label}-----\n");
        Pem {
            file: name.to_owned(),
            bytes: text.into_bytes(),
        }
    }

    fn refused(ca: Option<Pem>, client: Option<(Pem, Pem)>) -> String {
        let ca = ca.or_else(|| Some(pem("ca.pem")));
        let tls = Tls {
            ca,
            client,
            server_name: None,
        };
        config(&tls).expect_err("it is wrong").to_string()
    }

    #[test]
    fn a_certificate_that_does_not_fit_its_key_is_no_panic() {
        let junk = || text("junk.pem", "CERTIFICATE", "AAAA");
        let no_key = || text("junk.key", "PRIVATE KEY", "AAAA");
        for (chain, key, why) in [
            (
                pem("client.pem"),
                pem("server.key"),
                "the key is that of another certificate",
            ),
            (junk(), pem("client.key"), ""),
            (pem("client.pem"), no_key(), ""),
        ] {
            let begin = format!(
                "the client certificate {} and the key {} cannot be used: {why}",
                chain.file, key.file
            );
            let error = refused(None, Some((chain, key)));
            assert!(error.starts_with(&begin), "{error}");
        }
        let fits = Tls {
            ca: Some(pem("ca.pem")),
            client: Some((pem("client.pem"), pem("client.key"))),
            server_name: None,
        };
        assert!(config(&fits).is_ok());
    }

    /// Returns the error message produced when a server presents the certificate `shown` to a
    /// client that trusts the CA `ca`.
    fn distrusted(shown: &str, ca: &str) -> String {
        let read = |name| certificates(&pem(name), "").expect(name).remove(0);
        let mut roots = RootCertStore::empty();
        roots.add(read(ca)).expect("a CA");
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider);
        let verifier = verifier.build().expect("a verifier");
        let name = "localhost".try_into().expect("a name");
        let now = UnixTime::since_unix_epoch(Duration::from_hours(500_000));
        let outcome = verifier.verify_server_cert(&read(shown), &[], &name, &[], now);
        cause(&outcome.expect_err(shown), false)
    }

    #[test]
    fn every_error_has_words_and_a_remedy() {
        for (shown, ca, told) in [
            ("ca.pem", "ca.pem", "is self-signed, and that of a CA"),
            ("server.pem", "same-name-ca.pem", "another CA has this name"),
            ("server.pem", "other-ca.pem", "signed by an unknown CA"),
        ] {
            let error = distrusted(shown, ca);
            assert!(
                error.contains(told) && error.contains("--tls-ca"),
                "{error}"
            );
            for rust in ["Other(", "BadSignature", "CaUsedAsEndEntity"] {
                assert!(!error.contains(rust), "{error}");
            }
        }
        let plain = rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType);
        assert!(cause(&plain, false).contains("write http://"));
    }

    #[test]
    fn errors_name_the_file_and_what_is_wrong() {
        let client = |key| refused(None, Some((pem("client.pem"), key)));
        let encrypted = |label, base64| client(text("my.key", label, base64));
        let header = "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,F40B\n\nAAAA";
        let is_encrypted =
            "the key my.key is encrypted; decrypt it: openssl pkey -in my.key -out FILE";
        for (error, told) in [
            (
                refused(Some(pem("client.key")), None),
                "the CA file client.key has no certificate in PEM",
            ),
            (
                refused(Some(text("ca", "CERTIFICATE", "AAAA")), None),
                "the CA file ca has no certificate that can be read",
            ),
            (
                refused(Some(text("ca", "CERTIFICATE", "?")), None),
                "the CA file ca is not valid PEM",
            ),
            (
                client(pem("client.pem")),
                "the key client.pem has no private key in PEM",
            ),
            (encrypted("ENCRYPTED PRIVATE KEY", "AAAA"), is_encrypted),
            (encrypted("EC PRIVATE KEY", header), is_encrypted),
        ] {
            assert!(error.starts_with(told), "{error}");
        }
    }
}
