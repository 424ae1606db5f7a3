//! The data role on the fake host.

use loudou_rules::config;
use loudou_store::{CAS_ABSENT, Written};
use serde_json::json;

use super::*;
use crate::host::fake::FakeHost;
use crate::record::{Bases, Records};

mod answers;
mod audit;
#[cfg(feature = "admin")]
mod embedded;
mod generations;
mod leases;
mod model;
mod planning;
mod top;
mod waiting;

fn file(rules: &serde_json::Value) -> RuleFile {
    let parsed = config::parse(&json!({ "version": 1, "rules": rules }));
    parsed
        .file
        .unwrap_or_else(|| panic!("{:?}", parsed.problems))
}

fn rules(mode: &str, extra: &[(&str, serde_json::Value)]) -> serde_json::Value {
    let mut rule = json!({
        "name": "per-user",
        "key": [{ "header": "x-user-id" }],
        "mode": mode,
        "limits": [{ "name": "burst", "algorithm": "funnel", "capacity": 2, "rate": "1/10s" }],
    });
    for (field, value) in extra {
        rule[*field] = value.clone();
    }
    json!([rule])
}

/// Returns the status that `user` gets. 0 means that the request passes.
fn send(plane: &mut DataPlane, host: &FakeHost, user: Option<&[u8]>) -> u16 {
    let headers: Vec<(&str, &[u8])> = user.map(|user| ("x-user-id", user)).into_iter().collect();
    host.request("GET", "/", &headers);
    match plane.decide(host, 1, false).0 {
        RequestOutcome::Pass(_) => 0,
        RequestOutcome::Hold(_) => 1,
        RequestOutcome::Refuse(reply) => reply.status,
    }
}

#[test]
fn two_workers_share_one_bucket() {
    let host = FakeHost::default();
    let file = file(&rules("enforce", &[]));
    let mut workers = [
        DataPlane::new(file.clone(), Nanos::ZERO),
        DataPlane::new(file, Nanos::ZERO),
    ];
    let statuses: Vec<u16> = (0..4)
        .map(|i| send(&mut workers[i % 2], &host, Some(b"alice")))
        .collect();
    assert_eq!(statuses, [0, 0, 429, 429]);
    assert_eq!(send(&mut workers[0], &host, Some(b"bob")), 0);
    host.pass(Nanos::from_secs(10));
    assert_eq!(
        send(&mut workers[1], &host, Some(b"alice")),
        0,
        "one unit has leaked"
    );
    assert_eq!(host.metric("loudou.rule.per-user.admitted"), 4);
    assert_eq!(host.metric("loudou.rule.per-user.refused"), 2);
    assert_eq!(host.metric("loudou.store.used"), 2);
}

#[test]
fn refusals_name_the_limit_and_the_wait() {
    let host = FakeHost::default();
    let mut plane = DataPlane::new(file(&rules("enforce", &[])), Nanos::ZERO);
    send(&mut plane, &host, Some(b"alice"));
    send(&mut plane, &host, Some(b"alice"));
    let RequestOutcome::Refuse(reply) = plane.decide(&host, 1, false).0 else {
        panic!("refused")
    };
    let header = |name: &str| {
        reply
            .headers
            .iter()
            .find(|(other, _)| *other == name)
            .map(|(_, value)| value.as_str())
    };
    assert_eq!(header("retry-after"), Some("10"));
    assert_eq!(header("ratelimit"), Some("\"per-user.burst\";r=0;t=10"));
    assert_eq!(
        header("ratelimit-policy"),
        Some("\"per-user.burst\";q=2;w=20")
    );
    let body: serde_json::Value = serde_json::from_slice(&reply.body).expect("JSON");
    assert_eq!(body["violated-policies"], json!(["per-user.burst"]));
    assert_eq!(reply.details, "loudou_over_limit{per-user.burst}");
}

