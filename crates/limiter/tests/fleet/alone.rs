//! Decisions without the engine: the units that an Envoy may admit alone, and the debt that they
//! cause.

use loudou_limiter::lease::{
    Demand, Grant, Held, Lease, LeaseSettings, LeaseVerdict, Phase, RemainingUnits, Terms,
};
use loudou_limiter::{Bucket, BucketRequest, Clock, Limits, Nanos};

use crate::setup::{funnel, limits, one, window};

const NOTHING: Held = Held { units: 0, least: 0 };

const fn at(millis: u64) -> Nanos {
    Nanos::from_millis(millis)
}

fn terms(limits: &Limits, credit: u64) -> Terms {
    let settings = LeaseSettings {
        lease: at(200),
        timeout: at(30),
        credit,
    };
    Terms::of(limits, &settings).expect("of a fleet")
}

/// Returns how many of many requests one of four Envoys admits alone at `now`.
fn admitted(lease: &mut Lease, limits: &Limits, bucket: &mut Bucket, now: Nanos) -> u64 {
    let ask = BucketRequest::new(1, now);
    let requests = (0..100).filter(|_| !lease.decide_alone(limits, 4, bucket, &ask).is_refused());
    requests.count().try_into().expect("few")
}

fn heard(lease: &mut Lease, limits: &Limits, left: impl IntoIterator<Item = u64>, now: Nanos) {
    let terms = terms(limits, 0);
    let held = Held { units: 1, least: 1 };
    let ask = lease.request(&terms, held, now).expect("an ask");
    let grant = Grant {
        charged: ask.demand.debt,
        left: RemainingUnits::of(left).expect("few"),
        ..Grant::default()
    };
    assert!(lease.apply(&terms, &ask, &grant, now, 0));
}

#[test]
fn what_is_admitted_alone_is_charged_once() {
    let limits = one(funnel(20, "4/s"));
    let terms = terms(&limits, 0);
    let (mut lease, mut bucket) = (Lease::default(), limits.start(at(1_000)));
    assert_eq!(admitted(&mut lease, &limits, &mut bucket, at(1_000)), 5);
    assert_eq!(lease.debt(), 5);
    assert!(lease.is_due(&terms, at(1_000)));
    let ask = lease.request(&terms, NOTHING, at(1_000)).expect("debt");
    assert_eq!(
        ask.demand,
        Demand {
            debt: 5,
            ..Demand::default()
        }
    );
    // The debt of a lost lease request is sent again, and the debt of an answered one is not.
    lease.lost(&ask);
    let ask = lease.request(&terms, NOTHING, at(1_040)).expect("debt");
    let grant = Grant {
        charged: 5,
        ..Grant::default()
    };
    lease.apply(&terms, &ask, &grant, at(1_041), 0);
    assert_eq!(lease.debt(), 0);
    assert!(!lease.is_due(&terms, at(1_041)));
}

/// The maximum debt is a full bucket of the Envoy's part, and the refill of that part in a second.
#[test]
fn the_debt_is_bounded() {
    let limits = one(funnel(20, "8/s"));
    let (mut lease, mut bucket) = (Lease::default(), limits.start(at(1_000)));
    for second in 1..100 {
        admitted(&mut lease, &limits, &mut bucket, at(second * 1_000));
    }
    assert_eq!(lease.debt(), 5 + 2);
    // An admitted request that did not pass owes nothing.
    lease.forgive(3);
    assert_eq!(lease.debt(), 4);
}

