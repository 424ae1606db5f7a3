//! Checks the table of decisions, row by row.

use loudou_limiter::Nanos;
use loudou_limiter::lease::{
    Demand, Grant, Held, LEASE_WORDS, Lease, LeaseSettings, LeaseVerdict, Phase, RemainingUnits,
    Seen, Shared, Terms, TokenRequest,
};

use crate::setup::rate;

pub(crate) fn at(millis: u64) -> Nanos {
    Nanos::from_millis(millis)
}

/// Returns terms of ten at once and one a second, with leases of 200 ms.
pub(crate) fn terms(credit: u64) -> Terms {
    let settings = LeaseSettings {
        lease: at(200),
        timeout: at(30),
        credit,
    };
    let limit = Shared::Leak {
        capacity: 10,
        rate: rate("1/s"),
    };
    Terms::new(&[limit], &settings).expect("valid")
}

pub(crate) fn held(units: u64, least: u64) -> Held {
    Held { units, least }
}

pub(crate) fn granted(granted: u64) -> Grant {
    Grant {
        granted,
        ..Grant::default()
    }
}

pub(crate) fn left<const N: usize>(units: [u64; N]) -> RemainingUnits {
    RemainingUnits::of(units).expect("few")
}

pub(crate) fn wait(millis: u64) -> Grant {
    Grant {
        wait: at(millis),
        ..Grant::default()
    }
}

/// Returns a lease request for `units` requests of cost 1.
pub(crate) fn ask(lease: &mut Lease, units: u64, millis: u64) -> TokenRequest {
    let ask = lease.request(&terms(0), held(units, units.min(1)), at(millis));
    ask.expect("something to ask for")
}

/// Sends a lease request and applies the answer a millisecond later. With the random number 0, a
/// denial lasts 50 ms or as long as the engine reports.
pub(crate) fn answered(lease: &mut Lease, units: u64, millis: u64, grant: &Grant) {
    let ask = ask(lease, units, millis);
    assert!(lease.apply(&terms(0), &ask, grant, at(millis + 1), 0));
}

fn refuse(millis: u64) -> LeaseVerdict {
    LeaseVerdict::Refuse {
        retry_after: Some(at(millis)),
    }
}

const UP: bool = false;
const DOWN: bool = true;

#[test]
fn an_unknown_key_waits_and_is_never_denied() {
    let mut lease = Lease::default();
    let wait = LeaseVerdict::Wait { until: at(1_030) };
    for phase in [Phase::First, Phase::Held] {
        assert_eq!(lease.take(&terms(0), 1, at(1_000), phase, UP), wait);
    }
    let expired = lease.take(&terms(0), 1, at(1_000), Phase::Expired, UP);
    assert_eq!(expired, LeaseVerdict::Local);
    for phase in [Phase::First, Phase::Held, Phase::Expired] {
        let down = lease.take(&terms(5), 1, at(1_000), phase, DOWN);
        assert_eq!(down, LeaseVerdict::Local);
        let free = lease.take(&terms(0), 0, at(1_000), phase, UP);
        assert_eq!(free, LeaseVerdict::Admit);
    }
    assert_eq!((lease.tokens(at(1_000)), lease.debt()), (0, 0));
    assert_eq!((lease.seen(), lease.denied_until(at(1_000))), (None, None));
}

#[test]
fn what_never_fits_is_refused_for_good() {
    let mut lease = Lease::default();
    for (phase, is_down) in [
        (Phase::First, UP),
        (Phase::Held, DOWN),
        (Phase::Expired, UP),
    ] {
        let verdict = lease.take(&terms(20), 11, at(0), phase, is_down);
        assert_eq!(verdict, LeaseVerdict::Refuse { retry_after: None });
    }
    assert_eq!(lease.debt(), 0);
}