#[test]
fn shadow_counts_and_lets_pass() {
    let host = FakeHost::default();
    let mut plane = DataPlane::new(file(&rules("shadow", &[])), Nanos::ZERO);
    for _ in 0..5 {
        assert_eq!(send(&mut plane, &host, Some(b"alice")), 0);
    }
    assert_eq!(host.metric("loudou.rule.per-user.shadow_refused"), 3);
    assert_eq!(host.metric("loudou.rule.per-user.refused"), 0);
}

#[test]
fn a_missing_key_follows_its_policy() {
    for (policy, statuses) in [
        ("skip", [0, 0, 0]),
        ("refuse", [429, 429, 429]),
        ("share", [0, 0, 429]),
    ] {
        let host = FakeHost::default();
        let rules = rules("enforce", &[("on_missing_key", json!(policy))]);
        let mut plane = DataPlane::new(file(&rules), Nanos::ZERO);
        let got = [None, Some(&b""[..]), None].map(|user| send(&mut plane, &host, user));
        assert_eq!(got, statuses, "{policy}");
    }
}

#[test]
fn a_store_that_fails_follows_on_error() {
    for (policy, status) in [("admit", 0), ("refuse", 429)] {
        let host = FakeHost::default();
        let mut plane = DataPlane::new(
            file(&rules("enforce", &[("on_error", json!(policy))])),
            Nanos::ZERO,
        );
        host.store_fails.set(true);
        assert_eq!(
            send(&mut plane, &host, Some(b"alice")),
            status,
            "{policy} before the start"
        );
        host.store_fails.set(false);
        assert_eq!(send(&mut plane, &host, Some(b"alice")), 0);
        host.store_fails.set(true);
        assert_eq!(
            send(&mut plane, &host, Some(b"alice")),
            status,
            "{policy} later"
        );
        assert_eq!(host.metric("loudou.rule.per-user.errors"), 1);
    }
}

#[test]
fn nothing_is_shared_before_the_first_tick_or_request() {
    let host = FakeHost::default();
    let mut plane = DataPlane::new(file(&rules("enforce", &[])), Nanos::ZERO);
    assert!(host.store.borrow().is_empty(), "a canary leaves no trace");
    assert!(plane.start(&host));
    assert!(!host.store.borrow().is_empty());
}

/// Returns the record as a worker without a cache reads it.
fn records() -> Records {
    Records::new("loudou", Bases::default())
}

/// Returns the capacity that the record has for the rule.
fn in_force(host: &FakeHost) -> String {
    let record = records().read(host);
    let record = record.expect("a record");
    format!("{:?}", record.rules[0].base.limits)
}

#[test]
fn a_sandbox_that_is_loaded_again_brings_nothing_new() {
    let host = FakeHost::default();
    let other = json!([{ "algorithm": "funnel", "capacity": 5, "rate": "1/10s" }]);
    let old = file(&rules("enforce", &[]));
    let new = file(&rules("enforce", &[("limits", other)]));
    assert!(DataPlane::new(old.clone(), host.now()).start(&host));
    let at_first = in_force(&host);
    host.pass(Nanos::from_secs(10));
    assert!(DataPlane::new(new, host.now()).start(&host));
    let now = in_force(&host);
    assert_ne!(now, at_first);

    // A request to the draining listener, for which its VM is loaded again.
    host.pass(Nanos::from_secs(10));
    let begun = host.unix_ms() * 1_000_000;
    let time = begun.to_le_bytes().to_vec();
    host.properties
        .borrow_mut()
        .insert("request\0time".to_owned(), time);
    host.pass(Nanos::from_millis(3));
    let mut plane = DataPlane::new(old.clone(), host.now());
    host.pass(Nanos::from_millis(1));
    assert_eq!(send(&mut plane, &host, Some(b"alice")), 0);
    assert_eq!(in_force(&host), now);

    // The configuration stays, and a request arrives right after it was loaded.
    let mut plane = DataPlane::new(old, host.now());
    host.pass(Nanos::new(200_000));
    let begun = host.unix().get();
    let time = begun.to_le_bytes().to_vec();
    host.properties
        .borrow_mut()
        .insert("request\0time".to_owned(), time);
    host.pass(Nanos::new(300_000));
    assert_eq!(send(&mut plane, &host, Some(b"alice")), 0);
    assert_eq!(in_force(&host), at_first);
}

