//! Many workers at the same time. Counts are exact for any interleaving, including the first touch.

use loudou_store::memory::MemoryStore;
use loudou_store::{CAS_ABSENT, CAS_OVERWRITE, Cas, SharedData, StoreFailed, Written};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use serde_json::json;

use super::stepwise::{Model, Want};
use super::{World, open, per_day, rule};

fn config() -> ProptestConfig {
    let regressions = FileFailurePersistence::WithSource("regressions");
    ProptestConfig {
        failure_persistence: Some(Box::new(regressions)),
        ..ProptestConfig::with_cases(384)
    }
}

/// At most sixteen keys, which share pages and fit even if all are in a single page.
fn keys(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("user-{n}")).collect()
}

fn queues(keys: usize, most_cost: u64) -> impl Strategy<Value = Vec<Vec<Want>>> {
    let want = (0..keys, 1..=most_cost).prop_map(|(key, cost)| Want { key, cost });
    prop::collection::vec(prop::collection::vec(want, 1..8), 2..8)
}

fn schedule(pause: u64) -> impl Strategy<Value = Vec<(usize, u64)>> {
    prop::collection::vec((0..8_usize, 0..=pause), 0..120)
}

proptest! {
    #![proptest_config(config())]

    /// Without a noticeable leak, exactly the capacity is admitted of every key.
    #[test]
    fn exactly_the_capacity_is_admitted(
        queues in queues(5, 1), schedule in schedule(5), capacity in 1..=6_u64,
    ) {
        let mut world = World::new(64);
        let (limits, keys) = (per_day(capacity), keys(5));
        let table = world.table.clone();
        let mut model = Model::new(&table, &limits, &keys, queues);
        model.run(&schedule, &mut world.store);
        for (index, key) in keys.iter().enumerate() {
            let requests = model.answered(index);
            prop_assert_eq!(model.admitted(index), requests.min(capacity), "{}", key);
            let slot = world.slot(key);
            prop_assert_eq!(slot.is_some(), requests > 0);
            if let Some(slot) = slot {
                prop_assert_eq!(slot.admitted, requests.min(capacity));
                prop_assert_eq!(slot.admitted + slot.refused, requests);
            }
        }
        let stats = model.stats;
        prop_assert_eq!(stats.created, world.slots_in_use());
        prop_assert_eq!(stats.evicted_lossless + stats.evicted_lossy, 0);
        prop_assert_eq!(stats.cas_give_ups + stats.lost_counts, 0);
    }

    /// With a leak, costs and pauses, the admitted amount never exceeds the capacity and the leaked
    /// amount.
    #[test]
    fn no_more_than_capacity_and_rate_is_admitted(
        queues in queues(3, 3), schedule in schedule(12),
        capacity in 3..=6_u64, amount in 1..=3_u64, period in 1..=30_u64,
    ) {
        let mut world = World::new(64);
        let rate = format!("{amount}/{period}ns");
        let limits = rule(&json!([{ "algorithm": "funnel", "capacity": capacity, "rate": rate }]));
        let keys = keys(3);
        let table = world.table.clone();
        let mut model = Model::new(&table, &limits, &keys, queues);
        model.run(&schedule, &mut world.store);
        for key in 0..keys.len() {
            let times = || model.got.iter().filter(|got| got.want.key == key).map(|got| got.now);
            let (Some(first), Some(last)) = (times().min(), times().max()) else { continue };
            let bound = capacity * period + amount * (last - first);
            prop_assert!(model.admitted(key) * period <= bound);
        }
    }

    /// Two limits in a bucket. The smaller limit is exact, and a refusal by one limit charges
    /// neither.
    #[test]
    fn two_limits_are_exact_together(
        queues in queues(4, 1), schedule in schedule(5),
        (a, b) in (1..=6_u64, 1..=6_u64),
    ) {
        let mut world = World::new(64);
        let limits = rule(&json!([
            { "name": "a", "algorithm": "funnel", "capacity": a, "rate": "1/d" },
            { "name": "b", "algorithm": "token_bucket", "capacity": b, "rate": "1/d", "refill": "interval" },
        ]));
        let keys = keys(4);
        let table = world.table.clone();
        let mut model = Model::new(&table, &limits, &keys, queues);
        model.run(&schedule, &mut world.store);
        for (index, key) in keys.iter().enumerate() {
            let admitted = model.admitted(index);
            prop_assert_eq!(admitted, model.answered(index).min(a).min(b));
            let Some(slot) = world.slot(key) else { continue };
            let now = loudou_limiter::Nanos::new(model.clock);
            let answer = super::limits(&limits).peek(&slot.bucket, 0, now);
            let left: Vec<u64> = answer.decisions().map(|limit| limit.remaining).collect();
            prop_assert_eq!(left, [a - admitted, b - admitted]);
        }
    }

    /// There are more keys than fit into the only page. Buckets are lost, but each request is
    /// answered, each slot is accounted for, and the page never overflows.
    #[test]
    fn an_overfull_page_stays_consistent(queues in queues(24, 1), schedule in schedule(5)) {
        let mut world = World::new(16);
        let (limits, keys) = (per_day(2), keys(24));
        let table = world.table.clone();
        prop_assert_eq!(table.pages(), 1);
        let requests: usize = queues.iter().map(Vec::len).sum();
        let mut model = Model::new(&table, &limits, &keys, queues);
        model.run(&schedule, &mut world.store);
        prop_assert_eq!(model.got.len(), requests);
        prop_assert_eq!(model.stats.created, world.slots_in_use());
        prop_assert!(model.stats.evicted_lossy == 0 || model.stats.created == 16);
        prop_assert_eq!(model.stats.evicted_lossless, 0, "nothing is idle within a day");
    }
}

/// A host on which pages are created without a version.
struct Overwriting(MemoryStore);

impl SharedData for Overwriting {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<Option<Cas>, StoreFailed> {
        self.0.get(key, value)
    }

    fn set(&mut self, key: &[u8], value: &[u8], expected: Cas) -> Result<Written, StoreFailed> {
        let expected = if expected == CAS_ABSENT {
            CAS_OVERWRITE
        } else {
            expected
        };
        self.0.set(key, value, expected)
    }
}

/// Four workers read the page before any of them writes it, so all find it missing. Returns how
/// many requests are admitted for a capacity of one, and how many the bucket has counted.
fn first_touch_by_four(store: &mut dyn SharedData) -> (u64, u64) {
    let (limits, keys) = (per_day(1), keys(1));
    let table = open(store, 64);
    let queues = vec![vec![Want { key: 0, cost: 1 }]; 4];
    let mut model = Model::new(&table, &limits, &keys, queues);
    let all_read_then_all_write = [
        (0, 0),
        (1, 0),
        (2, 0),
        (3, 0),
        (0, 0),
        (1, 0),
        (2, 0),
        (3, 0),
    ];
    model.run(&all_read_then_all_write, store);
    let slot = table.get(store, table.id(super::tag(), &keys[0]));
    let slot = slot.expect("readable").expect("a bucket");
    (model.admitted(0), slot.admitted + slot.refused)
}

/// The race that [`CAS_ABSENT`] prevents. A write without a version overwrites the write of the
/// worker that created the page first, so each worker admits a whole capacity.
#[test]
fn creating_pages_without_a_version_over_admits() {
    assert_eq!(
        first_touch_by_four(&mut Overwriting(MemoryStore::new())),
        (4, 1)
    );
}

#[test]
fn creating_pages_only_when_absent_is_exact() {
    assert_eq!(first_touch_by_four(&mut MemoryStore::new()), (1, 4));
}
