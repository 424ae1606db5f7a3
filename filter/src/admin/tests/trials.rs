//! Trials: limits that run in shadow mode beside the rule that they may replace.

use super::*;
use crate::record::MAX_TRIALS;

const TRIAL: &str = "/v1/rules/per-user~trial";

impl Bench {
    fn at(&mut self) -> String {
        let generation = &self.get("/v1/status")["generation"];
        format!("\"0707070707070707-{generation}\"")
    }

    fn change(&mut self, path: &str, body: &Value) -> (u16, Value) {
        let at = self.at();
        self.edit("PUT", path, &at, Some(body))
    }

    fn delete(&mut self, path: &str) -> (u16, Value) {
        let at = self.at();
        self.edit("DELETE", path, &at, None)
    }

    fn names(&mut self) -> Vec<String> {
        let rules = self.get("/v1/rules");
        let rules = rules["rules"].as_array().expect("list").iter();
        let names = rules.map(|rule| rule["name"].as_str().expect("name").to_owned());
        names.collect()
    }

    fn counts(&self, rule: &str) -> [i64; 3] {
        let count = |what: &str| self.host.metric(&format!("loudou.rule.{rule}.{what}"));
        [count("admitted"), count("refused"), count("shadow_refused")]
    }

    fn send(&mut self, requests: usize) -> usize {
        (0..requests).filter(|_| self.passes("alice")).count()
    }
}

#[test]
fn a_trial_counts_from_the_next_request_on_and_refuses_nothing() {
    let mut bench = Bench::new();
    let (status, answer) = bench.change(&format!("{TRIAL}?reason=tighter"), &capacity(1));
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["change"], "burst: capacity 2 → 1");
    assert_eq!(bench.send(5), 2, "the rule decides");
    assert_eq!(bench.counts("per-user"), [2, 3, 0]);
    assert_eq!(bench.counts("per-user~trial"), [1, 0, 4]);

    assert_eq!(bench.names(), ["per-user", "per-user~trial"]);
    let trial = bench.get(TRIAL);
    assert_eq!(trial["rule"]["mode"], "shadow");
    assert_eq!(trial["rule"]["shadows"], "per-user");
    assert_eq!(trial["edit"]["reason"], "tighter");
    assert_eq!(trial["totals"]["shadow_refused"], 4);
    let keys = bench.buckets("rule=per-user~trial");
    assert_eq!((keys.len(), key(&keys[0])), (1, "alice".to_owned()));

    // Another limit, while it runs.
    let (status, answer) = bench.change(&format!("{TRIAL}?carry=keep"), &capacity(3));
    assert_eq!(
        (status, &answer["changed"]),
        (200, &json!(true)),
        "{answer}"
    );
    bench.send(5);
    assert_eq!(bench.counts("per-user~trial"), [3, 0, 7]);
}

#[test]
fn a_trial_ends_with_its_edit_and_begins_anew() {
    let mut bench = Bench::new();
    assert_eq!(
        bench.change(&format!("{TRIAL}?for=60s"), &capacity(1)).0,
        200
    );
    bench.send(3);
    bench.host.pass(Nanos::from_secs(60));
    bench.send(3);
    assert_eq!(bench.counts("per-user~trial"), [1, 0, 2], "expired");
    assert_eq!(bench.names(), ["per-user"]);
    let events = bench.get("/v1/events?after=2");
    assert_eq!(events["events"][0]["kind"], "edit_expired");
    assert_eq!(events["events"][0]["rule"], "per-user~trial");

    assert_eq!(bench.change(TRIAL, &capacity(1)).0, 200);
    bench.send(2);
    assert_eq!(
        bench.counts("per-user~trial"),
        [2, 0, 3],
        "its buckets are new"
    );
    let (status, answer) = bench.delete(TRIAL);
    assert_eq!(
        (status, &answer["changed"]),
        (200, &json!(true)),
        "{answer}"
    );
    assert_eq!(answer["change"], "burst: capacity 1 → 2");
    bench.send(2);
    assert_eq!(bench.counts("per-user~trial"), [2, 0, 3], "dropped");
    assert_eq!(bench.names(), ["per-user"]);
    assert_eq!(bench.delete(TRIAL).0, 404);
}

