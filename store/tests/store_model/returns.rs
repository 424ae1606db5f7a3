//! Returns to one bucket that is unchanged, evicted, replaced, or edited.

use loudou_limiter::{Carry, Nanos};
use loudou_rules::active_rule::ActiveRule;
use loudou_store::memory::MemoryStore;
use loudou_store::{Cas, GaveUp, Receipt, SharedData, StoreFailed, Why, Written};

use serde_json::json;

use super::{World, clock, edited};

const KEY: &str = "k";

/// One request's way through the first rule's bucket.
fn charged(world: &mut World, rule: &ActiveRule, now: u64) -> Receipt {
    world.receipt(rule, KEY, now).expect("admitted")
}

fn give_back(world: &mut World, rule: &ActiveRule, receipt: &Receipt, why: Why, now: u64) {
    let give = rule.give(KEY, receipt, why, clock(now));
    let given = world.table.give(&mut world.store, &give, &mut world.stats);
    assert_eq!(given, Ok(()));
}

/// A request that leaves a queue was admitted; a request that another rule refused was not.
#[test]
fn only_a_refusal_takes_the_count_back() {
    for (why, admitted) in [(Why::Left, 1), (Why::Refused, 0), (Why::Ended, 1)] {
        let mut world = World::new(16);
        let limits = super::per_day(3);
        let receipt = charged(&mut world, &limits, 0);
        give_back(&mut world, &limits, &receipt, why, 1);
        let slot = world.slot(KEY).expect("a bucket");
        assert_eq!(slot.admitted, admitted, "{why:?}");
        let is_back = slot.bucket.words().is_empty();
        assert_eq!(is_back, why != Why::Ended, "{why:?}");
        assert_eq!(slot.idle_at_ms <= 1, is_back);
    }
}

/// A bucket that replaced the one of the receipt.
#[test]
fn a_bucket_in_the_place_of_another_gets_nothing() {
    let mut world = World::new(16);
    let limits = super::per_day(3);
    let id = world.table.id(super::tag(), KEY);
    // Even at the same instant, in the same state.
    let receipt = charged(&mut world, &limits, 5);
    world.table.reset(&mut world.store, id).expect("works");
    give_back(&mut world, &limits, &receipt, Why::Refused, 5);
    assert_eq!(world.slot(KEY), None, "none comes to be");
    let second = charged(&mut world, &limits, 5);
    let before = world.slot(KEY);
    give_back(&mut world, &limits, &receipt, Why::Refused, 5);
    assert_eq!(world.slot(KEY), before);
    give_back(&mut world, &limits, &second, Why::Refused, 5);
    assert!(world.slot(KEY) != before);
}

/// An edit has converted the state: amounts taken earlier have another meaning later.
#[test]
fn nothing_comes_back_across_an_edit() {
    for touched in [false, true] {
        let mut world = World::new(16);
        let mut limits = super::per_day(100);
        let first = limits.clone();
        for _ in 0..50 {
            charged(&mut world, &limits, 0);
        }
        let receipt = charged(&mut world, &limits, 0);
        for (to, at) in [(&super::per_day(10), 5), (&first, 6)] {
            limits = edited(&limits, to, Carry::Keep, at);
        }
        if touched {
            charged(&mut world, &limits, 7);
        }
        let before = world.slot(KEY);
        give_back(&mut world, &limits, &receipt, Why::Refused, 8);
        assert_eq!(world.slot(KEY), before);
        // After the edit, returns work as before.
        let receipt = charged(&mut world, &limits, 9);
        let before = world.slot(KEY).expect("a bucket");
        give_back(&mut world, &limits, &receipt, Why::Refused, 9);
        let after = world.slot(KEY).expect("a bucket");
        assert_eq!(after.admitted + 1, before.admitted);
        assert!(after.bucket.words() != before.bucket.words());
    }
}

/// A worker that has not heard of an edit leaves a bucket alone that has; when it has heard of it, the edit
/// is between what was taken and its return.
#[test]
fn who_has_not_heard_of_an_edit_gives_nothing_back() {
    let mut world = World::new(16);
    let old = super::per_day(100);
    let receipt = charged(&mut world, &old, 0);
    let new = edited(&old, &super::per_day(10), Carry::Keep, 5);
    charged(&mut world, &new, 6);
    let before = world.slot(KEY);
    let give = old.give(KEY, &receipt, Why::Refused, clock(7));
    let given = world.table.give(&mut world.store, &give, &mut world.stats);
    assert_eq!(given, Err(GaveUp::Outdated));
    assert_eq!(world.stats.lost_returns, 1);
    assert_eq!(world.slot(KEY), before);
    give_back(&mut world, &new, &receipt, Why::Refused, 8);
    assert_eq!(world.slot(KEY), before);
}

