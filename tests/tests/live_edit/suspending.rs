//! Ctrl-Z, and what else stops the app in a shell.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::{Config, EDIT_TOKEN, Envoy, Request, Terminal};

/// A program that runs `loudou` and waits for it, as `cargo xtask demo` does.
const WRAPPED: &str = "sh -c '\"$LOUDOU\"; echo $((5*5)) over'\r";

fn envoy() -> Result<Envoy> {
    let envoy = Envoy::start(&Config::new(super::rules()))?;
    let alice = Request::get("/").header("x-user-id", "alice");
    envoy.data().send(&alice)?;
    Ok(envoy)
}

/// The shell has the terminal, with the screen of before.
fn back_in_the_shell(terminal: &mut Terminal) -> Result<()> {
    terminal.shows("Stopped")?;
    terminal.press("echo $((6*7)) here\r")?;
    terminal.shows("42 here")?;
    // The line editor of the shell has bracketed paste on.
    let state = terminal.state();
    let modes = [
        "alternate screen false",
        "hidden cursor false",
        "mouse None",
    ];
    ensure!(modes.iter().all(|mode| state.contains(mode)), "{state}");
    Ok(())
}

/// The process id of the `loudou` that the shell started.
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
    // In raw mode this is a key.
    terminal.press("\u{1a}")?;
    back_in_the_shell(&mut terminal)?;
    terminal.press("clear; fg\r")?;
    terminal.shows("connected")?;
    // From outside.
    let app = loudou(&terminal)?;
    let stopped = Command::new("kill").args(["-s", "TSTP", &app]).status()?;
    ensure!(stopped.success(), "kill -s TSTP");
    back_in_the_shell(&mut terminal)?;
    terminal.press("clear; fg\r")?;
    terminal.shows("connected")?;
    // Ctrl-C is a key, too: the app ends, and its parent goes on.
    terminal.press("\u{3}")?;
    terminal.shows("25 over")?;
    terminal.press("exit\r")?;
    terminal.ended()?;
    envoy.stop()
}

/// Without a shell nobody could continue it.
#[test]
fn without_a_shell_ctrl_z_does_nothing() -> Result<()> {
    let envoy = envoy()?;
    let mut terminal = Terminal::open(&envoy, EDIT_TOKEN, &[])?;
    terminal.shows("alice")?;
    terminal.press("\u{1a}")?;
    terminal.quit()?;
    envoy.stop()
}
