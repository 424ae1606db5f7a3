//! Measures a decision of the store: it reads the page of the key, changes the slot, and writes the
//! page by compare-and-swap. All buckets exist and all requests are admitted.
//!
//! *By number* finds a page in an array, which measures the time of the store alone. *By key* finds
//! it in a tree and allocates the key and value of each write, similar to Envoy. governor's keyed
//! limiter stores its keys in a hash map.

use std::hint::black_box;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion};
use loudou_limiter::{BucketRequest, Nanos};
use loudou_rules::config::parse_rule;
use loudou_rules::rule_set::ActiveRule;
use loudou_rules::versions::History;
use loudou_store::memory::MemoryStore;
use loudou_store::paged::PagedStore;
use loudou_store::{SharedData, StoreStats, Table};
use serde_json::json;

use super::Checked;
use super::governed::{self, APART, BURST, START};

const NAMESPACE: &str = "bench";
/// Ten times as many buckets as the most keys, so that all keys find room.
const MANY: u32 = 1 << 20;
/// The buckets of one page.
const PAGE: u32 = 16;

/// A name, the number of keys, which are used in turn, and the size of the store in buckets.
const CASES: [(&str, u32, u32); 4] = [
    ("1 key", 1, MANY),
    ("16 keys of one page", PAGE, PAGE),
    ("1 000 keys", 1_000, MANY),
    ("100 000 keys", 100_000, MANY),
];

pub(super) fn bench(criterion: &mut Criterion) -> Checked {
    let rule = parse_rule(&json!({
        "name": "per-user",
        "key": [{ "header": "x-user-id" }],
        "limits": [
            { "name": "l", "algorithm": "funnel", "capacity": BURST, "rate": format!("{BURST}/s") },
        ],
    }));
    let rule = rule.map_err(|_problems| "the rule is not valid".to_owned())?;
    let rule = ActiveRule::new(rule, History::default());
    let mut group = criterion.benchmark_group("page");
    for (case, users, buckets) in CASES {
        let keys: Vec<String> = (0..users).map(|user| format!("user-{user:08}")).collect();
        of_governor(&mut group, case, &keys)?;
        let store = &mut PagedStore::new(NAMESPACE, buckets);
        let id = BenchmarkId::new("funnel, pages by number", case);
        of_store(&mut group, id, &rule, (store, buckets), &keys)?;
        let store = &mut MemoryStore::new();
        let id = BenchmarkId::new("funnel, pages by key", case);
        of_store(&mut group, id, &rule, (store, buckets), &keys)?;
    }
    group.finish();
    Ok(())
}

fn of_governor(
    group: &mut BenchmarkGroup<'_, WallTime>,
    case: &'static str,
    keys: &[String],
) -> Checked {
    let (limiter, clock) = governed::keyed();
    let id = BenchmarkId::new("governor, keyed", case);
    measure(group, id, keys, |key, now| {
        clock.set(now);
        black_box(&limiter.check_key(key)).is_ok()
    })
}

fn of_store(
    group: &mut BenchmarkGroup<'_, WallTime>,
    id: BenchmarkId,
    rule: &ActiveRule,
    (store, buckets): (&mut dyn SharedData, u32),
    keys: &[String],
) -> Checked {
    let table = Table::open(store, NAMESPACE, buckets, [42; 16], Nanos::ZERO);
    let table = table.map_err(|_gave_up| "the table does not open".to_owned())?;
    let mut stats = StoreStats::default();
    measure(group, id, keys, |key, now| {
        let take = rule.acquire(key, BucketRequest::new(1, Nanos::new(now)));
        let charge = table.charge(store, &take, &mut stats);
        let answer = black_box(&charge).as_ref().map(|charge| &charge.answer);
        matches!(answer, Ok(Ok(answer)) if !answer.is_refused())
    })?;
    let created = StoreStats {
        created: u64::try_from(keys.len()).unwrap_or(u64::MAX),
        ..StoreStats::default()
    };
    if stats == created {
        Ok(())
    } else {
        Err("the keys do not have one bucket each".to_owned())
    }
}

/// Measures requests of the keys in turn. `admits` must admit each request at its instant.
fn measure(
    group: &mut BenchmarkGroup<'_, WallTime>,
    id: BenchmarkId,
    keys: &[String],
    mut admits: impl FnMut(&String, u64) -> bool,
) -> Checked {
    let (mut now, mut turn) = (START, keys.iter().cycle());
    let mut next = || {
        now += APART;
        turn.next().is_some_and(|key| admits(black_box(key), now))
    };
    // All buckets exist, and were used a second time.
    let warm = (0..2 * keys.len()).all(|_| next());
    group.bench_function(id, |bencher| bencher.iter(&mut next));
    if warm && next() {
        Ok(())
    } else {
        Err("not every request was admitted".to_owned())
    }
}
