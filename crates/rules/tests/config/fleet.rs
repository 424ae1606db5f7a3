//! The fields `fleet` and `scope`, and the limits that a fleet can share.

use loudou_limiter::Nanos;
use loudou_rules::config::{parse, parse_edit, parse_rule, unshared};
use loudou_rules::rule::{OnOutage, RuleFile, Scope};
use serde_json::{Value, json};

use super::{file, problems, read, rule};

/// A file with these settings of the fleet, and these rules.
fn with(fleet: &Value, rules: &[Value]) -> Value {
    let mut file = file(rules);
    file["fleet"] = fleet.clone();
    file
}

/// A shared rule with these limits.
fn shared(limits: &Value) -> Value {
    rule(&json!({ "scope": "fleet", "limits": limits }))
}

/// The problems of a file with these settings of the fleet, by their places in them.
fn of_fleet(fleet: &Value) -> Vec<String> {
    let lines = problems(&with(fleet, &[]));
    let local = lines
        .iter()
        .map(|line| line.strip_prefix("fleet.").unwrap_or(line));
    local.map(str::to_string).collect()
}

/// The problems of a shared rule with this limit, by their places in the limit.
fn of_limit(limit: &Value) -> Vec<String> {
    let lines = problems(&with(&relay(), &[shared(&json!([limit]))]));
    let local = lines
        .iter()
        .map(|line| line.strip_prefix("rules[0].limits[0].").unwrap_or(line));
    local.map(str::to_string).collect()
}

fn relay() -> Value {
    json!({ "cluster": "loudou-relay" })
}

#[test]
fn every_setting_is_read() {
    let file = read(&with(
        &json!({
            "cluster": "a relay", "lease": "1s", "timeout": "50ms", "credit": 2, "on_outage": "refuse",
            "token": "s3cret",
        }),
        &[
            rule(&json!({ "scope": "fleet" })),
            rule(&json!({ "name": "own", "scope": "envoy" })),
        ],
    ));
    let scopes: Vec<Scope> = file.rules.iter().map(|rule| rule.scope).collect();
    assert_eq!(scopes, [Scope::Fleet, Scope::Envoy]);
    let fleet = file.fleet.expect("a fleet");
    assert_eq!(fleet.cluster, "a relay");
    assert_eq!(fleet.lease, Nanos::from_secs(1));
    assert_eq!(fleet.timeout, Nanos::from_millis(50));
    assert_eq!(fleet.credit, 2);
    assert_eq!(fleet.on_outage, OnOutage::Refuse);
    let leases = fleet.lease_settings();
    assert_eq!(
        (leases.lease, leases.timeout, leases.credit),
        (fleet.lease, fleet.timeout, 2)
    );
    assert_eq!(fleet.token.expect("a token").reveal(), "s3cret");
}

#[test]
fn a_fleet_needs_only_its_cluster() {
    let file = read(&with(&relay(), &[rule(&json!({}))]));
    assert_eq!(
        file.rules.first().map(|rule| rule.scope),
        Some(Scope::Envoy)
    );
    let fleet = file.fleet.expect("a fleet");
    assert_eq!(fleet.lease, Nanos::from_millis(200));
    assert_eq!(fleet.timeout, Nanos::from_millis(30));
    assert_eq!(fleet.credit, 0);
    assert_eq!(fleet.on_outage, OnOutage::Local);
    assert_eq!(fleet.token, None);
    let outage = |word: &str| {
        let settings = json!({ "cluster": "relay", "on_outage": word });
        read(&with(&settings, &[]))
            .fleet
            .map(|fleet| fleet.on_outage)
    };
    assert_eq!(outage("local"), Some(OnOutage::Local));
    assert_eq!(outage("admit"), Some(OnOutage::Admit));
    assert_eq!(read(&file_without()).fleet, None);
}

fn file_without() -> Value {
    file(&[rule(&json!({}))])
}

#[test]
fn settings_within_their_bounds() {
    for settings in [
        json!({ "lease": "10ms", "timeout": "1ms", "credit": 0 }),
        json!({ "lease": "10s", "timeout": "1s", "credit": 1000, "envoys": 10000 }),
        json!({ "cluster": "c".repeat(256), "token": "t".repeat(256) }),
    ] {
        let mut fleet = relay();
        for (name, value) in settings.as_object().expect("an object") {
            fleet[name] = value.clone();
        }
        assert_eq!(of_fleet(&fleet), [""; 0], "{fleet}");
    }
}