/// Used units stay used at every Envoy when the engine is gone.
#[test]
fn a_part_begins_with_its_part_of_what_was_left() {
    for (left, expected) in [(20, 5), (12, 3), (9, 3), (1, 1), (0, 0)] {
        let limits = one(funnel(20, "4/s"));
        let (mut lease, mut bucket) = (Lease::default(), limits.start(at(1_000)));
        heard(&mut lease, &limits, [left], at(1_000));
        let mut alone = |now| admitted(&mut lease, &limits, &mut bucket, now);
        assert_eq!(alone(at(1_000)), expected, "{left} left");
        assert_eq!(alone(at(1_000)), 0, "once");
        assert_eq!(alone(at(2_000)), 1, "its part of the rate");
    }
    // Each limit has its own part. A window frees all its units when it ends.
    let limits = limits([funnel(40, "40/s"), window(20, Nanos::from_secs(10))]);
    let (mut lease, mut bucket) = (Lease::default(), limits.start(at(1_000)));
    heard(&mut lease, &limits, [40, 8], at(1_000));
    assert_eq!(admitted(&mut lease, &limits, &mut bucket, at(1_500)), 2);
    assert_eq!(admitted(&mut lease, &limits, &mut bucket, at(9_999)), 0);
    assert_eq!(admitted(&mut lease, &limits, &mut bucket, at(10_000)), 5);
}

#[test]
fn a_debt_of_a_past_window_is_forgotten() {
    let limits = one(window(40, Nanos::from_secs(10)));
    for (credit, left) in [(0, 0), (3, 3), (50, 10)] {
        let terms = terms(&limits, credit);
        let (mut lease, mut bucket) = (Lease::default(), limits.start(at(9_000)));
        assert_eq!(admitted(&mut lease, &limits, &mut bucket, at(9_000)), 10);
        lease.turn(&terms, at(9_000), Clock::at(at(9_999)));
        assert_eq!(lease.debt(), 10);
        lease.turn(&terms, at(9_999), Clock::at(at(10_000)));
        assert_eq!(lease.debt(), left, "requests on credit are charged");
    }
}

/// A key without an answer is decided alone for a short time. Then the engine is called again.
#[test]
fn a_key_that_fails_is_alone_for_a_short_time() {
    let limits = one(funnel(20, "4/s"));
    let terms = terms(&limits, 0);
    let mut lease = Lease::default();
    let take = |lease: &mut Lease, now| lease.take(&terms, 1, now, Phase::Held, false);
    assert!(matches!(
        take(&mut lease, at(1_000)),
        LeaseVerdict::Wait { .. }
    ));
    let mut now = at(1_000);
    for longest in [100, 200, 250, 250] {
        lease.failed(now, u64::MAX);
        let end = now.saturating_add(at(longest));
        let last = end.since(Nanos::from_millis(1));
        assert_eq!(take(&mut lease, last), LeaseVerdict::Local);
        assert!(lease.is_alone(last) && !lease.is_due(&terms, last));
        assert_eq!(lease.denied_until(last), None);
        assert!(matches!(take(&mut lease, end), LeaseVerdict::Wait { .. }));
        now = end;
    }
    assert_eq!(
        take(&mut lease, now.saturating_add(at(1))),
        LeaseVerdict::Wait {
            until: now.saturating_add(at(31))
        }
    );
}

/// The engine does not answer for a key that it has denied. The denial stays in effect, and after
/// it the part is empty.
#[test]
fn a_denial_outlives_an_error_of_its_key() {
    let limits = one(funnel(20, "4/s"));
    let terms = terms(&limits, 0);
    let (mut lease, mut bucket) = (Lease::default(), limits.start(at(1_000)));
    let ask = lease.request(&terms, Held { units: 1, least: 1 }, at(1_000));
    let grant = Grant {
        wait: at(250),
        ..Grant::default()
    };
    lease.apply(&terms, &ask.expect("an ask"), &grant, at(1_001), 0);
    lease.failed(at(1_100), 0);
    let take = |lease: &mut Lease, now| lease.take(&terms, 1, now, Phase::First, false);
    assert!(matches!(
        take(&mut lease, at(1_100)),
        LeaseVerdict::Refuse { .. }
    ));
    lease.failed(at(1_260), 0);
    assert_eq!(take(&mut lease, at(1_260)), LeaseVerdict::Local);
    assert_eq!(admitted(&mut lease, &limits, &mut bucket, at(1_260)), 0);
}
