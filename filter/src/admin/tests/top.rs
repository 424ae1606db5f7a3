//! Heavy hitters over the admin API.

use loudou_store::top::HALF;

use super::*;

/// A request of each of these users, and the timer a quarter of a second later.
fn traffic(bench: &mut Bench, users: &[&str]) {
    for user in users {
        bench.passes(user);
    }
    bench.host.pass(Nanos::from_millis(250));
    bench.data.tick(&bench.host);
}

fn keys(top: &Value) -> Vec<(&str, u64)> {
    let list = top["top"].as_array().expect("a list").iter();
    list.map(|one| {
        assert_eq!(
            (&one["rule"], &one["error"]),
            (&json!("per-user"), &json!(0))
        );
        let key = one["key"].as_str().expect("a key");
        (key, one["count"].as_u64().expect("a count"))
    })
    .collect()
}

#[test]
fn the_most_refused_come_first() {
    let mut bench = Bench::new();
    bench.host.pass(HALF);
    let users = [
        "bob", "alice", "bob", "alice", "bob", "bob", "alice", "carol",
    ];
    traffic(&mut bench, &users);
    let top = bench.get("/v1/top");
    assert_eq!(keys(&top), [("bob", 2), ("alice", 1)]);
    assert_eq!(
        (&top["by"], &top["keys"], &top["missing_at_most"]),
        (&json!("refused"), &json!(2), &json!(0))
    );
    assert_eq!(top["total"], 3);
    assert_eq!(top["now_ns"], json!(bench.host.now.get()));
    assert_eq!(top["generation"], bench.get("/v1/rules")["generation"]);
    let top = bench.get("/v1/top?by=admitted&rule=per-user&limit=2");
    assert_eq!(keys(&top), [("alice", 2), ("bob", 2)]);
    assert_eq!((&top["by"], &top["keys"]), (&json!("admitted"), &json!(3)));
    // Also of the key that the limit left out.
    assert_eq!(top["total"], 5);
}

/// The time since which a key is refused comes from its bucket, in either order.
#[test]
fn keys_show_since_when_they_are_refused() {
    let mut bench = Bench::new();
    bench.host.pass(HALF);
    traffic(&mut bench, &["alice", "alice", "bob", "alice"]);
    for by in ["refused", "admitted"] {
        let top = bench.get(&format!("/v1/top?by={by}"));
        for entry in top["top"].as_array().expect("a list") {
            let key = entry["key"].as_str().expect("a key");
            let bucket = bench.get(&format!("/v1/buckets/per-user/{key}"));
            let since = &entry["refused_since_ns"];
            assert_eq!(since.is_u64(), key == "alice", "{entry}");
            assert_eq!(since, &bucket["refused_since_ns"], "{key}");
        }
    }
    bench.host.pass(Nanos::from_secs(59));
    assert!(bench.get("/v1/top")["top"][0]["refused_since_ns"].is_u64());
    bench.host.pass(Nanos::from_secs(2));
    assert!(bench.get("/v1/top")["top"][0]["refused_since_ns"].is_null());
}

/// A long list takes no longer than a search. After the time limit, the remaining keys have no
/// start time.
#[test]
fn a_long_list_reads_buckets_for_a_bounded_time() {
    let mut bench = Bench::new();
    bench.host.pass(HALF);
    let users: Vec<String> = (0..100).map(|n| format!("user-{n}")).collect();
    let thrice = users.iter().flat_map(|user| [user.as_str(); 3]);
    traffic(&mut bench, &thrice.collect::<Vec<_>>());
    let mut known = |runs_by: u64| {
        bench.host.runs_by.set(runs_by);
        let top = bench.get("/v1/top?limit=256");
        let entries = top["top"].as_array().expect("a list");
        assert_eq!(entries.len(), 100);
        let known = |entry: &&Value| entry["refused_since_ns"].is_u64();
        entries.iter().filter(known).count()
    };
    assert_eq!(known(0), 100);
    assert!((20..40).contains(&known(10_000)), "of 0.3 ms");
    assert_eq!(known(1_000_000), 8, "however long it takes");
}

/// The window starts with the filter, and covers at most the current half and the one before it.
#[test]
fn the_answer_tells_what_time_it_covers() {
    let mut bench = Bench::new();
    let window = |bench: &mut Bench| {
        bench.get("/v1/top")["window_ns"]
            .as_u64()
            .expect("a number")
    };
    let seconds = Nanos::from_secs;
    bench.host.now.set(seconds(7).get());
    assert_eq!(window(&mut bench), seconds(7).get());
    traffic(&mut bench, &["alice"; 3]);
    bench.host.now.set(seconds(100).get());
    assert_eq!(window(&mut bench), seconds(100).get());
    assert_eq!(keys(&bench.get("/v1/top")), [("alice", 1)]);
    let mut late = Bench::started_at(seconds(90));
    late.host.now.set(seconds(100).get());
    assert_eq!(window(&mut late), seconds(10).get());
    bench.host.now.set(seconds(120).get());
    assert_eq!(window(&mut bench), HALF.get());
    assert_eq!(keys(&bench.get("/v1/top")), []);
}

#[test]
fn keys_of_rules_that_are_gone_are_not_shown() {
    let mut bench = Bench::new();
    traffic(&mut bench, &["alice"; 3]);
    let rule = json!({ "name": "new", "key": [], "limits": [
        { "name": "l", "algorithm": "funnel", "capacity": 1, "rate": "1/d" }] });
    let file = config::parse(&json!({ "version": 1, "rules": [rule] }))
        .file
        .expect("valid");
    let mut newer = DataPlane::new(file, bench.host.now());
    assert!(newer.start(&bench.host));
    let top = bench.get("/v1/top");
    assert_eq!((keys(&top), &top["keys"]), (vec![], &json!(0)));
}

#[test]
fn what_is_asked_is_read_strictly() {
    let mut bench = Bench::new();
    let token = format!("Bearer {VIEW}");
    for (path, status, detail) in [
        (
            "/v1/top?rule=none",
            404,
            "no rule is called `none`; the rules are: per-user",
        ),
        (
            "/v1/top?rule=per-usr",
            404,
            "no rule is called `per-usr`; the rules are: per-user; did you mean `per-user`?",
        ),
        (
            "/v1/buckets?rule=Per_user",
            404,
            "no rule is called `Per_user`; the rules are: per-user; did you mean `per-user`?",
        ),
        (
            "/v1/top?by=passed",
            400,
            "`by` is `passed`; allowed: refused, admitted",
        ),
        ("/v1/top?limit=0", 400, "`limit` must be 1 to 256"),
        ("/v1/top?limit=257", 400, "`limit` must be 1 to 256"),
        (
            "/v1/top?limit=x",
            400,
            "`limit` is `x`; allowed: a whole number",
        ),
        (
            "/v1/top?key=a",
            400,
            "unknown query parameter `key`; allowed: rule, by, limit",
        ),
    ] {
        let headers: [(&str, &[u8]); 1] = [("authorization", token.as_bytes())];
        let (got, answer) = bench.call("GET", path, &headers, None);
        assert_eq!(
            (got, answer["detail"].as_str()),
            (status, Some(detail)),
            "{path}"
        );
    }
    let edit = format!("Bearer {EDIT}");
    let headers: [(&str, &[u8]); 1] = [("authorization", edit.as_bytes())];
    assert_eq!(bench.call("PUT", "/v1/top", &headers, None).0, 405);
}
