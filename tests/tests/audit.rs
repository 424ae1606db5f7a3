//! The audit: events record each change and its author, and the export is what is in force.

use anyhow::{Context as _, Result, ensure};
use loudou_rules::config;
use loudou_tests::one_rule::limits;
use loudou_tests::{Config, Envoy, Operator, Request};
use serde_json::{Value, json};

/// The number of events that the filter keeps.
const KEPT: usize = 256;

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
    let field = |name: &str| {
        events
            .iter()
            .map(|event| event[name].clone())
            .collect::<Vec<_>>()
    };
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
    // A number that was never assigned is from another process: all events of this one follow.
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
    ensure!(
        log.contains("edit: rule r, key -: l: capacity 3 → 9"),
        "the log tells of it, too"
    );
    envoy.stop()
}

#[test]
fn the_oldest_events_are_dropped_and_counted() -> Result<()> {
    let envoy = Envoy::start(&Config::new(rules()))?;
    let mut ops = Operator::editor(&envoy);
    let reason = "x".repeat(200);
    for _ in 0..150 {
        ops.edit(
            "r",
            &format!("reason={reason}"),
            &json!({ "limits": limits(9) }),
        )?;
        ops.drop_edit("r", &format!("reason={reason}"))?;
    }
    let page = ops.get("/v1/events?after=10")?;
    let events = page["events"].as_array().context("events")?;
    let (first, last) = (301 - 256 + 1, 301);
    ensure!(
        page["last_seq"] == last && page["lost"] == first - 1 - 10,
        "lost {}",
        page["lost"]
    );
    ensure!(
        events.len() == KEPT && events[0]["seq"] == first,
        "{} events",
        events.len()
    );
    ensure!(ops.generation()? == last, "one for each change");
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
    // The export becomes the configuration: no edit is left, and nothing else has changed.
    let again = Envoy::start(&Config::new(json!([])).data_plugin(export.clone()))?;
    ensure!(Operator::viewer(&again).get("/v1/export")? == export);
    again.stop()?;
    envoy.stop()
}
