//! Returns to one bucket that is unchanged, evicted, replaced, or edited.

use loudou_limiter::{Carry, Nanos};
use loudou_rules::rule_set::ActiveRule;
use loudou_store::memory::MemoryStore;
use loudou_store::{
    Cas, GaveUp, LiveRule as _, Receipt, ReleaseReason, SharedData, StoreFailed, Written,
};

use serde_json::json;

use super::{World, clock, edited};

const KEY: &str = "k";

/// One request's way through the first rule's bucket.
fn charged(world: &mut World, rule: &ActiveRule, now: u64) -> Receipt {
    world.receipt(rule, KEY, now).expect("admitted")
}

fn give_back(
    world: &mut World,
    rule: &ActiveRule,
    receipt: &Receipt,
    why: ReleaseReason,
    now: u64,
) {
    let give = rule.release(KEY, receipt, why, clock(now));
    let given = world
        .table
        .release(&mut world.store, &give, &mut world.stats);
    assert_eq!(given, Ok(()));
}

/// A request that leaves a queue was admitted, but a request that another rule refused was not.
#[test]
fn only_a_refusal_takes_the_count_back() {
    for (why, admitted) in [
        (ReleaseReason::Left, 1),
        (ReleaseReason::Refused, 0),
        (ReleaseReason::Ended, 1),
    ] {
        let mut world = World::new(16);
        let limits = super::per_day(3);
        let receipt = charged(&mut world, &limits, 0);
        give_back(&mut world, &limits, &receipt, why, 1);
        let slot = world.slot(KEY).expect("a bucket");
        assert_eq!(slot.admitted, admitted, "{why:?}");
        let is_back = slot.bucket.words().is_empty();
        assert_eq!(is_back, why != ReleaseReason::Ended, "{why:?}");
        assert_eq!(slot.idle_at_ms <= 1, is_back);
    }
}

/// The bucket replaced the bucket of the receipt.
#[test]
fn a_bucket_in_the_place_of_another_gets_nothing() {
    let mut world = World::new(16);
    let limits = super::per_day(3);
    let id = world.table.id(super::tag(), KEY);
    // Even at the same instant, in the same state.
    let receipt = charged(&mut world, &limits, 5);
    world.table.reset(&mut world.store, id).expect("works");
    give_back(&mut world, &limits, &receipt, ReleaseReason::Refused, 5);
    assert_eq!(world.slot(KEY), None, "none comes to be");
    let second = charged(&mut world, &limits, 5);
    let before = world.slot(KEY);
    give_back(&mut world, &limits, &receipt, ReleaseReason::Refused, 5);
    assert_eq!(world.slot(KEY), before);
    give_back(&mut world, &limits, &second, ReleaseReason::Refused, 5);
    assert!(world.slot(KEY) != before);
}

/// A request that waited before a limit on requests in flight was added has no permit to give back.
#[test]
fn a_request_without_a_permit_gives_none_back() {
    let queue = json!({ "name": "pace", "algorithm": "leaky_queue", "capacity": 9, "rate": "1/s" });
    let slots = json!({ "name": "slots", "algorithm": "concurrency", "capacity": 1 });
    for limits in [json!([slots]), json!([queue, slots])] {
        let mut world = World::new(16);
        let old = super::rule(&json!([queue]));
        charged(&mut world, &old, 0);
        let waiting = [(); 3].map(|()| charged(&mut world, &old, 0));
        let new = edited(&old, &super::rule(&limits), Carry::Keep, 5);
        charged(&mut world, &new, 5);
        for (mut receipt, why) in waiting.into_iter().zip([
            ReleaseReason::Refused,
            ReleaseReason::Left,
            ReleaseReason::Ended,
        ]) {
            new.plan(KEY, (&mut receipt, Nanos::MAX), clock(5));
            give_back(&mut world, &new, &receipt, why, 6);
        }
        let next = world.receipt(&new, KEY, 7);
        assert_eq!(next, None, "the permit is taken: {limits}");
    }
}

/// A permit is given back to the generation of the lease in which it was taken, even if an edit
/// came while its request waited. The other permit counts as long as its own lease lasts.
#[test]
fn a_permit_is_as_old_as_its_request() {
    const SECOND: u64 = 1_000_000_000;
    let mut world = World::new(16);
    let both = |rate: &str| {
        super::rule(&json!([
            { "name": "slots", "algorithm": "concurrency", "capacity": 3, "lease": "1s" },
            { "name": "pace", "algorithm": "leaky_queue", "capacity": 9, "rate": rate },
        ]))
    };
    let old = both("1/10s");
    charged(&mut world, &old, 0);
    let mut waits = charged(&mut world, &old, 0);
    charged(&mut world, &old, SECOND * 14 / 10);
    let new = edited(&old, &both("1/s"), Carry::Keep, SECOND * 15 / 10);
    let at = SECOND * 16 / 10;
    new.plan(KEY, (&mut waits, Nanos::MAX), clock(at));
    give_back(&mut world, &new, &waits, ReleaseReason::Ended, at);
    let at = SECOND * 22 / 10;
    let bucket = new.bucket_of(KEY, &world.slot(KEY).expect("a bucket"), clock(at));
    let used = super::limits(&new).used(&bucket, Nanos::new(at));
    assert_eq!(used[0], 1, "the first generation has expired");
}

