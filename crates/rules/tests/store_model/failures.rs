//! A host that conflicts, fails, or holds pages of another version.

use loudou_store::memory::MemoryStore;
use loudou_store::{
    CAS_OVERWRITE, Cas, GaveUp, MAX_RETRIES, SharedData, StoreFailed, StoreStats, Table, Written,
};

use super::{Decides as _, SHARE, World, names_key, page_key, per_day, take};

/// The failures of writes or reads of one key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trouble {
    Conflict,
    FailWrite,
    FailRead,
}

struct Troubled {
    inner: MemoryStore,
    key: Vec<u8>,
    trouble: Trouble,
    writes: u32,
}

impl Troubled {
    fn new(world: &World, key: Vec<u8>, trouble: Trouble) -> Self {
        Self {
            inner: world.store.clone(),
            key,
            trouble,
            writes: 0,
        }
    }
}

impl SharedData for Troubled {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<Option<Cas>, StoreFailed> {
        if self.trouble == Trouble::FailRead && key == self.key {
            return Err(StoreFailed);
        }
        self.inner.get(key, value)
    }

    fn set(&mut self, key: &[u8], value: &[u8], expected: Cas) -> Result<Written, StoreFailed> {
        if key != self.key {
            return self.inner.set(key, value, expected);
        }
        self.writes += 1;
        match self.trouble {
            Trouble::Conflict => Ok(Written::Conflict),
            Trouble::FailWrite | Trouble::FailRead => Err(StoreFailed),
        }
    }
}

/// Returns a world with one page, in which `k` has one of two left and `empty` has nothing left.
fn world() -> World {
    let mut world = World::new(16);
    let limits = per_day(2);
    for key in ["k", "empty", "empty"] {
        assert!(world.admits(&limits, key, 0));
    }
    world
}

#[test]
fn an_admission_gives_up_after_bounded_conflicts() {
    let world = world();
    let mut store = Troubled::new(&world, page_key(0), Trouble::Conflict);
    let (limits, mut stats) = (per_day(2), StoreStats::default());
    for key in ["k", "new"] {
        store.writes = 0;
        let outcome = world
            .table
            .take(&mut store, &take(&limits, key, 5), &mut stats);
        assert_eq!(outcome, Err(GaveUp::Conflicts), "{key}");
        assert_eq!(store.writes, MAX_RETRIES + 1);
    }
    assert_eq!(stats.cas_retries, 2 * u64::from(MAX_RETRIES));
    assert_eq!(
        (stats.cas_give_ups, stats.lost_counts, stats.created),
        (2, 0, 0)
    );
}

/// A refusal takes nothing, so it stands without being written.
#[test]
fn a_refusal_stands_whatever_the_conflicts() {
    let world = world();
    let mut store = Troubled::new(&world, page_key(0), Trouble::Conflict);
    let (limits, mut stats) = (per_day(2), StoreStats::default());
    let outcome = world
        .table
        .take(&mut store, &take(&limits, "empty", 5), &mut stats);
    assert!(outcome.expect("a decision").is_refused());
    assert_eq!((stats.cas_give_ups, stats.lost_counts), (0, 1));
    assert_eq!(store.writes, MAX_RETRIES + 1);
}

#[test]
fn a_reset_gives_up_after_bounded_conflicts() {
    let world = world();
    let mut store = Troubled::new(&world, page_key(0), Trouble::Conflict);
    let outcome = world
        .table
        .reset(&mut store, world.table.id(super::tag(), "k"));
    assert_eq!(outcome, Err(GaveUp::Conflicts));
    assert_eq!(store.writes, MAX_RETRIES + 1);
}

#[test]
fn a_failing_host_is_no_decision() {
    let world = world();
    let (limits, mut stats) = (per_day(2), StoreStats::default());
    for trouble in [Trouble::FailWrite, Trouble::FailRead] {
        let mut store = Troubled::new(&world, page_key(0), trouble);
        for key in ["k", "empty", "new"] {
            let outcome = world
                .table
                .take(&mut store, &take(&limits, key, 5), &mut stats);
            // A refusal takes nothing, so it stands although it cannot be counted.
            if key == "empty" && trouble == Trouble::FailWrite {
                assert!(outcome.expect("a decision").is_refused());
            } else {
                assert_eq!(outcome, Err(GaveUp::Failed));
            }
        }
        let id = world.table.id(super::tag(), "k");
        assert_eq!(world.table.reset(&mut store, id), Err(GaveUp::Failed));
        let looked = world.table.get(&mut store, id);
        assert_eq!(looked.is_err(), trouble == Trouble::FailRead);
    }
    let lost = StoreStats {
        lost_counts: 1,
        ..StoreStats::default()
    };
    assert_eq!(stats, lost);
}

