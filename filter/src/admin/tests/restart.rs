//! A restart of Envoy: versions and numbers of the previous process are not valid in the new one.

use super::*;

/// Two processes, one after the other, with the same rules.
fn restarted() -> (Bench, Bench) {
    let before = Bench::new();
    let after = Bench::of_process(1);
    (before, after)
}

impl Bench {
    /// A header of the answer to `GET path`.
    fn header(&mut self, path: &str, name: &str) -> String {
        let token = format!("Bearer {VIEW}");
        let headers: [(&str, &[u8]); 1] = [("authorization", token.as_bytes())];
        self.host.request("GET", path, &headers);
        let Begin::Answer(reply) = self.admin.begin(&self.host, false) else {
            panic!("no body was sent")
        };
        let found = reply.headers.into_iter().find(|(other, _)| other == name);
        found.expect(name).1
    }
}

#[test]
fn an_etag_of_the_process_before_never_matches() {
    let (mut before, mut after) = restarted();
    for path in [
        "/v1/rules",
        "/v1/rules/per-user",
        "/v1/status",
        "/v1/export",
    ] {
        let (old, new) = (before.header(path, "etag"), after.header(path, "etag"));
        assert_ne!(old, new, "{path}");
        assert!(new.ends_with("-1\""), "{path}: {new}");
    }
    let old = before.header("/v1/rules", "etag");
    for (method, path, body) in [
        ("PUT", "/v1/rules/per-user", Some(capacity(9))),
        ("DELETE", "/v1/rules/per-user", None),
        ("PUT", "/v1/overrides/per-user/alice", Some(json!("banned"))),
        ("DELETE", "/v1/overrides/per-user/alice", None),
    ] {
        let (status, answer) = after.edit(method, path, &old, body.as_ref());
        assert_eq!(status, 412, "{method} {path}: {answer}");
        let detail = answer["detail"].as_str().expect("a detail");
        assert!(detail.contains("Envoy restarted 0s ago"), "{detail}");
        // The text and the current rule have the right value.
        let current = &answer["current"];
        let right = format!(
            "\"{}-{}\"",
            current["instance"].as_str().expect("an instance"),
            current["generation"]
        );
        assert_eq!(right, after.header("/v1/rules", "etag"));
        assert!(detail.contains(&right), "{detail}");
    }
    assert_eq!(
        after.get("/v1/status")["generation"],
        1,
        "nothing was changed"
    );
    let new = after.header("/v1/rules", "etag");
    let (status, _) = after.edit("PUT", "/v1/rules/per-user", &new, Some(&capacity(9)));
    assert_eq!(status, 200);
}

#[test]
fn a_bare_generation_is_not_enough_and_the_answer_says_what_is() {
    let mut bench = Bench::new();
    let right = bench.header("/v1/rules", "etag");
    for (seen, why) in [
        ("\"1\"", "a generation alone"),
        ("\"1\", \"2\"", "a generation alone"),
        ("W/\"1\"", "a weak tag"),
    ] {
        let (got, answer) = bench.edit("PUT", "/v1/rules/per-user", seen, Some(&capacity(9)));
        assert_eq!(got, 412, "{seen}");
        let detail = answer["detail"].as_str().expect("a detail");
        assert!(detail.contains(&right), "{seen}: {detail}");
        assert!(detail.starts_with(why), "{seen}: {detail}");
    }
    // A stale tag of the same process gets another text.
    let (status, _) = bench.edit("PUT", "/v1/rules/per-user", &right, Some(&capacity(9)));
    assert_eq!(status, 200);
    let (status, answer) = bench.edit("PUT", "/v1/rules/per-user", &right, Some(&capacity(9)));
    assert_eq!(status, 412);
    let detail = answer["detail"].as_str().expect("a detail");
    assert!(detail.starts_with("the rules have changed"), "{detail}");
}

