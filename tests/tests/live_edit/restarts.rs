//! A restart of Envoy. Lost changes are detected, saved, and applied again.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::{
    Config, EDIT_TOKEN, Envoy, Operator, Request, Terminal, eventually, expect, expect_problem,
    loudou_command, now,
};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_mins(1);

fn config() -> Config {
    Config::new(json!([{
        "name": "per-user",
        "key": [{ "header": "x-user-id" }],
        "limits": [{ "name": "burst", "algorithm": "funnel", "capacity": 5, "rate": "1/d" }],
    }]))
}

fn limits(capacity: u32) -> Value {
    json!({ "limits": [{ "name": "burst", "algorithm": "funnel", "capacity": capacity, "rate": "1/d" }] })
}

/// Returns the value at a JSON pointer, or null if there is no such value.
fn at<'a>(value: &'a Value, pointer: &str) -> &'a Value {
    value.pointer(pointer).unwrap_or(&Value::Null)
}

/// Makes two bans, an edit and three overrides, some with an expiry.
fn fill(ops: &mut Operator) -> Result<()> {
    ops.edit("per-user", "for=1h&reason=launch", &limits(9))?;
    ops.set_override(
        "per-user",
        "alice",
        "for=30m&reason=ticket%207",
        &json!({ "scale": 2 }),
    )?;
    ops.set_override("per-user", "team-*", "", &json!("unlimited"))?;
    ops.set_override("per-user", "root", "for=100ms", &json!("banned"))?;
    ops.ban("per-user", "mallory", "for=20m&reason=scraping")?;
    ops.ban("per-user", "eve", "")?;
    // One override expires before the next steps.
    eventually(PATIENCE, "the end of an override", || {
        let rule = ops.get("/v1/rules/per-user")?;
        let own = at(&rule, "/overrides").as_array().map_or(0, Vec::len);
        Ok((own == 2).then_some(()))
    })
}

/// Converts an end on Envoy's clock into Unix time in milliseconds.
fn unix_ms(until: &Value, ops: &mut Operator) -> Result<u64> {
    let status = ops.get("/v1/status")?;
    let now = at(&status, "/now_ns").as_u64().context("a time")?;
    let unix = at(&status, "/unix_ms").as_u64().context("a time")?;
    let until = until.as_u64().context("an end")?;
    Ok(unix + until.saturating_sub(now) / 1_000_000)
}

/// Fails unless all changes are in effect with their reasons. Returns the three expiries.
fn is_filled(ops: &mut Operator, mark: &str) -> Result<[u64; 3]> {
    let rule = ops.get("/v1/rules/per-user")?;
    ensure!(
        at(&rule, "/rule/limits") == at(&limits(9), "/limits"),
        "{rule}"
    );
    ensure!(
        *at(&rule, "/edit/reason") == format!("launch{mark}"),
        "{rule}"
    );
    let own = at(&rule, "/rule/overrides");
    ensure!(
        *own == json!({ "alice": { "scale": 2 }, "team-*": "unlimited" }),
        "{rule}"
    );
    let alice = at(&rule, "/overrides").as_array().into_iter().flatten();
    let alice = alice
        .clone()
        .find(|own| at(own, "/key") == "alice")
        .context("alice")?;
    ensure!(
        *at(alice, "/edit/reason") == format!("ticket 7{mark}"),
        "{alice}"
    );
    let mallory = ops.bucket("per-user", "mallory")?.context("a bucket")?;
    ensure!(at(&mallory, "/ban/by") == "operator", "{mallory}");
    let eve = ops.bucket("per-user", "eve")?.context("a bucket")?;
    ensure!(
        *at(&eve, "/ban") == json!({ "until_ns": null, "by": "operator" }),
        "{eve}"
    );
    Ok([
        unix_ms(at(&rule, "/edit/expires_at_ns"), ops)?,
        unix_ms(at(alice, "/edit/expires_at_ns"), ops)?,
        unix_ms(at(&mallory, "/ban/until_ns"), ops)?,
    ])
}

/// Fails unless the expiries equal the earlier expiries, with a tolerance for the time of the
/// calls.
fn are_same(before: [u64; 3], after: [u64; 3], took: Duration) -> Result<()> {
    let took = u64::try_from(took.as_millis())? + 1_000;
    for (before, after) in before.into_iter().zip(after) {
        ensure!(
            (before.saturating_sub(1_000)..=before + took).contains(&after),
            "{before} {after}"
        );
    }
    Ok(())
}

fn loudou(envoy: &Envoy, args: &[&str], input: &str) -> Result<Output> {
    let mut child = loudou_command()?
        .args(args)
        .env("LOUDOU_URL", envoy.admin_url())
        .env("LOUDOU_TOKEN", EDIT_TOKEN)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut stdin = child.stdin.take().context("an input")?;
    stdin.write_all(input.as_bytes())?;
    drop(stdin);
    Ok(child.wait_with_output()?)
}

/// Returns the output of a command. Fails if the command failed.
fn printed(output: &Output) -> Result<String> {
    let (out, err) = (&output.stdout, &output.stderr);
    let err = String::from_utf8_lossy(err);
    ensure!(output.status.success(), "{}: {err}", output.status);
    Ok(String::from_utf8_lossy(out).into_owned())
}

/// `loudou events --follow`, with the lines of both its outputs.
struct Follower {
    child: Child,
    notes: Receiver<String>,
}

