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

/// File name of the relay program. It is looked up in the directory of `loudou`, then in `PATH`.
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

/// Help text that is printed if the relay is not installed. An installed relay prints its own help.
const NOT_INSTALLED: &str = "\
Start the relay, through which Envoys share limits

The relay is a separate program, loudou-relay, which is not installed here. It must be in the
directory of `loudou` or in PATH; then `loudou relay --help` lists its options. Releases for x86-64
have it beside `loudou`, and `cargo build --release -p loudou-relay` builds it.

docs/how-to/share-one-limit.md explains when Envoys need a relay, and envoy/fleet has an example.
";

/// Replaces this process with the relay. Returns only if the relay cannot be started. If the relay
/// is not installed and its help was requested, prints the help text above instead of failing.
pub(super) fn run(options: &[OsString], out: &mut dyn Write) -> Result<()> {
    let sibling = env::current_exe().ok().and_then(|own| {
        let path = own.parent()?.join(PROGRAM);
        path.is_file().then_some(path)
    });
    let program = sibling.unwrap_or_else(|| PathBuf::from(PROGRAM));
    // With this name, the relay's usage text shows the command as the user typed it.
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
