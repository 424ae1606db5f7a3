//! The `loudou-relay` program. The library does the work.
#![forbid(unsafe_code)]

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use loudou_relay::options::Options;
use loudou_relay::server;

/// Environment variable with the token.
const TOKEN: &str = "LOUDOU_RELAY_TOKEN";

fn main() -> ExitCode {
    let mut options = Options::parse();
    options.token = std::env::var(TOKEN).ok().filter(|token| !token.is_empty());
    match run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // An error cannot be reported if standard error is closed.
            drop(writeln!(std::io::stderr(), "error: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn run(options: Options) -> Result<(), String> {
    // The Redis client and the TLS server use the crypto provider of the process. Without an installed provider,
    // rustls chooses by crate features, and panics as soon as another crate enables a second provider.
    let provider = rustls::crypto::ring::default_provider();
    if provider.install_default().is_err() {
        return Err("a rustls crypto provider is already installed".to_owned());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| format!("cannot start threads: {error}"))?;
    runtime.block_on(server::run(options))
}
