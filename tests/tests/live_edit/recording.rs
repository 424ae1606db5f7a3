//! A real Envoy under traffic is recorded; played back, the screen has the same numbers.

use std::collections::BTreeSet;
use std::fs::{metadata, read_to_string};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use anyhow::{Context as _, Result, ensure};
use loudou_tests::{
    Config, EDIT_TOKEN, Envoy, Operator, Request, TempDir, Terminal, eventually, loudou_command,
    loudou_in_terminal,
};
use serde_json::Value;

use super::{PATIENCE, rules};

/// A recorder, which is stopped if a test fails.
struct Recorder(Option<Child>);

impl Recorder {
    fn start(envoys: &[&Envoy], file: &Path, more: &[&str]) -> Result<Self> {
        let mut command = loudou_command()?;
        command.arg("record").arg(file).args(more);
        let urls: Vec<String> = envoys.iter().map(|envoy| envoy.admin_url()).collect();
        command.env("LOUDOU_URL", urls.join(","));
        command.env("LOUDOU_TOKEN", EDIT_TOKEN);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(Self(Some(command.spawn()?)))
    }

    /// Sends a signal and waits for the end.
    fn end(mut self, signal: &str) -> Result<Output> {
        let child = self.0.take().context("it has ended")?;
        let pid = child.id().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status()?;
        ensure!(sent.success(), "kill {signal} {pid}");
        Ok(child.wait_with_output()?)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0
            && child.kill().is_ok()
        {
            drop(child.wait());
        }
    }
}

/// The lines of a recording that is being written.
fn lines(file: &Path) -> Result<Vec<Value>> {
    let Ok(text) = read_to_string(file) else {
        return Ok(Vec::new());
    };
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let lines = whole.lines().map(|line| Ok(serde_json::from_str(line)?));
    lines.collect()
}

/// The counts of mallory's bucket: admitted and refused.
fn counts(bucket: &Value) -> Option<(u64, u64)> {
    let count = |name: &str| bucket.get(name)?.as_u64();
    Some((count("admitted")?, count("refused")?))
}

fn recorded(line: &Value) -> Option<(u64, u64)> {
    let buckets = line.pointer("/snapshot/buckets")?.as_array()?;
    let mut buckets = buckets.iter().filter_map(|bucket| bucket.get(1));
    counts(buckets.find(|bucket| bucket.get("key").is_some_and(|key| key == "mallory"))?)
}

fn play(file: &Path) -> Result<Terminal> {
    let mut command = loudou_in_terminal()?;
    command.args(["top", "--play"]);
    command.arg(file);
    Terminal::run(command)
}

#[test]
fn a_recording_shows_what_was_there() -> Result<()> {
    let envoy = Envoy::start(&Config::new(rules()))?;
    let folder = TempDir::new("recording")?;
    let file = folder.path().join("incident.jsonl");
    let recorder = Recorder::start(&[&envoy], &file, &["--interval", "200ms"])?;
    let mut data = envoy.data();
    let mut ask = || data.send(&Request::get("/").header("x-user-id", "mallory"));
    eventually(PATIENCE, "answers under traffic", || {
        ask()?;
        let with_mallory = lines(&file)?.iter().filter_map(recorded).count();
        Ok((with_mallory >= 10).then_some(()))
    })?;
    let bucket = Operator::viewer(&envoy).bucket("per-user", "mallory")?;
    let last = bucket.as_ref().and_then(counts).context("no bucket")?;
    ensure!(last.0 >= 5 && last.1 >= 1, "{last:?}");
    eventually(PATIENCE, "the last counts", || {
        let line = lines(&file)?.pop();
        Ok((line.as_ref().and_then(recorded) == Some(last)).then_some(()))
    })?;
    let output = recorder.end("-INT")?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{said}");
    ensure!(said.contains("recorded 1 Envoy: "), "{said}");
    let text = read_to_string(&file)?;
    ensure!(!text.contains(EDIT_TOKEN), "the token is in the recording");
    ensure!(metadata(&file)?.permissions().mode() & 0o777 == 0o600);
    let end = lines(&file)?.pop().context("no line")?;
    ensure!(
        end.get("end").is_some_and(|end| end == "interrupted"),
        "{end}"
    );
    // Envoy is not there any more.
    envoy.stop()?;
    let mut terminal = play(&file)?;
    terminal.shows("mallory")?;
    terminal.press("]]]]]]")?;
    terminal.shows("recording ends: it was stopped")?;
    terminal.press("\r")?;
    let total = format!("total: admitted {}, refused {}", last.0, last.1);
    terminal.shows(&total)?;
    // Nothing can be changed, and it goes back and stands still.
    terminal.press("b")?;
    terminal.shows("this is a recording")?;
    terminal.press("[[[[[[[[[[\u{1b}[D")?;
    terminal.shows("recording x0.25")?;
    terminal.press(" ")?;
    terminal.shows("recording paused")?;
    terminal.quit()
}

