//! The audit trail. Events record each change and its author, and the export contains the rules in
//! force.

use anyhow::{Context as _, Result, ensure};
use loudou_rules::config;
use loudou_tests::one_rule::limits;
use loudou_tests::{Config, Envoy, Operator, Request};
use serde_json::{Value, json};

fn rules() -> Value {
    json!([
        { "name": "r", "key": [{ "header": "x-user-id" }], "limits": limits(3) },
        {
            "name": "everything",
            "match": {
                "methods": ["GET", "POST"],
                "path": { "exact": "/x" },
                "headers": [{ "name": "X-Plan", "exact": "free" }, { "name": "x-internal", "present": false }],
            },
            "key": [{ "header": "x-user-id" }, { "literal": "a:b%\u{e9}" }, "source", "path", "route"],
            "on_missing_key": "share",
            "limits": [
                { "algorithm": "token_bucket", "capacity": 20, "rate": "30/60s", "refill": "interval", "initial": 5 },
                { "name": "slow", "algorithm": "funnel", "capacity": 7, "rate": "1/250ms" },
            ],
            "cost": 6,
            "mode": "shadow",
            "on_error": "refuse",
            "respond": { "ratelimit_headers": "draft11" },
        },
        { "name": "all", "key": [], "limits": limits(9), "mode": "off" },
    ])
}

#[test]
fn events_record_changes_and_authors() -> Result<()> {
    let envoy = Envoy::start(&Config::new(rules()))?;
    let mut ops = Operator::editor(&envoy);
    ops.edit(
        "r",
        "for=1h&reason=Black%20Friday%20%E2%80%93%20%22more%22",
        &json!({ "limits": limits(9), "mode": "shadow" }),
    )?;
    envoy
        .data()
        .send(&Request::get("/").header("x-user-id", b"\xff\x1b[31m"))?;
    envoy
        .data()
        .send(&Request::get("/").header("x-user-id", b"\xfe"))?;
    ops.reset("r", "%FE")?;
    ops.drop_edit("r", "")?;
    let page = ops.get("/v1/events")?;
    ensure!(page["last_seq"] == 4 && page["lost"] == 0, "{page}");
    let events = ops.events(0)?;
    let field = |name: &str| -> Vec<Value> { events.iter().map(|e| e[name].clone()).collect() };
    ensure!(json!(field("seq")) == json!([1, 2, 3, 4]), "{page}");
    ensure!(
        json!(field("kind")) == json!(["configured", "edit", "reset", "edit_dropped"]),
        "{page}"
    );
    ensure!(
        json!(field("by")) == json!(["loudou", "ops", "ops", "ops"]),
        "{page}"
    );
    ensure!(json!(field("generation")) == json!([1, 2, 2, 3]), "{page}");
    ensure!(events[1]["reason"] == "Black Friday – \"more\"", "{page}");
    ensure!(
        events[1]["detail"] == "l: capacity 3 → 9; mode enforce → shadow, for 1h",
        "{page}"
    );
    ensure!(events[2]["key"] == "%FE", "{page}");
    ensure!(
        events.is_sorted_by_key(|event| event["at_ns"].as_u64()),
        "{page}"
    );
    // No event of this process has the number 99, so the caller saw another process. The answer
    // restarts with the first event.
    let page = ops.get("/v1/events?after=99")?;
    ensure!(page["restarted"] == true, "{page}");
    ensure!(ops.events(99)?.len() == 4, "{page}");
    for after in [1_u64, 3, 4] {
        let rest = ops.events(after)?.len();
        ensure!(
            rest == usize::try_from(4_u64.saturating_sub(after))?,
            "after {after}: {rest}"
        );
    }
    let log = envoy.log()?;
    // The log has one line for each event, even if the key or the reason contains control
    // characters.
    let line = "edit: rule r, key -: l: capacity 3 -> 9; mode enforce -> shadow, for 1h (by ops; reason: \
                \"Black Friday \\u{2013} \\\"more\\\"\"; generation 2)";
    let lines = log.lines().filter(|found| found.contains("[warning]"));
    ensure!(
        lines.filter(|found| found.contains(line)).count() == 1,
        "the log tells of it, too: {log}"
    );
    envoy.stop()
}

/// An export leaves out temporary edits and overrides unless the caller requests them.
#[test]
fn an_export_has_nothing_that_ends() -> Result<()> {
    let envoy = Envoy::start(&Config::new(rules()))?;
    let mut ops = Operator::editor(&envoy);
    let before = ops.get("/v1/export")?;
    ops.edit("r", "for=1h", &json!({ "limits": limits(50) }))?;
    ops.set_override("r", "alice", "for=1h", &json!("unlimited"))?;
    ensure!(ops.get("/v1/export")? == before);
    ops.set_override("r", "bob", "", &json!("banned"))?;
    let overrides = |export: &Value| export["rules"][0]["overrides"].clone();
    let export = ops.get("/v1/export")?;
    ensure!(overrides(&export) == json!({ "bob": "banned" }), "{export}");
    let all = ops.get("/v1/export?with_temporary=true")?;
    ensure!(
        overrides(&all) == json!({ "alice": "unlimited", "bob": "banned" })
            && all["rules"][0]["limits"][0]["capacity"] == 50,
        "{all}"
    );
    envoy.stop()
}

#[test]
fn the_export_matches_what_is_in_force() -> Result<()> {
    let envoy = Envoy::start(&Config::new(rules()).buckets(1_000))?;
    let mut ops = Operator::editor(&envoy);
    let before = ops.get("/v1/export")?;
    let configured = config::parse(&json!({ "version": 1, "rules": rules() }));
    let configured = configured
        .file
        .context("the rules of this test are valid")?;
    let exported = config::parse(&before);
    ensure!(exported.problems.is_empty(), "{:?}", exported.problems);
    let exported = exported.file.context("an export can be read")?;
    ensure!(exported.rules == configured.rules, "{before}");
    ensure!(
        exported.store.namespace == "loudou" && exported.store.buckets >= 1_000,
        "{before}"
    );

    ops.edit(
        "r",
        "",
        &json!({ "limits": [
        { "name": "l", "algorithm": "token_bucket", "capacity": 50, "rate": "7/90s", "initial": 0 },
        { "name": "m", "algorithm": "funnel", "capacity": 4, "rate": "1/d" },
    ] }),
    )?;
    ops.edit("all", "", &json!({ "mode": "enforce" }))?;
    let export = ops.get("/v1/export")?;
    let view = ops.get("/v1/rules")?;
    let in_force = view["rules"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|view| view["rule"].clone());
    ensure!(export["rules"] == in_force.collect::<Value>(), "{export}");
    ensure!(
        export["rules"][0]["limits"][0]["capacity"] == 50
            && export["rules"][2]["mode"] == "enforce",
        "{export}"
    );
    ensure!(
        export["rules"][1] == before["rules"][1],
        "untouched: {export}"
    );
    // With the export as its configuration, a new Envoy exports the same rules.
    let again = Envoy::start(&Config::new(json!([])).data_plugin(export.clone()))?;
    ensure!(Operator::viewer(&again).get("/v1/export")? == export);
    again.stop()?;
    envoy.stop()
}
