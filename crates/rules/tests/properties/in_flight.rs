//! Requests in flight whose permits are given back, lost, or given back late.

use loudou_limiter::algorithm::{Algorithm, Concurrency};
use loudou_limiter::{Carry, Clock, Limit, Limits, Nanos, convert};
use proptest::prelude::*;

use super::{config, only};

fn at_most(capacity: u64, lease: u64) -> Limits {
    let concurrency = Concurrency::new(capacity, Nanos::new(lease)).expect("in range");
    let limit = Limit::new("c", Algorithm::Concurrency(concurrency));
    Limits::new(vec![limit]).expect("one")
}

/// After a pause, takes a cost or gives back a cost in flight.
#[derive(Clone, Copy, Debug)]
enum Step {
    Acquire(u64),
    Release(usize),
    /// The end of a request is never reported.
    Lose(usize),
}

fn steps() -> impl Strategy<Value = Vec<(u64, Step)>> {
    let step = prop_oneof![
        3 => (1..=3_u64).prop_map(Step::Acquire),
        2 => any::<usize>().prop_map(Step::Release),
        1 => any::<usize>().prop_map(Step::Lose),
    ];
    let pause = prop_oneof![3 => 0..=4_u64, 1 => 0..=60_u64];
    prop::collection::vec((pause, step), 1..80)
}

/// A step, or another capacity and lease.
#[derive(Clone, Copy, Debug)]
enum Change {
    Step(Step),
    Edit(u64, u64),
}

fn change() -> impl Strategy<Value = (u64, Change)> {
    let step = prop_oneof![
        4 => (1..=3_u64).prop_map(Step::Acquire),
        2 => any::<usize>().prop_map(Step::Release),
        1 => any::<usize>().prop_map(Step::Lose),
    ];
    let change = prop_oneof![
        4 => step.prop_map(Change::Step),
        1 => (1..=8_u64, 1..=40_u64).prop_map(|(capacity, lease)| Change::Edit(capacity, lease)),
    ];
    (prop_oneof![3 => 0..=3_u64, 1 => 0..=20_u64], change)
}

