//! An edit for two Envoys on one screen, of which one is away: it comes back as it was, or as another process.

use anyhow::{Result, ensure};
use loudou_tests::{Envoy, Operator, Request, Terminal};
use serde_json::json;

use super::several::{config, is_banned, signal, watch};

/// Checks that an Envoy admits this many requests of a key that it has not seen.
fn admits(envoy: &Envoy, user: &str, capacity: usize) -> Result<()> {
    let request = Request::get("/").header("x-user-id", user);
    let mut http = envoy.data();
    let mut admitted = 0;
    while http.send(&request)?.status == 200 {
        admitted += 1;
        ensure!(admitted <= capacity, "{user}: more than {capacity}");
    }
    ensure!(
        admitted == capacity,
        "{user}: {admitted} in place of {capacity}"
    );
    Ok(())
}

/// Stops an Envoy, and waits on Targets until the screen knows it: what is sent to it then waits.
fn leave(terminal: &mut Terminal, envoy: &Envoy) -> Result<()> {
    signal(envoy, "-STOP")?;
    terminal.press("7")?;
    terminal.until("one that is away", |screen| {
        let listed = screen.lines().filter(|line| line.contains("http://"));
        listed.filter(|line| line.contains('○')).count() == 1
    })?;
    Ok(())
}

/// Edits the capacity of the rule at both.
fn edit_both(terminal: &mut Terminal, capacity: &str) -> Result<()> {
    terminal.press("1")?;
    terminal.shows("mallory")?;
    terminal.press("e")?;
    terminal.shows("capacity")?;
    terminal.press(capacity)?;
    terminal.press("\r")?;
    terminal.shows("yes, at all 2")?;
    terminal.press("a")?;
    Ok(())
}

#[test]
fn an_edit_for_both_reaches_the_one_that_was_away() -> Result<()> {
    let (first, second) = (Envoy::start(&config())?, Envoy::start(&config())?);
    let mut terminal = watch(&first, &second)?;
    leave(&mut terminal, &second)?;
    edit_both(&mut terminal, "5")?;
    let url = second.admin_url();
    terminal.shows(&format!("done here, waits at 1 of 2 Envoys: {url}"))?;
    admits(&first, "alice", 5)?;
    signal(&second, "-CONT")?;
    terminal.press("7")?;
    let screen = terminal.until("both done", |screen| screen.matches("done: ").count() == 2)?;
    for envoy in [&first, &second] {
        let url = envoy.admin_url();
        let result = |line: &str| line.contains(&url) && line.contains("done: ");
        ensure!(screen.lines().any(result), "{url}:\n{screen}");
    }
    admits(&second, "alice", 5)?;
    terminal.quit()?;
    first.stop()?;
    second.stop()
}

/// It comes back without its edit and its ban: the change fails there until these are applied again, with one key.
#[test]
fn an_edit_for_both_fails_where_envoy_restarted() -> Result<()> {
    let (first, second) = (Envoy::start(&config())?, Envoy::start(&config())?);
    let mut terminal = watch(&first, &second)?;
    let rate = json!({ "limits": [{ "algorithm": "funnel", "capacity": 1, "rate": "2/d" }] });
    for envoy in [&first, &second] {
        Operator::editor(envoy).edit("per-user", "", &rate)?;
    }
    Operator::editor(&second).ban("per-user", "mallory", "")?;
    // The screen has seen them.
    terminal.press("1t")?;
    terminal.until("the other Envoy", |screen| {
        ["2/2", "banned", "generation 2"]
            .iter()
            .all(|seen| screen.contains(seen))
    })?;
    terminal.press("t")?;
    terminal.shows("1/2")?;
    leave(&mut terminal, &second)?;
    edit_both(&mut terminal, "5")?;
    terminal.shows("waits at 1 of 2 Envoys")?;
    let second = second.restart(&config())?;
    terminal.shows(&format!("FAILED at {}", second.admin_url()))?;
    terminal.press("7")?;
    terminal.shows(
        "FAILED: restarted, a applies again what it lost, then repeat this: 1 ban, 1 edit",
    )?;
    ensure!(!is_banned(&second)?, "it is as configured");
    admits(&second, "alice", 1)?;
    // From here, where nothing is lost.
    terminal.press("1")?;
    terminal.shows("1/2")?;
    terminal.press("a")?;
    terminal.shows("Apply again?")?;
    terminal.shows(&format!("At {}:", second.admin_url()))?;
    terminal.press("\r")?;
    terminal.shows("applied again: 1 ban, 1 edit")?;
    ensure!(is_banned(&second)?, "the ban is back");
    edit_both(&mut terminal, "6")?;
    terminal.shows("done at 2 of 2 Envoys")?;
    for envoy in [&first, &second] {
        admits(envoy, "bob", 6)?;
    }
    terminal.quit()?;
    first.stop()?;
    second.stop()
}
