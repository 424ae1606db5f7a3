//! `loudou-relay`: see the library.
#![forbid(unsafe_code)]

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use loudou_relay::options::Options;
use loudou_relay::server;

/// The variable with the token.
const TOKEN: &str = "LOUDOU_RELAY_TOKEN";

fn main() -> ExitCode {
    let mut options = Options::parse();
    options.token = std::env::var(TOKEN).ok().filter(|token| !token.is_empty());
    match run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody is left to hear of it.
            drop(writeln!(std::io::stderr(), "error: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn run(options: Options) -> Result<(), String> {
    // The engine's client and the server take the one of the process. Without it, they panic as soon as another
    // crate's features bring a second one.
    let provider = rustls::crypto::ring::default_provider();
    if provider.install_default().is_err() {
        return Err("the cryptography is there already".to_owned());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| format!("no threads: {error}"))?;
    runtime.block_on(server::run(options))
}
