//! Two Envoys on one screen. One stops before a change for both, or while the change is being sent.

use std::fs;
use std::process::Command;

use anyhow::{Result, ensure};
use loudou_tests::{Config, EDIT_TOKEN, Envoy, Operator, Request, TempDir, Terminal};
use serde_json::json;

pub(super) fn config() -> Config {
    Config::new(json!([{
        "name": "per-user",
        "key": [{ "header": "x-user-id" }],
        "limits": [{ "algorithm": "funnel", "capacity": 1, "rate": "1/d" }],
    }]))
}

pub(super) fn signal(envoy: &Envoy, name: &str) -> Result<()> {
    let pid = envoy.pid().to_string();
    let done = Command::new("kill").args([name, &pid]).status()?;
    ensure!(done.success(), "kill {name} {pid}");
    Ok(())
}

pub(super) fn is_banned(envoy: &Envoy) -> Result<bool> {
    let bucket = Operator::editor(envoy).bucket("per-user", "mallory")?;
    Ok(bucket.is_some_and(|bucket| bucket.get("ban").is_some_and(|ban| !ban.is_null())))
}

/// Opens the screen of two Envoys, at both of which mallory is refused. Returns when Targets shows
/// both as connected.
pub(super) fn watch(first: &Envoy, second: &Envoy) -> Result<Terminal> {
    watch_with(first, second, &[])
}

/// Like [`watch`], but with more environment variables.
fn watch_with(first: &Envoy, second: &Envoy, more: &[(&str, &str)]) -> Result<Terminal> {
    for envoy in [first, second] {
        for _ in 0..3 {
            envoy
                .data()
                .send(&Request::get("/").header("x-user-id", "mallory"))?;
        }
    }
    let urls = format!("{},{}", first.admin_url(), second.admin_url());
    let environment = [&[("LOUDOU_URL", urls.as_str())], more].concat();
    let mut terminal = Terminal::open(first, EDIT_TOKEN, &environment)?;
    terminal.shows("mallory")?;
    terminal.press("7")?;
    connected(&terminal)?;
    Ok(terminal)
}

/// Waits until Targets shows both Envoys as connected.
pub(super) fn connected(terminal: &Terminal) -> Result<()> {
    terminal.until("both Envoys", |screen| {
        let listed = screen
            .lines()
            .filter(|line| line.contains("http://") && line.contains('●'));
        listed.count() >= 2
    })?;
    Ok(())
}

/// Suspends an Envoy, and waits until Targets shows it as disconnected.
pub(super) fn leave(terminal: &mut Terminal, envoy: &Envoy) -> Result<()> {
    signal(envoy, "-STOP")?;
    terminal.press("7")?;
    terminal.until("one that is away", |screen| {
        let listed = screen.lines().filter(|line| line.contains("http://"));
        listed.filter(|line| line.contains('○')).count() == 1
    })?;
    Ok(())
}

/// A suspended Envoy misses a ban. When it answers again, the screen must offer to apply the ban
/// there.
#[test]
fn a_ban_for_both_is_offered_to_the_one_that_was_away() -> Result<()> {
    let (first, second) = (Envoy::start(&config())?, Envoy::start(&config())?);
    let mut terminal = watch(&first, &second)?;
    leave(&mut terminal, &second)?;
    terminal.press("1")?;
    terminal.shows("mallory")?;
    terminal.press("b")?;
    terminal.shows("for ")?;
    terminal.press("\r")?;
    terminal.shows("Ban mallory")?;
    terminal.press("a")?;
    let url = second.admin_url();
    terminal.shows(&format!("done at 1 of 2 Envoys, FAILED at {url}"))?;
    ensure!(is_banned(&first)?, "the first Envoy bans");
    signal(&second, "-CONT")?;
    terminal.press("7")?;
    connected(&terminal)?;
    ensure!(!is_banned(&second)?, "nothing is sent again by itself");
    // Apply it from the first Envoy, which lacks nothing.
    terminal.press("1a")?;
    terminal.shows("Missing at this Envoy: 1 ban. Apply?")?;
    terminal.shows(&format!("At {url}:"))?;
    terminal.press("\r")?;
    terminal.shows("applied: 1 ban")?;
    ensure!(is_banned(&second)?, "the second Envoy bans, too");
    terminal.quit()?;
    first.stop()?;
    second.stop()
}

/// If the user quits before a change is answered, the program must report the change.
#[test]
fn a_change_without_an_answer_is_named_at_the_end() -> Result<()> {
    let (first, second) = (Envoy::start(&config())?, Envoy::start(&config())?);
    let folder = TempDir::new("patient")?;
    let file = folder.path().join("config.toml");
    fs::write(&file, "timeout = \"10m\"\n")?;
    let file = file.display().to_string();
    let mut terminal = watch_with(&first, &second, &[("LOUDOU_CONFIG_FILE", &file)])?;
    signal(&second, "-STOP")?;
    terminal.press("1")?;
    terminal.shows("mallory")?;
    terminal.press("b")?;
    terminal.shows("for ")?;
    terminal.press("\r")?;
    terminal.shows("yes, at all 2")?;
    terminal.press("a7")?;
    terminal.until("one done, one sent", |screen| {
        screen.contains("done: ") && screen.contains("sending")
    })?;
    terminal.press("q")?;
    let (code, end) = terminal.ended()?;
    ensure!(code == 1, "exit code {code}");
    let end: String = end.lines().collect();
    ensure!(end.contains("was sent, but not answered"), "{end}");
    ensure!(end.contains(&second.admin_url()), "{end}");
    signal(&second, "-CONT")?;
    first.stop()?;
    second.stop()
}