/// Tokens are used before anything else is considered.
#[test]
fn tokens_are_taken_until_they_end() {
    let mut lease = Lease::default();
    let grant = Grant {
        wait: at(700),
        ..granted(3)
    };
    answered(&mut lease, 5, 1_000, &grant);
    assert_eq!(lease.tokens(at(1_199)), 3);
    assert_eq!(
        lease.take(&terms(0), 2, at(1_002), Phase::First, UP),
        LeaseVerdict::Admit
    );
    assert_eq!(
        lease.take(&terms(0), 1, at(1_002), Phase::Held, DOWN),
        LeaseVerdict::Admit
    );
    assert_eq!(
        lease.take(&terms(0), 1, at(1_101), Phase::First, UP),
        refuse(600)
    );
    // A lease lasts from the time at which its request was sent.
    let mut lease = Lease::default();
    answered(&mut lease, 2, 1_000, &granted(2));
    assert_eq!((lease.tokens(at(1_199)), lease.tokens(at(1_200))), (2, 0));
    assert_eq!(
        lease.take(&terms(0), 1, at(1_199), Phase::Expired, UP),
        LeaseVerdict::Admit
    );
    let late = lease.take(&terms(0), 1, at(1_200), Phase::First, UP);
    assert_eq!(late, LeaseVerdict::Wait { until: at(1_230) });
}

#[test]
fn a_denial_refuses_until_its_end() {
    let mut lease = Lease::default();
    answered(&mut lease, 1, 1_000, &wait(3_000));
    assert_eq!(lease.denied_until(at(1_001)), Some(at(4_001)));
    for phase in [Phase::First, Phase::Held, Phase::Expired] {
        assert_eq!(
            lease.take(&terms(9), 1, at(2_001), phase, UP),
            refuse(2_000)
        );
        assert_eq!(
            lease.take(&terms(9), 0, at(2_001), phase, UP),
            refuse(2_000)
        );
        // An engine that is down denies nothing.
        let down = lease.take(&terms(9), 1, at(2_001), phase, DOWN);
        assert_eq!(down, LeaseVerdict::Local);
    }
    // More units take longer.
    assert_eq!(
        lease.take(&terms(9), 4, at(2_001), Phase::First, UP),
        refuse(5_000)
    );
    assert_eq!(lease.debt(), 0);
    let verdict = lease.take(&terms(0), 1, at(4_001), Phase::First, UP);
    assert_eq!(verdict, LeaseVerdict::Wait { until: at(4_031) });
    assert_eq!(lease.denied_until(at(4_001)), None);
}

/// A denial lasts as long as the engine reports, and at least a random part of a lease.
#[test]
fn a_denial_is_never_shorter_than_the_engine_says() {
    for (millis, random, until) in [(60_000, u64::MAX, 61_001), (60, 0, 1_061), (1, 0, 1_051)] {
        let mut lease = Lease::default();
        let ask = ask(&mut lease, 1, 1_000);
        lease.apply(&terms(0), &ask, &wait(millis), at(1_001), random);
        assert_eq!(lease.denied_until(at(1_001)), Some(at(until)));
    }
    let mut lease = Lease::default();
    let ask = ask(&mut lease, 1, 1_000);
    lease.apply(&terms(0), &ask, &wait(1), at(1_001), u64::MAX);
    let until = lease.denied_until(at(1_001)).expect("denied");
    assert!(at(1_150) < until && until < at(1_151), "{until}");
}

/// A denial of an expensive request does not apply to cheaper ones. The answer to a cheap request
/// ends the denial early, and the engine is called again.
#[test]
fn a_denial_is_for_its_cost_and_above() {
    let mut lease = Lease::default();
    let costly = lease
        .request(&terms(0), held(8, 8), at(1_000))
        .expect("an ask");
    assert_eq!(costly.demand.need, 8);
    lease.apply(&terms(0), &costly, &wait(6_000), at(1_001), 0);
    assert_eq!(
        lease.take(&terms(0), 8, at(1_001), Phase::Held, UP),
        refuse(6_000)
    );
    assert_eq!(
        lease.take(&terms(0), 9, at(1_001), Phase::Held, UP),
        refuse(7_000)
    );
    let cheap = lease.take(&terms(0), 7, at(1_001), Phase::Held, UP);
    assert_eq!(cheap, LeaseVerdict::Wait { until: at(1_031) });
    answered(&mut lease, 1, 2_000, &wait(400));
    assert_eq!(lease.denied_until(at(2_001)), Some(at(2_401)));
    assert_eq!(
        lease.take(&terms(0), 1, at(2_001), Phase::First, UP),
        refuse(400)
    );
    assert_eq!(
        lease.take(&terms(0), 8, at(2_001), Phase::First, UP),
        refuse(7_400)
    );
    let later = lease.take(&terms(0), 8, at(2_401), Phase::First, UP);
    assert_eq!(later, LeaseVerdict::Wait { until: at(2_431) });
}

