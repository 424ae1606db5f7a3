//! Bans by an operator over the admin API. A ban applies on every worker at once, for a time or
//! until an unban.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::one_rule::{admitted, config, limits, user};
use loudou_tests::{
    Config, EDIT_TOKEN, Envoy, Operator, Request, eventually, expect_problem, loudou_command,
};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(20);
const CONNECTIONS: usize = 16;

/// Sends 64 requests of one user over all workers. Fails if a response has another status.
fn all(envoy: &Envoy, name: &str, status: u16) -> Result<()> {
    let counts = envoy.load(64, CONNECTIONS, |_| user(name))?;
    ensure!(counts.of(status) == 64, "{name}: {counts:?}");
    Ok(())
}

fn keys(buckets: &[Value]) -> Vec<&str> {
    let keys = buckets.iter().filter_map(|bucket| bucket.get("key"));
    keys.filter_map(Value::as_str).collect()
}

#[test]
fn a_banned_key_is_refused_on_every_worker_until_unbanned() -> Result<()> {
    let envoy = Envoy::start(&config(99).concurrency(4))?;
    let mut ops = Operator::editor(&envoy);
    ensure!(envoy.data().send(&user("alice"))?.status == 200);
    let answer = ops.ban("r", "alice", "for=1h&reason=spam")?;
    ensure!(answer["bucket"]["ban"]["by"] == "operator" && answer.get("before").is_none());
    // A key without a bucket can be banned too.
    ops.ban("r", "eve", "")?;
    all(&envoy, "alice", 429)?;
    all(&envoy, "eve", 429)?;
    ensure!(envoy.data().send(&user("bob"))?.status == 200);
    let banned = ops.buckets("state=banned")?;
    let mut names = keys(&banned);
    names.sort_unstable();
    ensure!(names == ["alice", "eve"], "{banned:?}");

    let refused = envoy.data().send(&user("alice"))?;
    let wait: u64 = refused.header("retry-after").context("a wait")?.parse()?;
    ensure!((3_500..=3_600).contains(&wait), "{wait}");
    let problem = refused.json()?;
    let kind = problem["type"].as_str().unwrap_or_default();
    ensure!(kind.ends_with("#abnormal-usage-detected"), "{problem}");
    let detail = problem["detail"].as_str().unwrap_or_default();
    ensure!(detail.starts_with("banned by rule r for "), "{problem}");
    // A ban without an end sends no Retry-After.
    let endless = envoy.data().send(&user("eve"))?;
    ensure!(endless.header("retry-after").is_none(), "{endless:?}");

    let answer = ops.unban("r", "alice")?;
    ensure!(answer["before"]["until_ns"].is_u64() && answer["bucket"]["ban"].is_null());
    all(&envoy, "alice", 200)?;
    // A ban takes no units. Of 99, one was taken before the ban and 64 after it.
    ensure!(admitted(&mut envoy.data(), "alice")? == 34);
    all(&envoy, "eve", 429)?;
    ops.reset("r", "eve")?;
    all(&envoy, "eve", 200)?;
    envoy.stop()
}

#[test]
fn a_ban_ends_by_itself() -> Result<()> {
    let envoy = Envoy::start(&config(3))?;
    let mut ops = Operator::editor(&envoy);
    let answer = ops.ban("r", "alice", "for=300ms")?;
    let until = answer["bucket"]["ban"]["until_ns"].as_u64();
    let until = until.context("an end")?;
    let mut http = envoy.data();
    eventually(SOON, "the ban to end", || {
        let before = ops.get("/v1/status")?["now_ns"].as_u64();
        let status = http.send(&user("alice"))?.status;
        let after = ops.get("/v1/status")?["now_ns"].as_u64();
        if status == 200 {
            ensure!(after >= Some(until), "too early");
            return Ok(Some(()));
        }
        ensure!(status == 429 && before < Some(until), "{status}: too late");
        Ok(None)
    })?;
    ensure!(ops.buckets("state=banned")?.is_empty());
    let events = ops.events(1)?;
    let [ban, ended] = events.as_slice() else {
        anyhow::bail!("a ban and its end: {events:?}");
    };
    ensure!(
        ended["kind"] == "ban_expired" && ended["key"] == "alice" && ended["by"] == "loudou",
        "{ended}"
    );
    ensure!(ended["until_ns"] == until, "{ended}");
    ensure!(
        ban["kind"] == "ban" && ban["key"] == "alice" && ban["by"] == "ops",
        "{ban}"
    );
    // The event reports the same end as the bucket.
    let reported = ban["until_ns"].as_u64().context("an end")?;
    ensure!(reported == until, "{reported} {until}");
    envoy.stop()
}

