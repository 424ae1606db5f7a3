//! `loudou demo` and `cargo xtask demo --fleet` show their users in a terminal and leave no process behind.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::paths::{envoy_bin, loudou_bin, workspace_root};
use loudou_tests::process::signal;
use loudou_tests::{Terminal, eventually, wasm_path};
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

/// Returns the processes in the session of a terminal.
fn processes(session: u32) -> Result<Vec<(u32, String)>> {
    let session = session.to_string();
    let listed = Command::new("ps")
        .args(["-o", "pid=,comm=", "--sid", &session])
        .output()?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let processes = listed.lines().map(|line| {
        let (pid, name) = line.trim().split_once(' ').context("no name")?;
        Ok((pid.parse()?, name.trim().to_owned()))
    });
    processes.collect()
}

/// Returns the number of processes with a name in the session of a terminal.
fn number_of(name: &str, session: u32) -> Result<usize> {
    let found = processes(session)?;
    Ok(found.iter().filter(|(_, other)| other == name).count())
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
    for (part, count) in PARTS {
        let found = number_of(part, session)?;
        ensure!(found == count, "{found} of {count} {part}");
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

/// Starts `loudou demo` in a shell, and waits until its users are on the screen. The shell stays until a line is typed,
/// because the system would stop an Envoy whose terminal is gone.
fn demo() -> Result<Terminal> {
    let mut command = CommandBuilder::new("/bin/sh");
    command.args(["-c", "\"$@\"; echo ended; read -r _", "sh"]);
    command.arg(loudou_bin()?);
    command.arg("demo");
    command.arg("--envoy");
    command.arg(envoy_bin()?);
    command.arg("--module");
    command.arg(wasm_path()?);
    command.env("LOUDOU_CONFIG_FILE", "/dev/null");
    let terminal = Terminal::run(command)?;
    terminal.shows("mallory")?;
    Ok(terminal)
}

/// The command stops its Envoy, even if it is killed itself.
#[test]
fn the_demo_of_the_command_leaves_no_process_behind() -> Result<()> {
    for key in ["q", "\u{3}", ""] {
        let mut terminal = demo()?;
        let session = terminal.pid()?;
        ensure!(number_of("envoy", session)? == 1, "no Envoy");
        if key.is_empty() {
            let found = processes(session)?;
            let loudou = found.iter().find(|(_, name)| name == "loudou");
            signal(loudou.context("no loudou")?.0, "KILL")?;
        } else {
            terminal.press(key)?;
        }
        terminal.shows("ended")?;
        eventually(GONE, "the end of Envoy", || {
            Ok((number_of("envoy", session)? == 0).then_some(()))
        })?;
    }
    Ok(())
}
