//! Each request is evaluated by two rules, under all interleavings. If the second rule refuses, the
//! cost is given back to the first rule.

use loudou_limiter::{BucketRequest, Nanos};
use loudou_rules::rule_set::ActiveRule;
use loudou_store::page::Slot;
use loudou_store::{
    Attempt, LiveRule, Receipt, ReleaseAttempt, ReleaseReason, SharedData, StoreStats, Table,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{World, clock, limits, named};

const KEY: &str = "k";

/// Two rules, of which the second is the strict one.
struct Rules([ActiveRule; 2]);

impl Rules {
    fn new(loose: &Value, strict: &Value) -> Self {
        Self(
            [("loose", loose), ("strict", strict)]
                .map(|(name, limit)| named(name, &json!([limit]))),
        )
    }

    fn left(&self, world: &mut World, rule: usize, now: u64) -> u64 {
        let slot = self.slot(world, rule);
        let limits = limits(&self.0[rule]);
        let bucket = slot.map_or_else(|| limits.start(Nanos::ZERO), |slot| slot.bucket);
        let look = limits.peek(&bucket, 0, Nanos::new(now));
        look.reported().expect("one").remaining
    }

    /// The remaining capacity of a bucket after this many requests.
    fn left_of_new(&self, rule: usize, requests: u64, now: u64) -> u64 {
        let limits = limits(&self.0[rule]);
        let mut bucket = limits.start(Nanos::ZERO);
        for _ in 0..requests {
            limits.decide(&mut bucket, 1, Nanos::new(1));
        }
        let look = limits.peek(&bucket, 0, Nanos::new(now));
        look.reported().expect("one").remaining
    }

    fn slot(&self, world: &mut World, rule: usize) -> Option<Slot> {
        let id = world.table.id(self.0[rule].tag(), KEY);
        world.table.get(&mut world.store, id).expect("readable")
    }

    fn counts(&self, world: &mut World, rule: usize) -> (u64, u64) {
        let slot = self.slot(world, rule);
        slot.map_or((0, 0), |slot| (slot.admitted, slot.refused))
    }
}

/// The state of a worker.
#[derive(Debug)]
enum Doing<'a> {
    Acquire(usize, Box<Attempt<'a>>),
    Release(Box<ReleaseAttempt<'a>>),
}

/// A worker with a sequence of requests. Each read and each write is a step.
struct Worker<'a> {
    table: &'a Table,
    rules: &'a Rules,
    requests: usize,
    now: u64,
    has_read: bool,
    doing: Option<Doing<'a>>,
    receipts: &'a [std::cell::OnceCell<Receipt>],
    used: usize,
    admitted: u64,
    refused: [u64; 2],
}

impl<'a> Worker<'a> {
    fn take(&self, rule: usize) -> Doing<'a> {
        let take = self.rules.0[rule].acquire(KEY, BucketRequest::new(1, Nanos::new(self.now)));
        Doing::Acquire(rule, Box::new(Attempt::new(self.table, take)))
    }

    fn give(&self, receipt: &'a Receipt, now: u64) -> Doing<'a> {
        let give = self.rules.0[0].release(KEY, receipt, ReleaseReason::Refused, clock(now));
        Doing::Release(Box::new(ReleaseAttempt::new(self.table, give)))
    }

    /// Executes a read or a write. Returns true if there was anything to do.
    fn step(&mut self, store: &mut dyn SharedData, clock: u64, stats: &mut StoreStats) -> bool {
        let mut doing = match self.doing.take() {
            Some(doing) => doing,
            None if self.requests == 0 => return false,
            None => {
                self.requests -= 1;
                self.now = clock;
                self.take(0)
            }
        };
        let reads = !self.has_read;
        self.has_read = reads;
        self.doing = match &mut doing {
            Doing::Acquire(_, attempt) if reads => {
                attempt.read(store).expect("the store works");
                Some(doing)
            }
            Doing::Release(giving) if reads => {
                giving.read(store, stats).expect("the store works");
                Some(doing)
            }
            Doing::Acquire(rule, attempt) => match (*rule, attempt.write(store, stats)) {
                (_, None) => Some(doing),
                (rule, Some(charge)) => self.decided(rule, charge.expect("decided").receipt, clock),
            },
            Doing::Release(giving) => match giving.write(store, stats) {
                None => Some(doing),
                Some(given) => {
                    given.expect("given back");
                    None
                }
            },
        };
        true
    }

    /// The step after a decision.
    fn decided(&mut self, rule: usize, receipt: Option<Receipt>, clock: u64) -> Option<Doing<'a>> {
        match (rule, receipt) {
            (0, Some(receipt)) => {
                let cell = &self.receipts[self.used];
                cell.set(receipt).expect("a new one");
                Some(self.take(1))
            }
            (1, Some(_)) => {
                self.used += 1;
                self.admitted += 1;
                None
            }
            (rule, _) => {
                self.refused[rule] += 1;
                let receipt = self.receipts[self.used].get()?;
                self.used += 1;
                Some(self.give(receipt, clock))
            }
        }
    }
}

/// Returns the worker of the next step. The schedule ends when all workers are done.
pub(super) type Schedule<'s> = &'s mut dyn FnMut(&[bool]) -> usize;

