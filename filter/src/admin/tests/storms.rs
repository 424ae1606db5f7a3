//! More edits of a rule than it remembers.

use loudou_limiter::Carry;
use loudou_rules::rule_set::ActiveRule;
use loudou_store::Table;

use super::*;
use crate::host::HostStore;
use crate::record::{Author, Bases, Records};
use crate::sweep;

const RULE: &str = "/v1/rules/per-user?carry=keep";

fn limits(capacity: u64) -> Value {
    let limit =
        json!({ "name": "burst", "algorithm": "funnel", "capacity": capacity, "rate": "1/d" });
    json!({ "limits": [limit] })
}

fn put(bench: &mut Bench, capacity: u64) -> (u16, Value) {
    let token = format!("Bearer {EDIT}");
    let headers: [(&str, &[u8]); 3] = [
        ("authorization", token.as_bytes()),
        ("if-match", b"*"),
        ("content-type", b"application/json"),
    ];
    bench.call("PUT", RULE, &headers, Some(&limits(capacity)))
}

/// The number of changes that the rule remembers.
fn remembered(bench: &Bench) -> usize {
    let records = Records::new("loudou", Bases::default());
    let record = records.read(&bench.host).expect("a record");
    record.rules[0].history.changes.len()
}

/// There are no requests, so the edits themselves bring the buckets forward.
#[test]
fn edits_without_traffic_remember_little_and_forget_nothing() {
    let mut bench = Bench::with_buckets(4_096);
    assert!(bench.passes("alice"));
    for capacity in 3..=150 {
        assert_eq!(put(&mut bench, capacity).0, 200, "{capacity}");
        assert!(remembered(&bench) < 64, "{capacity}");
    }
    let admitted = (0..200).filter(|_| bench.passes("alice")).count();
    assert_eq!(admitted, 149);
}

/// Another worker has written an edit and not announced it: an answer that shows the edit announces it.
#[test]
fn what_an_answer_shows_is_in_force() {
    let mut bench = Bench::with_buckets(4_096);
    assert!(bench.passes("alice"));
    // The rule's capacity, which was 2.
    change(&bench, 1);
    let rule = bench.get("/v1/rules/per-user");
    let shown = rule
        .pointer("/rule/limits/0/capacity")
        .and_then(Value::as_u64);
    let admitted = (0..20).filter(|_| bench.passes("bob")).count();
    assert_eq!(u64::try_from(admitted).ok(), shown, "{rule}");
}

/// A bench with a bucket, whose rule has changed as often as it can remember.
fn flooded() -> Bench {
    let mut bench = Bench::with_buckets(65_536);
    assert!(bench.passes("alice"));
    change(&bench, 1_024);
    assert_eq!(remembered(&bench), 1_024);
    bench
}

/// Edits the rule this many times at once, without a sweep.
fn change(bench: &Bench, times: u64) {
    let author = Author {
        by: "ops".to_owned(),
        reason: String::new(),
        carry: Carry::Keep,
        at: bench.host.now(),
        at_unix_ms: 0,
        expires_after: None,
    };
    let flood = Records::new("loudou", Bases::default()).edit(&bench.host, &mut |record| {
        for n in 0..times {
            let edit = config::parse_edit(&limits(10 + n % 2)).expect("an edit");
            let version = record.next_version();
            let rule = record.rule_mut("per-user").expect("the rule");
            rule.apply(&edit, &author, version);
        }
        true
    });
    flood.expect("edited");
}

/// A rule that has changed too often declines edits, but not for ever: each declined edit sweeps some pages.
#[test]
fn too_many_changes_at_once_are_declined_until_the_buckets_follow() {
    let mut bench = flooded();
    let declined = (0..40).take_while(|_| put(&mut bench, 20).0 == 503).count();
    // 128 of 4 096 pages each.
    assert_eq!(declined, 32);
    assert_eq!(remembered(&bench), 1);
    let admitted = (0..40).filter(|_| bench.passes("alice")).count();
    assert_eq!(admitted, 19);
}

