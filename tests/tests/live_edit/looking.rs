//! The config file, colours and the mouse in a terminal.

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::{Config, EDIT_TOKEN, Envoy, Request, TempDir, Terminal, loudou_in_terminal};
use serde_json::json;

#[test]
fn a_config_file_and_a_click_on_a_tab() -> Result<()> {
    let envoy = Envoy::start(&Config::new(super::rules()))?;
    envoy
        .data()
        .send(&Request::get("/").header("x-user-id", "alice"))?;
    let folder = TempDir::new("looking")?;
    let file = folder.path().join("config.toml");
    let text = format!(
        "url = \"@here\"\n[targets.here]\nurl = \"{}\"\ntoken_file = \"token\"\n\
         [screen]\ntheme = \"light\"\nascii = true\n",
        envoy.admin_url()
    );
    fs::write(&file, text)?;
    fs::write(folder.path().join("token"), EDIT_TOKEN)?;
    for name in ["config.toml", "token"] {
        fs::set_permissions(folder.path().join(name), Permissions::from_mode(0o600))?;
    }
    let mut command = loudou_in_terminal()?;
    command.env("LOUDOU_CONFIG_FILE", &file);
    for name in [
        "LOUDOU_URL",
        "LOUDOU_TOKEN",
        "LOUDOU_TOKEN_FILE",
        "LOUDOU_THEME",
    ] {
        command.env_remove(name);
    }
    let mut terminal = Terminal::run(command)?;
    let seen = terminal.until("alice", |seen| seen.contains("alice"))?;
    ensure!(seen.is_ascii() && !seen.contains("read-only"), "{seen}");
    let head = seen.lines().next().context("a header")?;
    let at = head.find("3 Rules").context("a tab")?;
    // Mouse coordinates are counted from 1.
    let x = at.saturating_add(1);
    terminal.press(&format!("\u{1b}[<0;{x};1M\u{1b}[<0;{x};1m"))?;
    terminal.shows("mode")?;
    terminal.shows("limits")?;
    terminal.quit()?;
    envoy.stop()
}

/// A terminal with 16 colours must get only the basic colour codes, and a terminal with 256 colours
/// must get the extended codes.
#[test]
fn colours_are_those_of_the_terminal() -> Result<()> {
    let rules = json!([{
        "name": "per-user",
        "key": [{ "header": "x-user-id" }],
        "limits": [{ "algorithm": "funnel", "capacity": 2, "rate": "1/d" }],
    }]);
    let envoy = Envoy::start(&Config::new(rules))?;
    let alice = Request::get("/").header("x-user-id", "alice");
    for _ in 0..4 {
        envoy.data().send(&alice)?;
    }
    for (term, is_basic) in [("xterm", true), ("xterm-256color", false)] {
        let mut command = loudou_in_terminal()?;
        command.env("LOUDOU_URL", envoy.admin_url());
        command.env("LOUDOU_TOKEN", EDIT_TOKEN);
        let mut terminal = Terminal::run_as(term, command)?;
        terminal.shows("refusing")?;
        let bytes = String::from_utf8_lossy(&terminal.first_bytes()).into_owned();
        let has_many = ["38;5;", "48;5;", "38;2;", "48;2;"]
            .iter()
            .any(|form| bytes.contains(form));
        ensure!(has_many != is_basic, "{term}: {bytes:?}");
        let has_basic = (30..38)
            .chain(90..98)
            .any(|color| bytes.contains(&format!("\u{1b}[{color};")));
        ensure!(!is_basic || has_basic, "{term}: {bytes:?}");
        terminal.press("q")?;
        terminal.ended()?;
    }
    // The program name is dark blue on a light background, unless the user selects a theme.
    for (background, theme, name) in [
        ("ffff/ffff/ffff", None, 25),
        ("1e1e/1e1e/1e1e", None, 81),
        ("ffff/ffff/ffff", Some("dark"), 81),
    ] {
        let mut command = loudou_in_terminal()?;
        command.env("LOUDOU_URL", envoy.admin_url());
        command.env("LOUDOU_TOKEN", EDIT_TOKEN);
        command.env_remove("LOUDOU_THEME");
        if let Some(theme) = theme {
            command.env("LOUDOU_THEME", theme);
        }
        let mut terminal = Terminal::run_on("xterm-256color", background, command)?;
        terminal.shows("refusing")?;
        let bytes = String::from_utf8_lossy(&terminal.first_bytes()).into_owned();
        let asks = bytes.contains("\u{1b}]11;?");
        ensure!(asks == theme.is_none(), "{background} {theme:?}");
        let ink = format!("38;5;{name};");
        ensure!(bytes.contains(&ink), "{background} {theme:?}: {bytes:?}");
        terminal.press("q")?;
        terminal.ended()?;
    }
    envoy.stop()
}

/// Mouse input with the coordinate 0 must not cause a panic. Terminals count cells from 1, but
/// pasted text can contain any bytes.
#[test]
fn a_click_at_zero_is_no_panic() -> Result<()> {
    let silent = TcpListener::bind("127.0.0.1:0")?;
    let mut command = loudou_in_terminal()?;
    command.args(["--url", &format!("http://{}", silent.local_addr()?)]);
    let mut terminal = Terminal::run(command)?;
    terminal.shows("3 Rules")?;
    for input in [
        "[<0;0;5M", "[<0;5;0M", "[<0;0;0m", "[0;0;0M", "[0;0R", "[M   ",
    ] {
        terminal.press(&format!("\u{1b}{input}"))?;
    }
    terminal.press("?")?;
    terminal.shows("freeze")?;
    terminal.press("\u{3}")?;
    let (code, seen) = terminal.ended()?;
    ensure!(code == 0, "{code}: {seen}");
    Ok(())
}
