//! Lists of buckets, and their reset.

use loudou_api::MAX_READ;

use super::*;

#[test]
fn buckets_are_shown_and_reset() {
    let mut bench = Bench::new();
    for user in ["alice", "a:b%c/d", "bob"] {
        bench.passes(user);
    }
    bench.passes("alice");
    bench.passes("alice");
    let refusing = bench.buckets("state=refusing");
    assert_eq!(refusing.len(), 1);
    let alice = &refusing[0];
    assert_eq!(
        (&alice["key"], &alice["admitted"], &alice["refused"]),
        (&json!("alice"), &json!(2), &json!(1))
    );
    assert_eq!(alice["limits"][0]["remaining"], 0);
    assert_eq!(bench.buckets("key=%253A")[0]["key"], "a%3Ab%25c/d");
    assert_eq!(
        bench.get("/v1/buckets/per-user/a%253Ab%2525c%2Fd")["admitted"],
        1
    );
    assert_eq!(bench.get("/v1/status")["store"]["used"], 3);

    let (status, answer) = bench.edit(
        "POST",
        "/v1/buckets/per-user/alice/reset?reason=sorry",
        "",
        None,
    );
    assert_eq!((status, &answer["existed"]), (200, &json!(true)));
    assert!(bench.passes("alice"));
    let (status, _) = bench.edit("POST", "/v1/buckets/none/alice/reset", "", None);
    assert_eq!(status, 404);
}

/// A queue's bucket stays while requests wait in it, and is counted once.
#[test]
fn a_reset_keeps_those_that_wait() {
    for (mode, used, says) in [
        (
            "enforce",
            1,
            "the bucket was reset; requests that wait keep their places",
        ),
        ("shadow", 0, "the bucket was reset"),
    ] {
        let rules = json!([{
            "name": "per-user",
            "key": [{ "header": "x-user-id" }],
            "mode": mode,
            "limits": [{ "algorithm": "leaky_queue", "capacity": 9, "rate": "1/m" }],
        }]);
        let mut bench = Bench::with(FakeHost::default(), 64, &rules);
        for _ in 0..3 {
            bench.passes("alice");
        }
        let path = "/v1/buckets/per-user/alice/reset";
        let (status, answer) = bench.edit("POST", path, "", None);
        assert_eq!((status, &answer["before"]["admitted"]), (200, &json!(3)));
        assert_eq!(bench.get("/v1/status")["store"]["used"], used);
        let events = bench.get("/v1/events");
        let last = events["events"].as_array().and_then(|events| events.last());
        assert_eq!(last.expect("an event")["detail"], says);
    }
}

#[test]
fn pages_meet_in_no_gap() {
    let mut bench = Bench::new();
    for i in 0..300 {
        bench.passes(&format!("user-{i}"));
    }
    let mut keys: Vec<String> = bench.buckets("limit=7").iter().map(key).collect();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 300);
}

/// A bench whose rule has this limit.
fn bench_of(limit: &Value) -> Bench {
    let rules = json!([{
        "name": "per-user",
        "key": [{ "header": "x-user-id" }],
        "limits": [limit],
    }]);
    Bench::with(FakeHost::default(), 64, &rules)
}

/// A refusal shows for ten seconds, although the next request would be admitted at once.
#[test]
fn a_bucket_refuses_for_ten_seconds() {
    let mut bench = bench_of(&json!({ "algorithm": "funnel", "capacity": 1, "rate": "100/s" }));
    bench.host.pass(Nanos::from_secs(100));
    assert!(bench.passes("alice") && !bench.passes("alice") && bench.passes("bob"));
    let at = bench.host.now.get();
    let mut state = |user: &str, passed: u64| {
        bench.host.now.set(at + passed);
        let bucket = bench.get(&format!("/v1/buckets/per-user/{user}"));
        let state = bucket["state"].as_str().expect("a state").to_owned();
        let listed = bench.buckets(&format!("state={state}&key={user}"));
        assert_eq!(listed, std::slice::from_ref(&bucket));
        let refused_at = bucket["refused_at_ns"].as_u64();
        assert_eq!(refused_at.is_some(), user == "alice", "{bucket}");
        assert!(
            refused_at.is_none_or(|ns| ns <= at && at - ns < 300_000_000),
            "{bucket}"
        );
        state
    };
    assert_eq!(state("bob", 0), "busy");
    assert_eq!(state("alice", 0), "refusing");
    assert_eq!(state("bob", 50_000_000), "idle");
    assert_eq!(state("alice", 50_000_000), "refusing");
    assert_eq!(state("alice", 9_900_000_000), "refusing");
    assert_eq!(state("alice", 10_300_000_000), "idle");
}