/// Three requests wait in a queue with an additional window. The key is reset, then a request
/// comes, one leaves from the middle, and the rest pass. No request passes less than a second after
/// another one, with any resets in between.
#[test]
fn after_a_reset_requests_come_behind_those_that_wait() {
    const SECOND: u64 = 1_000_000_000;
    let mut world = World::new(16);
    let both = super::rule(&json!([
        { "name": "pace", "algorithm": "leaky_queue", "capacity": 9, "rate": "1/s" },
        { "name": "day", "algorithm": "fixed_window", "capacity": 9, "window": "1d" },
    ]));
    let used = |world: &mut World, now: u64| {
        let bucket = world.slot(KEY).expect("a bucket").bucket;
        super::limits(&both).used(&bucket, Nanos::new(now))
    };
    let reset = |world: &mut World, now: u64| {
        let reset = world
            .table
            .reset_behind(&mut world.store, (&both, KEY), clock(now));
        reset.expect("works").expect("was there")
    };
    charged(&mut world, &both, 0);
    let waiting = [(); 3].map(|()| charged(&mut world, &both, 0));
    let at = SECOND / 2;
    for admitted in [4, 0] {
        let reset = reset(&mut world, at);
        assert_eq!((reset.before.admitted, reset.stays), (admitted, true));
        assert_eq!(used(&mut world, at), [4, 0], "half a unit is rounded up");
    }
    let wait =
        |world: &mut World, now: u64| world.take(&both, KEY, now).expect("a decision").wait();
    assert_eq!(
        wait(&mut world, at),
        Nanos::new(7 * at),
        "at the fourth second"
    );
    // The receipts of before find their places, but nothing of theirs in the window.
    give_back(&mut world, &both, &waiting[1], ReleaseReason::Left, at);
    assert_eq!(used(&mut world, at), [5, 1]);
    for (second, place) in [(1, 0), (3, 2)] {
        give_back(
            &mut world,
            &both,
            &waiting[place],
            ReleaseReason::Passed,
            second * SECOND,
        );
    }
    assert_eq!(used(&mut world, 3 * SECOND), [2, 1]);
    // When no request waits, everything is forgotten.
    let late = 4 * SECOND;
    assert!(!reset(&mut world, late).stays);
    assert_eq!(world.slot(KEY), None);
    assert_eq!(wait(&mut world, late), Nanos::ZERO);
}

/// The last request in a queue gives its place back, even after a reset. If the earlier requests
/// then leave, they leave no gap.
#[test]
fn after_a_reset_places_come_back() {
    let mut world = World::new(16);
    let queue = super::rule(&json!([
        { "name": "pace", "algorithm": "leaky_queue", "capacity": 9, "rate": "1/s" }
    ]));
    charged(&mut world, &queue, 0);
    let waiting = [(); 3].map(|()| charged(&mut world, &queue, 0));
    let reset = world
        .table
        .reset_behind(&mut world.store, (&queue, KEY), clock(1));
    assert!(reset.expect("works").expect("was there").stays);
    let wait = |world: &mut World| {
        let charge = world.table.charge(
            &mut world.store,
            &super::take(&queue, KEY, 2),
            &mut world.stats,
        );
        let charge = charge.expect("a decision");
        let receipt = charge.receipt.expect("admitted");
        give_back(world, &queue, &receipt, ReleaseReason::Left, 2);
        charge.answer.expect("nobody bans").wait()
    };
    assert_eq!(wait(&mut world), Nanos::new(4_000_000_000 - 2));
    for (receipt, next) in waiting.iter().rev().zip([3, 2, 1]) {
        give_back(&mut world, &queue, receipt, ReleaseReason::Left, 2);
        assert_eq!(wait(&mut world), Nanos::new(next * 1_000_000_000 - 2));
    }
}

/// The limit on requests in flight is removed and comes back. Its permits are kept, and can be
/// given back in the meantime. The bucket is not evicted as idle.
#[test]
fn permits_outlive_another_algorithm() {
    for carry in [Carry::Keep, Carry::Proportional, Carry::Reset] {
        let mut world = World::new(16);
        let slots =
            json!([{ "name": "l", "algorithm": "concurrency", "capacity": 2, "lease": "1m" }]);
        let slots = super::rule(&slots);
        let receipts = [0, 1].map(|now| charged(&mut world, &slots, now));
        let rate = edited(&slots, &super::per_day(100), carry, 2);
        // In proportion, everything is used, because permits in flight count as used in a rate.
        world.receipt(&rate, KEY, 3);
        let held = |world: &mut World| world.slot(KEY).expect("a bucket").held_until_ms;
        assert_eq!(held(&mut world), 120_000);
        give_back(&mut world, &rate, &receipts[0], ReleaseReason::Ended, 4);
        let back = edited(&rate, &slots, carry, 5);
        charged(&mut world, &back, 6);
        assert_eq!(
            world.receipt(&back, KEY, 7),
            None,
            "one is still in flight: {carry:?}"
        );
        give_back(&mut world, &back, &receipts[1], ReleaseReason::Ended, 8);
        charged(&mut world, &back, 9);
        assert_eq!(world.receipt(&back, KEY, 10), None, "{carry:?}");
    }
}