#[test]
fn wrong_settings() {
    let duration = "a whole number and a unit: 500ns, 20us, 250ms, 60s, 5m, 1h, 1d";
    assert_eq!(
        of_fleet(&json!({
            "cluster": "", "lease": "9ms", "timeout": "0ms", "credit": 1001, "on_outage": "locally", "envoys": 0,
            "tokens": "x",
        })),
        [
            "tokens: unknown field; allowed: cluster, lease, timeout, credit, on_outage, envoys, token; did you mean `token`?"
                .to_string(),
            "cluster: \"\": empty; allowed: a text of 1 to 256 bytes".to_string(),
            format!("lease: \"9ms\": out of range; allowed: {duration}; from 10ms to 10s"),
            format!("timeout: \"0ms\": out of range; allowed: {duration}; from 1ms to 1s"),
            "credit: 1001: out of range; allowed: a whole number from 0 to 1000".to_string(),
            "on_outage: \"locally\": unknown value; allowed: local, admit, refuse; did you mean `local`?"
                .to_string(),
            "envoys: 0: out of range; allowed: a whole number from 1 to 10000".to_string(),
        ]
    );
    assert_eq!(
        of_fleet(&json!({ "lease": "11s", "timeout": "1001ms", "cluster": "c".repeat(257) })).len(),
        3
    );
    assert_eq!(
        of_fleet(&json!({})),
        ["fleet: `cluster` is missing; allowed: the name of an Envoy cluster"]
    );
    assert_eq!(
        problems(&with(&json!("loudou-relay"), &[])),
        [
            "fleet: \"loudou-relay\": a text instead of an object; allowed: an object with cluster, lease, \
          timeout, credit, on_outage, envoys, token"
        ]
    );
    assert_eq!(
        problems(&with(&relay(), &[rule(&json!({ "scope": "Fleet" }))])),
        ["rules[0].scope: \"Fleet\": unknown value; allowed: envoy, fleet; did you mean `fleet`?"]
    );
}

/// Neither problems nor the forms of the settings show the token.
#[test]
fn a_token_is_never_shown() {
    for token in [
        json!("geheim "),
        json!("geheim".repeat(43)),
        json!(["geheim"]),
        json!({ "geheim": 1 }),
        json!("geheim\u{fc}"),
    ] {
        let parsed = parse(&with(&json!({ "cluster": "relay", "token": token }), &[]));
        assert!(parsed.file.is_none(), "{token}");
        let [problem] = parsed.problems.as_slice() else {
            panic!("one problem with {token}");
        };
        assert_eq!(
            problem.to_string(),
            "fleet.token: invalid token; allowed: 1 to 256 printable characters of ASCII, without spaces"
        );
        assert!(!format!("{problem:?}").contains("geheim"), "{problem:?}");
    }
    assert_eq!(
        of_fleet(&json!({ "cluster": "relay", "token": "" })),
        ["token: invalid token; allowed: 1 to 256 printable characters of ASCII, without spaces"]
    );
    let file = read(&with(
        &json!({ "cluster": "relay", "token": "geheim" }),
        &[],
    ));
    assert!(!format!("{file:?}").contains("geheim"), "{file:?}");
    let written = serde_json::to_string(&file).expect("serialises");
    assert!(!written.contains("geheim"), "{written}");
}

/// Without a token, a file is read back as it was.
#[test]
fn a_fleet_is_written_as_it_is_read() {
    let fleet = json!({
        "cluster": "relay", "lease": "1s", "timeout": "50ms", "credit": 2, "on_outage": "admit",
    });
    let first = read(&with(&fleet, &[rule(&json!({ "scope": "fleet" }))]));
    let written = serde_json::to_value(&first).expect("serialises");
    assert_eq!(written["fleet"], fleet);
    assert_eq!(written["rules"][0]["scope"], "fleet");
    assert_eq!(read(&written), first);
    let own = serde_json::to_value(read(&file_without())).expect("serialises");
    assert_eq!(
        (&own["fleet"], &own["rules"][0]["scope"]),
        (&Value::Null, &Value::Null)
    );
}