proptest! {
    #![proptest_config(config(1_024))]

    /// Permits younger than the lease count. Permits older than two leases, or given back, do not.
    #[test]
    fn what_counts_is_in_flight(
        capacity in 1..=8_u64, lease in 1..=20_u64, start in 0..=50_u64, steps in steps(),
    ) {
        let limits = at_most(capacity, lease);
        let mut bucket = limits.start(Nanos::new(start));
        let mut now = start;
        // Instants and costs of the requests that will end, and of the requests whose end is lost.
        let mut flying: Vec<(u64, u64)> = Vec::new();
        let mut lost: Vec<(u64, u64)> = Vec::new();
        for (pause, step) in steps {
            now += pause;
            match step {
                Step::Acquire(cost) => {
                    let answer = limits.decide(&mut bucket, cost, Nanos::new(now));
                    prop_assert_eq!(only(&answer).retry_after, None);
                    if !answer.is_refused() {
                        flying.push((answer.at().get(), cost));
                    }
                }
                Step::Release(_) | Step::Lose(_) if flying.is_empty() => {}
                Step::Release(which) => {
                    let (at, cost) = flying.swap_remove(which % flying.len());
                    limits.release(&mut bucket, cost, Nanos::new(at), Nanos::new(now));
                }
                Step::Lose(which) => lost.push(flying.swap_remove(which % flying.len())),
            }
            let within = |leases: u64| -> u64 {
                let all = flying.iter().chain(&lost);
                all.filter(|(at, _)| now < at + leases * lease).map(|(_, cost)| cost).sum()
            };
            let decision = only(&limits.peek(&bucket, 0, Nanos::new(now)));
            let counted = capacity - decision.remaining;
            prop_assert!(within(1) <= counted && counted <= within(2), "{counted} at {now}");
            prop_assert!(within(1) <= capacity);
            // Idle when the last permit has expired, and not before.
            let reset = now + decision.reset_after.get();
            let later = |at: u64| only(&limits.peek(&bucket, 0, Nanos::new(at))).remaining;
            prop_assert_eq!(later(reset), capacity);
            prop_assert!(reset == now || later(reset - 1) < capacity);
        }
    }

    /// Edits forget no request in flight. A longer lease also applies to these requests, and a
    /// shorter lease begins with the edit.
    #[test]
    fn edits_keep_what_is_in_flight(
        (capacity, lease) in (1..=8_u64, 1..=20_u64), (new_capacity, new_lease) in (1..=8_u64, 1..=60_u64),
        takes in prop::collection::vec((0..=10_u64, 1..=3_u64), 1..20), wait in 0..=50_u64,
        carry in prop_oneof![Just(Carry::Keep), Just(Carry::Proportional)],
    ) {
        let (old, new) = (at_most(capacity, lease), at_most(new_capacity, new_lease));
        let mut bucket = old.start(Nanos::ZERO);
        let mut now = 0;
        for (pause, cost) in takes {
            now += pause;
            old.decide(&mut bucket, cost, Nanos::new(now));
        }
        now += wait;
        let before = only(&old.peek(&bucket, 0, Nanos::new(now)));
        let edited = convert(&old, &new, carry, &bucket, Clock::at(Nanos::new(now)));
        let after = only(&new.peek(&edited, 0, Nanos::new(now)));
        let counted = capacity - before.remaining;
        prop_assert_eq!(after.remaining, new_capacity.saturating_sub(counted));
        let reset = before.reset_after.get();
        let young_ends = now + if reset > lease { reset } else { reset + lease };
        // All permits are in one generation, which began with the oldest permit.
        let young = old.used(&bucket, Nanos::new(young_ends - lease))[0];
        let leases = if young < counted { 3 } else { 2 };
        let begun = young_ends.saturating_sub(leases * lease);
        let ends = match new_lease {
            _ if reset == 0 => 0,
            _ if new_lease == lease => reset,
            _ => (begun + 2 * new_lease).max(now + new_lease + 1) - now,
        };
        prop_assert_eq!(after.reset_after.get(), ends);
    }

    /// Considers the requests younger than all leases in force since they began. Through any edits,
    /// their number in flight never exceeds the largest capacity, and each makes room when it ends.
    #[test]
    fn edits_let_no_more_in(
        first in (1..=8_u64, 1..=40_u64), steps in prop::collection::vec(change(), 1..80),
        carry in prop::sample::select(vec![Carry::Keep, Carry::Proportional]),
    ) {
        let (mut capacity, mut lease) = first;
        let mut limits = at_most(capacity, lease);
        let mut bucket = limits.start(Nanos::ZERO);
        let (mut now, mut most) = (0, capacity);
        // For each request, the time when it was taken, its cost, and the shortest lease since.
        let mut flying: Vec<(u64, u64, u64)> = Vec::new();
        for (pause, change) in steps {
            now += pause;
            match change {
                Change::Step(Step::Acquire(cost)) => {
                    let answer = limits.decide(&mut bucket, cost, Nanos::new(now));
                    if !answer.is_refused() {
                        flying.push((now, cost, lease));
                    }
                }
                Change::Step(_) if flying.is_empty() => {}
                Change::Step(Step::Release(which)) => {
                    let (at, cost, shortest) = flying.swap_remove(which % flying.len());
                    let before = limits.used(&bucket, Nanos::new(now))[0];
                    limits.release(&mut bucket, cost, Nanos::new(at), Nanos::new(now));
                    let after = limits.used(&bucket, Nanos::new(now))[0];
                    // A request that outlived a lease may no longer count, but other requests keep
                    // their permits.
                    if now < at + shortest {
                        prop_assert_eq!(after + cost, before);
                    }
                }
                Change::Step(Step::Lose(which)) => {
                    flying.swap_remove(which % flying.len());
                }
                Change::Edit(new_capacity, new_lease) => {
                    let new = at_most(new_capacity, new_lease);
                    bucket = convert(&limits, &new, carry, &bucket, Clock::at(Nanos::new(now)));
                    limits = new;
                    (capacity, lease) = (new_capacity, new_lease);
                    most = most.max(capacity);
                    for (.., shortest) in &mut flying {
                        *shortest = lease.min(*shortest);
                    }
                }
            }
            let young = flying.iter().filter(|(at, _, shortest)| now < at + shortest);
            let young: u64 = young.map(|(_, cost, _)| cost).sum();
            prop_assert!(young <= most, "{young} of {most} at {now}");
            prop_assert!(young <= limits.used(&bucket, Nanos::new(now))[0]);
        }
    }

    /// Returns any amounts, valid or not. No amount falls below zero, and no other bucket is
    /// affected.
    #[test]
    fn any_return_is_survived(
        start in any::<u64>(), lease in 1..=366 * 86_400_000_000_000_u64,
        gives in prop::collection::vec(any::<(u64, u64, u64)>(), 1..10),
    ) {
        let limits = at_most(5, lease);
        let mut bucket = limits.start(Nanos::new(start));
        for (cost, taken_at, now) in gives {
            let before = only(&limits.peek(&bucket, 0, Nanos::new(now))).remaining;
            limits.release(&mut bucket, cost, Nanos::new(taken_at), Nanos::new(now));
            let after = only(&limits.peek(&bucket, 0, Nanos::new(now))).remaining;
            prop_assert!(before <= after && after <= 5);
            limits.decide(&mut bucket, cost % 6, Nanos::new(now));
        }
    }
}