/// Full pages of a frequently changed rule take long, and requests wait in the meantime.
#[test]
fn a_sweep_ends_when_its_time_is_up() {
    let mut bench = flooded();
    bench.host.runs_by.set(50_000);
    assert_eq!(put(&mut bench, 20).0, 503);
    let mut progress = Vec::new();
    let found = bench.host.shared_get(b"loudou:sweep", &mut progress);
    assert!(found.expect("a store").is_some());
    // Tag, version, next page.
    let next_page = u32::from_le_bytes(progress[8..].try_into().expect("a number"));
    assert!((4..=8).contains(&next_page), "{next_page}");
    let declined = (0..1_024)
        .take_while(|_| put(&mut bench, 20).0 == 503)
        .count();
    assert!(declined > 500, "it goes on where it ended: {declined}");
}

/// Such a worker would convert buckets only to the version that it knows. The record would then
/// forget changes that these buckets have not followed, and they would be reset.
#[test]
fn a_worker_that_has_not_read_the_latest_change_leaves_the_sweep_alone() {
    let mut bench = Bench::with_buckets(65_536);
    assert!(bench.passes("alice"));
    let records = Records::new("loudou", Bases::default());
    let rule = |bench: &Bench| {
        let record = records.read(&bench.host).expect("a record");
        record.rules[0].activate()
    };
    change(&bench, 40);
    let behind = rule(&bench);
    change(&bench, 1);
    let current = rule(&bench);
    let clock = bench.host.clock_at(bench.host.now());
    let store = &mut HostStore(&bench.host);
    let table = Table::open(store, "loudou", 65_536, [7; 16], clock.now).expect("a table");
    let step =
        |rule: &ActiveRule| sweep::step(&bench.host, &records, (&table, &[rule]), 128, clock);
    let progress = || {
        let mut progress = Vec::new();
        let found = bench.host.shared_get(b"loudou:sweep", &mut progress);
        found.expect("a store").map(|_| progress)
    };
    assert!(!step(&current));
    let begun = progress();
    assert!(begun.is_some() && !step(&behind));
    assert_eq!(progress(), begun);
    let steps = (0..40).take_while(|_| !step(&current)).count();
    // 128 of 4 096 pages each; the last of them is not among these.
    assert_eq!((steps, remembered(&bench)), (30, 0));
    let admitted = (0..40).filter(|_| bench.passes("alice")).count();
    assert_eq!(admitted, 9, "ten, of which one is used");
}

/// Calls that store nothing sweep nothing, even if the next change must be swept. A bucket of a
/// version that does not exist could not be decided.
#[test]
fn what_is_not_stored_reaches_no_bucket() {
    let mut bench = Bench::with_buckets(64);
    let own = "/v1/overrides/per-user/vip";
    let scale = json!({ "scale": 1_000 });
    assert_eq!(bench.edit("PUT", own, "*", Some(&scale)).0, 200);
    assert_eq!(put(&mut bench, 100).0, 200);
    assert!(bench.passes("alice"));
    let mut capacity = 101;
    while remembered(&bench) < 31 {
        assert_eq!(put(&mut bench, capacity).0, 200);
        capacity += 1;
    }
    let token = format!("Bearer {EDIT}");
    let headers: [(&str, &[u8]); 3] = [
        ("authorization", token.as_bytes()),
        ("if-match", b"*"),
        ("content-type", b"application/json"),
    ];
    let previewed = bench.call(
        "PUT",
        &format!("{RULE}&dry_run"),
        &headers,
        Some(&limits(3)),
    );
    assert_eq!(previewed.0, 200);
    // A thousand times as much is more than a limit may have.
    assert_eq!(put(&mut bench, 100_000_000).0, 400);
    assert_eq!(put(&mut bench, capacity - 1).1["changed"], false);
    let admitted = (0..200).filter(|_| bench.passes("alice")).count();
    assert_eq!(u64::try_from(admitted), Ok(capacity - 2));
    assert_eq!(bench.host.metric("loudou.rule.per-user.errors"), 0);
}
