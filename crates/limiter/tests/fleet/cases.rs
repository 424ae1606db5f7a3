//! Fleets without faults. The bound holds, nearly all of the limit is used, and below the limit no
//! request is refused.

use loudou_limiter::Nanos;

use crate::check::{checked, yield_of};
use crate::setup::{Pattern, Setup, funnel, interval, limits, one, window};
use crate::sim::Run;

fn minute() -> Nanos {
    Nanos::from_secs(60)
}

/// A limit of twenty at once and a hundred a second.
fn fleet(envoys: u32, offered: u64) -> Setup {
    Setup::new(envoys, one(funnel(20, "100/s")), offered)
}

/// Checks a fleet with more requests than the limit admits: it admits 97 % of what one central
/// bucket admits.
fn overloaded(setup: &Setup) -> Run {
    let run = checked(setup);
    let share = yield_of(&run);
    assert!(share >= 970, "{share} per mille: {setup:?}");
    run
}

/// Checks a fleet with fewer requests than the limit admits: it admits all of them.
fn below(setup: &Setup) -> Run {
    let run = checked(setup);
    assert_eq!((run.refused, run.local.len()), (0, 0), "{setup:?}");
    run
}

#[test]
fn one_envoy() {
    let run = overloaded(&fleet(1, 670));
    assert!(run.calls * 10 < run.offered, "{} calls", run.calls);
    below(&fleet(1, 80));
}

#[test]
fn few_envoys() {
    overloaded(&fleet(4, 700));
    overloaded(&fleet(10, 670));
    overloaded(&fleet(10, 700).pattern(Pattern::Bursts(10)));
}

#[test]
fn many_envoys() {
    overloaded(&fleet(50, 700));
    overloaded(&fleet(200, 700));
}

#[test]
fn below_the_limit_nobody_is_refused() {
    for envoys in [2, 4, 10, 50, 200] {
        below(&fleet(envoys, 80).pattern(Pattern::Even));
        below(&fleet(envoys, 74));
        below(&fleet(envoys, 74).credit(1));
    }
    // The cost is large enough for leases.
    let run = below(&Setup::new(4, one(funnel(200, "1000/s")), 800));
    assert!(run.calls * 5 < run.offered, "{} calls", run.calls);
    assert!(run.held * 20 < run.offered, "{} held", run.held);
}

#[test]
fn credit_is_repaid() {
    for (envoys, credit) in [(10, 1), (10, 3), (50, 1), (200, 1)] {
        let setup = fleet(envoys, 700).credit(credit);
        let run = overloaded(&setup);
        let given = 2 * u64::from(envoys) * credit;
        assert!(run.passed() <= run.ideal + given, "{setup:?}");
    }
}

#[test]
fn slow_limits() {
    overloaded(&Setup::new(10, one(funnel(20, "10/s")), 100));
    overloaded(&Setup::new(4, one(funnel(15, "30/m")), 20).seconds(60));
    below(&Setup::new(10, one(funnel(20, "10/s")), 7).seconds(60));
}

/// A used-up quota admits exactly its capacity, whichever Envoys receive the requests.
#[test]
fn a_quota_is_exact() {
    for seed in 0..20 {
        let mut setup = Setup::new(4, one(funnel(100, "1/d")), 4_000).seconds(1);
        setup.seed = seed;
        assert_eq!(checked(&setup).passed(), 100);
        setup.limits = limits([funnel(100, "1/d"), window(150, minute())]);
        assert_eq!(checked(&setup).passed(), 100);
        setup.limits = one(window(100, minute()));
        assert_eq!(checked(&setup).passed(), 100);
    }
}

/// A refused request takes nothing, so expensive requests are admitted, too.
#[test]
fn costs_of_several_units() {
    let setup = Setup::new(10, one(funnel(20, "1/s")), 20);
    overloaded(&setup.clone().costs((8, 8)).seconds(60));
    overloaded(&setup.costs((1, 8)).seconds(60));
    below(
        &Setup::new(10, one(funnel(20, "10/s")), 6)
            .costs((1, 8))
            .seconds(60),
    );
}

#[test]
fn lumps() {
    overloaded(&Setup::new(10, one(interval(20, "20/2s")), 100));
    overloaded(&Setup::new(4, one(interval(200, "50/s")), 300));
}

#[test]
fn windows() {
    overloaded(&Setup::new(10, one(window(200, Nanos::from_secs(2))), 300));
    overloaded(&Setup::new(4, one(window(1_000, minute())), 300).seconds(100));
    below(&Setup::new(4, one(window(1_000, minute())), 15).seconds(100));
}

#[test]
fn several_limits() {
    let both = limits([funnel(20, "100/s"), window(1_000, minute())]);
    overloaded(&Setup::new(10, both, 300).seconds(60));
    let three = [
        funnel(5, "20/s"),
        interval(60, "60/5s"),
        window(600, minute()),
    ];
    overloaded(&Setup::new(4, limits(three), 40).seconds(60));
}

/// Tokens that are not used in a pause are void after it, when the engine has refilled.
#[test]
fn tokens_do_not_outlive_a_lease() {
    for envoys in [1, 2, 4, 10] {
        for pause in [190, 950] {
            let setup = Setup::new(envoys, one(funnel(1_000, "1000/s")), 2_000);
            let setup = setup.pattern(Pattern::Pulses(650, pause));
            checked(&setup.seconds(7));
        }
    }
}

/// Units of one window are not used in the next one either.
#[test]
fn tokens_do_not_outlive_a_window() {
    for envoys in [2, 4] {
        let setup = Setup::new(envoys, one(window(400, Nanos::from_secs(1))), 600);
        checked(&setup.pattern(Pattern::Pulses(1_500, 700)));
    }
}

/// If a denial ended before the engine has a unit again, each of many Envoys would admit requests
/// on its credit once more.
#[test]
fn a_denial_is_not_capped() {
    let setup = Setup::new(200, one(funnel(20, "10/s")), 700).credit(1);
    let run = checked(&setup);
    assert!(run.passed() <= run.ideal + 400);
}

/// Requests that are far apart find no tokens of the previous request. If tokens were leased for
/// them, most tokens would expire unused.
#[test]
fn a_slow_key_leases_nothing() {
    for envoys in [50, 200] {
        let run = below(&fleet(envoys, 95).pattern(Pattern::Even));
        assert!(run.passed() + 1 >= run.offered);
    }
}