#[test]
fn every_answer_with_a_generation_names_the_process() {
    let (mut before, mut after) = restarted();
    let old = before.get("/v1/status")["instance"].clone();
    let status = after.get("/v1/status");
    let instance = status["instance"].as_str().expect("an instance").to_owned();
    assert_eq!(instance.len(), 16, "{instance}");
    assert!(instance.bytes().all(|digit| digit.is_ascii_hexdigit()));
    assert_ne!(old, json!(instance));
    assert_eq!(status["started_unix_ms"], 1_700_000_000_000_u64);
    for path in [
        "/v1/rules",
        "/v1/rules/per-user",
        "/v1/buckets",
        "/v1/events",
    ] {
        assert_eq!(after.get(path)["instance"], json!(instance), "{path}");
    }
    assert_eq!(
        after.get("/v1/rules")["rules"][0]["instance"],
        json!(instance)
    );
    // It does not change while the process lives.
    after.host.pass(Nanos::from_secs(7));
    let (code, answer) = after.edit("PUT", "/v1/rules/per-user", "*", Some(&capacity(9)));
    assert_eq!(
        (code, &answer["after"]["instance"]),
        (200, &json!(instance))
    );
    let status = after.get("/v1/status");
    assert_eq!(status["instance"], json!(instance));
    assert_eq!(status["started_unix_ms"], 1_700_000_000_000_u64);
}

#[test]
fn a_follower_of_the_process_before_starts_from_the_beginning() {
    let (mut before, mut after) = restarted();
    for _ in 0..3 {
        before.edit("PUT", "/v1/rules/per-user", "*", Some(&capacity(9)));
    }
    let seen = before.get("/v1/events");
    let place = |events: &Value| {
        let instance = events["instance"].as_str().expect("an instance");
        format!("{instance}-{}", events["last_seq"])
    };
    let path = format!("/v1/events?after={}", place(&seen));
    assert_eq!(before.get(&path)["events"], json!([]));
    assert_eq!(before.get(&path).get("restarted"), None);
    let events = after.get(&path);
    assert_eq!(events["restarted"], true);
    assert_eq!(
        (&events["last_seq"], &events["lost"]),
        (&json!(1), &json!(0))
    );
    assert_eq!(events["events"][0]["kind"], "configured");
    let next = format!("/v1/events?after={}", place(&events));
    assert_eq!(after.get(&next)["events"], json!([]));
    assert_eq!(after.get(&next).get("restarted"), None);
    // A plain number that no event here has had cannot belong to this process either.
    let events = after.get("/v1/events?after=4");
    assert_eq!(
        (&events["restarted"], &events["events"][0]["seq"]),
        (&json!(true), &json!(1))
    );
    assert_eq!(after.get("/v1/events?after=1").get("restarted"), None);
    let view: [(&str, &[u8]); 1] = [("authorization", b"Bearer view-token")];
    for odd in [
        "x",
        "-",
        "-1",
        "1-",
        "0123-x",
        "0123456789abcdeg-1",
        "1-2-3",
    ] {
        let path = format!("/v1/events?after={odd}");
        assert_eq!(after.call("GET", &path, &view, None).0, 400, "{odd}");
    }
}

#[test]
fn the_edit_body_repeats_an_edit() {
    let mut bench = Bench::new();
    let rule = |bench: &mut Bench| bench.get("/v1/rules/per-user");
    assert_eq!(rule(&mut bench).get("edit_body"), None);
    let change =
        json!({ "mode": "shadow", "penalty": { "after": 9, "within": "1m", "ban": "10s" } });
    bench.edit("PUT", "/v1/rules/per-user", "*", Some(&change));
    bench.edit(
        "PUT",
        "/v1/overrides/per-user/alice",
        "*",
        Some(&json!("banned")),
    );
    let body = rule(&mut bench)["edit_body"].clone();
    assert_eq!(body["mode"], "shadow");
    assert_eq!(body["penalty"]["ban"], "10s");
    // Edited overrides of single keys are not part of it.
    assert_eq!((body.get("limits"), body.get("overrides")), (None, None));
    let before = rule(&mut bench);
    let mut other = Bench::of_process(1);
    let (status, answer) = other.edit("PUT", "/v1/rules/per-user", "*", Some(&body));
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["after"]["edit_body"], body);
    assert_eq!(
        answer["after"]["rule"]["penalty"],
        before["rule"]["penalty"]
    );
}
