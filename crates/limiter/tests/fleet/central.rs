//! The engine's side, with results computed by hand.

use loudou_limiter::Nanos;
use loudou_limiter::lease::{Central, Demand, Grant, Shared, Terms};

use crate::setup::rate;
use crate::table::{at, left as units, terms};

fn of(limits: &[Shared]) -> Terms {
    Terms::new(limits, &terms(0).settings()).expect("valid")
}

fn leak(capacity: u64, pace: &str) -> Shared {
    Shared::Leak {
        capacity,
        rate: rate(pace),
    }
}

fn interval(capacity: u64, pace: &str) -> Shared {
    Shared::Interval {
        capacity,
        rate: rate(pace),
    }
}

fn window(capacity: u64, millis: u64) -> Shared {
    Shared::Window {
        capacity,
        window: at(millis),
    }
}

/// Returns a lease request for `want` units of single requests.
fn single(want: u64) -> Demand {
    Demand {
        want,
        need: 1,
        debt: 0,
    }
}

/// Returns the granted units, the wait and the rest of the window in milliseconds, and the balance
/// of the first limit.
type Answer = (u64, u64, u64, u64);

fn short(grant: &Grant) -> Answer {
    (
        grant.granted,
        grant.wait.millis_ceil(),
        grant.ends_in.as_millis(),
        grant.left.at(0),
    )
}

/// Sends lease requests to one engine at times in milliseconds.
fn run(limits: &[Shared], rows: &[(u64, Demand, Answer)]) {
    let mut central = Central::default();
    for (millis, ask, expected) in rows {
        let grant = central.grant(&of(limits), *ask, at(*millis));
        assert_eq!(short(&grant), *expected, "{ask:?} at {millis} ms");
        assert_eq!(grant.charged, ask.debt);
    }
}

#[test]
fn a_leak_gives_what_is_there() {
    run(
        &[leak(10, "1/s")],
        &[
            (100_000, single(4), (4, 0, 0, 6)),
            (100_000, single(9), (6, 1_000, 0, 0)),
            (100_400, single(1), (0, 600, 0, 0)),
            (103_000, single(1), (1, 0, 0, 2)),
            (200_000, single(0), (0, 0, 0, 10)),
        ],
    );
}

/// The engine grants nothing rather than too little, and the wait is for the needed units.
#[test]
fn part_of_a_need_is_not_granted() {
    let costly = Demand {
        want: 9,
        need: 8,
        debt: 0,
    };
    run(
        &[leak(10, "1/s")],
        &[
            (100_000, single(5), (5, 0, 0, 5)),
            (100_000, costly, (0, 3_000, 0, 5)),
            (103_000, costly, (8, 8_000, 0, 0)),
        ],
    );
}

/// A debt is charged even if there are not enough units. Above the capacity, it denies even lease
/// requests that need nothing.
#[test]
fn debt_is_always_charged() {
    let debt = |debt| Demand {
        want: 0,
        need: 0,
        debt,
    };
    run(
        &[leak(10, "1/s")],
        &[
            (100_000, debt(10), (0, 0, 0, 0)),
            (100_000, debt(3), (0, 4_000, 0, 0)),
            (102_000, debt(0), (0, 2_000, 0, 0)),
            (104_000, single(1), (1, 0, 0, 0)),
        ],
    );
}

#[test]
fn lumps_come_at_the_multiples_of_their_period() {
    run(
        &[interval(10, "4/2s")],
        &[
            (100_500, single(10), (10, 0, 0, 0)),
            (100_500, single(1), (0, 1_500, 0, 0)),
            (101_999, single(1), (0, 1, 0, 0)),
            (102_000, single(1), (1, 0, 0, 3)),
            (106_000, single(0), (0, 0, 0, 10)),
            (106_000, single(11), (10, 2_000, 0, 0)),
            (
                106_100,
                Demand {
                    want: 5,
                    need: 5,
                    debt: 0,
                },
                (0, 3_900, 0, 0),
            ),
        ],
    );
}

#[test]
fn windows_lie_on_the_clock() {
    run(
        &[window(10, 2_000)],
        &[
            (100_500, single(8), (8, 0, 1_500, 2)),
            (101_900, single(8), (2, 100, 100, 0)),
            (101_999, single(1), (0, 1, 1, 0)),
            (102_000, single(1), (1, 0, 2_000, 9)),
        ],
    );
}

/// All limits grant or none does. The longest wait and the earliest expiry are reported.
#[test]
fn several_limits_grant_together() {
    run(
        &[leak(10, "10/s"), window(12, 2_000), window(500, 500)],
        &[
            (100_600, single(10), (10, 0, 400, 0)),
            (101_000, single(10), (2, 1_000, 500, 2)),
            (101_900, single(1), (0, 100, 100, 10)),
            (102_000, single(11), (10, 100, 500, 0)),
        ],
    );
}

