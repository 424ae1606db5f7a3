use loudou_rules::config::parse;
use serde_json::{Value, json};

use super::*;

/// Returns the meaning of a shared rule with these fields, in a fleet with these settings.
fn say(fleet: &Value, fields: &Value) -> Vec<String> {
    let mut settings = json!({ "cluster": "relay" });
    let mut rule = json!({
        "name": "r", "scope": "fleet", "key": ["source"],
        "limits": [{ "algorithm": "funnel", "capacity": 15, "rate": "30/60s" }],
    });
    for (object, fields) in [(&mut settings, fleet), (&mut rule, fields)] {
        for (name, value) in fields.as_object().expect("an object") {
            object[name] = value.clone();
        }
    }
    let parsed = parse(&json!({ "version": 1, "fleet": settings, "rules": [rule] }));
    let file = parsed
        .file
        .unwrap_or_else(|| panic!("{:?}", parsed.problems));
    let sharing = sharing(&file.rules[0], file.fleet.as_ref());
    sharing.map_or_else(Vec::new, |sharing| sharing.meaning)
}

fn limit(limit: &Value) -> Value {
    json!({ "limits": [limit] })
}

/// Returns the bound of a rule with one limit.
fn bound(fields: &Value) -> String {
    let line = say(&json!({}), fields).swap_remove(0);
    let line = line.strip_prefix("shared by the fleet: ");
    let line = line.and_then(|line| line.strip_suffix(", however many Envoys"));
    line.expect("a bound without credit").to_owned()
}

#[test]
fn bounds() {
    let funnel = |capacity: u32, rate: &str| {
        let funnel = json!({ "algorithm": "funnel", "capacity": capacity, "rate": rate });
        bound(&limit(&funnel))
    };
    for (capacity, rate, expected) in [
        (
            15,
            "30/60s",
            "at most 15 + 0.5/s × (60s + 200ms) = 45 in any minute",
        ),
        (
            20,
            "100/s",
            "at most 20 + 100/s × (60s + 200ms) = 6040 in any minute",
        ),
        (
            1,
            "1/8s",
            "at most 1 + 0.125/s × (60s + 200ms) = 8 in any minute",
        ),
        (
            1,
            "1/7s",
            "at most 1 + 1/7s × (60s + 200ms) = 9 in any minute",
        ),
        (
            9,
            "500/h",
            "at most 9 + 500/h × (1h + 200ms) = 509 in any hour",
        ),
        (
            9,
            "1000/d",
            "at most 9 + 1000/d × (1d + 200ms) = 1009 in any day",
        ),
        (
            9,
            "7/30d",
            "at most 9 + 7/30d × (30d + 200ms) = 16 in any 30d",
        ),
    ] {
        assert_eq!(funnel(capacity, rate), expected);
    }
}

#[test]
fn bounds_of_other_algorithms() {
    let tokens = |refill: &str| {
        let tokens = json!({ "algorithm": "token_bucket", "capacity": 1000, "rate": "500/d", "refill": refill });
        bound(&limit(&tokens))
    };
    assert_eq!(
        tokens("greedy"),
        "at most 1000 + 500/d × (1d + 200ms) = 1500 in any day"
    );
    assert_eq!(
        tokens("interval"),
        "at most 1000 + 2 refills of 500 = 2000 in any day"
    );
    let window = |window: &str| {
        let window = json!({ "algorithm": "fixed_window", "capacity": 99, "window": window, "align": "clock" });
        bound(&limit(&window))
    };
    assert_eq!(window("1h"), "at most 99 in each hour");
    assert_eq!(window("90s"), "at most 99 in each 90s");
    assert_eq!(
        bound(&json!({ "cost": 3 })),
        "at most 15 + 0.5/s × (60s + 200ms) = 45 units in any minute"
    );
}

#[test]
fn several_limits_and_credit() {
    let limits = json!([
        { "name": "burst", "algorithm": "funnel", "capacity": 15, "rate": "1/s" },
        { "name": "daily", "algorithm": "fixed_window", "capacity": 99, "window": "1d", "align": "clock" },
    ]);
    let said = say(
        &json!({ "credit": 2, "lease": "1s" }),
        &json!({ "limits": limits }),
    );
    assert_eq!(
        said[..2],
        [
            "shared by the fleet: at most 15 + 1/s × (60s + 1s) = 76 in any minute, and 4 more for each \
             Envoy (burst)",
            "and at most 99 in each day, and 4 more for each Envoy (daily)",
        ]
    );
    assert_eq!(
        said[2],
        "2 of a key pass in each Envoy before the relay has answered"
    );
    assert_eq!(
        said[4],
        "if the relay does not answer, each Envoy limits alone; with 4 Envoys, each has \
         burst 3 at 1/4s, daily: fixed_window 24, window 1d, align clock"
    );
}

#[test]
fn waits_and_outages() {
    let slow = say(&json!({ "timeout": "50ms" }), &json!({}));
    assert_eq!(
        slow[1..],
        [
            "too few units return in 200ms to get tokens in advance: requests wait for the relay, at most \
             50ms, unless their key was just refused",
            "if the relay does not answer, each Envoy limits alone; with 4 Envoys, each has \
             funnel 3 at 30/4m",
            "while an Envoy has no answers for a time D and others have, at most 30 + 0.5/s × (60s + 200ms + D) in \
             any minute",
        ]
    );
    assert_eq!(
        say(&json!({ "envoys": 3 }), &json!({}))[2],
        "if the relay does not answer, each Envoy limits alone; with 3 Envoys, which is assumed until the \
         relay has reported a number, each has funnel 5 at 30/3m"
    );
    let fast = limit(&json!({ "algorithm": "funnel", "capacity": 20, "rate": "100/s" }));
    assert_eq!(
        say(&json!({ "on_outage": "admit" }), &fast)[1..],
        [
            "a key's first request waits for the relay, at most 30ms; busy keys get tokens in advance",
            "if the relay does not answer, requests pass",
        ]
    );
    let refuse = json!({ "on_outage": "refuse" });
    let shadow = json!({ "mode": "shadow" });
    assert_eq!(
        say(&refuse, &json!({}))[2],
        "if the relay does not answer, requests are refused"
    );
    assert_eq!(
        say(&refuse, &shadow)[1..],
        [
            "in shadow mode, no request waits for the relay",
            "if the relay does not answer, requests count as refused",
        ]
    );
    let penalty = json!({ "penalty": { "after": 2, "within": "1m", "ban": "5m" } });
    assert_eq!(
        say(&json!({}), &penalty)[4],
        "a ban by its penalty applies in the Envoy whose refusals triggered it"
    );
}

#[test]
fn other_rules_have_nothing_to_say() {
    assert_eq!(say(&json!({}), &json!({ "scope": "envoy" })), [""; 0]);
    assert_eq!(say(&json!({}), &json!({ "mode": "off" })), [""; 0]);
}
