//! Workers of an Envoy share the lease of a key, interleaved in any order. No token is used twice,
//! and none is lost.

use loudou_limiter::lease::{Grant, Held, LeaseSettings, LeaseVerdict, Phase, Terms, TokenRequest};
use loudou_limiter::{BucketRequest, Nanos};
use loudou_rules::rule_set::ActiveRule;
use loudou_store::{Attempt, ByLease, LeaseOf, Leasing, LiveRule, Outage, StoreStats, Table};
use proptest::prelude::*;
use serde_json::json;

use super::{World, clock, limits, per_day, rule};

const KEY: &str = "k";
/// The units that all Envoys may have.
const CENTRAL: u64 = 40;

/// The next step of a worker.
#[derive(Clone, Copy, Debug)]
enum Job {
    Acquire(u64),
    BucketRequest(u64),
    Lose,
    GiveBack,
}

fn job() -> impl Strategy<Value = Job> {
    prop_oneof![
        6 => (1_u64..4).prop_map(Job::Acquire),
        4 => (0_u64..6).prop_map(Job::BucketRequest),
        1 => Just(Job::Lose),
        1 => Just(Job::GiveBack),
    ]
}

/// A job between its read and its write.
enum Current<'a> {
    Acquire(Box<Attempt<'a>>, u64),
    BucketRequest(Leasing<'a>, Held, Option<TokenRequest>),
    Apply(Leasing<'a>, TokenRequest, Option<Grant>),
}

struct Worker<'a> {
    jobs: Vec<Job>,
    current: Option<(Current<'a>, bool)>,
    /// The call that is not answered yet.
    asked: Option<TokenRequest>,
    /// The receipts of requests that were admitted.
    receipts: Vec<(loudou_store::Receipt, u64)>,
}

/// The counts that must agree.
#[derive(Debug, Default)]
struct Sums {
    granted: u64,
    charged: u64,
    passed: u64,
    /// Amount given back. The part without a lease to return to is lost.
    back: u64,
}

struct Model<'a> {
    table: &'a Table,
    rule: &'a ActiveRule,
    terms: &'a Terms,
    left: u64,
    sums: Sums,
    stats: StoreStats,
}

impl<'a> Model<'a> {
    fn leasing(&self) -> Leasing<'a> {
        let of = LeaseOf {
            rule: self.rule,
            limits: limits(self.rule),
            terms: self.terms,
            key: KEY,
            id: self.table.id(self.rule.tag(), KEY),
            clock: clock(1),
        };
        Leasing::new(self.table, of)
    }

    fn begin(&mut self, worker: &mut Worker<'a>) -> Option<Current<'a>> {
        Some(match worker.jobs.pop()? {
            Job::Acquire(cost) => {
                let ask = BucketRequest::new(cost, Nanos::new(1));
                let mut take = self.rule.acquire(KEY, ask);
                take.lease = Some(ByLease {
                    holds: true,
                    terms: self.terms,
                    phase: Phase::First,
                    is_down: false,
                    outage: Outage::Refuse,
                });
                Current::Acquire(Box::new(Attempt::new(self.table, take)), cost)
            }
            Job::BucketRequest(_) | Job::Lose | Job::GiveBack if worker.asked.is_some() => {
                let ask = worker.asked.take()?;
                let granted = ask.demand.want.min(self.left);
                self.left -= granted;
                self.sums.granted += granted;
                self.sums.charged += ask.demand.debt;
                let grant = Grant {
                    granted,
                    charged: ask.demand.debt,
                    ..Grant::default()
                };
                Current::Apply(self.leasing(), ask, Some(grant))
            }
            Job::BucketRequest(units) => Current::BucketRequest(
                self.leasing(),
                Held {
                    units,
                    least: units.min(1),
                },
                None,
            ),
            Job::Lose | Job::GiveBack => return None,
        })
    }

    fn step(&mut self, world: &mut World, worker: &mut Worker<'a>) {
        if worker.current.is_none() {
            if let Some(Job::GiveBack) = worker.jobs.last()
                && let Some((receipt, cost)) = worker.receipts.pop()
            {
                worker.jobs.pop();
                let give =
                    self.rule
                        .release(KEY, &receipt, loudou_store::ReleaseReason::Left, clock(1));
                let given = self.table.release(&mut world.store, &give, &mut self.stats);
                assert_eq!(given, Ok(()));
                self.sums.passed -= cost;
                self.sums.back += cost;
                return;
            }
            worker.current = self.begin(worker).map(|current| (current, false));
            return;
        }
        let Some((mut current, has_read)) = worker.current.take() else {
            return;
        };
        if has_read {
            self.write(world, worker, current);
            return;
        }
        let terms = self.terms;
        let now = Nanos::new(1);
        match &mut current {
            Current::Acquire(attempt, _) => attempt.read(&mut world.store).expect("a page"),
            Current::BucketRequest(leasing, held, ask) => leasing
                .read(&mut world.store, &mut |lease| {
                    *ask = lease.request(terms, *held, now);
                })
                .expect("a page"),
            Current::Apply(leasing, ask, grant) => leasing
                .read(&mut world.store, &mut |lease| match grant {
                    Some(grant) => assert!(lease.apply(terms, ask, grant, now, 7)),
                    None => lease.lost(ask),
                })
                .expect("a page"),
        }
        worker.current = Some((current, true));
    }

    fn write(&mut self, world: &mut World, worker: &mut Worker<'a>, mut current: Current<'a>) {
        let is_done = match &mut current {
            Current::Acquire(attempt, cost) => {
                match attempt.write(&mut world.store, &mut self.stats) {
                    None => false,
                    Some(charge) => {
                        let charge = charge.expect("few conflicts");
                        let leased = charge.leased.expect("a lease");
                        if leased.verdict == LeaseVerdict::Admit {
                            self.sums.passed += *cost;
                            worker
                                .receipts
                                .push((charge.receipt.expect("admitted"), *cost));
                        }
                        true
                    }
                }
            }
            Current::BucketRequest(leasing, _, ask) => {
                let written = leasing.write(&mut world.store, &mut self.stats);
                if written.is_some() {
                    worker.asked = *ask;
                }
                written.is_some()
            }
            Current::Apply(leasing, ..) => {
                leasing.write(&mut world.store, &mut self.stats).is_some()
            }
        };
        if !is_done {
            worker.current = Some((current, false));
        }
    }
}

fn terms(rule: &ActiveRule, credit: u64) -> Terms {
    let settings = LeaseSettings {
        lease: Nanos::from_millis(200),
        timeout: Nanos::from_millis(30),
        credit,
    };
    Terms::of(limits(rule), &settings).expect("a funnel")
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn tokens_are_used_once_and_not_lost(
        queues in prop::collection::vec(prop::collection::vec(job(), 0..20), 1..5),
        schedule in prop::collection::vec(0_usize..5, 0..400),
        credit in prop_oneof![2 => Just(0), 1 => 1_u64..6],
    ) {
        let mut world = World::new(16);
        let rule = per_day(1_000);
        let terms = terms(&rule, credit);
        let table = world.table.clone();
        let mut model = Model {
            table: &table,
            rule: &rule,
            terms: &terms,
            left: CENTRAL,
            sums: Sums::default(),
            stats: StoreStats::default(),
        };
        let mut workers: Vec<Worker<'_>> = queues
            .into_iter()
            .map(|jobs| Worker { jobs, current: None, asked: None, receipts: Vec::new() })
            .collect();
        let count = workers.len();
        for turn in schedule {
            model.step(&mut world, &mut workers[turn % count]);
            // At every instant between two writes.
            let slot = world.slot(KEY);
            let lease = slot.and_then(|slot| slot.lease).map(|lease| *lease).unwrap_or_default();
            let (tokens, debt) = (lease.tokens(Nanos::new(1)), lease.debt());
            let Sums { granted, charged, passed, .. } = model.sums;
            prop_assert!(debt <= credit);
            // What an answer granted is not on hand before it is applied.
            prop_assert!(passed + tokens <= granted + charged + debt, "{:?} {lease:?}", model.sums);
        }
        // All that was read is written, and nothing begins.
        for worker in &mut workers {
            worker.jobs.clear();
            while worker.current.is_some() {
                model.step(&mut world, worker);
            }
        }
        let slot = world.slot(KEY);
        let lease = slot.and_then(|slot| slot.lease).map(|lease| *lease).unwrap_or_default();
        let (tokens, debt) = (lease.tokens(Nanos::new(1)), lease.debt());
        let Sums { granted, charged, passed, back } = model.sums;
        let (used, had) = (passed + tokens, granted + charged + debt);
        prop_assert!(used <= had && had <= used + back, "{:?} {lease:?}", model.sums);
        prop_assert_eq!(model.stats.cas_give_ups, 0);
    }
}

/// A cost that was admitted by this Envoy's part comes back at the rate of the part. The amount
/// that the whole rate would have freed in the meantime is still used here.
#[test]
fn a_cost_that_was_admitted_alone_comes_back_by_the_part() {
    const SECOND: u64 = 1_000_000_000;
    let mut world = World::new(16);
    let limits = json!([{ "algorithm": "funnel", "capacity": 20, "rate": "4/s" }]);
    let (rule, table) = (rule(&limits), world.table.clone());
    let terms = terms(&rule, 0);
    let take = |world: &mut World, cost: u64, at: u64| {
        let mut take = rule.acquire(KEY, BucketRequest::new(cost, Nanos::new(at)));
        take.lease = Some(ByLease {
            holds: true,
            terms: &terms,
            phase: Phase::First,
            is_down: true,
            outage: Outage::Local(4),
        });
        let charge = table.charge(&mut world.store, &take, &mut world.stats);
        charge.expect("readable").receipt
    };
    let first = take(&mut world, 3, 0).expect("of a part of 5");
    assert!(take(&mut world, 2, 0).is_some());
    // One unit comes back in a second. Without the first request, it would be one of the second
    // request's units.
    let give = rule.release(
        KEY,
        &first,
        loudou_store::ReleaseReason::Refused,
        clock(SECOND),
    );
    let given = table.release(&mut world.store, &give, &mut world.stats);
    assert_eq!(given, Ok(()));
    let passes = (0..9).filter(|_| take(&mut world, 1, SECOND).is_some());
    assert_eq!(passes.count(), 4, "one of five is used");
}

/// A rule in shadow mode holds no request. Beyond its credit it refuses, so that requests during a call are not counted
/// as admitted without taking anything.
#[test]
fn a_request_beyond_the_credit_is_held_or_refused() {
    let limits = json!([{ "algorithm": "funnel", "capacity": 20, "rate": "4/s" }]);
    for holds in [true, false] {
        let mut world = World::new(16);
        let (rule, table) = (rule(&limits), world.table.clone());
        let terms = terms(&rule, 2);
        let mut verdicts = Vec::new();
        for _ in 0..4 {
            let mut take = rule.acquire(KEY, BucketRequest::new(1, Nanos::new(1)));
            take.lease = Some(ByLease {
                terms: &terms,
                phase: Phase::First,
                holds,
                is_down: false,
                outage: Outage::Refuse,
            });
            let charge = table
                .charge(&mut world.store, &take, &mut world.stats)
                .expect("readable");
            let leased = charge.leased.expect("a lease");
            let refused = charge.answer.expect("no ban").is_refused();
            verdicts.push((refused, leased.waits(), charge.receipt.is_some()));
        }
        let beyond = (!holds, holds, false);
        assert_eq!(
            verdicts,
            [(false, false, true), (false, false, true), beyond, beyond]
        );
    }
}

/// Units that a request of a fleet did not need return only while the tokens that it took would have lived. A longer
/// request returns nothing to a later lease: the engine has refilled these units meanwhile.
#[test]
fn long_requests_return_nothing_to_a_later_lease() {
    let rule = rule(&json!([{ "algorithm": "funnel", "capacity": 100, "rate": "100/s" }]));
    let terms = terms(&rule, 0);
    let at = |millis: u64| loudou_limiter::Clock::at(Nanos::from_millis(millis));
    for (ends_ms, expected) in [(150, 9), (250, 5)] {
        let mut world = World::new(64);
        let table = world.table.clone();
        let id = table.id(rule.tag(), KEY);
        let lend = |world: &mut World, units: u64, clock| {
            let of = LeaseOf {
                rule: &rule,
                limits: limits(&rule),
                terms: &terms,
                key: KEY,
                id,
                clock,
            };
            let change = &mut |lease: &mut loudou_limiter::lease::Lease| {
                let ask = lease
                    .request(
                        &terms,
                        Held {
                            units,
                            least: units,
                        },
                        clock.now,
                    )
                    .expect("it asks");
                let grant = Grant {
                    granted: ask.demand.want,
                    ..Grant::default()
                };
                assert!(lease.apply(&terms, &ask, &grant, clock.now, 7));
            };
            table
                .lease(&mut world.store, of, change, &mut world.stats)
                .expect("a page");
        };
        lend(&mut world, 10, at(1));
        let mut take = rule.acquire(KEY, BucketRequest::new(10, Nanos::from_millis(1)));
        take.lease = Some(ByLease {
            holds: true,
            terms: &terms,
            phase: Phase::First,
            is_down: false,
            outage: Outage::Refuse,
        });
        let charge = table
            .charge(&mut world.store, &take, &mut world.stats)
            .expect("decided");
        let receipt = charge.receipt.expect("it is admitted");
        // The lease of the request ends after 201 ms.
        lend(&mut world, 5, at(ends_ms));
        let give = rule.release(
            KEY,
            &receipt,
            loudou_store::ReleaseReason::Settled(6),
            at(ends_ms),
        );
        table
            .release(&mut world.store, &give, &mut world.stats)
            .expect("settled");
        let slot = world.slot(KEY).expect("a bucket");
        let tokens = slot
            .lease
            .map(|lease| lease.tokens(Nanos::from_millis(ends_ms)));
        assert_eq!(tokens, Some(expected), "{ends_ms}");
    }
}
