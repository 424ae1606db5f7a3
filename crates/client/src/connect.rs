//! Connections to an admin listener over TCP, TLS, a Unix socket, or a proxy.

use std::path::Path;
use std::time::Duration;

use ureq::config::Config;
use ureq::http::Uri;
use ureq::tls::TlsConfig;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};
use ureq::{Agent, Proxy};

use super::address::{self, bad, base};
use super::tls::{Tls, config as tls_config};
use super::unix::UnixConnector;
use super::{ClientError, Target};

/// The base URL of an admin API, and the HTTP agent for calls to it.
pub(super) struct Connection {
    pub(super) agent: Agent,
    /// Prefix of each request's URL.
    pub(super) base: String,
}

/// Creates a connection to `target`. `timeout` applies to each call separately.
pub(super) fn connection(target: &Target, timeout: Duration) -> Result<Connection, ClientError> {
    if let Some(path) = address::socket(&target.url) {
        return Ok(socket(path?, timeout));
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
        // ureq would ask the proxy to connect to the name in the certificate instead of the host.
        let why = "--tls-name does not work through a proxy; except this host with no_proxy";
        return Err(ClientError::BadTarget {
            why: why.to_owned(),
        });
    }
    let proxy = target.proxy.as_deref().map(proxy);
    let config = config(timeout, Some(tls_config(&target.tls)?), proxy.transpose()?);
    match &target.tls.server_name {
        None => Ok(Connection {
            agent: config.new_agent(),
            base,
        }),
        Some(name) => named(&target.url, rest, name, config),
    }
}

/// Parses a proxy address.
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
        // ureq would ignore the proxy and connect directly.
        return Err(wrong("is not one of HTTP".to_owned()));
    }
    address::check_authority(&uri).map_err(wrong)?;
    Proxy::new(url).map_err(|error| wrong(format!("cannot be used: {error}")))
}

/// Creates a connection to the Unix socket at this path.
fn socket(path: &Path, timeout: Duration) -> Connection {
    let connector = UnixConnector(path.to_owned());
    Connection {
        agent: Agent::with_parts(config(timeout, None, None), connector, Nowhere),
        // HTTP requires a host name. The admin API accepts `localhost` on local sockets.
        base: "http://localhost".to_owned(),
    }
}

/// Creates a TLS connection to the address `rest`. The server's certificate must be valid for
/// `name`.
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
    // Characters that are invalid in a host name, such as a slash, would change other parts of the
    // URL.
    let is_name = |uri: Uri| uri.host() == Some(name) && !name.is_empty();
    if !base.parse().is_ok_and(is_name) {
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

/// Resolves every name to the addresses of one host. Used when the name in the server's certificate
/// differs from the server's host name.
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

/// Never resolves any addresses, because a Unix socket does not need them.
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
    fn a_name_in_a_certificate_is_a_host_name() {
        let named = |name: &str| {
            let config = config(Duration::from_secs(1), None, None);
            named("https://127.0.0.1:1", "127.0.0.1:1", name, config).is_ok()
        };
        assert!(named("envoy.example.com"));
        for bad in ["", "a/b", "a:1", "u@a", "a b", "a?b"] {
            assert!(!named(bad), "{bad:?}");
        }
    }

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
