//! The gauges of bans and edits, and the counters of workers that follow changes or cannot.

use super::*;

const MALLORY: &str = "/v1/buckets/per-user/mallory";

fn post(bench: &mut Bench, what: &str) {
    let token = format!("Bearer {EDIT}");
    let headers: [(&str, &[u8]); 1] = [("authorization", token.as_bytes())];
    let (status, body) = bench.call("POST", &format!("{MALLORY}/{what}"), &headers, None);
    assert_eq!(status, 200, "{what}: {body}");
}

/// The value to which a gauge was set last.
fn set_to(host: &FakeHost, name: &str) -> Option<u64> {
    let records = host.records.borrow();
    let mut of_name = records.iter().rev().filter(|(other, _)| other == name);
    of_name.next().map(|(_, value)| *value)
}

#[test]
fn bans_are_counted_until_they_are_over() {
    let mut bench = Bench::new();
    for (what, bans) in [
        ("unban", 0),
        ("ban?for=10s", 1),
        // A longer ban replaces it, and an unban ends either.
        ("ban?for=1h", 1),
        ("ban", 1),
        ("unban", 0),
        ("unban", 0),
        ("ban?for=1h", 1),
        ("reset", 0),
        ("ban", 1),
        ("ban?for=10s&replace", 1),
    ] {
        post(&mut bench, what);
        assert_eq!(bench.host.metric("loudou.bans"), bans, "{what}");
    }
    bench.host.pass(Nanos::from_secs(10));
    for _ in 0..2 {
        bench.get("/v1/events");
        assert_eq!(bench.host.metric("loudou.bans"), 0, "the ban has ended");
    }
    post(&mut bench, "unban");
    assert_eq!(bench.host.metric("loudou.bans"), 0);
    // A rule's penalty ban is not an operator's ban.
    post(&mut bench, "ban?for=10s");
    bench.host.pass(Nanos::from_secs(11));
    post(&mut bench, "ban");
    assert_eq!(
        bench.host.metric("loudou.bans"),
        1,
        "one has ended, one began"
    );
}

#[test]
fn edited_rules_are_counted_and_each_worker_that_follows() {
    let mut bench = Bench::new();
    let edits = |bench: &Bench| set_to(&bench.host, "loudou.edits");
    assert_eq!(edits(&bench), Some(0));
    let adopted = bench.host.metric("loudou.adopted");
    assert_eq!(adopted, 1, "the first rules");
    let (status, _) = bench.edit("PUT", "/v1/rules/per-user", "*", Some(&capacity(9)));
    assert_eq!(status, 200);
    assert_eq!(edits(&bench), Some(1), "before any request");
    assert_eq!(bench.host.metric("loudou.adopted"), adopted);
    for _ in 0..3 {
        assert!(bench.passes("alice"));
        assert_eq!(bench.host.metric("loudou.adopted"), adopted + 1, "once");
    }
    let (status, _) = bench.edit("DELETE", "/v1/rules/per-user", "*", None);
    assert_eq!((status, edits(&bench)), (200, Some(0)));
    let one = json!({ "scale": 2 });
    let (status, _) = bench.edit("PUT", "/v1/overrides/per-user/vip", "*", Some(&one));
    assert_eq!((status, edits(&bench)), (200, Some(1)), "an override, too");
}

#[test]
fn the_store_shows_its_bound() {
    let bench = Bench::with_buckets(1_024);
    let bound = bench.admin.table(&bench.host).expect("a table").buckets();
    assert_eq!(set_to(&bench.host, "loudou.store.buckets"), Some(bound));
    assert!(bound >= 1_024);
}

#[test]
fn a_worker_that_cannot_read_the_rules_counts_its_reports() {
    let mut bench = Bench::new();
    assert!(bench.passes("alice"));
    assert_eq!(bench.host.metric("loudou.behind"), 0);
    let (status, _) = bench.edit("PUT", "/v1/rules/per-user", "*", Some(&capacity(9)));
    assert_eq!(status, 200);
    bench.host.store_fails.set(true);
    bench.passes("alice");
    assert_eq!(bench.host.metric("loudou.behind"), 1);
    bench.host.store_fails.set(false);
    bench.host.pass(Nanos::from_secs(2));
    assert!(bench.passes("bob"));
    assert_eq!(bench.host.metric("loudou.behind"), 1, "it has read them");
}
