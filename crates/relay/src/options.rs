//! Command-line options.

use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Parser;

use crate::log::Level;

/// Leases tokens of fleet-wide limits to Envoys, out of Redis or Valkey
#[derive(Clone, Debug, Parser)]
#[command(name = "loudou-relay", version)]
pub struct Options {
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1:8095", env = "LOUDOU_RELAY_LISTEN")]
    pub listen: SocketAddr,
    /// URL of the engine: redis://, rediss:// (TLS) or unix://. May be repeated for the nodes of a cluster or
    /// for sentinels
    #[arg(
        long,
        value_name = "URL",
        default_value = "redis://127.0.0.1:6379",
        env = "LOUDOU_RELAY_ENGINE",
        value_delimiter = ',',
        hide_env_values = true
    )]
    pub engine: Vec<String>,
    /// Treat the engine as a Redis or Valkey cluster
    #[arg(long, conflicts_with = "sentinel_master")]
    pub cluster: bool,
    /// Name of the engine's master; --engine then names its sentinels
    #[arg(long, value_name = "NAME")]
    pub sentinel_master: Option<String>,
    /// ACL user of the engine
    #[arg(long, value_name = "NAME", requires = "engine_password_file")]
    pub engine_user: Option<String>,
    /// File with the password of the engine
    #[arg(long, value_name = "FILE")]
    pub engine_password_file: Option<PathBuf>,
    /// File with the CA certificates (PEM) for the engine, instead of the system's
    #[arg(long, value_name = "FILE")]
    pub engine_ca: Option<PathBuf>,
    /// File with the relay's client certificate (PEM) for the engine
    #[arg(long, value_name = "FILE", requires = "engine_key")]
    pub engine_cert: Option<PathBuf>,
    /// File with the key of --engine-cert
    #[arg(long, value_name = "FILE", requires = "engine_cert")]
    pub engine_key: Option<PathBuf>,
    /// File with the token that Envoys send (`authorization: Bearer TOKEN`). The variable
    /// `LOUDOU_RELAY_TOKEN` can contain the token instead
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// The token from the environment. There is no option for the token itself, because other users of the machine can
    /// read the command line
    #[arg(skip)]
    pub token: Option<String>,
    /// File with the relay's server certificate (PEM). Envoys must then connect with TLS
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// File with the key of --tls-cert
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// File with the CA certificates (PEM) for Envoys' client certificates. Other clients are refused
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub client_ca: Option<PathBuf>,
    /// Maximum time that a call waits for the engine, in milliseconds [default: half of the Envoy's request
    /// timeout]
    #[arg(long, value_name = "MS", value_parser = |text: &str| within(text, 1_u64..=10_000))]
    pub timeout_ms: Option<u64>,
    /// Maximum number of concurrent calls; further calls get 503
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = |text: &str| within(text, 1_u32..=65_536))]
    pub max_calls: u32,
    /// Maximum number of open connections. A small reserve serves one request on each further connection. With
    /// HTTP/2, each Envoy opens workers + 1 connections to each relay
    #[arg(long, value_name = "N", default_value_t = 8_192, value_parser = |text: &str| within(text, 1_u32..=1_000_000))]
    pub max_connections: u32,
    /// Maximum number of open connections per address without a valid token so far [default: a quarter of
    /// --max-connections]
    #[arg(long, value_name = "N", value_parser = |text: &str| within(text, 1_u32..=1_000_000))]
    pub max_peer_connections: Option<u32>,
    /// Maximum time that a shutdown waits for running calls, in seconds
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = |text: &str| within(text, 0_u64..=3_600))]
    pub drain_s: u64,
    /// Log level. Logs are JSON on standard error
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log_level: Level,
}

/// Parses a whole number within the given bounds. The error states the bounds.
fn within<N: FromStr + PartialOrd + Display>(
    text: &str,
    bounds: RangeInclusive<N>,
) -> Result<N, String> {
    let number = text.parse().ok().filter(|number| bounds.contains(number));
    let (least, most) = (bounds.start(), bounds.end());
    number.ok_or_else(|| format!("write a whole number from {least} to {most}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(arguments: &[&str]) -> String {
        let all = ["loudou-relay"].iter().chain(arguments);
        Options::try_parse_from(all)
            .expect_err("refused")
            .to_string()
    }

    #[test]
    fn an_error_names_option_value_and_allowed_values() {
        let message = refused(&["--timeout-ms", "0"]);
        assert!(message.contains("'0' for '--timeout-ms"), "{message}");
        assert!(
            message.contains("write a whole number from 1 to 10000"),
            "{message}"
        );
        let message = refused(&["--log-level", "inf"]);
        assert!(
            message.contains("possible values: error, warn, info, debug"),
            "{message}"
        );
        assert!(message.contains("'info'"), "{message}");
        let message = refused(&["--listn", "1"]);
        assert!(message.contains("'--listen'"), "{message}");
        let message = refused(&["--cluster", "--sentinel-master", "m"]);
        assert!(message.contains("cannot be used with"), "{message}");
    }
}
