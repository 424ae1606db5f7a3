//! From the counting worker to the readable counts, as time passes.

use loudou_limiter::Nanos;
use loudou_store::memory::MemoryStore;
use loudou_store::top::{By, COUNTERS, FLUSH_AFTER, HALF, Tally, recent};
use loudou_store::{Cas, SharedData, StoreFailed, Written};

use super::*;

const SHARE: &str = "loudou";

fn at(seconds: u64) -> Nanos {
    Nanos::from_secs(seconds)
}

fn count(tally: &mut Tally, by: By, key: &str, now: Nanos) {
    tally.count(by, RULE, loudou_limiter::fingerprint(key), key, now);
}

/// Returns the readable counts, and the start of the covered time.
fn read(store: &mut dyn SharedData, by: By, now: Nanos) -> (Vec<(String, u64)>, Nanos) {
    let recent = recent(store, SHARE, by, now).expect("a store");
    let most = recent.counts.most(|_| true);
    let most = most.iter().map(|entry| (entry.key.clone(), entry.count));
    (most.collect(), recent.since)
}

fn refused(store: &mut dyn SharedData, now: Nanos) -> Vec<(String, u64)> {
    read(store, By::Refused, now).0
}

fn list(expected: &[(&str, u64)]) -> Vec<(String, u64)> {
    expected
        .iter()
        .map(|(key, count)| ((*key).to_owned(), *count))
        .collect()
}

#[test]
fn nothing_is_shared_before_it_is_due() {
    let mut store = MemoryStore::new();
    let mut tally = Tally::new(SHARE);
    assert_eq!(tally.due(), None);
    count(&mut tally, By::Refused, "alice", at(1));
    let due = at(1).saturating_add(FLUSH_AFTER);
    assert_eq!(tally.due(), Some(due));
    // A later count does not delay the flush.
    count(&mut tally, By::Admitted, "alice", Nanos::new(due.get() - 1));
    tally.flush(&mut store, Nanos::new(due.get() - 1));
    assert!(store.is_empty());
    tally.flush(&mut store, due);
    assert_eq!(tally.due(), None);
    assert_eq!(refused(&mut store, due), list(&[("alice", 1)]));
    assert_eq!(read(&mut store, By::Admitted, due).0, list(&[("alice", 1)]));
    tally.flush(&mut store, at(9));
    assert_eq!(
        refused(&mut store, at(9)),
        list(&[("alice", 1)]),
        "flushed once"
    );
}

#[test]
fn what_all_workers_counted_adds_up() {
    let mut store = MemoryStore::new();
    let mut workers = vec![Tally::new(SHARE); 3];
    for round in 0..300 {
        for (w, worker) in (0..).zip(&mut workers) {
            let now = Nanos::from_millis(round * 100 + w);
            count(worker, By::Refused, "alice", now);
            if round % 3 == w {
                count(worker, By::Refused, "bob", now);
            }
            worker.flush(&mut store, now);
        }
    }
    for worker in &mut workers {
        worker.flush(&mut store, at(40));
    }
    assert_eq!(
        refused(&mut store, at(40)),
        list(&[("alice", 900), ("bob", 300)])
    );
}

/// The current half and the previous one are covered, and nothing older.
#[test]
fn halves_rotate() {
    let mut store = MemoryStore::new();
    let mut tally = Tally::new(SHARE);
    let half = HALF.get() / 1_000_000_000;
    for (key, second) in [("first", 3), ("second", half + 3), ("third", 2 * half + 3)] {
        count(&mut tally, By::Refused, key, at(second));
        count(&mut tally, By::Refused, "always", at(second));
        tally.flush(&mut store, at(second + 1));
        let since = (second / half).saturating_sub(1) * half;
        assert_eq!(read(&mut store, By::Refused, at(second + 1)).1, at(since));
    }
    let now = 2 * half + 5;
    let expected = list(&[("always", 2), ("second", 1), ("third", 1)]);
    assert_eq!(read(&mut store, By::Refused, at(now)), (expected, at(half)));
    // Time passes without counts.
    let expected = list(&[("always", 1), ("third", 1)]);
    assert_eq!(
        read(&mut store, By::Refused, at(now + half)),
        (expected, at(2 * half))
    );
    assert_eq!(refused(&mut store, at(now + 2 * half)), list(&[]));
    // Counting starts again.
    count(&mut tally, By::Refused, "late", at(now + 9 * half));
    tally.flush(&mut store, at(now + 9 * half + 1));
    assert_eq!(
        refused(&mut store, at(now + 9 * half + 1)),
        list(&[("late", 1)])
    );
}