/// A store on which every write conflicts.
struct Conflicting(MemoryStore);

impl SharedData for Conflicting {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<Option<Cas>, StoreFailed> {
        self.0.get(key, value)
    }

    fn set(&mut self, _: &[u8], _: &[u8], _: Cas) -> Result<Written, StoreFailed> {
        Ok(Written::Conflict)
    }
}

#[test]
fn a_return_that_fails_is_counted() {
    let mut world = World::new(16);
    let limits = super::per_day(3);
    let receipt = charged(&mut world, &limits, 0);
    let mut store = Conflicting(world.store.clone());
    let give = limits.give(KEY, &receipt, Why::Refused, clock(0));
    let given = world.table.give(&mut store, &give, &mut world.stats);
    assert!(given.is_err());
    assert_eq!(world.stats.lost_returns, 1);
}

/// The remaining capacity of the queue.
fn left(world: &mut World, rule: &ActiveRule, now: u64) -> u64 {
    let slot = world.slot(KEY).expect("a bucket");
    let look = super::limits(rule).peek(&slot.bucket, 0, Nanos::new(now));
    look.reported().expect("one").remaining
}

/// Places of requests that left come back when the last one has left or passed, whatever workers they were
/// on: all that they share is the page.
#[test]
fn a_queue_goes_back_when_nobody_waits() {
    const S: u64 = 1_000_000_000;
    let limit = json!([{ "algorithm": "leaky_queue", "capacity": 9, "rate": "1/s" }]);
    let rule = super::rule(&limit);
    for last_passes in [false, true] {
        let mut world = World::new(16);
        let receipts: Vec<_> = (0..10).map(|_| charged(&mut world, &rule, 0)).collect();
        assert_eq!(left(&mut world, &rule, 0), 0);
        give_back(&mut world, &rule, &receipts[1], Why::Passed, S);
        for gone in &receipts[3..] {
            give_back(&mut world, &rule, gone, Why::Left, S);
        }
        assert_eq!(
            left(&mut world, &rule, S),
            2,
            "only the last one gave its slot back"
        );
        let (why, now) = if last_passes {
            (Why::Passed, 2 * S)
        } else {
            (Why::Left, S)
        };
        give_back(&mut world, &rule, &receipts[2], why, now);
        assert_eq!(left(&mut world, &rule, now), 9, "the one whose turn it is");
        // The count is gone, too.
        let words = world.slot(KEY).expect("a bucket").bucket.words().len();
        assert!(words <= super::limits(&rule).words());
    }
}

/// A worker died with a request: its promise expires when nothing is left of what had been taken.
#[test]
fn a_lost_promise_delays_the_return() {
    const S: u64 = 1_000_000_000;
    let limit = json!([{ "algorithm": "leaky_queue", "capacity": 9, "rate": "1/s" }]);
    let rule = super::rule(&limit);
    let mut world = World::new(16);
    let lost: Vec<_> = (0..3).map(|_| charged(&mut world, &rule, 0)).collect();
    let mut waiting = Vec::new();
    // The queue is never empty meanwhile.
    for second in 1..7 {
        let now = second * S;
        waiting.extend((0..2).map(|_| charged(&mut world, &rule, now)));
        let (why, receipt) = (Why::Left, waiting.remove(0));
        give_back(&mut world, &rule, &receipt, why, now);
    }
    for receipt in waiting.drain(..) {
        give_back(&mut world, &rule, &receipt, Why::Left, 9 * S);
    }
    charged(&mut world, &rule, 9 * S);
    assert_eq!(left(&mut world, &rule, 9 * S), 9);
    // The lost ones may still be noted, late: that changes nothing.
    let before = world.slot(KEY);
    for receipt in &lost {
        give_back(&mut world, &rule, receipt, Why::Passed, 9 * S);
    }
    assert_eq!(world.slot(KEY), before);
}
