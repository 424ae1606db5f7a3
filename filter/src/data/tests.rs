//! The data role on the fake host.

use loudou_limiter::config;
use serde_json::json;

use super::*;
use crate::host::fake::FakeHost;

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

/// The status that `user` gets: 0 for passing.
fn send(plane: &mut DataPlane, host: &FakeHost, user: Option<&[u8]>) -> u16 {
    let headers: Vec<(&str, &[u8])> = user.map(|user| ("x-user-id", user)).into_iter().collect();
    host.request("GET", "/", &headers);
    match plane.decide(host, 1).0 {
        Fate::Pass(_) => 0,
        Fate::Hold(_) => 1,
        Fate::Refuse(reply) => reply.status,
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
fn refusals_say_what_and_how_long() {
    let host = FakeHost::default();
    let mut plane = DataPlane::new(file(&rules("enforce", &[])), Nanos::ZERO);
    send(&mut plane, &host, Some(b"alice"));
    send(&mut plane, &host, Some(b"alice"));
    let Fate::Refuse(reply) = plane.decide(&host, 1).0 else {
        panic!("refused")
    };
    let header = |name: &str| {
        reply
            .headers
            .iter()
            .find(|(own, _)| *own == name)
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

/// The headers that alice's requests get, the second refused, and the third shadow of a wait.
fn told(respond: &serde_json::Value) -> Vec<Vec<String>> {
    let host = FakeHost::default();
    let asked = rules("enforce", &[("respond", respond.clone())]);
    let mut plane = DataPlane::new(file(&asked), Nanos::ZERO);
    let mut answers = Vec::new();
    for _ in 0..3 {
        host.request("GET", "/", &[("x-user-id", b"alice")]);
        let headers = match plane.decide(&host, 1).0 {
            Fate::Refuse(reply) => reply.headers,
            Fate::Pass(headers) | Fate::Hold(headers) => headers,
        };
        let lines = headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}"));
        answers.push(lines.filter(|line| !line.starts_with("content-")).collect());
    }
    answers
}

#[test]
fn each_word_has_its_headers() {
    let draft = |left: u32, t: u32| {
        vec![
            "ratelimit-policy: \"per-user.burst\";q=2;w=20".to_owned(),
            format!("ratelimit: \"per-user.burst\";r={left};t={t}"),
        ]
    };
    let legacy = |left: u32, t: u32| {
        vec![
            "x-ratelimit-limit: 2".to_owned(),
            format!("x-ratelimit-remaining: {left}"),
            format!("x-ratelimit-reset: {t}"),
        ]
    };
    let nothing = |_: u32, _: u32| Vec::new();
    let both = |left: u32, t: u32| [draft(left, t), legacy(left, t)].concat();
    let cases: [(&str, [&dyn Fn(u32, u32) -> Vec<String>; 2]); 5] = [
        ("refused", [&nothing, &draft]),
        ("draft11", [&draft, &draft]),
        ("legacy", [&legacy, &legacy]),
        ("both", [&both, &both]),
        ("none", [&nothing, &nothing]),
    ];
    for (word, [admitted, refused]) in cases {
        let mut last = refused(0, 10);
        last.push("retry-after: 10".to_owned());
        let expected = [admitted(1, 10), admitted(0, 20), last];
        assert_eq!(
            told(&json!({ "ratelimit_headers": word })),
            expected,
            "{word}"
        );
    }
    assert_eq!(
        told(&json!({})),
        told(&json!({ "ratelimit_headers": "refused" }))
    );
}

#[test]
fn jitter_makes_the_wait_longer_only_in_retry_after() {
    let told = told(&json!({ "retry_after_jitter": 1 }));
    let refused = told.last().expect("three");
    assert!(refused[1].ends_with(";t=10"), "{refused:?}");
    let wait: u32 = refused[2]
        .strip_prefix("retry-after: ")
        .expect("it")
        .parse()
        .expect("number");
    assert!((10..=20).contains(&wait), "{wait}");
}

#[test]
fn what_an_upstream_says_in_lists_stays() {
    let host = FakeHost::default();
    host.add_response_header("ratelimit", "\"upstream\";r=1");
    host.add_response_header("x-ratelimit-limit", "77");
    let ours = vec![
        ("ratelimit", "\"r.l\";r=2".to_owned()),
        ("x-ratelimit-limit", "3".to_owned()),
    ];
    put(&host, ours);
    let headers = host.response_headers.borrow();
    let of = |name: &str| headers.iter().filter(|(own, _)| own == name).count();
    assert_eq!((of("ratelimit"), of("x-ratelimit-limit")), (2, 1));
}

#[test]
fn admitted_headers_only_where_asked() {
    let host = FakeHost::default();
    let asked = rules(
        "enforce",
        &[("respond", json!({ "ratelimit_headers": "draft11" }))],
    );
    let mut plane = DataPlane::new(file(&asked), Nanos::ZERO);
    host.request("GET", "/", &[("x-user-id", b"alice")]);
    let Fate::Pass(headers) = plane.decide(&host, 1).0 else {
        panic!("passes")
    };
    assert_eq!(
        headers[0],
        ("ratelimit-policy", "\"per-user.burst\";q=2;w=20".to_owned())
    );
    assert_eq!(
        headers[1],
        ("ratelimit", "\"per-user.burst\";r=1;t=10".to_owned())
    );
}