#[test]
fn both_halves_have_all_their_counters() {
    let mut store = MemoryStore::new();
    let mut tally = Tally::new(SHARE);
    let keys = 2 * COUNTERS;
    for n in 0..keys {
        let now = Nanos::from_secs(if n < COUNTERS { 1 } else { 61 });
        count(&mut tally, By::Refused, &n.to_string(), now);
        tally.flush(&mut store, now.saturating_add(FLUSH_AFTER));
    }
    let recent = recent(&mut store, SHARE, By::Refused, at(62)).expect("a store");
    assert_eq!(
        (recent.counts.entries().len(), recent.counts.floor()),
        (keys, 0)
    );
    assert!(
        recent
            .counts
            .entries()
            .iter()
            .all(|e| (e.count, e.error) == (1, 0))
    );
}

/// A worker whose timer is late reports the previous half, and a worker that slept for long reports
/// nothing.
#[test]
fn a_late_flush_goes_where_it_belongs() {
    let mut store = MemoryStore::new();
    let mut late = Tally::new(SHARE);
    let mut later = Tally::new(SHARE);
    count(&mut later, By::Refused, "old", at(59));
    count(&mut late, By::Refused, "late", at(119));
    let mut other = Tally::new(SHARE);
    count(&mut other, By::Refused, "new", at(120));
    other.flush(&mut store, at(121));
    late.flush(&mut store, at(121));
    later.flush(&mut store, at(121));
    assert_eq!(
        refused(&mut store, at(121)),
        list(&[("late", 1), ("new", 1)])
    );
    assert_eq!(refused(&mut store, at(180)), list(&[("new", 1)]));
}

/// A store that conflicts or fails for a while.
struct Troubled {
    inner: MemoryStore,
    conflicts: u32,
    fails: bool,
}

impl SharedData for Troubled {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<Option<Cas>, StoreFailed> {
        if self.fails {
            return Err(StoreFailed);
        }
        self.inner.get(key, value)
    }

    fn set(&mut self, key: &[u8], value: &[u8], expected: Cas) -> Result<Written, StoreFailed> {
        if self.conflicts > 0 {
            self.conflicts -= 1;
            // Another worker was faster.
            let mut other = Tally::new(SHARE);
            count(&mut other, By::Refused, "other", at(1));
            other.flush(&mut self.inner, at(2));
        }
        self.inner.set(key, value, expected)
    }
}

#[test]
fn what_cannot_be_written_is_kept() {
    let mut tally = Tally::new(SHARE);
    let mut store = Troubled {
        inner: MemoryStore::new(),
        conflicts: 3,
        fails: false,
    };
    count(&mut tally, By::Refused, "alice", at(1));
    tally.flush(&mut store, at(2));
    assert_eq!(
        refused(&mut store, at(2)),
        list(&[("other", 3), ("alice", 1)])
    );

    for (conflicts, fails) in [(99, false), (0, true)] {
        let mut store = Troubled {
            inner: MemoryStore::new(),
            conflicts,
            fails,
        };
        count(&mut tally, By::Refused, "alice", at(1));
        tally.flush(&mut store, at(2));
        assert_eq!(
            tally.due(),
            Some(at(2).saturating_add(FLUSH_AFTER)),
            "tried again then"
        );
        (store.conflicts, store.fails) = (0, false);
        tally.flush(&mut store, at(3));
        assert_eq!(tally.due(), None);
        let all = refused(&mut store, at(3));
        assert!(all.contains(&("alice".to_owned(), 1)), "{all:?}");
    }
}

/// Many made-up keys, however frequent, do not push out a frequent key.
#[test]
fn a_flood_does_not_push_out_the_heavy_one() {
    let mut store = MemoryStore::new();
    let mut workers = vec![Tally::new(SHARE); 2];
    let mut exact = Exact::new();
    for n in 0..20_000_u64 {
        let now = Nanos::from_millis(n);
        let worker = &mut workers[usize::from(n % 2 == 0)];
        let mut key = |key: u64| {
            worker.count(By::Refused, RULE, fingerprint(key), &key.to_string(), now);
            *exact.entry(key).or_default() += 1;
        };
        key(n + 1);
        if n < 200 {
            key(0);
        }
        worker.flush(&mut store, now);
    }
    for worker in &mut workers {
        worker.flush(&mut store, at(30));
    }
    let recent = recent(&mut store, SHARE, By::Refused, at(30)).expect("a store");
    holds(&recent.counts, &exact, COUNTERS);
    let most = recent.counts.most(|_| true);
    assert_eq!(most[0].key, "0", "{:?}", &most[..3]);
}
