//! Trials. Tighter limits run in shadow mode alongside the rule in force, and can then be enforced.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::paths::loudou_command;
use loudou_tests::{
    Config, EDIT_TOKEN, Envoy, Fleet, Operator, Request, TempDir, Terminal, eventually,
};
use serde_json::{Value, json};

const REQUESTS: u64 = 5_000;
const CONNECTIONS: usize = 64;
const PATIENCE: Duration = Duration::from_secs(20);

fn config() -> Config {
    Config::new(json!([{
        "name": "per-user",
        "key": [{ "header": "x-user-id" }],
        "limits": [{ "name": "burst", "algorithm": "funnel", "capacity": 100, "rate": "1/d" }],
    }]))
}

/// Runs `loudou` against an Envoy. Fails if the command fails.
fn loudou(envoy: &Envoy, words: &[&str]) -> Result<String> {
    let mut command = loudou_command()?;
    command.args(words);
    command.env("LOUDOU_URL", envoy.admin_url());
    command.env("LOUDOU_TOKEN", EDIT_TOKEN);
    let output = command.output()?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{words:?}: {printed}{errors}");
    Ok(printed)
}

/// Returns the numbers of admitted, refused and would-be-refused requests of a rule, from Envoy's
/// counters.
fn counts(envoy: &Envoy, rule: &str) -> Result<[u64; 3]> {
    let count = |what: &str| envoy.counter(&format!("wasmcustom.loudou.rule.{rule}.{what}"));
    Ok([
        count("admitted")?,
        count("refused")?,
        count("shadow_refused")?,
    ])
}

#[test]
fn a_trial_counts_exactly_on_every_worker_and_refuses_nothing() -> Result<()> {
    let envoy = Envoy::start(&config().concurrency(4))?;
    let storm = |key: &str| -> Result<u64> {
        let request = |_| Request::get("/").header("x-user-id", key);
        Ok(envoy.load(REQUESTS, CONNECTIONS, request)?.of(200))
    };
    ensure!(storm("before")? == 100);
    let words = [
        "set",
        "per-user",
        "--capacity",
        "40",
        "--trial",
        "--for",
        "1h",
    ];
    let printed = loudou(&envoy, &words)?;
    ensure!(printed.contains("capacity 100 → 40"), "{printed}");
    for (round, key) in (1..).zip(["alice", "bob", "carol"]) {
        ensure!(storm(key)? == 100, "{key}: the rule alone decides");
        let expected = [round * 40, 0, round * (REQUESTS - 40)];
        let counted = counts(&envoy, "per-user~trial")?;
        ensure!(counted == expected, "{key}: {counted:?}, {expected:?}");
    }
    let metrics = envoy.prometheus()?;
    let labels = "{loudou_rule=\"per-user~trial\",loudou_verdict=\"shadow_refused\"} 14880";
    ensure!(metrics.contains(labels), "a trial has the labels of a rule");
    let listed = loudou(&envoy, &["rules"])?;
    ensure!(listed.contains("per-user~trial"), "{listed}");

    loudou(&envoy, &["override", "per-user", "frank", "scale=2"])?;
    let live = loudou(&envoy, &["export", "--live"])?;
    let unset = ["unset", "per-user", "--trial", "--dry-run"];
    let said = loudou(&envoy, &unset)?;
    ensure!(said.contains("the trial would end"), "{said}");
    loudou(&envoy, unset.get(..3).unwrap_or_default())?;
    ensure!(storm("dave")? == 100);
    let counted = counts(&envoy, "per-user~trial")?;
    ensure!(
        counted == [120, 0, 3 * (REQUESTS - 40)],
        "ended: {counted:?}"
    );
    let own = counts(&envoy, "per-user")?;
    ensure!(own == [500, 5 * (REQUESTS - 100), 0], "{own:?}");

    // What a restart would lose can be imported. The trial starts with the overrides, although the file has it first.
    let dir = TempDir::new("trials")?;
    let file = dir.write("live.json", &live)?;
    loudou(&envoy, &["override", "per-user", "frank", "--remove"])?;
    loudou(&envoy, &["import", &file.display().to_string()])?;
    ensure!(storm("erin")? == 100);
    let counted = counts(&envoy, "per-user~trial")?;
    ensure!(counted[0] == 160, "imported: {counted:?}");
    ensure!(storm("frank")? == 200);
    let counted = counts(&envoy, "per-user~trial")?;
    ensure!(counted[0] == 160 + 80, "twice the tried limit: {counted:?}");
    envoy.stop()
}