/// A run of refusals keeps its beginning until a minute after its last refusal, even if requests
/// are admitted meanwhile.
#[test]
fn a_bucket_shows_since_when_it_refuses() {
    let mut bench = bench_of(&json!({ "algorithm": "funnel", "capacity": 1, "rate": "1/20s" }));
    bench.host.pass(Nanos::from_secs(1_000));
    let since = |bench: &mut Bench, user: &str| {
        let bucket = bench.get(&format!("/v1/buckets/per-user/{user}"));
        let listed = bench.buckets(&format!("key={user}"));
        assert_eq!(listed, std::slice::from_ref(&bucket));
        bucket["refused_since_ns"].as_u64()
    };
    assert!(bench.passes("alice") && bench.passes("bob"));
    assert_eq!(since(&mut bench, "alice"), None);
    bench.host.pass(Nanos::from_secs(7));
    let begin = bench.host.now.get();
    let mut passed = 0;
    for _ in 0..20 {
        passed += u32::from(bench.passes("alice"));
        let shown = since(&mut bench, "alice");
        assert_eq!(shown.map(|ns| ns / 1_000_000), Some(begin / 1_000_000));
        bench.host.pass(Nanos::from_secs(10));
    }
    assert!((5..15).contains(&passed), "{passed} of 20");
    assert_eq!(since(&mut bench, "bob"), None);
    bench.host.pass(Nanos::from_secs(80));
    assert_eq!(since(&mut bench, "alice"), None, "the run is over");
    assert!(bench.passes("alice") && !bench.passes("alice"));
    let again = since(&mut bench, "alice").expect("another run");
    assert_eq!(again / 1_000_000, bench.host.now.get() / 1_000_000);
}

#[test]
fn a_bucket_whose_requests_wait_is_held() {
    let mut bench = bench_of(&json!({ "algorithm": "leaky_queue", "capacity": 2, "rate": "1/s" }));
    // The third waits behind the second, and the fourth finds no slot.
    for expected in ["busy", "held", "held", "refusing"] {
        bench.passes("alice");
        let bucket = bench.get("/v1/buckets/per-user/alice");
        assert_eq!(bucket["state"], expected, "{bucket}");
    }
}

/// Buckets that exist are read by name, in the order of the names, at one instant.
#[test]
fn buckets_are_read_by_name() {
    let mut bench = Bench::new();
    for user in ["alice", "a:b%c/d", "bob"] {
        bench.passes(user);
    }
    let mut read = |buckets: Value| {
        let headers: [(&str, &[u8]); 2] = [
            ("authorization", b"Bearer view-token"),
            ("content-type", b"application/json"),
        ];
        bench.call(
            "POST",
            "/v1/buckets",
            &headers,
            Some(&json!({ "buckets": buckets })),
        )
    };
    let (status, page) = read(json!([
        ["per-user", "bob"],
        ["per-user", "nobody"],
        ["gone", "alice"],
        ["per-user", "a%3Ab%25c/d"],
    ]));
    let buckets = page["buckets"].as_array().expect("a list").iter();
    let keys: Vec<String> = buckets.map(key).collect();
    assert_eq!(keys, ["bob", "a%3Ab%25c/d"], "{page}");
    assert_eq!(status, 200);
    assert!(page["now_ns"].is_u64() && page["generation"] == 1, "{page}");
    assert!(page.get("next_cursor").is_none(), "{page}");
    assert_eq!(read(json!([])).1["buckets"], json!([]));
    let many: Vec<Value> = (0..65)
        .map(|n| json!(["per-user", n.to_string()]))
        .collect();
    assert_eq!(read(json!(many[..64])).0, 200);
    for wrong in [
        json!(many),
        json!("alice"),
        json!([["per-user"]]),
        json!([["per-user", 1]]),
    ] {
        let (status, problem) = read(wrong);
        assert_eq!(status, 400);
        let detail = problem["detail"].as_str().expect("a detail");
        let form = format!(r#"{{"buckets": [["RULE", "KEY"], …]}} with at most {MAX_READ} of"#);
        assert!(detail.contains(&form), "{detail}");
    }
}

/// Refusals of a rule in shadow mode are marked wherever they are shown.
#[test]
fn refusals_that_passed_are_marked() {
    let rule = |name: &str, mode: &str| {
        json!({
            "name": name,
            "mode": mode,
            "key": [{ "header": "x-user-id" }],
            "limits": [{ "algorithm": "funnel", "capacity": 1, "rate": "1/d" }],
        })
    };
    let rules = json!([rule("trial", "shadow"), rule("firm", "enforce")]);
    let mut bench = Bench::with(FakeHost::default(), 64, &rules);
    // The second request passes the first rule, as if it were not refused there.
    assert!(bench.passes("alice") && !bench.passes("alice"));
    bench.host.pass(Nanos::from_millis(250));
    bench.data.tick(&bench.host);
    for (name, shadow) in [("trial", Some(true)), ("firm", None)] {
        let bucket = bench.get(&format!("/v1/buckets/{name}/alice"));
        assert_eq!(
            bucket.get("shadow").and_then(Value::as_bool),
            shadow,
            "{bucket}"
        );
        assert_eq!(bucket["state"], "refusing");
        let top = bench.get(&format!("/v1/top?rule={name}"));
        assert_eq!(
            top["top"][0].get("shadow").and_then(Value::as_bool),
            shadow,
            "{top}"
        );
    }
}
