//! Partial failures. Everything that a fleet admits, by leases and alone, stays within the bound.

use loudou_limiter::Nanos;

use crate::check::{checked, joint_excess};
use crate::setup::{Fault, Network, Pattern, Setup, funnel, one};

/// A limit of twenty at once and a hundred a second, with far more requests.
fn fleet(envoys: u32) -> Setup {
    Setup::new(envoys, one(funnel(20, "100/s")), 700).seconds(30)
}

/// Runs fleets with these faults, and checks everything that passed against `2·B + r·(w + L + D)`. `alone` is `D`,
/// the time for which an Envoy has no answer while others have.
fn bounded(what: &str, alone: Nanos, change: impl Fn(Setup) -> Setup) {
    for (envoys, pattern) in [
        (1, Pattern::Random),
        (2, Pattern::Bursts(10)),
        (4, Pattern::Random),
        (50, Pattern::Random),
    ] {
        for seed in 0..2 {
            let mut setup = change(fleet(envoys).pattern(pattern));
            setup.seed = setup.seed * 10 + seed;
            let run = checked(&setup);
            for (most, allowed) in joint_excess(&setup, &run, alone) {
                assert!(most <= allowed, "{what}: {most} above {allowed}: {setup:?}");
            }
        }
    }
}

/// Maximum time from one probe of a breaker to the next one, including the time of a probe.
const PROBES: Nanos = Nanos::from_millis(310);

#[test]
fn calls_that_are_reset() {
    for (resets, alone) in [(100, Nanos::ZERO), (200, Nanos::ZERO), (500, PROBES)] {
        let network = Network {
            resets,
            ..Network::default()
        };
        bounded("resets", alone, |setup| setup.network(network));
    }
}

#[test]
fn one_of_two_relays_that_hangs() {
    let network = Network {
        lost_calls: 500,
        ..Network::default()
    };
    bounded("hangs", PROBES, |setup| setup.network(network));
}

#[test]
fn workers_whose_connections_are_refused() {
    bounded("refused", Nanos::ZERO, |setup| Setup {
        refused: 1,
        ..setup
    });
}

#[test]
fn a_node_that_is_lost_and_comes_back() {
    bounded("node", Nanos::ZERO, |setup| {
        setup.fault(5_000, Fault::KeyLost).fault(15_000, Fault::Up)
    });
    let network = Network {
        key_errors: 200,
        ..Network::default()
    };
    bounded("errors", Nanos::ZERO, |setup| setup.network(network));
}

#[test]
fn an_engine_that_is_full() {
    bounded("full", Nanos::ZERO, |setup| {
        setup.fault(5_000, Fault::Full).fault(20_000, Fault::Up)
    });
}

#[test]
fn an_engine_that_flaps() {
    for hangs in [false, true] {
        for span in [150, 700] {
            bounded("flaps", Nanos::ZERO, |mut setup| {
                for at in 0..20 {
                    setup = setup
                        .fault(2_000 + at * 2 * span, Fault::Down { hangs })
                        .fault(2_000 + (at * 2 + 1) * span, Fault::Up);
                }
                setup
            });
        }
    }
}
