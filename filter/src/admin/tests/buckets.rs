//! Lists of buckets, and their reset.

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