impl Follower {
    fn start(envoy: &Envoy) -> Result<Self> {
        let mut child = loudou_command()?
            .args(["events", "--follow", "--output", "jsonl"])
            .env("LOUDOU_URL", envoy.admin_url())
            .env("LOUDOU_TOKEN", EDIT_TOKEN)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let (events, notes) = (child.stdout.take(), child.stderr.take());
        let (events, notes) = (events.context("an output")?, notes.context("an output")?);
        let (sender, lines) = channel();
        let tell = sender.clone();
        thread::spawn(move || {
            for line in BufReader::new(events).lines().map_while(Result::ok) {
                if tell.send(line).is_err() {
                    return;
                }
            }
        });
        thread::spawn(move || {
            for line in BufReader::new(notes).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            child,
            notes: lines,
        })
    }

    /// Returns the next line that contains this text.
    fn prints(&self, text: &str) -> Result<String> {
        loop {
            let line = self.notes.recv_timeout(PATIENCE);
            let line = line.with_context(|| format!("{text:?} is not printed"))?;
            if line.contains(text) {
                return Ok(line);
            }
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        if self.child.kill().is_ok() {
            drop(self.child.wait());
        }
    }
}

#[test]
fn state_lost_in_a_restart_is_exported_before_and_imported_after() -> Result<()> {
    let envoy = Envoy::start(&config())?;
    let mut ops = Operator::editor(&envoy);
    let follower = Follower::start(&envoy)?;
    follower.prints("configured")?;
    fill(&mut ops)?;
    follower.prints("expired")?;
    let ends = is_filled(&mut ops, "")?;
    let document = printed(&loudou(&envoy, &["export", "--live"], "")?)?;
    let (etag, seen) = (ops.etag()?, ops.get("/v1/events")?);
    // The restarted Envoy must not accept an edit with an `ETag` of the previous process.
    let envoy = envoy.restart(&config())?;
    let mut ops = Operator::editor(&envoy);

    // Raise the generation to its old number, so that the number alone would match. Each reset
    // raises it by one.
    while ops.generation()? < 6 {
        ops.drop_edit("per-user", "carry=reset")?;
    }
    let put = Request::new("PUT", "/v1/rules/per-user").header("if-match", &etag);
    let stale = ops.send(put.json(&limits(7)))?;
    let detail = expect_problem(&stale, 412)?;
    ensure!(
        detail.contains("Envoy restarted") && detail.contains(&ops.etag()?),
        "{detail}"
    );
    ensure!(expect(&stale, 412)?["current"]["rule"]["limits"] == limits(5)["limits"]);

    let place = format!(
        "{}-{}",
        seen["instance"].as_str().context("an instance")?,
        seen["last_seq"]
    );
    let events = ops.get(&format!("/v1/events?after={place}"))?;
    ensure!(
        events["restarted"] == true && events["events"][0]["seq"] == 1,
        "{events}"
    );
    let line = follower.prints("Envoy restarted at ")?;
    let gone = ": 2 bans, 1 edit, 2 overrides of the previous instance are lost";
    ensure!(line.ends_with(gone), "{line}");
    let kept = follower.prints("{\"live_version\":1,")?;

    let dry = loudou(&envoy, &["import", "-", "--dry-run"], &document)?;
    ensure!(printed(&dry)?.contains("5 would be applied"), "{dry:?}");
    ensure!(ops.buckets("state=banned")?.is_empty());
    let begun = now();
    let done = printed(&loudou(&envoy, &["import", "-"], &document)?)?;
    ensure!(done.contains("5 applied"), "{done}");
    are_same(ends, is_filled(&mut ops, " (imported)")?, now() - begun)?;
    for (user, status) in [("mallory", 429), ("eve", 429), ("team-7", 200)] {
        let request = Request::get("/").header("x-user-id", user);
        ensure!(envoy.data().send(&request)?.status == status, "{user}");
    }
    // A second import changes nothing, even with the document that the follower printed.
    let generation = ops.generation()?;
    for document in [&document, &kept] {
        let done = printed(&loudou(&envoy, &["import", "-"], document)?)?;
        ensure!(done.contains("5 already in effect"), "{done}");
    }
    ensure!(ops.generation()? == generation);
    drop(follower);
    envoy.stop()
}

#[test]
fn the_screen_reports_lost_changes_and_applies_them_again() -> Result<()> {
    let envoy = Envoy::start(&config())?;
    let mut ops = Operator::editor(&envoy);
    let alice = Request::get("/").header("x-user-id", "alice");
    envoy.data().send(&alice)?;
    fill(&mut ops)?;
    let ends = is_filled(&mut ops, "")?;
    let mut terminal = Terminal::open(&envoy, EDIT_TOKEN, &[])?;
    terminal.shows("mallory")?;
    let envoy = envoy.restart(&config())?;
    let mut ops = Operator::editor(&envoy);
    terminal.shows("gone: 2 bans, 1 edit, 2 overrides - a: apply again")?;
    terminal.press("a")?;
    let question = terminal.shows("Apply again?")?;
    ensure!(
        question.contains("per-user: ban of mallory, ")
            && question.contains("per-user: ban of eve"),
        "{question}"
    );
    let begun = now();
    terminal.press("\r")?;
    terminal.shows("applied: 2 bans, 1 edit, 2 overrides")?;
    are_same(ends, is_filled(&mut ops, " (imported)")?, now() - begun)?;
    terminal.quit()?;
    envoy.stop()
}