/// A recorder that is killed leaves a file that can be played up to its end.
#[test]
fn a_killed_recorder_leaves_a_recording() -> Result<()> {
    let envoy = Envoy::start(&Config::new(rules()))?;
    let mut data = envoy.data();
    for _ in 0..8 {
        data.send(&Request::get("/").header("x-user-id", "mallory"))?;
    }
    let folder = TempDir::new("killed")?;
    let file = folder.path().join("incident.jsonl.gz");
    let recorder = Recorder::start(&[&envoy], &file, &["--interval", "100ms"])?;
    let mut sizes = BTreeSet::new();
    eventually(PATIENCE, "several answers", || {
        sizes.extend(metadata(&file).map(|file| file.len()));
        Ok((sizes.len() >= 4).then_some(()))
    })?;
    let output = recorder.end("-KILL")?;
    ensure!(!output.status.success());
    let mut terminal = play(&file)?;
    terminal.shows("mallory")?;
    terminal.press("]]]]]]")?;
    terminal.shows("recording ends: the file is cut short after line ")?;
    terminal.quit()?;
    envoy.stop()
}

/// Two Envoys, of which one goes: what was there and that it went away is played.
#[test]
fn several_envoys_are_recorded() -> Result<()> {
    let first = Envoy::start(&Config::new(rules()))?;
    let second = Envoy::start(&Config::new(rules()))?;
    let (one, other) = (first.admin_url(), second.admin_url());
    for (envoy, user) in [(&first, "alice"), (&second, "mallory")] {
        let request = Request::get("/").header("x-user-id", user);
        envoy.data().send(&request)?;
    }
    let folder = TempDir::new("several")?;
    let file = folder.path().join("both.jsonl");
    let recorder = Recorder::start(&[&first, &second], &file, &["--interval", "200ms"])?;
    let has = |field: &str, url: &str| -> Result<Option<()>> {
        let is_it = |line: &Value| line.get(field).is_some() && line["url"] == url;
        Ok(lines(&file)?.iter().any(is_it).then_some(()))
    };
    eventually(PATIENCE, "an answer of the first", || has("snapshot", &one))?;
    eventually(PATIENCE, "mallory's bucket", || {
        let found = lines(&file)?.iter().any(|line| recorded(line).is_some());
        Ok(found.then_some(()))
    })?;
    second.stop()?;
    eventually(PATIENCE, "the other's absence", || has("failed", &other))?;
    let output = recorder.end("-TERM")?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{said}");
    ensure!(said.contains("recorded 2 Envoys: "), "{said}");
    first.stop()?;
    let mut terminal = play(&file)?;
    terminal.shows("alice")?;
    terminal.press("]]]]]]")?;
    terminal.shows("recording ends: it was stopped")?;
    terminal.press("7")?;
    terminal.until("both Envoys, one of them away", |screen| {
        screen.contains(&format!("● {one}")) && screen.contains(&format!("○ {other}"))
    })?;
    terminal.press("1t")?;
    terminal.until("the other's last answer", |screen| {
        screen.contains("2/2") && screen.contains("mallory")
    })?;
    terminal.quit()
}

#[test]
fn a_time_or_a_size_ends_a_recording() -> Result<()> {
    let envoy = Envoy::start(&Config::new(rules()))?;
    let folder = TempDir::new("bounded")?;
    let record = |name: &str, more: &[&str]| -> Result<(Output, Vec<Value>)> {
        let file = folder.path().join(name);
        let mut command = loudou_command()?;
        command.arg("record").arg(&file).args(more);
        command.env("LOUDOU_URL", envoy.admin_url());
        command.env("LOUDOU_TOKEN", EDIT_TOKEN);
        let output = command.output()?;
        Ok((output, lines(&file)?))
    };
    let (output, lines) = record("time.jsonl", &["--for", "1s", "--interval", "100ms"])?;
    ensure!(output.status.success(), "{output:?}");
    ensure!(lines.len() > 4, "{}", lines.len());
    let end = |lines: &[Value]| lines.last().and_then(|line| line.get("end")).cloned();
    ensure!(end(&lines) == Some("done".into()));
    let (output, lines) = record(
        "size.jsonl",
        &["--max-size", "64KiB", "--interval", "100ms"],
    )?;
    ensure!(output.status.success(), "{output:?}");
    ensure!(end(&lines) == Some("full".into()));
    let size = metadata(folder.path().join("size.jsonl"))?.len();
    ensure!(size <= 64 << 10, "{size}");
    // Nothing is overwritten.
    let (output, again) = record("size.jsonl", &[])?;
    ensure!(output.status.code() == Some(2), "{output:?}");
    ensure!(again == lines);
    envoy.stop()
}
