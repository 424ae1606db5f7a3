//! Workers that take permits and give them back, interleaved by a schedule.

use std::cell::OnceCell;
use std::collections::BTreeSet;

use loudou_limiter::Nanos;
use loudou_rules::rule_set::ActiveRule;
use loudou_store::{Attempt, GaveUp, Receipt, ReleaseAttempt, SharedData, StoreStats, Table};
use proptest::prelude::*;
use serde_json::json;

use super::ends::{at_most, give};
use super::stepwise::Want;
use super::{World, rule, take};

/// State of a worker, which handles a request from its start to its end, in reads and writes.
enum Doing<'a> {
    Taking(Want, Box<Attempt<'a>>),
    Flying(Want, &'a Receipt),
    ReleaseAttempt(Want, Box<ReleaseAttempt<'a>>),
}

struct Worker<'a> {
    queue: Vec<Want>,
    doing: Option<Doing<'a>>,
    has_read: bool,
}

/// Workers that take permits and give them back, on one store.
struct Model<'a> {
    table: &'a Table,
    rule: &'a ActiveRule,
    keys: &'a [String],
    /// One for each request.
    receipts: &'a [OnceCell<Receipt>],
    workers: Vec<Worker<'a>>,
    clock: u64,
    stats: StoreStats,
    /// Of each key, in cost units, for certain.
    flying: Vec<u64>,
    most: u64,
    /// Requests whose bucket found no room.
    full: usize,
}

impl Model<'_> {
    /// The number of keys with permits in flight.
    fn keys_held(&self) -> usize {
        let doing = self
            .workers
            .iter()
            .filter_map(|worker| worker.doing.as_ref());
        let held = doing.filter_map(|doing| match doing {
            Doing::Taking(..) => None,
            Doing::Flying(want, _) | Doing::ReleaseAttempt(want, _) => Some(want.key),
        });
        held.collect::<BTreeSet<_>>().len()
    }

    /// Executes a step of a worker. Returns true if it had anything left to do.
    fn step(&mut self, index: usize, store: &mut dyn SharedData) -> bool {
        let count = self.workers.len();
        let (table, rule, keys) = (self.table, self.rule, self.keys);
        let worker = &mut self.workers[index % count];
        let reads = !worker.has_read;
        worker.has_read = false;
        let next = match worker.doing.take() {
            None => {
                let Some(want) = worker.queue.pop() else {
                    return false;
                };
                let mut take = take(rule, &keys[want.key], self.clock);
                take.request.cost = want.cost;
                Some(Doing::Taking(want, Box::new(Attempt::new(table, take))))
            }
            Some(Doing::Taking(want, mut attempt)) if reads => match attempt.read(store) {
                Ok(()) => {
                    worker.has_read = true;
                    Some(Doing::Taking(want, attempt))
                }
                Err(gave_up) => {
                    assert_eq!(gave_up, GaveUp::PageFull);
                    self.full += 1;
                    None
                }
            },
            Some(Doing::Taking(want, mut attempt)) => {
                match attempt.write(store, &mut self.stats).transpose() {
                    Ok(None) => Some(Doing::Taking(want, attempt)),
                    Ok(Some(charge)) => charge.receipt.map(|receipt| {
                        self.flying[want.key] += want.cost;
                        self.most = self.most.max(self.flying[want.key]);
                        let (cell, rest) = self.receipts.split_first().expect("one for each");
                        self.receipts = rest;
                        Doing::Flying(want, cell.get_or_init(|| receipt))
                    }),
                    Err(gave_up) => panic!("{gave_up:?}"),
                }
            }
            Some(Doing::Flying(want, receipt)) => {
                // The request has ended now, even if that is reported later.
                self.flying[want.key] -= want.cost;
                let give = give(rule, &keys[want.key], receipt, self.clock);
                Some(Doing::ReleaseAttempt(
                    want,
                    Box::new(ReleaseAttempt::new(table, give)),
                ))
            }
            Some(Doing::ReleaseAttempt(want, mut giving)) if reads => {
                giving
                    .read(store, &mut self.stats)
                    .expect("the store works");
                worker.has_read = true;
                Some(Doing::ReleaseAttempt(want, giving))
            }
            Some(Doing::ReleaseAttempt(want, mut giving)) => {
                let outcome = giving.write(store, &mut self.stats).transpose();
                let given = outcome.expect("few enough conflicts");
                given
                    .is_none()
                    .then_some(Doing::ReleaseAttempt(want, giving))
            }
        };
        worker.doing = next;
        true
    }
}