/// The worker that set the ban logs its end without an admin call, and no other worker logs the end
/// again.
#[test]
fn the_end_of_a_ban_is_reported_once() -> Result<()> {
    let envoy = Envoy::start(&config(3).concurrency(4))?;
    let mut ops = Operator::editor(&envoy);
    ops.ban("r", "alice", "for=300ms")?;
    ops.ban("r", "bob", "for=1h")?;
    let line = "ban_expired: rule r, key \"alice\": the ban by ops ended";
    let count = || -> Result<usize> { Ok(envoy.log()?.matches(line).count()) };
    eventually(SOON, "a line about the end", || {
        Ok((count()? > 0).then_some(()))
    })?;
    for _ in 0..16 {
        let events = Operator::viewer(&envoy).events(0)?;
        let ended = events.iter().filter(|event| event["kind"] == "ban_expired");
        ensure!(ended.count() == 1, "{events:?}");
    }
    ensure!(count()? == 1);
    envoy.stop()
}

#[test]
fn unknown_rules_and_strange_keys_are_reported() -> Result<()> {
    let envoy = Envoy::start(&config(3))?;
    let mut ops = Operator::editor(&envoy);
    for what in ["ban", "unban"] {
        let path = |rest: &str| Request::post(&format!("/v1/buckets/{rest}/{what}"));
        expect_problem(&ops.send(path("none/alice"))?, 404)?;
        for key in ["a%20b", "%00", "%F0%9F%92%A9", ""] {
            expect_problem(&ops.send(path(&format!("r/{key}")))?, 400)?;
        }
    }
    expect_problem(
        &ops.send(Request::post("/v1/buckets/r/alice/ban?for=soon"))?,
        400,
    )?;
    expect_problem(&ops.send(Request::get("/v1/buckets/r/alice/ban"))?, 405)?;
    // A key with several parts escapes the separator and the percent sign.
    let escaped = "a%3Ab%25c/d";
    ops.ban("r", escaped, "")?;
    ensure!(envoy.data().send(&user("a:b%c/d"))?.status == 429);
    ensure!(keys(&ops.buckets("state=banned")?) == [escaped]);
    envoy.stop()
}

/// Runs `loudou` with these arguments against an Envoy. Fails if the command fails.
fn loudou(envoy: &Envoy, words: &[&str]) -> Result<String> {
    let output = loudou_command()?
        .args(["--url", &envoy.admin_url()])
        .args(words)
        .env("LOUDOU_TOKEN", EDIT_TOKEN)
        .output()?;
    ensure!(output.status.success(), "{output:?}");
    Ok(String::from_utf8(output.stdout)?)
}

/// With `--all-rules`, one command bans the key in both rules that have a key of this form. Rules
/// with one bucket for all requests, with another kind of key or in shadow mode are left out, so
/// other users are not refused and the command succeeds.
#[test]
fn a_key_is_banned_and_unbanned_in_all_rules() -> Result<()> {
    let rule = |name: &str, key: Value, more: Value| {
        let mut rule = json!({ "name": name, "key": key, "limits": limits(99) });
        if let (Some(rule), Some(more)) = (rule.as_object_mut(), more.as_object()) {
            rule.extend(more.clone());
        }
        rule
    };
    let (user, at) = (
        json!([{ "header": "x-user-id" }]),
        |path: &str| json!({ "match": { "path": { "exact": path } } }),
    );
    let rules = json!([
        rule("pages", user.clone(), at("/page")),
        rule("logins", user.clone(), at("/login")),
        rule("tried", user, json!({ "mode": "shadow" })),
        rule("all", json!([]), json!({})),
        rule("by-address", json!(["source"]), json!({})),
    ]);
    let envoy = Envoy::start(&Config::new(rules))?;
    let mut http = envoy.data();
    let mut refusals = |name: &str| -> Result<Vec<String>> {
        let mut by = Vec::new();
        for path in ["/page", "/login", "/other"] {
            let answer = http.send(&Request::get(path).header("x-user-id", name))?;
            if answer.status == 200 {
                continue;
            }
            let detail = answer.json()?["detail"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            ensure!(answer.status == 429, "{name} at {path}: {detail}");
            let rule = detail.strip_prefix("banned by rule ").unwrap_or(&detail);
            by.push(rule.split(' ').next().unwrap_or_default().to_owned());
        }
        Ok(by)
    };
    ensure!(refusals("mallory")?.is_empty());
    let out = loudou(&envoy, &["ban", "--all-rules", "mallory", "--for", "1h"])?;
    let banned = "mallory of pages is banned for 1h\nmallory of logins is banned for 1h\n";
    ensure!(out == banned, "{out}");
    ensure!(refusals("mallory")? == ["pages", "logins"]);
    ensure!(refusals("alice")?.is_empty());
    let found = Operator::viewer(&envoy).buckets("state=banned")?;
    ensure!(keys(&found) == ["mallory", "mallory"], "{found:?}");
    let out = loudou(&envoy, &["unban", "--all-rules", "mallory", "-o", "json"])?;
    let results: Value = serde_json::from_str(&out)?;
    let changed = results.as_array().into_iter().flatten();
    let changed = changed.map(|result| (result["rule"].as_str(), result["changed"].as_bool()));
    let changed: Vec<_> = changed.collect();
    // An unban also covers the shadow rule, because a ban from before the mode changed could still
    // be in its bucket.
    let of = |rule, is| (Some(rule), Some(is));
    ensure!(
        changed == [of("pages", true), of("logins", true), of("tried", false)],
        "{out}"
    );
    ensure!(refusals("mallory")?.is_empty());
    envoy.stop()
}
