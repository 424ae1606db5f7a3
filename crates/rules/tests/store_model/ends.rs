//! Returns at the end of requests, and lost returns.

use loudou_limiter::{Carry, Nanos};
use loudou_rules::rule_set::ActiveRule;
use loudou_store::memory::MemoryStore;
use loudou_store::page::{FLAG_KEEPS_GAIN, FLAG_PINNED};
use loudou_store::{
    Cas, GaveUp, LiveRule, MAX_RETRIES, Receipt, Release, ReleaseReason, SharedData, StoreFailed,
    StoreStats, Written,
};
use serde_json::json;

use super::{Decides as _, World, clock, edited, open, page_key, per_day, rule, take};

const LEASE: u64 = 1_000_000;

pub(super) fn at_most(capacity: u64) -> ActiveRule {
    let lease = format!("{LEASE}ns");
    rule(&json!([{ "algorithm": "concurrency", "capacity": capacity, "lease": lease }]))
}

pub(super) fn give<'a>(
    rule: &'a ActiveRule,
    key: &'a str,
    receipt: &'a Receipt,
    now: u64,
) -> Release<'a> {
    rule.release(key, receipt, ReleaseReason::Ended, clock(now))
}

impl World {
    fn release(&mut self, give: &Release<'_>) -> Result<(), GaveUp> {
        self.table.release(&mut self.store, give, &mut self.stats)
    }

    /// The receipt of an admitted request.
    fn admitted(&mut self, rule: &ActiveRule, key: &str, now: u64) -> Receipt {
        self.receipt(rule, key, now).expect("admitted")
    }
}

#[test]
fn a_return_makes_room() {
    let mut world = World::new(16);
    let limits = at_most(1);
    let receipt = world.admitted(&limits, "k", 10);
    assert!(!world.admits(&limits, "k", 20));
    world.edit("k", |slot| slot.flags = FLAG_PINNED | FLAG_KEEPS_GAIN);
    assert_eq!(world.release(&give(&limits, "k", &receipt, 30)), Ok(()));
    let slot = world.slot("k").expect("a bucket");
    assert_eq!(slot.flags, FLAG_PINNED);
    assert_eq!((slot.admitted, slot.refused), (1, 1));
    assert_eq!(slot.idle_at_ms, 1, "as good as new at 30 ns, rounded up");
    assert_eq!(slot.bucket.last, Nanos::new(30));
    assert!(world.admits(&limits, "k", 40));
    assert_eq!(
        world.slot("k").map(|slot| slot.idle_at_ms),
        Some(3),
        "two leases later"
    );
    assert_eq!(world.stats.created, 1);
}

/// Nothing is written if nothing changes, and no bucket is created.
#[test]
fn a_return_of_nothing_is_no_write() {
    let mut world = World::new(16);
    let limits = at_most(1);
    let elsewhere = |at: u64| World::new(16).admitted(&limits, "k", at);
    assert_eq!(
        world.release(&give(&limits, "k", &elsewhere(10), 30)),
        Ok(())
    );
    assert!(world.slot("k").is_none());
    world.admitted(&limits, "k", 10);
    let mut before = Vec::new();
    let cas = world.store.get(&page_key(0), &mut before).expect("works");
    // Taken before the bucket existed, and from a limit without returns.
    assert_eq!(
        world.release(&give(&limits, "k", &elsewhere(9), 30)),
        Ok(())
    );
    let other = World::new(16).admitted(&limits, "other", 9);
    assert_eq!(world.release(&give(&limits, "other", &other, 30)), Ok(()));
    let mut after = Vec::new();
    assert_eq!(world.store.get(&page_key(0), &mut after), Ok(cas));
    let rate = per_day(1);
    let receipt = world.admitted(&rate, "rate", 10);
    let cas = world.store.get(&page_key(0), &mut before).expect("works");
    assert_eq!(world.release(&give(&rate, "rate", &receipt, 30)), Ok(()));
    assert_eq!(world.store.get(&page_key(0), &mut after), Ok(cas));
}