/// A rule with `when` limits only while its upstream fails, by the counts of all workers.
#[test]
fn rules_that_apply_while_the_upstream_fails() {
    let host = FakeHost::default();
    let when = json!({ "upstream_error_rate_over": 0.5, "least": 4, "within": "1s" });
    let file = file(&rules("enforce", &[("when", when), ("key", json!([]))]));
    let mut workers = [
        DataPlane::new(file.clone(), Nanos::ZERO),
        DataPlane::new(file, Nanos::ZERO),
    ];
    let property = |path: &str, value: &[u8]| {
        let mut properties = host.properties.borrow_mut();
        properties.insert(path.to_owned(), value.to_vec());
    };
    let mut ends = |worker: usize, cluster: &str, code: u64| {
        property("xds\0cluster_name", cluster.as_bytes());
        host.request("GET", "/", &[]);
        let (outcome, hold_state) = workers[worker].decide(&host, 1, false);
        let is_refused = matches!(outcome, RequestOutcome::Refuse(_));
        let details = if is_refused {
            "loudou_over_limit"
        } else {
            "via_upstream"
        };
        property("response\0code_details", details.as_bytes());
        property("response\0code", &code.to_le_bytes());
        workers[worker].end(&host, &hold_state);
        is_refused
    };
    for n in 0..4 {
        assert!(!ends(n % 2, "up", 503), "the rule does not apply yet");
    }
    let refused: Vec<bool> = (0..4).map(|n| ends(n % 2, "up", 429)).collect();
    assert_eq!(refused, [false, false, true, true], "capacity 2");
    assert!(!ends(0, "other", 200));
    host.pass(Nanos::from_secs(1));
    assert!(!ends(1, "up", 200), "nothing counts any more");
    assert_eq!(host.metric("loudou.rule.per-user.refused"), 2);
    assert_eq!(host.metric("loudou.store.lost_responses"), 0);
    let logs = host.logs.borrow();
    let events: Vec<&String> = logs
        .iter()
        .filter(|line| line.starts_with("upstream_"))
        .collect();
    assert_eq!(events.len(), 2, "{logs:?}");
    assert!(
        events[0].starts_with("upstream_fails: rule per-user, key -: upstream up: 4 of 4"),
        "{events:?}"
    );
    assert!(events[1].starts_with("upstream_heals: rule per-user"));
}

/// Without an active `when`, no upstream property is read from the host, and nothing is written.
#[test]
fn without_when_no_response_is_looked_at() {
    let when = json!({ "upstream_error_rate_over": 0.5, "least": 1 });
    for (mode, extra, reads) in [
        ("enforce", None, 0),
        ("off", Some(("when", when.clone())), 0),
        ("enforce", Some(("when", when)), 3),
    ] {
        let host = FakeHost::default();
        let extra: Vec<_> = extra.into_iter().collect();
        let mut plane = DataPlane::new(file(&rules(mode, &extra)), Nanos::ZERO);
        assert!(plane.start(&host));
        for (path, value) in [
            ("xds\0cluster_name", &b"up"[..]),
            ("response\0flags", &[2, 0, 0, 0, 0, 0, 0, 0]),
        ] {
            let mut properties = host.properties.borrow_mut();
            properties.insert(path.to_owned(), value.to_vec());
        }
        host.request("GET", "/", &[]);
        let (_, hold_state) = plane.decide(&host, 1, false);
        let before = host.store.borrow().len();
        plane.end(&host, &hold_state);
        // And one write for the connection number.
        assert_eq!(host.properties_read.get(), reads + 1, "{mode}");
        let written = host.store.borrow().len() - before;
        assert_eq!(written > 0, reads > 0, "{mode}");
    }
}

