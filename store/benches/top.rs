//! The cost of heavy hitters per request, and per flush: `cargo xtask bench top`. Nothing is asserted.
#![expect(clippy::print_stdout, reason = "a measurement speaks")]

use std::hint::black_box;
use std::time::Instant;

use loudou_limiter::Nanos;
use loudou_store::Table;
use loudou_store::memory::MemoryStore;
use loudou_store::top::{By, FLUSH_AFTER, Tally, recent};

const SHARE: &str = "loudou";
const REQUESTS: u32 = 2_000_000;
const RUNS: u32 = 5;
/// Requests between two flushes of one worker at 20 000 requests per second.
const BATCH: u32 = 5_000;

/// The shortest of some runs, in nanoseconds per item of `count`.
fn measure(what: &str, count: u32, mut run: impl FnMut()) {
    let mut shortest = u128::MAX;
    for _ in 0..RUNS {
        let started = now();
        run();
        shortest = shortest.min(started.elapsed().as_nanos());
    }
    let tenths = shortest * 10 / u128::from(count);
    println!("{what:60} {:>8}.{} ns", tenths / 10, tenths % 10);
}

#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
fn now() -> Instant {
    Instant::now()
}

/// Counts a request of each of `keys` in turn, in batches as between flushes.
fn count(table: &Table, tally: &mut Tally, keys: &[String]) {
    let mut store = MemoryStore::new();
    let mut at = Nanos::ZERO;
    for (n, key) in (0..REQUESTS).zip(keys.iter().cycle()) {
        let id = table.id(7, black_box(key));
        tally.count(By::Admitted, id.rule_tag, id.fingerprint, key, at);
        if n % BATCH == 0 {
            at = at.saturating_add(FLUSH_AFTER);
            tally.flush(&mut store, at);
        }
    }
}

fn main() {
    let mut store = MemoryStore::new();
    let table = Table::open(&mut store, SHARE, 65_536, [42; 16], Nanos::ZERO);
    let Ok(table) = table else { return };
    let keys = |count: u32| -> Vec<String> { (0..count).map(|n| format!("user-{n:08}")).collect() };
    let mut tally = Tally::new(SHARE);

    let all = keys(100);
    measure("the number of a key alone", REQUESTS, || {
        for (_, key) in (0..REQUESTS).zip(all.iter().cycle()) {
            black_box(table.id(7, black_box(key)));
        }
    });
    for (what, users) in [
        ("a request, 100 keys, flushes included", 100),
        ("a request, 1 000 keys, flushes included", 1_000),
        ("a request, 1 000 000 keys, flushes included", 1_000_000),
    ] {
        let all = keys(users);
        measure(what, REQUESTS, || count(&table, &mut tally, &all));
    }

    let mut tally = Tally::new(SHARE);
    let all = keys(5_000);
    measure("a flush of full counters into full ones", 1_000, || {
        for n in 0..1_000 {
            let at = Nanos::from_millis(n);
            for key in &all {
                let id = table.id(7, key);
                tally.count(By::Refused, id.rule_tag, id.fingerprint, key, at);
            }
            tally.flush(&mut store, at.saturating_add(FLUSH_AFTER));
        }
    });
    measure("the same counting without the flush", 1_000, || {
        for n in 0..1_000 {
            let at = Nanos::from_millis(n);
            for key in &all {
                let id = table.id(7, key);
                tally.count(By::Refused, id.rule_tag, id.fingerprint, key, at);
            }
        }
    });
    measure("an answer", 1_000, || {
        for _ in 0..1_000 {
            let recent = recent(&mut store, SHARE, By::Refused, Nanos::from_secs(1));
            if let Ok(recent) = recent {
                black_box(recent.counts.most(|_| true).len());
            }
        }
    });
}
