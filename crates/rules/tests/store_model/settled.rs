//! Requests of many workers that reserve a cost and are settled at their ends, under all interleavings.

use loudou_limiter::{BucketRequest, Clock, Nanos};
use loudou_rules::config::parse_rule;
use loudou_rules::rule_set::ActiveRule;
use loudou_rules::versions::History;
use loudou_store::{Attempt, Receipt, ReleaseAttempt, ReleaseReason, StoreStats, Table};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::refunds::{Schedule, every_schedule};
use super::{World, clock, limits, rule};

const KEY: &str = "k";

/// A request: what it reserves, and what it costs.
type Request = (u64, u64);

/// The state of a worker.
enum Doing<'a> {
    Acquire(Box<Attempt<'a>>),
    Settle(Box<ReleaseAttempt<'a>>),
}

/// A worker with a sequence of requests. Each read and each write is a step.
struct Worker<'a> {
    table: &'a Table,
    rule: &'a ActiveRule,
    requests: Vec<Request>,
    receipts: &'a [std::cell::OnceCell<Receipt>],
    used: usize,
    has_read: bool,
    doing: Option<Doing<'a>>,
}

impl Worker<'_> {
    /// Executes a read or a write. Returns how the charged units change, or `None` if there was nothing to do.
    fn step(&mut self, world: &mut World, now: u64) -> Option<(bool, i64)> {
        let (store, stats) = (&mut world.store, &mut world.stats);
        let mut doing = if let Some(doing) = self.doing.take() {
            doing
        } else {
            let (reserved, _) = self.requests.last()?;
            let take = self
                .rule
                .acquire(KEY, BucketRequest::new(*reserved, Nanos::new(now)));
            Doing::Acquire(Box::new(Attempt::new(self.table, take)))
        };
        let reads = !self.has_read;
        self.has_read = reads;
        let mut change = (false, 0);
        self.doing = match &mut doing {
            Doing::Acquire(attempt) if reads => {
                attempt.read(store).expect("the store works");
                Some(doing)
            }
            Doing::Settle(giving) if reads => {
                giving.read(store, stats).expect("the store works");
                Some(doing)
            }
            Doing::Acquire(attempt) => match attempt.write(store, stats) {
                None => Some(doing),
                Some(decided) => match decided.expect("decided").receipt {
                    None => {
                        self.requests.pop();
                        None
                    }
                    Some(receipt) => {
                        let (reserved, actual) = *self.requests.last()?;
                        change = (true, i64::try_from(reserved).expect("small"));
                        let receipts = self.receipts;
                        receipts[self.used].set(receipt).expect("a new one");
                        let receipt = receipts[self.used].get()?;
                        self.used += 1;
                        let give = self.rule.release(
                            KEY,
                            receipt,
                            ReleaseReason::Settled(actual),
                            clock(now),
                        );
                        Some(Doing::Settle(Box::new(ReleaseAttempt::new(
                            self.table, give,
                        ))))
                    }
                },
            },
            Doing::Settle(giving) => match giving.write(store, stats) {
                None => Some(doing),
                Some(given) => {
                    given.expect("settled");
                    let (reserved, actual) = self.requests.pop()?;
                    change = (
                        false,
                        i64::try_from(actual).expect("small")
                            - i64::try_from(reserved).expect("small"),
                    );
                    None
                }
            },
        };
        Some(change)
    }
}

