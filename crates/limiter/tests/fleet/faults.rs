//! Fleets with faults: the bounds hold with the addition that the fault allows, and the fleet
//! recovers.

use loudou_limiter::Nanos;

use crate::check::{checked, units_between};
use crate::setup::{Fault, Network, Pattern, Setup, funnel, interval, limits, one, window};
use crate::sim::Run;

const SECOND: i64 = 1_000_000_000;

/// A limit of twenty at once and a hundred a second, with far more requests.
fn fleet(envoys: u32) -> Setup {
    Setup::new(envoys, one(funnel(20, "100/s")), 700)
}

/// Returns the units that passed by tokens between two seconds.
fn passed(run: &Run, from: u64, until: u64) -> u64 {
    units_between(&run.passes, from * 1_000, until * 1_000)
}

#[test]
fn lost_and_slow_calls() {
    for (lost_calls, lost_answers, slow) in [(200, 0, 0), (0, 200, 0), (0, 0, 400), (50, 50, 50)] {
        let network = Network {
            lost_calls,
            lost_answers,
            slow,
            ..Network::default()
        };
        for (envoys, credit) in [(4, 0), (50, 0), (50, 2)] {
            checked(&fleet(envoys).network(network).credit(credit));
        }
    }
}

/// While the engine is down, the local buckets decide. Together they admit about as much. Within
/// two seconds after the engine is back, it decides again.
#[test]
fn an_engine_that_comes_back() {
    for hangs in [false, true] {
        for (envoys, workers) in [(4, 2), (10, 1), (50, 1)] {
            let mut setup = fleet(envoys)
                .fault(5_000, Fault::Down { hangs })
                .fault(12_000, Fault::Up);
            setup.workers = workers;
            let run = checked(&setup);
            assert_eq!(passed(&run, 6, 12), 0);
            let local = units_between(&run.local, 6_000, 12_000);
            assert!((450..=650).contains(&local), "{local} locally: {setup:?}");
            let after = passed(&run, 14, 20);
            assert!((570..=630).contains(&after), "{after} after: {setup:?}");
            assert_eq!(units_between(&run.local, 14_000, 20_000), 0);
        }
    }
}

/// A denial by the engine must not outlive the engine. When the window has ended, the local buckets
/// decide. Until then, used units stay used.
#[test]
fn an_outage_ends_denials() {
    let down = Fault::Down { hangs: true };
    let limit = || one(window(40, Nanos::from_secs(10)));
    let run = checked(&Setup::new(4, limit(), 400).fault(2_000, down));
    assert_eq!(run.passed(), 40);
    assert_eq!(units_between(&run.local, 0, 9_600), 0);
    assert_eq!(units_between(&run.local, 9_600, 19_600), 40);
}

/// After an outage, the fleet must not pay for units that refilled during it. It refuses everything
/// for no longer than an Envoy can owe.
#[test]
fn a_long_outage_is_not_paid_for() {
    for envoys in [4, 50] {
        let down = Fault::Down { hangs: false };
        let setup = fleet(envoys).fault(2_000, down).fault(12_000, Fault::Up);
        let run = checked(&setup);
        assert!(passed(&run, 14, 20) >= 570, "{}", passed(&run, 14, 20));
    }
}

#[test]
fn an_engine_that_forgets() {
    for credit in [0, 1] {
        let lost = Nanos::from_millis(800);
        checked(
            &fleet(10)
                .credit(credit)
                .fault(7_000, Fault::Failover { lost }),
        );
        let down = Fault::Down { hangs: false };
        let setup = fleet(10).credit(credit).fault(7_000, down);
        checked(&setup.fault(8_000, Fault::UpEmpty));
    }
}

#[test]
fn an_engine_whose_clock_jumps() {
    for envoys in [4, 50] {
        for by in [-3 * SECOND, -SECOND / 10, SECOND / 10, 3 * SECOND] {
            checked(&fleet(envoys).fault(5_000, Fault::Jump(by)));
            let tokens = one(interval(20, "20/2s"));
            checked(&Setup::new(envoys, tokens, 100).fault(5_000, Fault::Jump(by)));
        }
    }
    // A jump ahead gives a few units once. After a jump back, nothing passes for as long as the
    // clock jumped.
    let run = checked(&fleet(4).fault(5_000, Fault::Jump(-3 * SECOND)));
    assert!(passed(&run, 5, 8) <= 40, "{}", passed(&run, 5, 8));
    assert!(passed(&run, 9, 19) >= 970, "{}", passed(&run, 9, 19));
}

/// A clock that jumps far back must not close a window for long.
#[test]
fn windows_through_jumps_and_failovers() {
    let length = Nanos::from_secs(2);
    let fleet = |fault| Setup::new(4, one(window(50, length)), 200).fault(7_000, fault);
    for by in [-3_600, -5, -1, 1, 5, 3_600] {
        let run = checked(&fleet(Fault::Jump(by * SECOND)));
        let after = passed(&run, 12, 20);
        assert!(
            (195..=250).contains(&after),
            "{after} after a jump by {by} s"
        );
    }
    let lost = Nanos::from_millis(1_500);
    checked(&fleet(Fault::Failover { lost }));
    checked(&fleet(Fault::Failover { lost }).fault(7_100, Fault::Jump(-SECOND)));
    checked(&fleet(Fault::UpEmpty).credit(2));
}

/// Used units stay used, and tokens of the earlier numbers are dropped.
#[test]
fn edits_while_tokens_are_out() {
    let edits = [
        (5, "20/s"),
        (20, "20/s"),
        (5, "100/s"),
        (100, "100/s"),
        (40, "500/s"),
    ];
    for (capacity, pace) in edits {
        for credit in [0, 1] {
            let edit = || Fault::Edit(one(funnel(capacity, pace)));
            let back = Fault::Edit(one(funnel(20, "100/s")));
            let setup = fleet(10).credit(credit).fault(5_000, edit());
            checked(&setup.clone().fault(5_600, back));
            let run = checked(&setup);
            // One second later, only the new numbers apply.
            let rate = limits_rate(pace);
            let after = passed(&run, 7, 19);
            let most = capacity + rate * 12 + rate / 5 + 20 * credit + 1;
            assert!(after <= most, "{after} of {capacity}, {pace}");
            assert!(
                after >= (rate * 12).min(8_000) * 9 / 10,
                "{after} of {capacity}, {pace}"
            );
        }
    }
    // A used-up quota stays used up.
    let quota = |capacity| one(funnel(capacity, "1/d"));
    let edit = Fault::Edit(quota(130));
    let run = checked(&Setup::new(4, quota(100), 1_000).fault(2_000, edit));
    assert_eq!(run.passed(), 130);
    // So does a limit in the same rule as a limit that changes.
    let both = |capacity| {
        limits([
            funnel(capacity, "10/s"),
            window(60, Nanos::from_secs(3_600)),
        ])
    };
    let run = checked(&Setup::new(4, both(20), 100).fault(3_000, Fault::Edit(both(40))));
    assert_eq!(run.passed(), 60);
}

fn limits_rate(pace: &str) -> u64 {
    let rate = crate::setup::rate(pace);
    u64::from(rate.amount())
}

#[test]
fn envoys_that_restart() {
    for credit in [0, 2] {
        let mut setup = fleet(4).credit(credit).pattern(Pattern::Bursts(5));
        for second in 3..15 {
            setup = setup.fault(second * 1_000, Fault::Restart);
        }
        checked(&setup);
    }
}