#[test]
fn a_trial_tries_limits_of_a_rule_in_force_and_nothing_else() {
    let mut bench = Bench::new();
    let (status, answer) = bench.change(&format!("{TRIAL}?dry_run=true"), &capacity(1));
    assert_eq!((status, &answer["dry_run"]), (200, &json!(true)));
    assert_eq!(bench.names(), ["per-user"], "a dry run starts none");
    let (status, answer) = bench.change(TRIAL, &capacity(2));
    assert_eq!(status, 400, "{answer}");
    assert_eq!(
        answer["problems"][0]["message"], "nothing to try",
        "{answer}"
    );
    assert_eq!(bench.names(), ["per-user"]);
    for body in [json!({ "mode": "enforce" }), json!({ "penalty": null })] {
        let (status, answer) = bench.change(TRIAL, &body);
        assert_eq!(status, 400, "{answer}");
        assert_eq!(
            answer["problems"][0]["message"], "a trial tries limits only",
            "{answer}"
        );
    }
    for unknown in ["none~trial", "per-user~trial~trial", "~trial"] {
        assert_eq!(
            bench
                .change(&format!("/v1/rules/{unknown}"), &capacity(1))
                .0,
            404
        );
    }
    assert_eq!(bench.change(TRIAL, &json!({ "limits": [] })).0, 400);
    assert_eq!(bench.names(), ["per-user"]);
    assert_eq!(bench.change(TRIAL, &capacity(1)).0, 200);
    assert_eq!(bench.change(&format!("{TRIAL}~trial"), &capacity(3)).0, 404);
    let export = bench.get("/v1/export?with_temporary=true");
    assert_eq!(
        export["rules"].as_array().map(Vec::len),
        Some(1),
        "no file has a trial"
    );
}

#[test]
fn the_number_of_trials_is_bounded() {
    let rule = |at: usize| {
        json!({
            "name": format!("r{at}"),
            "key": [],
            "limits": [{ "name": "burst", "algorithm": "funnel", "capacity": 2, "rate": "1/d" }],
        })
    };
    let rules: Vec<Value> = (0..=MAX_TRIALS).map(rule).collect();
    let mut bench = Bench::with(FakeHost::default(), 65_536, &json!(rules));
    for at in 0..MAX_TRIALS {
        assert_eq!(
            bench
                .change(&format!("/v1/rules/r{at}~trial"), &capacity(1))
                .0,
            200
        );
    }
    let last = format!("/v1/rules/r{MAX_TRIALS}~trial");
    let (status, answer) = bench.change(&last, &capacity(1));
    assert_eq!(
        (status, &answer["title"]),
        (409, &json!("Too many trials")),
        "{answer}"
    );
    assert_eq!(
        bench.change("/v1/rules/r0~trial", &capacity(3)).0,
        200,
        "it runs already"
    );
    assert_eq!(bench.delete("/v1/rules/r0~trial").0, 200);
    assert_eq!(bench.change(&last, &capacity(1)).0, 200);
}

/// A trial has the overrides of its rule.
#[test]
fn a_trial_has_no_overrides_of_its_own() {
    let mut bench = Bench::new();
    assert_eq!(bench.change(TRIAL, &capacity(1)).0, 200);
    let other = "/v1/overrides/other~trial/alice";
    assert_eq!(
        bench.change(other, &json!({ "scale": 10 })).0,
        404,
        "there is no such rule"
    );
    let path = "/v1/overrides/per-user~trial/alice";
    let (status, answer) = bench.change(path, &json!({ "scale": 10 }));
    assert_eq!(status, 409, "{answer}");
    let detail = answer["detail"].as_str().expect("a detail");
    assert!(
        detail.contains("override the key of `per-user`"),
        "{detail}"
    );
}

#[test]
fn a_trial_lasts_as_long_as_the_configuration_of_its_rule() {
    let rules = |capacity: u32, other: &str| {
        let rule = |name: &str, capacity: u32| {
            json!({
                "name": name,
                "key": [{ "header": "x-user-id" }],
                "limits": [{ "name": "burst", "algorithm": "funnel", "capacity": capacity, "rate": "1/d" }],
            })
        };
        json!([rule("per-user", capacity), rule(other, 1_000)])
    };
    let load = |bench: &mut Bench, rules: &Value, at: u64| {
        let file = config::parse(&json!({ "version": 1, "rules": rules }));
        let mut plane = DataPlane::new(file.file.expect("valid"), Nanos::from_secs(at));
        assert!(plane.start(&bench.host));
        std::mem::replace(&mut bench.data, plane)
    };
    let mut bench = Bench::with(FakeHost::default(), 65_536, &rules(2, "other"));
    assert_eq!(bench.change(TRIAL, &capacity(1)).0, 200);
    bench.host.pass(Nanos::from_secs(5));

    // Another rule changes: a new worker reads the trial back, and one that drains counts it, too.
    let mut draining = load(&mut bench, &rules(2, "renamed"), 1);
    assert_eq!(bench.send(1), 1);
    std::mem::swap(&mut bench.data, &mut draining);
    assert_eq!(bench.send(2), 1, "the second of alice's two");
    std::mem::swap(&mut bench.data, &mut draining);
    assert_eq!(bench.counts("per-user~trial"), [1, 0, 2]);
    assert_eq!(bench.names(), ["per-user", "per-user~trial", "renamed"]);

    // Its own rule changes.
    load(&mut bench, &rules(3, "renamed"), 2);
    bench.send(1);
    assert_eq!(bench.names(), ["per-user", "renamed"]);
    assert_eq!(bench.counts("per-user~trial"), [1, 0, 2]);
    let events = bench.get("/v1/events?after=0");
    let events = events["events"].as_array().expect("list");
    let retired = events.iter().find(|event| event["kind"] == "edit_retired");
    assert_eq!(retired.expect("an event")["rule"], "per-user~trial");
}
