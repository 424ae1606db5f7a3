//! Two Envoys on one screen: one leaves while a change for both is on its way.

use std::process::Command;

use anyhow::{Result, ensure};
use loudou_tests::{Config, EDIT_TOKEN, Envoy, Operator, Request, Terminal};
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

/// The screen of two Envoys, at both of which mallory is refused; on Targets, where both are connected.
pub(super) fn watch(first: &Envoy, second: &Envoy) -> Result<Terminal> {
    for envoy in [first, second] {
        for _ in 0..3 {
            envoy
                .data()
                .send(&Request::get("/").header("x-user-id", "mallory"))?;
        }
    }
    let urls = format!("{},{}", first.admin_url(), second.admin_url());
    let mut terminal = Terminal::open(first, EDIT_TOKEN, &[("LOUDOU_URL", &urls)])?;
    terminal.shows("mallory")?;
    terminal.press("7")?;
    terminal.until("both Envoys", |screen| {
        let listed = screen
            .lines()
            .filter(|line| line.contains("http://") && line.contains('●'));
        listed.count() >= 2
    })?;
    Ok(terminal)
}

/// Another operator has banned the key at one of them before.
#[test]
fn an_undo_for_both_leaves_what_was_there_before() -> Result<()> {
    let (first, second) = (Envoy::start(&config())?, Envoy::start(&config())?);
    let mut terminal = watch(&first, &second)?;
    Operator::editor(&second).ban("per-user", "mallory", "reason=fraud")?;
    terminal.press("1b")?;
    terminal.shows("for ")?;
    terminal.press("\r")?;
    terminal.shows("yes, at all 2")?;
    terminal.press("a7")?;
    terminal.until("both done", |screen| screen.matches("done: ").count() == 2)?;
    ensure!(is_banned(&first)?, "the first Envoy bans");
    terminal.press("u")?;
    terminal.shows("Enter undoes it only at this one")?;
    terminal.press("a")?;
    terminal.shows("done: nothing to undo")?;
    terminal.shows("done: mallory is no longer banned")?;
    ensure!(!is_banned(&first)?, "the first Envoy bans no more");
    ensure!(is_banned(&second)?, "the second Envoy still bans");
    terminal.quit()?;
    first.stop()?;
    second.stop()
}

#[test]
fn one_of_two_envoys_leaves_during_a_change_for_both() -> Result<()> {
    let (first, second) = (Envoy::start(&config())?, Envoy::start(&config())?);
    let mut terminal = watch(&first, &second)?;
    // It does not answer, but it is not dead.
    signal(&second, "-STOP")?;
    terminal.press("1")?;
    terminal.shows("mallory")?;
    terminal.press("b")?;
    terminal.shows("for ")?;
    terminal.press("\r")?;
    terminal.shows("Ban mallory")?;
    terminal.press("a")?;
    terminal.press("7")?;
    terminal.until("one done, one waiting", |screen| {
        screen.contains("done: ") && screen.contains("waits: ")
    })?;
    ensure!(is_banned(&first)?, "the first Envoy bans");
    signal(&second, "-CONT")?;
    terminal.until("both done", |screen| screen.matches("done: ").count() == 2)?;
    ensure!(is_banned(&second)?, "the second Envoy bans, too");
    // The other one has a screen of its own.
    terminal.press("1t")?;
    terminal.until("the other Envoy", |screen| {
        screen.contains("2/2") && screen.contains("mallory")
    })?;
    // The user leaves while a change still waits: it is not lost silently.
    signal(&first, "-STOP")?;
    terminal.press("1")?;
    terminal.shows("mallory")?;
    terminal.press("b")?;
    terminal.shows("yes, at all 2")?;
    terminal.press("a7")?;
    terminal.until("one done, one waiting", |screen| {
        screen.contains("done: ") && screen.contains("waits: ")
    })?;
    terminal.press("q")?;
    let (code, end) = terminal.ended()?;
    ensure!(code == 1, "exit code {code}");
    let end: String = end.lines().collect();
    ensure!(end.contains("was not sent: "), "{end}");
    ensure!(end.contains(&first.admin_url()), "{end}");
    signal(&first, "-CONT")?;
    first.stop()?;
    second.stop()
}