#[test]
fn credit_passes_at_first_and_only_once() {
    let mut lease = Lease::default();
    let terms = terms(3);
    for phase in [Phase::Held, Phase::Expired] {
        assert_ne!(
            lease.take(&terms, 1, at(1_000), phase, UP),
            LeaseVerdict::Admit
        );
    }
    for debt in 1..=3 {
        assert_eq!(
            lease.take(&terms, 1, at(1_000), Phase::First, UP),
            LeaseVerdict::Admit
        );
        assert_eq!(lease.debt(), debt);
    }
    let fourth = lease.take(&terms, 1, at(1_000), Phase::First, UP);
    assert_eq!(fourth, LeaseVerdict::Wait { until: at(1_030) });
    assert!(lease.is_due(&terms, at(1_000)));
    let ask = lease
        .request(&terms, held(1, 1), at(1_000))
        .expect("an ask");
    assert_eq!(
        ask.demand,
        Demand {
            want: 1,
            need: 1,
            debt: 3
        }
    );
    let grant = Grant {
        charged: 3,
        ..granted(1)
    };
    lease.apply(&terms, &ask, &grant, at(1_001), 0);
    assert_eq!((lease.debt(), lease.idle_at()), (0, at(1_200)));
    assert_eq!(
        lease.take(&terms, 2, at(1_001), Phase::First, UP),
        LeaseVerdict::Admit
    );
}

#[test]
fn an_edit_drops_all_but_the_debt() {
    let mut lease = Lease::default();
    lease.take(&terms(2), 2, at(1_000), Phase::First, UP);
    let late = lease
        .request(&terms(2), held(0, 0), at(1_000))
        .expect("debt");
    answered(
        &mut lease,
        5,
        1_001,
        &Grant {
            left: left([4]),
            wait: at(900),
            ..granted(3)
        },
    );
    assert_eq!(
        lease.seen(),
        Some(Seen {
            left: left([4]),
            at: at(1_001)
        })
    );
    lease.after_edit();
    assert_eq!((lease.tokens(at(1_002)), lease.debt()), (0, 2));
    assert_eq!((lease.seen(), lease.denied_until(at(1_002))), (None, None));
    // The refill in flight belongs to the earlier numbers, so another one is requested.
    assert!(lease.is_due(&terms(2), at(1_002)));
    let grant = Grant {
        charged: 2,
        left: left([9]),
        ..granted(4)
    };
    assert!(!lease.apply(&terms(2), &late, &grant, at(1_003), 0));
    assert_eq!(
        (lease.tokens(at(1_003)), lease.debt(), lease.seen()),
        (0, 0, None)
    );
}

/// The stored words lose nothing, and the words of a new lease are all zero.
#[test]
fn words_keep_everything() {
    assert_eq!(Lease::default().to_words(), [0; LEASE_WORDS]);
    assert_eq!(Lease::from_words(&[], &[]), Lease::default());
    let mut lease = Lease::default();
    for request in 0..40 {
        lease.take(&terms(1), 1, at(1_000 + 15 * request), Phase::First, UP);
    }
    lease.after_edit();
    answered(&mut lease, 2, 1_590, &granted(2));
    let empty = Grant {
        left: left([6, 0, 8, 7, 6, 5, 4, 3]),
        ..Grant::default()
    };
    answered(
        &mut lease,
        3,
        1_590,
        &Grant {
            wait: at(77),
            ..granted(3)
        },
    );
    let unfilled = lease
        .request(&terms(1), held(2, 2), at(1_591))
        .expect("an ask");
    let many = Terms::new(&[terms(1).limits()[0]; 8], &terms(1).settings()).expect("valid");
    lease.apply(&many, &unfilled, &empty, at(1_593), u64::MAX);
    let words = lease.to_words();
    assert!(
        words.iter().filter(|word| **word > 0).count() >= 9,
        "{words:?}"
    );
    let later = lease.later_left();
    assert_eq!(later, [0, 8, 7, 6, 5, 4, 3]);
    assert_eq!(Lease::from_words(&words, later), lease);
    // Each word matters.
    for place in 0..LEASE_WORDS {
        let mut other = words;
        other[place] ^= 1 << 35 | 1;
        assert_ne!(Lease::from_words(&other, later), lease, "word {place}");
    }
    assert_ne!(Lease::from_words(&words, &later[1..]), lease);
}