/// Lets `workers` make `requests` each, and checks the remaining capacity.
fn run(rules: &Rules, strict: u64, workers: usize, requests: usize, schedule: Schedule<'_>) {
    let mut world = World::new(64);
    let table = world.table.clone();
    let cells: Vec<Vec<std::cell::OnceCell<Receipt>>> = (0..workers)
        .map(|_| (0..=requests).map(|_| std::cell::OnceCell::new()).collect())
        .collect();
    let mut all: Vec<Worker<'_>> = cells
        .iter()
        .map(|receipts| Worker {
            table: &table,
            rules,
            requests,
            now: 0,
            has_read: false,
            doing: None,
            receipts,
            used: 0,
            admitted: 0,
            refused: [0; 2],
        })
        .collect();
    let mut clock = 0;
    let mut stats = StoreStats::default();
    let mut busy = vec![true; workers];
    while busy.iter().any(|busy| *busy) {
        let next = schedule(&busy);
        clock += 1;
        busy[next] = all[next].step(&mut world.store, clock, &mut stats);
    }
    let admitted: u64 = all.iter().map(|worker| worker.admitted).sum();
    let refused: u64 = all.iter().map(|worker| worker.refused[1]).sum();
    let sent = u64::try_from(workers * requests).expect("small");
    assert!(
        all.iter().all(|worker| worker.refused[0] == 0),
        "there is room"
    );
    assert_eq!(admitted, sent.min(strict));
    for rule in [0, 1] {
        let expected = rules.left_of_new(rule, admitted, clock);
        assert!(rules.left(&mut world, rule, clock) <= expected);
        // The amount that has drained in the meantime, within nanoseconds, does not come back.
        assert!(rules.left(&mut world, rule, clock + 10_000) >= expected);
    }
    assert_eq!(rules.counts(&mut world, 0), (admitted, 0));
    assert_eq!(rules.counts(&mut world, 1), (admitted, refused));
    assert_eq!(stats.lost_returns, 0);
}

/// Limits with room for all, of every way to count.
fn loose() -> Vec<Value> {
    let limit = |algorithm: &str, extra: Value| {
        let mut limit = json!({ "algorithm": algorithm, "capacity": 40 });
        for (field, value) in extra.as_object().expect("fields") {
            limit[field.as_str()] = value.clone();
        }
        limit
    };
    vec![
        limit("funnel", json!({ "rate": "1/d" })),
        limit("token_bucket", json!({ "rate": "1/d", "initial": 30 })),
        limit(
            "token_bucket",
            json!({ "rate": "1/d", "refill": "interval" }),
        ),
        limit("fixed_window", json!({ "window": "1d" })),
        limit("sliding_window", json!({ "window": "1d", "slots": 2 })),
        limit("sliding_log", json!({ "window": "1d" })),
        limit("sliding_counter", json!({ "window": "1d" })),
        limit("leaky_queue", json!({ "rate": "1/d", "immediate": 40 })),
        limit("concurrency", json!({ "lease": "1d" })),
    ]
}

fn strict(capacity: u64) -> Value {
    json!({ "algorithm": "fixed_window", "capacity": capacity, "window": "1d" })
}

/// Runs every schedule of this many workers with at most `switches` switches between them.
/// Afterwards, the workers finish in turn.
pub(super) fn every_schedule(workers: usize, switches: usize, mut run: impl FnMut(Schedule<'_>)) {
    // A schedule is how many steps are made before each switch, and to whom.
    let mut plan: Vec<(usize, usize)> = vec![(0, 0); switches];
    loop {
        let mut turns: Vec<usize> = plan
            .iter()
            .flat_map(|(worker, steps)| std::iter::repeat_n(*worker, *steps))
            .collect();
        turns.reverse();
        run(&mut |busy: &[bool]| loop {
            match turns.pop() {
                Some(worker) if busy[worker] => break worker,
                Some(_) => {}
                None => break busy.iter().position(|busy| *busy).expect("somebody"),
            }
        });
        let more = plan.iter_mut().any(|(worker, steps)| {
            *steps += 1;
            if *steps > 6 {
                *steps = 1;
                *worker += 1;
            }
            let carries = *worker == workers;
            if carries {
                (*worker, *steps) = (0, 1);
            }
            !carries
        });
        if !more {
            break;
        }
    }
}

#[test]
fn every_interleaving_of_two_is_exact() {
    for (place, loose) in loose().iter().enumerate() {
        let rules = Rules::new(loose, &strict(1));
        let switches = if place == 0 { 4 } else { 3 };
        every_schedule(2, switches, |schedule| run(&rules, 1, 2, 2, schedule));
    }
}

#[test]
fn every_interleaving_of_three_is_exact() {
    let rules = Rules::new(&loose()[0], &strict(1));
    every_schedule(3, 3, |schedule| run(&rules, 1, 3, 1, schedule));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn random_interleavings_are_exact(
        loose in prop::sample::select(loose()), capacity in 1..=8_u64,
        turns in prop::collection::vec(0..5_usize, 0..200), (workers, requests) in (2..=5_usize, 1..=5_usize),
    ) {
        let rules = Rules::new(&loose, &strict(capacity));
        let mut turns = turns.into_iter();
        run(&rules, capacity, workers, requests, &mut |busy: &[bool]| {
            let next = turns.by_ref().map(|turn| turn % busy.len()).find(|turn| busy[*turn]);
            next.or_else(|| busy.iter().position(|busy| *busy)).expect("somebody")
        });
    }
}
