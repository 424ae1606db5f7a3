//! Checks the bounds with random fleets and random faults.

use loudou_limiter::algorithm::{Align, FixedWindow, Funnel, Refill, TokenBucket};
use loudou_limiter::{Limit, Limits, Nanos, Rate};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

use crate::check::{checked, joint_excess};
use crate::setup::{Fault, Network, Pattern, Setup};

fn config() -> ProptestConfig {
    let regressions = FileFailurePersistence::WithSource("regressions");
    ProptestConfig {
        failure_persistence: Some(Box::new(regressions)),
        ..ProptestConfig::with_cases(64)
    }
}

/// A limit without its capacity and amount, which edits change.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Funnel,
    Greedy,
    Interval,
    Window,
}

/// Kind, period in milliseconds, capacity and amount.
type Numbers = (Kind, u64, u64, u32);

fn limits(of: &[Numbers], scale: (u64, u64)) -> Limits {
    let named = of
        .iter()
        .enumerate()
        .map(|(place, (kind, period, capacity, amount))| {
            let scaled = |n: u64| (n * scale.0 / scale.1).max(1);
            let (capacity, period) = (scaled(*capacity), Nanos::from_millis(*period));
            let amount = u32::try_from(scaled((*amount).into())).expect("small");
            let rate = Rate::new(amount, period).expect("positive");
            let tokens =
                |refill| TokenBucket::new(capacity, rate, refill, capacity).expect("valid");
            let name = format!("l{place}");
            match kind {
                Kind::Funnel => Limit::new(name, Funnel::new(capacity, rate).expect("valid")),
                Kind::Greedy => Limit::new(name, tokens(Refill::Greedy)),
                Kind::Interval => Limit::new(name, tokens(Refill::Interval)),
                Kind::Window => {
                    let window = FixedWindow::new(capacity, period, Align::Clock);
                    Limit::new(name, window.expect("valid"))
                }
            }
        });
    Limits::new(named.collect()).expect("few")
}

fn numbers() -> impl Strategy<Value = Numbers> {
    let kind = prop_oneof![
        3 => Just(Kind::Funnel),
        1 => Just(Kind::Greedy),
        1 => Just(Kind::Interval),
        2 => Just(Kind::Window),
    ];
    (kind, 20..3_000_u64, 1..150_u64, 1..80_u32)
}

/// A fault. Edits scale all numbers.
#[derive(Clone, Debug)]
enum Change {
    Fault(Fault),
    Edit(u64, u64),
}

fn change() -> impl Strategy<Value = Change> {
    let down = any::<bool>().prop_map(|hangs| Change::Fault(Fault::Down { hangs }));
    let lost = (1..2_000_u64).prop_map(|millis| {
        let lost = Nanos::from_millis(millis);
        Change::Fault(Fault::Failover { lost })
    });
    let jump =
        (-4_000..4_000_i64).prop_map(|millis| Change::Fault(Fault::Jump(millis * 1_000_000)));
    prop_oneof![
        1 => down,
        2 => Just(Change::Fault(Fault::Up)),
        1 => Just(Change::Fault(Fault::UpEmpty)),
        1 => lost,
        1 => jump,
        1 => Just(Change::Fault(Fault::Restart)),
        2 => (1..8_u64, 1..8_u64).prop_map(|(times, by)| Change::Edit(times, by)),
    ]
}

