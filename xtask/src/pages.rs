//! Opens two kinds of pages in a headless Chromium, if one is installed: the reports of `loudou replay --output html`,
//! and the playground. A report must load nothing, run no scripts and log nothing to the console, even if the replayed
//! log is hostile.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use loudou_tests::paths::{target_dir, workspace_root};
use serde_json::json;

use crate::playground;
use crate::setup::chromium::Chromium;

mod devtools;
mod in_browser;

/// Prefix of console lines in Chromium's log.
const CONSOLE: &str = ":CONSOLE";
/// Tags of elements that load or run something.
const ACTIVE: [&str; 7] = [
    "<script", "<img", "<iframe", "<object", "<embed", "<link", "<base",
];
/// Keys that contain markup, to attack the report.
const KEYS: [&str; 6] = [
    "<script>alert(1)</script>",
    "\"><img src=https://example.com/x onerror=alert(1)>",
    "</style><link rel=stylesheet href=https://example.com/x>",
    "</title></svg><script src=https://example.com/x></script>",
    "]]><iframe src=https://example.com>",
    "a\u{202e}b",
];
/// A page that does what a report must never do.
const GUILTY: &str = "<!doctype html><meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'\">\
                      <title>x</title><script>alert(1)</script><img src=https://example.com/x>";

/// Checks pages of every kind, which the `loudou` command generates; `loudou` builds the command. Returns the reason if
/// Chromium is not installed.
pub(crate) fn check(loudou: impl FnOnce() -> Result<PathBuf>) -> Result<Option<String>> {
    let Some(chromium) = Chromium::find() else {
        return Ok(Some(
            "Chromium is not installed, and `cargo xtask setup` cannot bring it here".to_owned(),
        ));
    };
    let loudou = loudou()?;
    let place = target_dir().join("pages");
    fs::create_dir_all(&place).context("cannot make a folder")?;
    let log = place.join("<img src=x>.jsonl");
    fs::write(&log, hostile_log()).context("cannot write a log")?;
    // This page must be detected; otherwise a broken detector would let every page pass.
    let guilty = place.join("guilty.html");
    fs::write(&guilty, GUILTY).context("cannot write a page")?;
    let seen = open(&chromium, &guilty)?;
    ensure!(
        !seen.console.is_empty() && !seen.active.is_empty(),
        "Chromium does not report what a page does"
    );
    let traces = workspace_root().join("tests/traces/summaries");
    let [rules, other] = ["summary.rules.json", "other.rules.yaml"].map(|name| traces.join(name));
    let (rules, other) = (rules.to_string_lossy(), other.to_string_lossy());
    let pages: [(&str, &[&str]); 3] = [
        ("one", &["--config", &rules]),
        ("two", &["--config", &rules, "--compare", &other]),
        ("suggest", &["--config", &rules, "--suggest"]),
    ];
    for (name, options) in pages {
        let page = place.join(format!("{name}.html"));
        let mut replay = Command::new(&loudou);
        replay.args(["replay", "--output", "html", "--trace"]);
        let output = replay.arg(&log).args(options).output()?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{name}: {errors}");
        fs::write(&page, output.stdout).context("cannot write a page")?;
        let seen = open(&chromium, &page)?;
        let (console, active) = (seen.console.join("\n"), seen.active.join(", "));
        ensure!(console.is_empty(), "{name}: the console has {console}");
        ensure!(active.is_empty(), "{name}: the page has {active}");
        ensure!(seen.is_whole, "{name}: the page has no end");
        println!("{}: ok", page.display());
    }
    in_browser::check(&chromium, &playground::build()?, &loudou)
}

fn hostile_log() -> String {
    let keys = KEYS.iter().cycle().take(60 * KEYS.len());
    let lines = (0_u64..).zip(keys).map(|(number, key)| {
        let line = json!({
            "at_ns": number * 100_000_000, "path": "/shaped", "source": "10.0.0.1",
            "headers": { "x-user-id": key },
        });
        format!("{line}\n{key}\n")
    });
    lines.collect()
}

/// What Chromium shows and logs for a page.
struct Seen {
    /// Errors, warnings and blocked requests.
    console: Vec<String>,
    active: Vec<&'static str>,
    is_whole: bool,
}

fn open(chromium: &Chromium, page: &Path) -> Result<Seen> {
    let profile = target_dir().join("pages/profile");
    let mut command = chromium.command();
    command
        // Chromium needs `--no-sandbox` to run as root, for example in a container. This is safe because the check
        // generates the pages itself.
        .args(["--headless", "--no-sandbox", "--disable-gpu"])
        .args(["--enable-logging=stderr", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(page)
        .stdin(Stdio::null());
    let output = command.output().context("cannot run Chromium")?;
    let log = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "Chromium failed: {log}");
    let document = String::from_utf8_lossy(&output.stdout);
    let console = log.lines().filter(|line| line.contains(CONSOLE));
    let active = ACTIVE.into_iter();
    Ok(Seen {
        console: console.map(str::to_owned).collect(),
        active: active.filter(|name| document.contains(name)).collect(),
        is_whole: document.contains("</footer>"),
    })
}