/// Counts the calls of a host.
struct Counted {
    inner: MemoryStore,
    calls: (u32, u32),
}

impl SharedData for Counted {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<Option<Cas>, StoreFailed> {
        self.calls.0 += 1;
        self.inner.get(key, value)
    }

    fn set(&mut self, key: &[u8], value: &[u8], expected: Cas) -> Result<Written, StoreFailed> {
        self.calls.1 += 1;
        self.inner.set(key, value, expected)
    }
}

/// On the hot path, a decision on a known bucket takes one read and one write.
#[test]
fn a_decision_is_one_read_and_one_write() {
    let world = world();
    let (limits, mut stats) = (per_day(2), StoreStats::default());
    for (key, calls) in [("k", (1, 1)), ("empty", (1, 1)), ("new", (2, 2))] {
        let mut store = Counted {
            inner: world.store.clone(),
            calls: (0, 0),
        };
        let take = take(&limits, key, 5);
        assert!(world.table.take(&mut store, &take, &mut stats).is_ok());
        assert_eq!(store.calls, calls, "{key}");
    }
}

/// Trouble with the names costs the name, not the decision.
#[test]
fn a_name_that_cannot_be_written_is_only_missing() {
    let world = world();
    let (limits, mut stats) = (per_day(2), StoreStats::default());
    for (trouble, most_writes) in [
        (Trouble::Conflict, 9),
        (Trouble::FailWrite, 1),
        (Trouble::FailRead, 0),
    ] {
        let mut store = Troubled::new(&world, names_key(0), trouble);
        let outcome = world
            .table
            .take(&mut store, &take(&limits, "new", 5), &mut stats);
        assert!(!outcome.expect("a decision").is_refused());
        assert_eq!(store.writes, most_writes);
    }
    assert_eq!(stats.created, 3);
}

/// Old and new code run at the same time while Envoy drains. Neither touches the other's format.
#[test]
fn a_page_of_another_version_is_left_alone() {
    let limits = per_day(2);
    let mut world = world();
    let mut good = Vec::new();
    world.store.get(&page_key(0), &mut good).expect("works");
    let mut next_version = good.clone();
    next_version[2] += 1;
    let mut other_magic = good.clone();
    other_magic[1] = b'X';
    let mut too_long = good.clone();
    too_long.push(0);
    let too_short = good[..good.len() - 1].to_vec();
    let mut too_many = good.clone();
    too_many[3] = 17;
    for bytes in [
        next_version,
        other_magic,
        too_long.clone(),
        too_short.clone(),
        too_many,
        Vec::new(),
    ] {
        let written = world.store.set(&page_key(0), &bytes, CAS_OVERWRITE);
        assert_eq!(written, Ok(Written::Done));
        let id = world.table.id(super::tag(), "k");
        // A decision in place reads the page only up to its bucket.
        if bytes != too_long && bytes != too_short {
            assert_eq!(world.take(&limits, "k", 5), Err(GaveUp::UnknownPage));
        }
        assert_eq!(
            world.table.get(&mut world.store, id),
            Err(GaveUp::UnknownPage)
        );
        assert_eq!(
            world.table.reset(&mut world.store, id),
            Err(GaveUp::UnknownPage)
        );
        let page = world.table.page(&mut world.store, 0);
        assert_eq!(page.map(|_| ()), Err(GaveUp::UnknownPage));
        let mut now = Vec::new();
        world.store.get(&page_key(0), &mut now).expect("works");
        assert_eq!(now, bytes);
    }
}

/// The store is found broken when the table is opened, not later.
#[test]
fn a_table_needs_a_working_host() {
    let world = world();
    for trouble in [Trouble::FailWrite, Trouble::FailRead] {
        let mut store = Troubled::new(&world, b"other:head".to_vec(), trouble);
        let opened = Table::open(
            &mut store,
            "other",
            64,
            [1; 16],
            loudou_limiter::Nanos::ZERO,
        );
        assert_eq!(opened.map(|_| ()), Err(GaveUp::Failed));
    }
}

/// Pages are never deleted. The pages of the previous version, which have other keys, must not keep
/// this version from limiting.
#[test]
fn pages_of_an_earlier_version_are_not_in_the_way() {
    let mut world = World::new(16);
    let old = [SHARE.as_bytes(), b":p", &0_u32.to_le_bytes()].concat();
    let written = world.store.set(&old, b"LP\x03\x00", CAS_OVERWRITE);
    assert_eq!(written, Ok(Written::Done));
    let limits = per_day(1);
    let is_refused = |world: &mut World| world.take(&limits, "k", 5).map(|it| it.is_refused());
    assert_eq!(is_refused(&mut world), Ok(false));
    assert_eq!(is_refused(&mut world), Ok(true));
}