fn fleet() -> impl Strategy<Value = Setup> {
    let envoys = prop_oneof![3 => 1..10_u32, 2 => 10..60_u32, 1 => 60..=200_u32];
    let pattern = prop_oneof![
        Just(Pattern::Even),
        Just(Pattern::Random),
        (2..30_u64).prop_map(Pattern::Bursts),
        (20..900_u64, 20..900_u64).prop_map(|(on, off)| Pattern::Pulses(on, off)),
    ];
    let network = prop_oneof![
        Just(Network::default()),
        (0..200_u64, 0..200_u64, 0..300_u64).prop_map(|(lost_calls, lost_answers, slow)| Network {
            lost_calls,
            lost_answers,
            slow,
            ..Network::default()
        }),
    ];
    let costs = prop_oneof![2 => Just((1, 1)), 1 => (0..4_u64, 4..20_u64)];
    let lease = (
        40..400_u64,
        5..40_u64,
        prop_oneof![2 => Just(0), 1 => 1..6_u64],
    );
    let changes = prop::collection::vec((0..4_000_u64, change()), 0..5);
    let load = (20..900_u64, pattern, costs, 1..4_usize);
    let rest = (lease, network, changes, any::<u64>());
    (envoys, prop::collection::vec(numbers(), 1..4), load, rest).prop_map(
        |(envoys, numbers, (offered, pattern, costs, workers), rest)| {
            let ((lease, timeout, credit), network, changes, seed) = rest;
            let mut setup = Setup::new(envoys, limits(&numbers, (1, 1)), offered)
                .pattern(pattern)
                .costs(costs)
                .seconds(5)
                .network(network)
                .credit(credit);
            setup.settings.lease = Nanos::from_millis(lease);
            setup.settings.timeout = Nanos::from_millis(timeout);
            setup.workers = workers;
            setup.seed = seed;
            setup.faults = changes
                .into_iter()
                .map(|(at, change)| match change {
                    Change::Fault(fault) => (at, fault),
                    Change::Edit(times, by) => (at, Fault::Edit(limits(&numbers, (times, by)))),
                })
                .collect();
            setup
        },
    )
}

/// Returns fleets whose calls fail at random. For some time, the engine or the node of the key is
/// lost or full.
fn failing() -> impl Strategy<Value = Setup> {
    let level = prop_oneof![2 => Just(Kind::Funnel), 1 => Just(Kind::Greedy)];
    let numbers = (level, 200..3_000_u64, 1..150_u64, 1..80_u32);
    let network = (0..600_u64, 0..400_u64, 0..300_u64, 0..300_u64, 0..600_u64);
    let network =
        network.prop_map(
            |(resets, lost_calls, lost_answers, slow, key_errors)| Network {
                lost_calls,
                lost_answers,
                slow,
                resets,
                key_errors,
            },
        );
    let fault = prop_oneof![
        any::<bool>().prop_map(|hangs| Fault::Down { hangs }),
        Just(Fault::KeyLost),
        Just(Fault::Full),
    ];
    let faults = prop::collection::vec((fault, 100..2_000_u64, 100..2_000_u64), 0..4);
    let load = (
        20..900_u64,
        prop_oneof![2 => Just((1, 1)), 1 => (1..4_u64, 4..10_u64)],
    );
    let limits_of = prop::collection::vec(numbers, 1..4);
    let rest = (1..20_u32, 1..4_usize, any::<u64>());
    (limits_of, network, faults, load, rest).prop_map(
        |(numbers, network, faults, (offered, costs), (envoys, workers, seed))| {
            let mut setup = Setup::new(envoys, limits(&numbers, (1, 1)), offered)
                .costs(costs)
                .seconds(10)
                .network(network);
            (setup.workers, setup.seed) = (workers, seed);
            let mut at = 0;
            for (fault, after, lasts) in faults {
                setup = setup.fault(at + after, fault);
                at += after + lasts;
                setup = setup.fault(at, Fault::Up);
            }
            setup
        },
    )
}

proptest! {
    #![proptest_config(config())]

    /// Leases and local parts together stay within `2·B + r·(w + L + D)`, where `D` is the longest
    /// time for which an Envoy had no answer.
    #[test]
    fn leases_and_parts_together_stay_within_the_bound(setup in failing()) {
        let run = checked(&setup);
        for (most, allowed) in joint_excess(&setup, &run, Nanos::new(run.alone)) {
            prop_assert!(most <= allowed, "{} above {}, alone {}", most, allowed, run.alone);
        }
    }

    #[test]
    fn no_window_exceeds_the_bound(setup in fleet()) {
        checked(&setup);
    }
}
