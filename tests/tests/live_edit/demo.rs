//! `cargo xtask demo --fleet` in a terminal shows its users and leaves no process behind.

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use loudou_tests::paths::workspace_root;
use loudou_tests::{Terminal, eventually};
use portable_pty::CommandBuilder;

/// Timeout of the start. The demo first builds everything.
const BUILT: Duration = Duration::from_mins(15);
const GONE: Duration = Duration::from_mins(1);
const PARTS: [(&str, usize); 4] = [
    ("envoy", 3),
    ("loudou-relay", 1),
    ("valkey-server", 1),
    ("loudou", 1),
];

/// Returns the names of the processes in the session of a terminal.
fn processes(session: u32) -> Result<Vec<String>> {
    let session = session.to_string();
    let listed = Command::new("ps")
        .args(["-o", "comm=", "--sid", &session])
        .output()?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    Ok(listed.lines().map(|line| line.trim().to_owned()).collect())
}

/// Starts the demo, leaves it with a key, and fails if processes remain.
fn leave_with(key: &str) -> Result<()> {
    let mut command = CommandBuilder::new(env!("CARGO"));
    command.args(["xtask", "demo", "--fleet"]);
    command.cwd(workspace_root());
    let mut terminal = Terminal::run(command)?;
    let session = terminal.pid()?;
    eventually(BUILT, "users on the screen", || {
        let contents = terminal.contents();
        ensure!(!contents.contains("error:"), "{contents}");
        Ok(contents.contains("mallory").then_some(()))
    })?;
    let names = processes(session)?;
    for (part, count) in PARTS {
        let found = names.iter().filter(|name| *name == part).count();
        ensure!(found == count, "{found} of {count} {part}: {names:?}");
    }
    terminal.press(key)?;
    let (code, contents) = terminal.ended()?;
    ensure!(code == 0, "exit code {code}\n{contents}");
    eventually(GONE, "the end of every process", || {
        Ok(processes(session)?.is_empty().then_some(()))
    })
}

/// No process of the demo may remain after `q` or Ctrl-C. The two runs are in one test, because
/// both build.
#[test]
fn the_demo_of_a_fleet_leaves_no_process_behind() -> Result<()> {
    leave_with("q")?;
    leave_with("\u{3}")
}