/// An edit has converted the state, in which amounts that were taken earlier would have another
/// meaning.
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
        give_back(&mut world, &limits, &receipt, ReleaseReason::Refused, 8);
        assert_eq!(world.slot(KEY), before);
        // After the edit, returns work as before.
        let receipt = charged(&mut world, &limits, 9);
        let before = world.slot(KEY).expect("a bucket");
        give_back(&mut world, &limits, &receipt, ReleaseReason::Refused, 9);
        let after = world.slot(KEY).expect("a bucket");
        assert_eq!(after.admitted + 1, before.admitted);
        assert!(after.bucket.words() != before.bucket.words());
    }
}

/// A worker that does not know of an edit does not touch a bucket with that edit. Once it knows of
/// the edit, the edit lies between the charge and the return.
#[test]
fn who_has_not_heard_of_an_edit_gives_nothing_back() {
    let mut world = World::new(16);
    let old = super::per_day(100);
    let receipt = charged(&mut world, &old, 0);
    let new = edited(&old, &super::per_day(10), Carry::Keep, 5);
    charged(&mut world, &new, 6);
    let before = world.slot(KEY);
    let give = old.release(KEY, &receipt, ReleaseReason::Refused, clock(7));
    let given = world
        .table
        .release(&mut world.store, &give, &mut world.stats);
    assert_eq!(given, Err(GaveUp::Outdated));
    assert_eq!(world.stats.lost_returns, 1);
    assert_eq!(world.slot(KEY), before);
    give_back(&mut world, &new, &receipt, ReleaseReason::Refused, 8);
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
    let give = limits.release(KEY, &receipt, ReleaseReason::Refused, clock(0));
    let given = world.table.release(&mut store, &give, &mut world.stats);
    assert!(given.is_err());
    assert_eq!(world.stats.lost_returns, 1);
}

/// The remaining capacity of the queue.
fn left(world: &mut World, rule: &ActiveRule, now: u64) -> u64 {
    let slot = world.slot(KEY).expect("a bucket");
    let look = super::limits(rule).peek(&slot.bucket, 0, Nanos::new(now));
    look.reported().expect("one").remaining
}

/// Places of requests that left come back when the last request has left or passed. It does not
/// matter which workers held the requests, because they share only the page.
#[test]
fn a_queue_goes_back_when_nobody_waits() {
    const S: u64 = 1_000_000_000;
    let limit = json!([{ "algorithm": "leaky_queue", "capacity": 9, "rate": "1/s" }]);
    let rule = super::rule(&limit);
    for last_passes in [false, true] {
        let mut world = World::new(16);
        let receipts: Vec<_> = (0..10).map(|_| charged(&mut world, &rule, 0)).collect();
        assert_eq!(left(&mut world, &rule, 0), 0);
        give_back(&mut world, &rule, &receipts[1], ReleaseReason::Passed, S);
        for gone in &receipts[3..] {
            give_back(&mut world, &rule, gone, ReleaseReason::Left, S);
        }
        assert_eq!(
            left(&mut world, &rule, S),
            2,
            "only the last one gave its slot back"
        );
        let (why, now) = if last_passes {
            (ReleaseReason::Passed, 2 * S)
        } else {
            (ReleaseReason::Left, S)
        };
        give_back(&mut world, &rule, &receipts[2], why, now);
        assert_eq!(left(&mut world, &rule, now), 9, "the one whose turn it is");
        // The count is gone, too.
        let words = world.slot(KEY).expect("a bucket").bucket.words().len();
        assert!(words <= super::limits(&rule).words());
    }
}

/// A worker died with a request. Its promise expires when nothing is left of the amount that had
/// been taken.
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
        let (why, receipt) = (ReleaseReason::Left, waiting.remove(0));
        give_back(&mut world, &rule, &receipt, why, now);
    }
    for receipt in waiting.drain(..) {
        give_back(&mut world, &rule, &receipt, ReleaseReason::Left, 9 * S);
    }
    charged(&mut world, &rule, 9 * S);
    assert_eq!(left(&mut world, &rule, 9 * S), 9);
    // The lost requests may still be recorded later, which changes nothing.
    let before = world.slot(KEY);
    for receipt in &lost {
        give_back(&mut world, &rule, receipt, ReleaseReason::Passed, 9 * S);
    }
    assert_eq!(world.slot(KEY), before);
}