/// A return to a bucket that an edit has not reached yet converts it.
#[test]
fn a_return_after_an_edit() {
    let mut world = World::new(16);
    let first = rule(&json!([{ "algorithm": "concurrency", "capacity": 2 }]));
    let receipts = [10, 10].map(|at| world.admitted(&first, "k", at));
    let new = rule(&json!([
        { "algorithm": "concurrency", "capacity": 1 },
        { "algorithm": "token_bucket", "capacity": 5, "rate": "1/s", "initial": 1 },
    ]));
    let second = edited(&first, &new, Carry::Keep, 15);
    assert_eq!(world.release(&give(&second, "k", &receipts[0], 20)), Ok(()));
    let slot = world.slot("k").expect("a bucket");
    assert_eq!(slot.version, second.version());
    assert_eq!(
        slot.flags, FLAG_KEEPS_GAIN,
        "the token bucket has less than it could"
    );
    assert!(
        !world.admits(&second, "k", 30),
        "one of two is still in flight"
    );
    assert_eq!(world.release(&give(&second, "k", &receipts[1], 40)), Ok(()));
    assert!(world.admits(&second, "k", 50));
}

/// Endless conflicts, or a failing host.
struct Broken {
    store: MemoryStore,
    get_fails: bool,
    set: Option<Written>,
    sets: u32,
}

impl SharedData for Broken {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<Option<Cas>, StoreFailed> {
        if self.get_fails {
            return Err(StoreFailed);
        }
        self.store.get(key, value)
    }

    fn set(&mut self, _key: &[u8], _value: &[u8], _expected: Cas) -> Result<Written, StoreFailed> {
        self.sets += 1;
        self.set.ok_or(StoreFailed)
    }
}

/// A return that cannot be written is counted, and expires with its lease.
#[test]
fn a_lost_return_is_counted() {
    let limits = at_most(1);
    let mut store = MemoryStore::new();
    let table = open(&mut store, 16);
    let mut stats = StoreStats::default();
    let charge = table.charge(&mut store, &take(&limits, "k", 10), &mut stats);
    let receipt = charge.expect("decided").receipt.expect("admitted");
    for (get_fails, set, gave_up, sets) in [
        (true, None, GaveUp::Failed, 0),
        (false, None, GaveUp::Failed, 1),
        (
            false,
            Some(Written::Conflict),
            GaveUp::Conflicts,
            MAX_RETRIES + 1,
        ),
    ] {
        let mut broken = Broken {
            store: store.clone(),
            get_fails,
            set,
            sets: 0,
        };
        let mut stats = StoreStats::default();
        let outcome = table.release(&mut broken, &give(&limits, "k", &receipt, 20), &mut stats);
        assert_eq!((outcome, broken.sets), (Err(gave_up), sets));
        let retries = u64::from(sets.saturating_sub(1));
        let expected = StoreStats {
            lost_returns: 1,
            cas_retries: retries,
            ..StoreStats::default()
        };
        assert_eq!(stats, expected);
    }
    let mut answer = |now: u64| {
        let taken = table.take(&mut store, &take(&limits, "k", now), &mut stats);
        taken.expect("a decision").is_refused()
    };
    assert!(answer(10 + 2 * LEASE - 1));
    assert!(!answer(10 + 2 * LEASE));
}

/// Permits that expired before the lease became longer are not subtracted from those in flight.
#[test]
fn a_longer_lease_revives_no_receipt() {
    const S: u64 = 1_000_000_000;
    let with =
        |lease: &str| rule(&json!([{ "algorithm": "concurrency", "capacity": 2, "lease": lease }]));
    let mut world = World::new(16);
    let short = with("1s");
    let expired = world.admitted(&short, "k", 0);
    let flies = world.admitted(&short, "k", 3 * S);
    world.admitted(&short, "k", 3 * S);
    let long = edited(&short, &with("1m"), Carry::Keep, 9 * S / 2);
    let mut returned = |receipt: &Receipt, now: u64| {
        let give = give(&long, "k", receipt, now);
        let returned = world
            .table
            .release(&mut world.store, &give, &mut world.stats);
        returned.expect("the store works");
        world.admits(&long, "k", now + 1)
    };
    assert!(!returned(&expired, 9 * S / 2), "two are in flight");
    assert!(returned(&flies, 5 * S));
}
