//! Runs other programs, mostly Cargo, in the workspace root.

use std::env;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::paths::workspace_root;

/// Returns a command that runs the current Cargo with these arguments.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let program = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.args(arguments).current_dir(workspace_root());
    command
}

/// Runs a command that inherits standard input and output. The error of a failed command contains
/// its command line.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let shown = show(command);
    let status = command
        .status()
        .with_context(|| format!("cannot run `{shown}`"))?;
    ensure!(status.success(), "`{shown}` failed: {status}");
    Ok(())
}

/// Formats a command as a user would type it, without the directory of the program.
fn show(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program());
    let name = program.file_name().unwrap_or_else(|| command.get_program());
    let words = std::iter::once(name).chain(command.get_args());
    words
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_command() {
        let error = run(Command::new("/bin/sh").args(["-c", "exit 3"])).expect_err("it fails");
        assert_eq!(error.to_string(), "`sh -c exit 3` failed: exit status: 3");
    }
}