#[test]
fn tried_limits_are_compared_and_enforced_on_the_screen() -> Result<()> {
    let envoy = Envoy::start(&config())?;
    let mut http = envoy.data();
    let mut send = |key: u32, count: usize| -> Result<()> {
        let key = format!("user-{key}");
        for _ in 0..count {
            http.send(&Request::get("/").header("x-user-id", &key))?;
        }
        Ok(())
    };
    send(0, 1)?;
    let mut terminal = Terminal::open(&envoy, EDIT_TOKEN, &[])?;
    terminal.shows("user-0")?;
    // Fill in the capacity, select the mode, and continue to the confirmation.
    terminal.press("e")?;
    terminal.shows("capacity")?;
    terminal.press("40")?;
    terminal.press("\x1b[Z\x1b[Z\x1b[Z\x1b[Z")?;
    terminal.press("t")?;
    terminal.shows("[try in shadow]")?;
    terminal.press("\r")?;
    terminal.shows("burst capacity 100 → 40")?;
    terminal.press("\r")?;
    terminal.shows("sent")?;
    terminal.press("3")?;
    terminal.shows("per-user~trial")?;
    // The trial is the last row. The text below the table compares it with its rule, which refuses
    // none of these keys.
    terminal.press("G")?;
    let mut key = 0;
    eventually(PATIENCE, "both shares", || {
        key += 1;
        send(key, 99)?;
        let screen = terminal.contents();
        let is_compared = screen.contains("%, now 0%") && !screen.contains("would refuse 0%");
        Ok(is_compared.then_some(()))
    })?;

    // The trial ends, and its undo starts it again.
    terminal.press("D")?;
    terminal.shows("End the trial of per-user?")?;
    terminal.press("\r")?;
    terminal.shows("the trial of per-user has ended")?;
    eventually(PATIENCE, "the end of the trial", || {
        Ok((!terminal.contents().contains("└ per-user~trial")).then_some(()))
    })?;
    terminal.press("u")?;
    terminal.shows("Undo")?;
    terminal.press("\r")?;
    terminal.shows("└ per-user~trial")?;

    // Its rule gets its limits.
    terminal.press("G")?;
    terminal.press("M")?;
    terminal.shows("burst capacity 100 → 40")?;
    terminal.press("\r")?;
    let mut ops = Operator::viewer(&envoy);
    eventually(PATIENCE, "the limits in force", || {
        let rule = ops.get("/v1/rules/per-user")?;
        let capacity = rule.pointer("/rule/limits/0/capacity");
        Ok((capacity.and_then(Value::as_u64) == Some(40)).then_some(()))
    })?;
    let rule = ops.get("/v1/rules/per-user")?;
    let mode = rule.pointer("/rule/mode").context("a mode")?;
    ensure!(mode == "enforce", "{rule}");
    terminal.shows("D ends it")?;
    terminal.quit()?;
    envoy.stop()
}

/// In a fleet, a trial holds no request for the relay's answer. Many requests of a fresh key at once count as admitted up
/// to the tried capacity, and once more up to it in each Envoy.
#[test]
fn a_trial_in_a_fleet_counts_within_its_bound() -> Result<()> {
    const ENVOYS: u64 = 2;
    let rules = json!([{
        "name": "per-user",
        "scope": "fleet",
        "key": [{ "header": "x-user-id" }],
        "limits": [{ "name": "burst", "algorithm": "funnel", "capacity": 200, "rate": "1/d" }],
    }]);
    let settings = json!({ "credit": 0, "timeout": "1s", "lease": "10s" });
    let fleet = Fleet::start(usize::try_from(ENVOYS)?, &rules, &settings)?;
    let envoy = fleet.envoys.first().context("an Envoy")?;
    loudou(
        envoy,
        &[
            "set",
            "per-user",
            "--capacity",
            "20",
            "--trial",
            "--for",
            "1h",
        ],
    )?;
    for envoy in &fleet.envoys {
        eventually(PATIENCE, "the trial to travel", || {
            let rules = loudou(envoy, &["rules"])?;
            Ok(rules.contains("per-user~trial").then_some(()))
        })?;
    }
    let sum = |rule: &str| -> Result<[u64; 3]> {
        let mut sum = [0; 3];
        for envoy in &fleet.envoys {
            for (sum, count) in sum.iter_mut().zip(counts(envoy, rule)?) {
                *sum += count;
            }
        }
        Ok(sum)
    };
    let mut before = [0; 3];
    for key in ["alice", "bob", "carol"] {
        let requests = REQUESTS / 10;
        let counted = fleet.load(requests, CONNECTIONS, |_| {
            Request::get("/").header("x-user-id", key)
        })?;
        ensure!(counted.of(200) == 200, "{key}: {counted:?}");
        let after = sum("per-user~trial")?;
        let [admitted, refused, shadow_refused] = [0, 1, 2].map(|at| after[at] - before[at]);
        ensure!(
            (20..=20 * (1 + ENVOYS)).contains(&admitted),
            "{key}: {admitted}"
        );
        ensure!(
            refused == 0 && admitted + shadow_refused == ENVOYS * requests,
            "{key}: {after:?}"
        );
        before = after;
    }
    fleet.stop()
}