/// A worker that cannot read the record, because another version of Loudou has written it, uses its own
/// configuration and leaves the record alone.
#[test]
fn a_record_of_another_version_does_not_lift_the_limits() {
    let host = FakeHost::default();
    let other = br#"{"format":99,"generation":7}"#;
    let written = host.shared_set(b"loudou:rules", other, CAS_ABSENT);
    assert_eq!(written, Ok(Written::Done));
    let mut plane = DataPlane::new(file(&rules("enforce", &[])), Nanos::ZERO);
    let statuses: Vec<u16> = (0..4)
        .map(|_| send(&mut plane, &host, Some(b"alice")))
        .collect();
    assert_eq!(statuses, [0, 0, 429, 429]);
    let mut record = Vec::new();
    let read = host.shared_get(b"loudou:rules", &mut record);
    assert!(read.is_ok_and(|cas| cas.is_some()));
    assert_eq!(record, other);
    let reported = |line: &&String| line.contains("another version");
    assert_eq!(host.logs.borrow().iter().filter(reported).count(), 1);
}

/// A rule by user with these fields.
fn rule(fields: &[&serde_json::Value]) -> serde_json::Value {
    let mut rule = rules("enforce", &[])[0].clone();
    let objects = fields.iter().filter_map(|fields| fields.as_object());
    for (name, value) in objects.flatten() {
        rule[name] = value.clone();
    }
    rule
}

/// While the store cannot be used at all, each rule reacts as if its bucket could not be read.
#[test]
fn rules_hold_as_far_as_they_can_without_a_store() {
    let banned = json!({ "overrides": { "eve": "banned" } });
    let refuse = json!({ "on_error": "refuse" });
    let other = |fields: &[&serde_json::Value]| {
        let mut rule = rule(fields);
        rule["name"] = json!("other");
        rule
    };
    for (what, rules, user, status) in [
        ("banned", json!([rule(&[&banned])]), Some("eve"), 429),
        ("another key", json!([rule(&[&banned])]), Some("bob"), 0),
        ("no key, skipped", json!([rule(&[&refuse])]), None, 0),
        (
            "no key, refused",
            json!([rule(&[&json!({ "on_missing_key": "refuse" })])]),
            None,
            429,
        ),
        (
            "behind a stop",
            json!([rule(&[&json!({ "stop": true })]), other(&[&refuse])]),
            Some("bob"),
            0,
        ),
        (
            "stop without a key",
            json!([
                rule(&[&json!({ "stop": true })]),
                other(&[&refuse, &json!({ "key": [] })])
            ]),
            None,
            429,
        ),
        (
            "a cluster that is not known",
            json!([rule(&[
                &refuse,
                &json!({ "when": { "upstream_error_rate_over": 0.5 } })
            ])]),
            Some("bob"),
            0,
        ),
    ] {
        let host = FakeHost::default();
        host.store_fails.set(true);
        let mut plane = DataPlane::new(file(&rules), Nanos::ZERO);
        let user = user.map(str::as_bytes);
        assert_eq!(send(&mut plane, &host, user), status, "{what}");
        // The response equals the one after a later store failure.
        host.store_fails.set(false);
        assert!(plane.start(&host));
        host.store_fails.set(true);
        assert_eq!(send(&mut plane, &host, user), status, "{what}, later");
    }
}

#[test]
fn no_client_explains_itself_without_a_store() {
    let explains = ("respond", json!({ "explain_header": true }));
    let host = FakeHost::default();
    host.store_fails.set(true);
    let mut plane = DataPlane::new(file(&rules("enforce", &[explains])), Nanos::ZERO);
    host.request("GET", "/", &[("x-loudou-decision", b"forged")]);
    assert!(matches!(
        plane.decide(&host, 1, false).0,
        RequestOutcome::Pass(_)
    ));
    let decision = host.request_header("x-loudou-decision");
    assert_eq!(decision.as_deref(), Some(&b"none"[..]));
}
