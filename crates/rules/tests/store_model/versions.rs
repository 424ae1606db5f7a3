//! Workers with different versions of a rule, on one bucket.

use loudou_limiter::{Carry, Nanos};
use loudou_store::{BanChange, GaveUp, LiveRule, ReleaseReason, SetBan, SharedData as _};
use serde_json::json;

use super::{World, clock, edited, page_key, per_day, rule, take};

/// A worker that does not know of an edit makes no decision on a bucket with that edit, and does
/// not touch its page. Once it knows of the edit, it continues.
#[test]
fn an_older_worker_meets_a_newer_bucket() {
    let mut world = World::new(16);
    let old = per_day(5);
    let new = edited(&old, &per_day(10), Carry::Keep, 10);
    assert!(world.admits(&old, "k", 0));
    let receipt = world.receipt(&old, "k", 1).expect("admitted");
    assert!(world.admits(&new, "k", 20));
    let slot = world.slot("k").expect("a bucket");
    assert_eq!((slot.version, slot.admitted), (new.version(), 3));
    let mut before = Vec::new();
    let cas = world.store.get(&page_key(0), &mut before).expect("works");
    for now in [5, 15, 30] {
        assert_eq!(world.take(&old, "k", now), Err(GaveUp::Outdated));
    }
    let give = old.release("k", &receipt, ReleaseReason::Refused, clock(30));
    let given = world
        .table
        .release(&mut world.store, &give, &mut world.stats);
    assert_eq!(given, Err(GaveUp::Outdated));
    assert_eq!(world.stats.lost_returns, 1);
    let ban = SetBan {
        rule: &old,
        key: "k",
        ban: BanChange::Banned(None),
        clock: clock(30),
    };
    let banned = world
        .table
        .set_ban(&mut world.store, &ban, &mut world.stats);
    assert_eq!(banned, Err(GaveUp::Outdated));
    let mut after = Vec::new();
    assert_eq!(world.store.get(&page_key(0), &mut after), Ok(cas));
    assert_eq!(after, before, "nothing was written");
    // A bucket that is not converted yet has its version.
    assert!(world.admits(&old, "other", 30));
    let answer = world.take(&new, "k", 31).expect("it has heard of the edit");
    assert_eq!(answer.reported().map(|limit| limit.remaining), Some(6));
    // One of five is used, which becomes one of ten, and this request takes another one. Nothing is
    // refilled in a few nanoseconds.
    let answer = world.take(&new, "other", 31).expect("a decision");
    assert_eq!(answer.reported().map(|limit| limit.remaining), Some(8));
}

/// A bucket of a version whose changes are forgotten becomes new, but keeps its counts and its ban.
#[test]
fn a_bucket_of_a_forgotten_version_is_new() {
    let mut world = World::new(16);
    let old = per_day(5);
    for _ in 0..5 {
        assert!(world.admits(&old, "k", 0));
    }
    assert!(!world.admits(&old, "k", 0));
    let history = loudou_rules::versions::History::new(9);
    let new = loudou_rules::rule_set::ActiveRule::new(old.rule().clone(), history);
    let origin = world.slot("k").map(|slot| slot.origin);
    assert!(world.admits(&new, "k", 1));
    let slot = world.slot("k").expect("a bucket");
    assert_eq!((slot.version, slot.admitted, slot.refused), (9, 6, 1));
    assert!(Some(slot.origin) != origin, "its state began anew");
    assert_eq!(slot.idle_at_ms, 86_400_001, "in a day, rounded up");
}

/// If a version changes nothing in a bucket, it is recorded with the next touch, and amounts taken
/// before are given back as usual.
#[test]
fn a_version_may_not_concern_a_bucket() {
    let mut world = World::new(16);
    let old = per_day(5);
    let receipt = world.receipt(&old, "k", 0).expect("admitted");
    let mut new = old.clone();
    let edit = json!({ "overrides": { "other": { "scale": 2 } } });
    let edit = loudou_rules::config::parse_edit(&edit).expect("valid");
    new.edit(&edit, Carry::Proportional, Nanos::new(5));
    assert_eq!(new.version(), old.version() + 1);
    let give = new.release("k", &receipt, ReleaseReason::Refused, clock(9));
    let given = world
        .table
        .release(&mut world.store, &give, &mut world.stats);
    assert_eq!(given, Ok(()));
    let slot = world.slot("k").expect("a bucket");
    assert_eq!((slot.admitted, slot.bucket.words().len()), (0, 0));
    assert!(world.admits(&new, "k", 10));
    assert_eq!(
        world.slot("k").map(|slot| slot.version),
        Some(new.version())
    );
}

/// Held requests are recorded in the page. After an edit by another worker, a new request comes
/// after them.
#[test]
fn a_line_is_in_the_page() {
    let mut world = World::new(16);
    let waits = |capacity: u64| {
        rule(&json!([
            { "algorithm": "funnel", "capacity": capacity, "rate": "1/s", "max_wait": "1h" }
        ]))
    };
    let old = waits(1);
    for expected in [0, 1, 2] {
        let answer = world.take(&old, "k", 0).expect("a decision");
        assert_eq!(answer.wait(), Nanos::from_secs(expected));
    }
    let new = edited(&old, &waits(2), Carry::Keep, 1);
    let take = take(&new, "k", 2);
    let charge = world
        .table
        .charge(&mut world.store, &take, &mut world.stats);
    let answer = charge.expect("a decision").answer.expect("nobody bans");
    assert_eq!(answer.wait(), Nanos::new(2_000_000_000 - 2));
}