#[test]
fn each_limit_has_its_own_units_left() {
    let limits = of(&[leak(10, "10/s"), window(12, 2_000), window(500, 500)]);
    let mut central = Central::default();
    for (millis, want, expected) in [
        (100_600, 10, [0, 2, 490]),
        (101_000, 10, [2, 0, 498]),
        (101_900, 1, [10, 0, 500]),
        (102_000, 11, [0, 2, 490]),
    ] {
        let grant = central.grant(&limits, single(want), at(millis));
        assert_eq!(grant.left, units(expected), "at {millis} ms");
    }
}

/// If the numbers change, used units stay used, and leave at the new rate.
#[test]
fn used_units_survive_edits() {
    let after = |before: Shared, then: Shared, millis: u64| {
        let mut central = Central::default();
        central.grant(&of(&[before]), single(8), at(100_000));
        short(&central.grant(&of(&[then]), single(0), at(millis))).3
    };
    let slow = leak(10, "1/s");
    assert_eq!(after(slow, leak(20, "1/s"), 100_000), 12);
    assert_eq!(after(slow, leak(5, "1/s"), 100_000), 0);
    assert_eq!(after(slow, leak(10, "2/s"), 100_000), 2);
    // The time before the first lease request with the new numbers counts at the old rate.
    assert_eq!(after(slow, leak(10, "2/s"), 102_000), 4);
    assert_eq!(after(slow, leak(10, "3/4s"), 101_999), 3);
    // This includes a change to another kind of limit.
    assert_eq!(after(slow, window(10, 60_000), 100_500), 2);
    assert_eq!(after(slow, interval(10, "4/2s"), 101_000), 3);
    assert_eq!(after(window(10, 60_000), slow, 101_000), 2);
    assert_eq!(after(window(10, 60_000), window(30, 50_000), 101_000), 22);
    assert_eq!(
        after(interval(10, "4/2s"), interval(20, "4/2s"), 102_000),
        16
    );
}

/// If limits are added or moved, each limit keeps its level, and a new limit is full.
#[test]
fn limits_keep_their_levels_where_others_change() {
    let (burst, day) = (leak(10, "1/s"), window(100, 86_400_000));
    let mut central = Central::default();
    central.grant(&of(&[burst, day]), single(10), at(0));
    central.grant(&of(&[day, burst]), single(5), at(5_000));
    let left = |central: &Central, limits: &[Shared]| {
        let look = central.clone().grant(&of(limits), single(0), at(5_000));
        look.left
    };
    assert_eq!(left(&central, &[day]), units([85]));
    assert_eq!(left(&central, &[burst]), units([0]));
    assert_eq!(left(&central, &[leak(20, "1/s"), burst]), units([5, 0]));
    let new = leak(3, "1/s");
    assert_eq!(left(&central, &[day, burst, new]), units([85, 0, 3]));
    assert_eq!(
        left(&central, &[day, leak(30, "1/s"), new]),
        units([85, 20, 3])
    );
}

/// A clock that goes back does not grant a window twice, and ends a window that is far ahead soon.
#[test]
fn a_clock_that_goes_back() {
    let numbers = [window(10, 2_000), interval(10, "10/2s")];
    for limit in numbers {
        for back in [1_500, 5_000, 90_000] {
            let mut central = Central::default();
            assert_eq!(
                central
                    .grant(&of(&[limit]), single(10), at(100_500))
                    .granted,
                10
            );
            let now = 100_500 - back;
            let grant = central.grant(&of(&[limit]), single(1), at(now));
            assert_eq!(grant.granted, 0, "{limit:?} {back} ms back");
            // At the latest when the next period is over.
            let next = (now / 2_000 + 2) * 2_000;
            assert_eq!(grant.wait, at(next - now));
            assert_eq!(
                central
                    .grant(&of(&[limit]), single(1), at(next - 1))
                    .granted,
                0
            );
            assert_eq!(
                central.grant(&of(&[limit]), single(20), at(next)).granted,
                10
            );
        }
    }
}

/// Numbers at their bounds neither panic nor wrap around.
#[test]
fn extremes() {
    let year = Nanos::from_secs(366 * 86_400);
    let most = 1_000_000_000;
    let limits = [
        leak(most, "1000000000/ns"),
        leak(1, "1/366d"),
        interval(most, "1000000000/366d"),
        Shared::Window {
            capacity: most,
            window: year,
        },
        Shared::Window {
            capacity: 1,
            window: Nanos::new(1),
        },
    ];
    let huge = Demand {
        want: u64::MAX,
        need: u64::MAX,
        debt: u64::MAX,
    };
    for limit in limits {
        for now in [0, 1, 1 << 62, u64::MAX] {
            let mut central = Central::default();
            for ask in [single(1), huge, single(u64::MAX), huge] {
                let grant = central.grant(&of(&[limit]), ask, Nanos::new(now));
                assert!(grant.granted <= limit.capacity(), "{limit:?}");
            }
        }
    }
}