fn keys(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("user-{n}")).collect()
}

/// The results after all requests have ended.
struct End {
    /// Maximum amount in flight of a key.
    most: u64,
    /// Maximum number of keys with an amount in flight or still to be given back.
    most_keys: usize,
    full: usize,
    clock: u64,
    stats: StoreStats,
}

/// Workers with these queues follow the schedule of (worker, time that passes before), then all finish.
fn fly(
    world: &mut World,
    rule: &ActiveRule,
    keys: &[String],
    queues: Vec<Vec<(usize, u64)>>,
    schedule: &[(usize, u64)],
) -> End {
    let table = world.table.clone();
    let requests = queues.iter().map(Vec::len).sum();
    let receipts: Vec<_> = (0..requests).map(|_| OnceCell::new()).collect();
    let worker = |queue: Vec<(usize, u64)>| Worker {
        queue: queue
            .into_iter()
            .map(|(key, cost)| Want { key, cost })
            .collect(),
        doing: None,
        has_read: false,
    };
    let mut model = Model {
        table: &table,
        rule,
        keys,
        receipts: &receipts,
        workers: queues.into_iter().map(worker).collect(),
        clock: 0,
        stats: StoreStats::default(),
        flying: vec![0; keys.len()],
        most: 0,
        full: 0,
    };
    let mut most_keys = 0;
    for (worker, pause) in schedule {
        model.clock += pause;
        model.step(*worker, &mut world.store);
        most_keys = most_keys.max(model.keys_held());
    }
    while (0..model.workers.len()).any(|worker| model.step(worker, &mut world.store)) {
        most_keys = most_keys.max(model.keys_held());
    }
    End {
        most: model.most,
        most_keys,
        full: model.full,
        clock: model.clock,
        stats: model.stats,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(384) })]

    /// Never more in flight than the capacity, and in the end nothing.
    #[test]
    fn takes_and_returns_interleave(
        queues in prop::collection::vec(
            prop::collection::vec((0..3_usize, 1..=2_u64), 1..8), 2..8,
        ),
        schedule in prop::collection::vec((0..8_usize, 0..=5_u64), 0..300),
        capacity in 2..=4_u64,
    ) {
        let mut world = World::new(64);
        let limits = at_most(capacity);
        let keys = keys(3);
        let end = fly(&mut world, &limits, &keys, queues, &schedule);
        prop_assert!(end.most <= capacity);
        prop_assert_eq!((end.stats.lost_returns, end.full), (0, 0));
        let now = Nanos::new(end.clock);
        for key in &keys {
            let Some(slot) = world.slot(key) else { continue };
            let answer = super::limits(&limits).peek(&slot.bucket, 0, now);
            prop_assert_eq!(answer.reported().expect("one").remaining, capacity);
            prop_assert_eq!(answer.reset_after(), Nanos::ZERO);
            prop_assert_eq!(slot.held_until_ms, 0);
        }
    }

    /// There are more keys than slots in the page, and costs are taken for long. Buckets are lost,
    /// but none that holds a permit. A new bucket finds no room only if all sixteen hold permits.
    #[test]
    fn permits_are_exact_in_an_overfull_page(
        queues in prop::collection::vec(
            prop::collection::vec((0..24_usize, Just(1)), 1..8), 16..24,
        ),
        schedule in prop::collection::vec((0..24_usize, 0..=5_u64), 0..600),
        capacity in 1..=2_u64,
    ) {
        let mut world = World::new(16);
        let limits = rule(&json!([
            { "name": "a", "algorithm": "concurrency", "capacity": capacity, "lease": "1s" },
            { "name": "b", "algorithm": "funnel", "capacity": 1_000, "rate": "1000/d" },
        ]));
        let end = fly(&mut world, &limits, &keys(24), queues, &schedule);
        prop_assert!(end.most <= capacity, "{} of {}", end.most, capacity);
        prop_assert!(end.full == 0 || end.most_keys >= 16);
        for slot in world.page(0).slots {
            prop_assert_eq!(slot.held_until_ms, 0);
        }
    }
}