/// A rule alone, as the record and exports have it, keeps its scope.
#[test]
fn a_rule_alone_keeps_its_scope() {
    let shared = parse_rule(&rule(&json!({ "scope": "fleet" }))).expect("valid");
    let own = parse_rule(&rule(&json!({}))).expect("valid");
    assert_eq!((shared.scope, own.scope), (Scope::Fleet, Scope::Envoy));
    assert_ne!(
        serde_json::to_vec(&shared).expect("serialises"),
        serde_json::to_vec(&own).expect("serialises")
    );
    assert_eq!(shared.tag(), own.tag());
}

#[test]
fn a_shared_rule_needs_a_fleet() {
    let said = "`scope: fleet` needs the field `fleet` in the file; allowed: envoy, or fleet with \
                `fleet: { cluster: NAME }` beside `rules`: the cluster of the relay";
    let lines = |document: &Value| -> Vec<String> {
        let problems = problems(document);
        let end = format!(": \"fleet\": {said}");
        let places = problems
            .iter()
            .map(|line| line.strip_suffix(&end).unwrap_or(line));
        places.map(str::to_string).collect()
    };
    let mut document = file(&[
        rule(&json!({ "scope": "fleet" })),
        rule(&json!({ "name": "b", "scope": "envoy" })),
        rule(&json!({ "name": "c", "scope": "fleet" })),
    ]);
    assert_eq!(lines(&document), ["rules[0].scope", "rules[2].scope"]);
    document["fleet"] = relay();
    assert_eq!(lines(&document), [""; 0]);
    // An invalid fleet is one problem.
    document["fleet"] = json!({});
    assert_eq!(lines(&document).len(), 1);
    let in_defaults = json!({ "version": 1, "defaults": { "scope": "fleet" }, "rules": [
        rule(&json!({})), rule(&json!({ "name": "b" })),
    ] });
    assert_eq!(lines(&in_defaults), ["defaults.scope"]);
}

#[test]
fn limits_that_a_fleet_shares() {
    let limits = json!([
        { "algorithm": "funnel", "capacity": 5, "rate": "1/s" },
        { "name": "zero", "algorithm": "gcra", "capacity": 5, "rate": "1/s", "max_wait": "0s" },
        { "algorithm": "token_bucket", "capacity": 5, "rate": "1/s" },
        { "name": "lumps", "algorithm": "token_bucket", "capacity": 5, "rate": "1/s", "refill": "interval", "initial": 5 },
        { "algorithm": "fixed_window", "capacity": 5, "window": "1m", "align": "clock" },
    ]);
    let overrides = json!({
        "alice": { "scale": 2.5 }, "bob": "unlimited", "mallory": "banned",
        "team-*": { "limits": [{ "algorithm": "funnel", "capacity": 9, "rate": "1/s" }] },
    });
    let rule = rule(&json!({ "scope": "fleet", "limits": limits, "overrides": overrides }));
    assert_eq!(problems(&with(&relay(), &[rule])), [""; 0]);
}

