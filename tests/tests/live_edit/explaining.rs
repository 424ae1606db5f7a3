//! Explanations on the screen, answered by a real Envoy.

use super::*;

/// The explain form, opened from the row of a refused key, must show the decision about that key.
#[test]
fn a_refused_key_is_explained_from_its_row() -> Result<()> {
    let envoy = Envoy::start(&Config::new(rules()))?;
    let alice = Request::get("/").header("x-user-id", "alice");
    let mut statuses = Vec::new();
    let mut data = envoy.data();
    for _ in 0..7 {
        statuses.push(data.send(&alice)?.status);
    }
    ensure!(statuses.contains(&429), "{statuses:?}");
    let mut terminal = Terminal::open(&envoy, EDIT_TOKEN, &[])?;
    terminal.shows("alice")?;
    terminal.press("x")?;
    terminal.shows("x-user-id: alice")?;
    terminal.press("\r")?;
    terminal.until("the decision", |screen| {
        screen.contains("GET / is ") && screen.contains("key: alice") && screen.contains("burst")
    })?;
    // A second request has no user, so it has no key for the rule.
    terminal.press("\u{1b}")?;
    terminal.shows("explain a request")?;
    terminal.press("\t\t\t")?;
    terminal.press("\u{15}")?;
    terminal.press("\r")?;
    terminal.shows("the request has no key")?;
    terminal.press("\u{1b}")?;
    terminal.shows("explain a request")?;
    terminal.press("\u{1b}")?;
    terminal.until("the form is closed", |screen| {
        !screen.contains("explain a request")
    })?;
    terminal.quit()?;
    envoy.stop()
}
