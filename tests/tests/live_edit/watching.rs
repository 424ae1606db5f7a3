//! `--watch` in a terminal, from the first round to Ctrl-C.

use anyhow::{Result, ensure};
use loudou_tests::{Config, EDIT_TOKEN, Envoy, Request, Terminal, loudou_in_terminal};

#[test]
fn a_list_is_redrawn_until_ctrl_c() -> Result<()> {
    let envoy = Envoy::start(&Config::new(super::rules()))?;
    let mut data = envoy.data();
    let mut ask = |user| data.send(&Request::get("/").header("x-user-id", user));
    ask("alice")?;
    let mut command = loudou_in_terminal()?;
    command.args(["buckets", "--watch", "100ms"]);
    command.env("LOUDOU_URL", envoy.admin_url());
    command.env("LOUDOU_TOKEN", EDIT_TOKEN);
    let mut terminal = Terminal::run(command)?;
    let seen = terminal.shows("alice")?;
    ensure!(
        seen.starts_with("every 100ms: loudou buckets --watch 100ms"),
        "{seen}"
    );
    ask("bob")?;
    let seen = terminal.shows("bob")?;
    ensure!(seen.matches("every 100ms").count() == 1, "{seen}");
    terminal.press("\u{3}")?;
    let (code, seen) = terminal.ended()?;
    ensure!(code == 0, "{code}: {seen}");
    envoy.stop()
}
