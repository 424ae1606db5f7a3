//! The `loudou-relay` program. The library contains the implementation.
#![forbid(unsafe_code)]

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use loudou_relay::options::Options;
use loudou_relay::server;

/// Name of the environment variable that holds the token.
const TOKEN: &str = "LOUDOU_RELAY_TOKEN";

fn main() -> ExitCode {
    let mut options = Options::parse();
    options.token = std::env::var(TOKEN).ok().filter(|token| !token.is_empty());
    match run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If standard error is closed, there is no way to report the error.
            drop(writeln!(std::io::stderr(), "error: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn run(options: Options) -> Result<(), String> {
    // The Redis client and the TLS server use the process-wide crypto provider. If none is installed, rustls selects a
    // provider based on crate features, and panics if another crate enables a second one.
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
