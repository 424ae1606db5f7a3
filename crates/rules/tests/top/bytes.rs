//! Summaries and shared values as bytes, valid and foreign ones.

use loudou_limiter::Nanos;
use loudou_store::memory::MemoryStore;
use loudou_store::names::MAX_KEY;
use loudou_store::top::{By, COUNTERS, Tally, recent};
use loudou_store::{CAS_OVERWRITE, SharedData};

use super::*;

fn some() -> (Summary, Vec<u8>) {
    let (mut summary, mut exact) = (Summary::new(8), Exact::new());
    for n in 0..100_u64 {
        add(&mut summary, &mut exact, n * n % 23, 1);
    }
    let mut bytes = Vec::new();
    summary.encode(&mut bytes);
    (summary, bytes)
}

#[test]
fn what_is_written_is_read() {
    let (summary, bytes) = some();
    let mut read = Summary::decode(&bytes, 8).expect("readable");
    assert!(read.floor() > 0);
    assert_eq!(
        (read.floor(), read.entries()),
        (summary.floor(), summary.entries())
    );
    let mut again = Vec::new();
    read.encode(&mut again);
    assert_eq!(again, bytes);
    assert!(
        Summary::decode(&bytes, 7).is_none(),
        "more than there are places for"
    );
}

#[test]
fn cut_or_longer_bytes_are_no_summary() {
    let (_, bytes) = some();
    for end in 0..bytes.len() {
        assert!(Summary::decode(&bytes[..end], 8).is_none(), "{end}");
    }
    assert!(Summary::decode(&[&bytes[..], b"!"].concat(), 8).is_none());
}

#[test]
fn keys_are_bounded() {
    let mut summary = Summary::new(2);
    summary.add(RULE, 1, &"é".repeat(300), 1);
    summary.add(RULE, 2, &format!("{}é", "x".repeat(MAX_KEY - 1)), 1);
    let lengths: Vec<usize> = summary.entries().iter().map(|e| e.key.len()).collect();
    assert_eq!(lengths, [MAX_KEY, MAX_KEY - 1]);
}

proptest! {
    #![proptest_config(config(200))]

    /// With one wrong byte, decoding fails or gives a usable summary.
    #[test]
    fn foreign_bytes_do_no_harm(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let (_, mut bytes) = some();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Some(mut summary) = Summary::decode(&bytes, 8) {
            for entry in summary.entries() {
                prop_assert!(entry.error <= entry.count && entry.key.len() <= 255);
            }
            summary.merge(&some().0);
            summary.add(RULE, 1, "new", 1);
            prop_assert!(summary.entries().len() <= 2 * 8);
        }
    }
}

const TOP: &[u8] = b"loudou:top";

fn counted(store: &mut MemoryStore) -> u64 {
    let recent = recent(store, "loudou", By::Refused, Nanos::ZERO).expect("a store");
    recent
        .counts
        .entries()
        .iter()
        .map(|entry| entry.count)
        .sum()
}

fn flush(store: &mut MemoryStore, keys: u64, key_bytes: usize) {
    let mut tally = Tally::new("loudou");
    for n in 0..keys {
        let key = format!("{n:0key_bytes$}");
        for by in By::ALL {
            tally.count(by, RULE, fingerprint(n), &key, Nanos::ZERO);
        }
    }
    tally.flush(store, Nanos::from_secs(1));
    assert_eq!(tally.due(), None);
}

/// The bound that is documented.
#[test]
fn the_shared_value_is_bounded() {
    let mut store = MemoryStore::new();
    let mut bytes = Vec::new();
    for half in 0..3 {
        let mut tally = Tally::new("loudou");
        let now = Nanos::from_secs(60 * half);
        for n in 0..5_000 {
            let key = format!("{n:0200}");
            for by in By::ALL {
                tally.count(by, RULE, fingerprint(n), &key, now);
            }
        }
        tally.flush(&mut store, now.saturating_add(Nanos::from_secs(1)));
        store.get(TOP, &mut bytes).expect("a store");
        let full = 10 + COUNTERS * (29 + MAX_KEY);
        let halves = if half == 0 { 1 } else { 2 };
        assert_eq!(bytes.len(), 11 + 4 * 4 + halves * 2 * full, "{half}");
        assert!(bytes.len() < 158 << 10);
    }
}

/// An older or newer Loudou that drains leaves its value. Counts start again, and nothing fails.
#[test]
fn a_value_of_another_version_is_started_anew() {
    let mut store = MemoryStore::new();
    flush(&mut store, 5, 3);
    assert_eq!(counted(&mut store), 5);
    let mut bytes = Vec::new();
    store.get(TOP, &mut bytes).expect("a store");
    for (at, name) in [(0, "another magic"), (2, "another version")] {
        let mut other = bytes.clone();
        other[at] += 1;
        store.set(TOP, &other, CAS_OVERWRITE).expect("a store");
        assert_eq!(counted(&mut store), 0, "{name}");
        flush(&mut store, 3, 3);
        assert_eq!(counted(&mut store), 3, "{name}");
    }
    for end in 0..bytes.len() {
        store
            .set(TOP, &bytes[..end], CAS_OVERWRITE)
            .expect("a store");
        assert_eq!(counted(&mut store), 0, "cut at {end}");
    }
}

/// Twice the maximum size of a worker's counters, which consist of the entries, their keys, and the
/// index.
#[test]
fn a_workers_counters_are_bounded() {
    let mut summary = Summary::new(COUNTERS);
    for n in 0..20_000_u64 {
        let length = usize::try_from(n % 200).expect("small");
        summary.add(RULE, fingerprint(n), &"x".repeat(length), 1);
        assert!(summary.entries().len() < 2 * COUNTERS);
    }
    let most = summary.entries().iter().map(|entry| entry.key.capacity());
    assert_eq!(most.max(), Some(MAX_KEY));
}