/// Lets each worker make its requests. After each admission, what all requests have been charged fits into the limit,
/// and at the end the bucket has used what they have cost.
fn run(limit: &Value, of_workers: &[Vec<Request>], schedule: Schedule<'_>) {
    let rule = rule(&json!([limit]));
    let capacity = limit["capacity"].as_i64().expect("a capacity");
    let mut world = World::new(64);
    let table = world.table.clone();
    let cells: Vec<Vec<std::cell::OnceCell<Receipt>>> = of_workers
        .iter()
        .map(|requests| {
            requests
                .iter()
                .map(|_| std::cell::OnceCell::new())
                .collect()
        })
        .collect();
    let mut workers: Vec<Worker<'_>> = of_workers
        .iter()
        .zip(&cells)
        .map(|(requests, receipts)| Worker {
            table: &table,
            rule: &rule,
            requests: requests.iter().rev().copied().collect(),
            receipts,
            used: 0,
            has_read: false,
            doing: None,
        })
        .collect();
    let (mut now, mut charged) = (0, 0);
    let mut busy = vec![true; workers.len()];
    while busy.iter().any(|busy| *busy) {
        let next = schedule(&busy);
        now += 1;
        match workers[next].step(&mut world, now) {
            None => busy[next] = false,
            Some((is_admitted, change)) => {
                charged += change;
                assert!(
                    !is_admitted || charged <= capacity,
                    "{charged} of {capacity}"
                );
            }
        }
    }
    let slot = world.slot(KEY).expect("a bucket");
    let used = limits(&rule).used(&slot.bucket, Nanos::new(now));
    assert_eq!(
        used,
        [u64::try_from(charged).expect("never below zero")],
        "{limit}"
    );
    assert_eq!(
        world.stats,
        StoreStats {
            created: 1,
            cas_retries: world.stats.cas_retries,
            ..StoreStats::default()
        }
    );
}

/// Limits of which practically nothing comes back, with their names.
fn all() -> Vec<Value> {
    let limit = |algorithm: &str, field: &str, value: &str| {
        let mut limit = json!({ "algorithm": algorithm, "capacity": 10 });
        limit[field] = json!(value);
        limit
    };
    let interval =
        json!({ "algorithm": "token_bucket", "capacity": 10, "rate": "1/d", "refill": "interval" });
    vec![
        limit("funnel", "rate", "1/365d"),
        limit("token_bucket", "rate", "1/365d"),
        interval,
        limit("fixed_window", "window", "1d"),
        limit("sliding_window", "window", "1d"),
        limit("sliding_log", "window", "1d"),
        limit("sliding_counter", "window", "1d"),
    ]
}

fn has_debts(limit: &Value) -> bool {
    limit.get("rate").is_some()
}

/// The requests with costs that the limit can settle.
fn fitting(limit: &Value, requests: &[Vec<Request>]) -> Vec<Vec<Request>> {
    let fit = |(reserved, actual): &Request| {
        let most = if has_debts(limit) {
            u64::MAX
        } else {
            *reserved
        };
        (*reserved, *actual.min(&most))
    };
    requests
        .iter()
        .map(|requests| requests.iter().map(fit).collect())
        .collect()
}

#[test]
fn every_interleaving_of_two_is_exact() {
    for limit in all() {
        // Slots of a sliding window take two each here, so it has smaller requests.
        let requests = match limit["algorithm"].as_str() {
            Some("sliding_window") => [vec![(2, 1)], vec![(2, 0), (1, 1)]],
            _ => [vec![(6, 2), (4, 0)], vec![(5, 13), (1, 1)]],
        };
        let requests = fitting(&limit, &requests);
        every_schedule(2, 3, |schedule| run(&limit, &requests, schedule));
    }
}

#[test]
fn every_interleaving_of_three_is_exact() {
    let requests = [vec![(6, 2)], vec![(3, 7)], vec![(4, 4)]];
    every_schedule(3, 3, |schedule| run(&all()[0], &requests, schedule));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn random_interleavings_are_exact(
        limit in prop::sample::select(all()),
        requests in prop::collection::vec(prop::collection::vec((1..=6_u64, 0..=15_u64), 1..=5), 2..=5),
        turns in prop::collection::vec(0..5_usize, 0..200),
    ) {
        let requests = fitting(&limit, &requests);
        let mut turns = turns.into_iter();
        run(&limit, &requests, &mut |busy: &[bool]| {
            let next = turns.by_ref().map(|turn| turn % busy.len()).find(|turn| busy[*turn]);
            next.or_else(|| busy.iter().position(|busy| *busy)).expect("somebody")
        });
    }
}

/// Reserves 6 of 10 units, and returns the receipt.
fn reserve(world: &mut World, rule: &ActiveRule) -> Receipt {
    let take = rule.acquire(KEY, BucketRequest::new(6, Nanos::new(1)));
    let charge = world
        .table
        .charge(&mut world.store, &take, &mut world.stats);
    charge.expect("a decision").receipt.expect("it is admitted")
}

