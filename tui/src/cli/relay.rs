//! Implements `loudou relay`, which replaces this process with the relay. The relay is a separate
//! program, so that `loudou` does not contain its code.

use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, bail};
use clap::Args;

/// Name of the program. It is looked up in this program's directory, then in `PATH`.
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

/// Help text if the relay, which has its own, is not installed.
const NOT_INSTALLED: &str = "\
Start the relay, through which Envoys share limits

The relay is a separate program, loudou-relay, which is not installed here. It must be in the
directory of `loudou` or in PATH; then `loudou relay --help` lists its options. Releases for x86-64
have it beside `loudou`, and `cargo build --release -p loudou-relay` builds it.

docs/how-to/share-one-limit.md explains when Envoys need a relay, and envoy/fleet has an example.
";

/// Starts the relay. Returns only if it cannot be started, with an error unless the help was
/// requested.
pub(super) fn run(options: &[OsString], out: &mut dyn Write) -> Result<()> {
    let sibling = env::current_exe().ok().and_then(|own| {
        let path = own.parent()?.join(PROGRAM);
        path.is_file().then_some(path)
    });
    let program = sibling.unwrap_or_else(|| PathBuf::from(PROGRAM));
    // The relay's usage text then names the command that was typed.
    let error = Command::new(&program)
        .arg0("loudou relay")
        .args(options)
        .exec();
    let asks_for_help = options
        .iter()
        .any(|option| option == "-h" || option == "--help");
    if asks_for_help && error.kind() == io::ErrorKind::NotFound {
        write!(out, "{NOT_INSTALLED}")?;
        return Ok(out.flush()?);
    }
    bail!(
        "cannot start {}: {error}; it must be in the directory of `loudou` or in PATH (`cargo build -p loudou-relay`)",
        program.display()
    )
}
