//! Suspending the app in a shell, by Ctrl-Z or by a signal.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::{Config, EDIT_TOKEN, Envoy, Request, Terminal};

/// A command line that runs `loudou` as a child of another program and waits for it, in the way of
/// `cargo xtask demo`.
const WRAPPED: &str = "sh -c '\"$LOUDOU\"; echo $((5*5)) over'\r";

fn envoy() -> Result<Envoy> {
    let envoy = Envoy::start(&Config::new(super::rules()))?;
    let alice = Request::get("/").header("x-user-id", "alice");
    envoy.data().send(&alice)?;
    Ok(envoy)
}

/// Fails unless the shell has the terminal again, with the previous screen.
fn back_in_the_shell(terminal: &mut Terminal) -> Result<()> {
    terminal.shows("Stopped")?;
    terminal.press("echo $((6*7)) here\r")?;
    terminal.shows("42 here")?;
    // Bracketed paste is not checked, because the line editor of the shell enables it.
    let state = terminal.state();
    let modes = [
        "alternate screen false",
        "hidden cursor false",
        "mouse None",
    ];
    ensure!(modes.iter().all(|mode| state.contains(mode)), "{state}");
    Ok(())
}

/// Returns the process id of the `loudou` that runs in the shell's session.
fn loudou(terminal: &Terminal) -> Result<String> {
    let shell = terminal.pid()?.to_string();
    let listed = Command::new("ps")
        .args(["-o", "pid=,comm=", "--sid", &shell])
        .output()?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let mut lines = listed.lines().map(str::trim);
    let line = lines.find(|line| line.ends_with("loudou"));
    let pid = line.and_then(|line| line.split(' ').next());
    Ok(pid.with_context(|| listed.clone())?.to_owned())
}

#[test]
fn a_stopped_app_gives_the_terminal_back_to_the_shell() -> Result<()> {
    let envoy = envoy()?;
    let mut terminal = Terminal::shell(&envoy, EDIT_TOKEN)?;
    terminal.shows("ready>")?;
    terminal.press(WRAPPED)?;
    terminal.shows("alice")?;
    // In raw mode, Ctrl-Z is an ordinary key.
    terminal.press("\u{1a}")?;
    back_in_the_shell(&mut terminal)?;
    terminal.press("clear; fg\r")?;
    terminal.shows("connected")?;
    // Suspend the app from outside.
    let app = loudou(&terminal)?;
    let stopped = Command::new("kill").args(["-s", "TSTP", &app]).status()?;
    ensure!(stopped.success(), "kill -s TSTP");
    back_in_the_shell(&mut terminal)?;
    terminal.press("clear; fg\r")?;
    terminal.shows("connected")?;
    // Ctrl-C is an ordinary key too. The app ends, and its parent continues.
    terminal.press("\u{3}")?;
    terminal.shows("25 over")?;
    terminal.press("exit\r")?;
    terminal.ended()?;
    envoy.stop()
}

/// Without a shell, no process could continue the app, so Ctrl-Z must do nothing.
#[test]
fn without_a_shell_ctrl_z_does_nothing() -> Result<()> {
    let envoy = envoy()?;
    let mut terminal = Terminal::open(&envoy, EDIT_TOKEN, &[])?;
    terminal.shows("alice")?;
    terminal.press("\u{1a}")?;
    terminal.quit()?;
    envoy.stop()
}