/// Settles at `actual`, and returns the units that the bucket has used then; `None` without a bucket.
fn settle(world: &mut World, rule: &ActiveRule, receipt: &Receipt, actual: u64) -> Option<u64> {
    let give = rule.release(KEY, receipt, ReleaseReason::Settled(actual), clock(2));
    let settled = world
        .table
        .release(&mut world.store, &give, &mut world.stats);
    settled.expect("settled");
    let slot = world.slot(KEY)?;
    limits(rule)
        .used(&slot.bucket, Nanos::new(2))
        .first()
        .copied()
}

/// After a reset, the bucket has forgotten the reservation, so that nothing of it comes back. What the request cost
/// beyond it is new.
#[test]
fn a_reset_forgets_what_was_reserved() {
    for (actual, used, used_of_new) in [
        (0, 2, None),
        (6, 2, None),
        (7, 3, Some(1)),
        (106, 102, Some(100)),
    ] {
        let (mut world, rule) = (World::new(64), super::per_day(10));
        let receipt = reserve(&mut world, &rule);
        let id = world.table.id(super::tag(), KEY);
        world.table.reset(&mut world.store, id).expect("reset");
        assert_eq!(
            settle(&mut world, &rule, &receipt, actual),
            used_of_new,
            "{actual}"
        );
        let (mut world, rule) = (World::new(64), super::per_day(10));
        let receipt = reserve(&mut world, &rule);
        world.table.reset(&mut world.store, id).expect("reset");
        let take = rule.acquire(KEY, BucketRequest::new(2, Nanos::new(1)));
        world
            .table
            .charge(&mut world.store, &take, &mut world.stats)
            .expect("a decision");
        assert_eq!(
            settle(&mut world, &rule, &receipt, actual),
            Some(used),
            "{actual}"
        );
    }
}

/// After an edit, it is unknown what of the reservation the bucket still has, so nothing of it comes back.
#[test]
fn an_edit_keeps_what_was_reserved() {
    for (actual, used) in [(0, 6), (6, 6), (7, 7), (106, 106)] {
        let (mut world, rule) = (World::new(64), super::per_day(10));
        let receipt = reserve(&mut world, &rule);
        let edited = super::edited(&rule, &super::per_day(20), loudou_limiter::Carry::Keep, 2);
        assert_eq!(
            settle(&mut world, &edited, &receipt, actual),
            Some(used),
            "{actual}"
        );
    }
}

/// A request that reserves nothing takes nothing, but it needs a unit. So requests in flight are not limited, and the next
/// request waits until their debt is repaid. A cost of 0 in another rule needs no unit.
#[test]
fn a_request_that_reserves_nothing_needs_a_unit() {
    let limits = json!([{ "algorithm": "funnel", "capacity": 10, "rate": "1/s" }]);
    let with = |cost: Value| {
        let rule = json!({ "name": "r", "key": [], "limits": limits, "cost": cost });
        ActiveRule::new(parse_rule(&rule).expect("valid"), History::default())
    };
    let at_end = with(json!({ "reserve": 0, "settle": "token_usage", "max": 1 }));
    let mut world = World::new(64);
    let charge = |world: &mut World, rule: &ActiveRule, second: u64| {
        let take = rule.acquire(KEY, BucketRequest::new(0, Nanos::from_secs(second)));
        let charge = world
            .table
            .charge(&mut world.store, &take, &mut world.stats);
        charge.expect("a decision")
    };
    let receipts = [(); 20].map(|()| charge(&mut world, &at_end, 1).receipt.expect("admitted"));
    let clock = Clock::at(Nanos::from_secs(1));
    let give = at_end.release(KEY, &receipts[0], ReleaseReason::Settled(15), clock);
    let settled = world
        .table
        .release(&mut world.store, &give, &mut world.stats);
    settled.expect("settled");
    let refused = charge(&mut world, &at_end, 1);
    let decision = refused.answer.expect("no ban");
    let retry_after = decision.reported().and_then(|limit| limit.retry_after);
    assert_eq!(retry_after, Some(Nanos::from_secs(6)));
    assert!(refused.receipt.is_none());
    assert!(charge(&mut world, &at_end, 6).receipt.is_none());
    assert!(charge(&mut world, &with(json!(1)), 6).receipt.is_some());
    assert!(charge(&mut world, &at_end, 7).receipt.is_some());
}
