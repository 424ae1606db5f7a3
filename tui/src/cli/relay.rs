//! `loudou relay`: becomes the relay, which is a program of its own, so that this one does not carry it.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Error, anyhow};
use clap::Args;

/// The program: beside this one, or on `PATH`.
const PROGRAM: &str = "loudou-relay";

#[derive(Debug, Args)]
pub(super) struct RelayArgs {
    /// Options of the relay; `loudou relay --help` lists them
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "OPTION"
    )]
    pub(super) options: Vec<OsString>,
}

/// Returns only if the relay cannot be started.
pub(super) fn run(options: &[OsString]) -> Error {
    let sibling = env::current_exe().ok().and_then(|own| {
        let path = own.parent()?.join(PROGRAM);
        path.is_file().then_some(path)
    });
    let program = sibling.unwrap_or_else(|| PathBuf::from(PROGRAM));
    // Its usage then names the command that was typed.
    let error = Command::new(&program)
        .arg0("loudou relay")
        .args(options)
        .exec();
    anyhow!(
        "cannot start {}: {error}; it must be in the directory of `loudou` or in PATH (`cargo build -p loudou-relay`)",
        program.display()
    )
}
