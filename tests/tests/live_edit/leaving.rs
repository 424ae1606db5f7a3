//! An edit for two Envoys on one screen while the second Envoy is suspended. This Envoy then
//! restarts without its changes.

use anyhow::{Result, ensure};
use loudou_tests::{Envoy, Operator, Request, Terminal};
use serde_json::json;

use super::several::{config, is_banned, leave, watch};

/// Fails unless an Envoy admits exactly `capacity` requests of a new key.
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

/// Edits the capacity of the rule at both Envoys.
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

/// An Envoy restarts without its edit and its ban. One key must apply the lost ban, and the edit
/// made meanwhile at the other Envoy in place of the lost edit.
#[test]
fn what_was_made_while_envoy_restarted_is_applied_with_what_it_lost() -> Result<()> {
    let (first, second) = (Envoy::start(&config())?, Envoy::start(&config())?);
    let mut terminal = watch(&first, &second)?;
    let rate = json!({ "limits": [{ "algorithm": "funnel", "capacity": 1, "rate": "2/d" }] });
    for envoy in [&first, &second] {
        Operator::editor(envoy).edit("per-user", "", &rate)?;
    }
    Operator::editor(&second).ban("per-user", "mallory", "")?;
    // Wait until the screen shows these changes.
    terminal.press("1t")?;
    let [of_first, of_second] =
        [&first, &second].map(|envoy| envoy.admin_url().replace("http://", ""));
    terminal.until("the other Envoy", |screen| {
        [of_second.as_str(), "banned", "generation 2"]
            .iter()
            .all(|seen| screen.contains(seen))
    })?;
    terminal.press("t")?;
    terminal.shows(&of_first)?;
    leave(&mut terminal, &second)?;
    edit_both(&mut terminal, "5")?;
    terminal.shows("done at 1 of 2 Envoys, FAILED at")?;
    let second = second.restart(&config())?;
    terminal.press("7")?;
    terminal.shows("RESTARTED")?;
    ensure!(!is_banned(&second)?, "it is as configured");
    admits(&second, "alice", 1)?;
    // Apply them from the first Envoy, which lost nothing.
    terminal.press("1")?;
    terminal.until("the first Envoy", |screen| {
        screen
            .lines()
            .next()
            .is_some_and(|head| head.contains(&of_first))
    })?;
    terminal.press("a")?;
    terminal.shows("Apply")?;
    terminal.shows(&format!("At {}:", second.admin_url()))?;
    terminal.press("\r")?;
    terminal.shows("applied: 1 ban, 1 edit")?;
    ensure!(is_banned(&second)?, "the ban is back");
    admits(&second, "carol", 5)?;
    edit_both(&mut terminal, "6")?;
    terminal.shows("done at 2 of 2 Envoys")?;
    for envoy in [&first, &second] {
        admits(envoy, "bob", 6)?;
    }
    terminal.quit()?;
    first.stop()?;
    second.stop()
}
