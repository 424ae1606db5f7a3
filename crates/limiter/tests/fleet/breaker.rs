//! The breaker.

use loudou_limiter::Nanos;
use loudou_limiter::lease::breaker::{Breaker, Policy, State};

use crate::table::at;

fn policy() -> Policy {
    Policy {
        failures: 3,
        first: at(100),
        most: at(1_000),
    }
}

/// Returns a breaker that has just opened, with the shortest pause.
fn open(millis: u64) -> Breaker {
    let mut breaker = Breaker::new(policy());
    assert!(!breaker.failed(at(millis), 0) && !breaker.failed(at(millis), 0));
    assert!(breaker.may_call(at(millis)) && !breaker.is_open());
    assert!(breaker.failed(at(millis), 0));
    breaker
}

#[test]
fn failures_in_a_row_open_it() {
    let mut breaker = Breaker::new(policy());
    for _ in 0..10 {
        breaker.failed(at(0), 0);
        breaker.failed(at(0), 0);
        assert!(!breaker.succeeded());
    }
    assert!(!breaker.is_open());
    let mut breaker = open(1_000);
    assert!(breaker.is_open());
    assert_eq!(breaker.state(), State::Open { until: at(1_050) });
    assert!(!breaker.may_call(at(1_049)));
    // Calls that were in flight when it opened change nothing.
    assert!(!breaker.failed(at(1_010), u64::MAX));
    assert_eq!(breaker.state(), State::Open { until: at(1_050) });
}

#[test]
fn one_probe_closes_it() {
    let mut breaker = open(1_000);
    assert!(breaker.may_call(at(1_050)));
    assert!(!breaker.may_call(at(1_050)) && !breaker.may_call(at(2_049)));
    assert!(breaker.is_open());
    assert!(breaker.succeeded());
    assert!(!breaker.is_open() && breaker.may_call(at(1_051)));
    assert!(!breaker.failed(at(1_051), 0));
    // A probe without an answer counts as lost, and another one follows.
    let mut breaker = open(1_000);
    assert!(breaker.may_call(at(1_050)) && breaker.may_call(at(2_050)));
    assert!(!breaker.may_call(at(2_051)));
}

/// The pause doubles with each failed probe, with a random part, up to its maximum.
#[test]
fn pauses_grow_up_to_their_bound() {
    for (random, shares) in [(0, 2), (u64::MAX, 4)] {
        let mut breaker = Breaker::new(policy());
        let mut now = at(1_000);
        breaker.failed(now, random);
        breaker.failed(now, random);
        for full in [100, 200, 400, 800, 1_000, 1_000, 1_000] {
            breaker.failed(now, random);
            let State::Open { until } = breaker.state() else {
                panic!("{:?}", breaker.state());
            };
            let pause = until.since(now);
            let most = at(full * shares / 4);
            assert!(
                pause <= most && at(1) > most.since(pause),
                "{pause} of {most}"
            );
            now = until;
            assert!(breaker.may_call(now));
        }
    }
    let mut breaker = Breaker::new(Policy {
        failures: 0,
        first: Nanos::MAX,
        most: at(1_000),
    });
    for _ in 0..200 {
        breaker.failed(Nanos::MAX, u64::MAX);
        breaker.may_call(Nanos::MAX);
    }
    assert!(breaker.is_open());
}