#[test]
fn limits_that_a_fleet_cannot_share() {
    let algorithms = "funnel, token_bucket, and fixed_window with align: clock, none of them with max_wait or initial";
    for limit in [
        json!({ "algorithm": "sliding_window", "capacity": 5, "window": "1m" }),
        json!({ "algorithm": "sliding_log", "capacity": 5, "window": "1m" }),
        json!({ "algorithm": "sliding_counter", "capacity": 5, "window": "1m" }),
        json!({ "algorithm": "leaky_queue", "capacity": 5, "rate": "1/s" }),
        json!({ "algorithm": "smooth_bursty", "rate": "5/s" }),
        json!({ "algorithm": "smooth_warmup", "rate": "5/s", "warmup": "10s" }),
        json!({ "algorithm": "concurrency", "capacity": 5 }),
    ] {
        let name = limit["algorithm"].as_str().expect("a name");
        let expected = format!(
            "algorithm: \"{name}\": a fleet cannot share the limit `{name}`; allowed: {algorithms}"
        );
        assert_eq!(of_limit(&limit), [expected]);
    }
    for (limit, expected) in [
        (
            json!({ "name": "burst", "algorithm": "funnel", "capacity": 5, "rate": "1/s", "max_wait": "2s" }),
            "max_wait: \"2s\": a fleet cannot share the limit `burst`: each Envoy would have its own queue; \
             allowed: 0s with scope: fleet",
        ),
        (
            json!({ "algorithm": "token_bucket", "capacity": 5, "rate": "1/s", "max_wait": "2s" }),
            "max_wait: \"2s\": a fleet cannot share the limit `token_bucket`: each Envoy would have its own \
             queue; allowed: 0s with scope: fleet",
        ),
        (
            json!({ "algorithm": "token_bucket", "capacity": 5, "rate": "1/s", "initial": 4 }),
            "initial: 4: a fleet cannot share the limit `token_bucket`: an unused bucket is always full; \
             allowed: the capacity with scope: fleet",
        ),
        (
            json!({ "algorithm": "fixed_window", "capacity": 5, "window": "1m" }),
            "align: \"first\": a fleet cannot share the limit `fixed_window`: its windows begin at another time \
             in each Envoy; allowed: clock with scope: fleet",
        ),
        (
            json!({ "algorithm": "fixed_window", "capacity": 5, "window": "month" }),
            "window: \"month\": a fleet cannot share the limit `fixed_window`: the engine's windows all have one \
             length; allowed: a duration with scope: fleet, such as 1d with align: clock",
        ),
    ] {
        assert_eq!(of_limit(&limit), [expected]);
    }
}

/// Limits may occur in a rule, in its overrides, and in the defaults.
#[test]
fn unshared_limits_have_their_places() {
    let log = json!([
        { "algorithm": "funnel", "capacity": 5, "rate": "1/s" },
        { "algorithm": "sliding_log", "capacity": 5, "window": "1m" },
    ]);
    let places = |document: &Value| -> Vec<String> {
        let problems = parse(document).problems;
        problems
            .iter()
            .map(|problem| problem.path.to_string())
            .collect()
    };
    let document = with(
        &relay(),
        &[rule(
            &json!({ "scope": "fleet", "overrides": { "team-*": { "limits": log } }, "limits": log }),
        )],
    );
    assert_eq!(
        places(&document),
        [
            "rules[0].limits[1].algorithm",
            "rules[0].overrides.team-*.limits[1].algorithm"
        ]
    );
    let mut document = with(&relay(), &[json!({ "name": "a", "key": [] })]);
    document["defaults"] = json!({ "scope": "fleet", "limits": log });
    assert_eq!(places(&document), ["defaults.limits[1].algorithm"]);
    // A rule with the scope of one Envoy may have these limits.
    assert_eq!(problems(&file(&[rule(&json!({ "limits": log }))])), [""; 0]);
}

/// The rule that an edit makes is checked like the configuration.
#[test]
fn edited_rules() {
    let edited = |scope: &str, edit: &Value| -> Vec<String> {
        let mut rule = parse_rule(&rule(&json!({ "scope": scope }))).expect("valid");
        parse_edit(edit).expect("an edit").apply(&mut rule);
        let problems = unshared(&rule);
        problems
            .iter()
            .map(|problem| problem.path.to_string())
            .collect()
    };
    let log = json!([{ "algorithm": "sliding_log", "capacity": 5, "window": "1m" }]);
    let limits = json!({ "limits": log });
    let overrides = json!({ "overrides": { "alice": { "limits": log } } });
    assert_eq!(edited("fleet", &limits), ["limits[0].algorithm"]);
    assert_eq!(
        edited("fleet", &overrides),
        ["overrides.alice.limits[0].algorithm"]
    );
    assert_eq!(edited("fleet", &json!({ "mode": "shadow" })), [""; 0]);
    assert_eq!(edited("envoy", &limits), [""; 0]);
    let problems =
        parse_edit(&json!({ "mode": "shadow", "scope": "envoy" })).expect_err("not edited");
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "scope: an edit cannot change the scope, because each scope has separate buckets; allowed: limits, \
          mode, penalty, overrides"
        ]
    );
}

/// Configurations that differ only in the scope of a rule are recorded as different.
#[test]
fn files_with_other_scopes_differ() {
    let [own, shared]: [RuleFile; 2] =
        ["envoy", "fleet"].map(|scope| read(&with(&relay(), &[rule(&json!({ "scope": scope }))])));
    assert_ne!(own, shared);
}
