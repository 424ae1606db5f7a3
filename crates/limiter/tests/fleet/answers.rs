//! Lease requests and their answers.

use loudou_limiter::lease::{Demand, Grant, Held, Lease, LeaseVerdict, Phase, Terms};
use loudou_limiter::lease::{LeaseSettings, Shared};

use crate::setup::rate;
use crate::table::{answered, ask, at, granted, held, left, terms, wait};

/// Returns terms of a thousand at once and a thousand a second. A lease of 200 ms has at most 200
/// units.
fn fast() -> Terms {
    let settings = LeaseSettings {
        lease: at(200),
        timeout: at(30),
        credit: 0,
    };
    let limit = Shared::Leak {
        capacity: 1_000,
        rate: rate("1000/s"),
    };
    Terms::new(&[limit], &settings).expect("valid")
}

/// Returns a lease from which `requests` of a cost were taken in each of the last two leases before
/// 1 s.
fn steady(terms: &Terms, requests: u64, cost: u64) -> Lease {
    let mut lease = Lease::default();
    for request in 0..2 * requests {
        let now = at(600 + request * 400 / (2 * requests));
        lease.take(terms, cost, now, Phase::First, false);
    }
    lease
}

fn beforehand(lease: &mut Lease, terms: &Terms) -> u64 {
    let ask = lease.request(terms, Held::default(), at(1_000));
    ask.map_or(0, |ask| ask.demand.want)
}

#[test]
fn there_is_nothing_to_ask_for() {
    let mut lease = Lease::default();
    assert!(!lease.is_due(&terms(0), at(0)));
    assert_eq!(lease.request(&terms(0), Held::default(), at(0)), None);
    // There is no refill for a denied key.
    let mut lease = steady(&fast(), 100, 1);
    assert!(lease.is_due(&fast(), at(1_000)));
    let ask = lease
        .request(&fast(), held(1, 1), at(1_000))
        .expect("an ask");
    lease.apply(&fast(), &ask, &wait(60), at(1_001), 0);
    assert!(!lease.is_due(&fast(), at(1_060)));
    assert!(lease.is_due(&fast(), at(1_061)));
}

/// A lease has half of the expected use: the number of requests minus two standard deviations,
/// multiplied by their cost.
#[test]
fn a_lease_is_half_of_what_is_surely_used() {
    for (requests, cost, want) in [(3, 1, 0), (4, 1, 0), (6, 1, 1), (16, 1, 4), (100, 1, 40)] {
        let mut lease = steady(&fast(), requests, cost);
        assert_eq!(
            beforehand(&mut lease, &fast()),
            want,
            "{requests} of {cost}"
        );
    }
    assert_eq!(beforehand(&mut steady(&fast(), 16, 10), &fast()), 40);
    // A remainder that is smaller than a cost would be useless.
    assert_eq!(beforehand(&mut steady(&fast(), 5, 10), &fast()), 0);
    assert_eq!(beforehand(&mut steady(&fast(), 50, 30), &fast()), 90);
    // The maximum is half of the refill during a lease, and a quarter of the capacity.
    assert_eq!(beforehand(&mut steady(&fast(), 100, 5), &fast()), 100);
    let small = Shared::Leak {
        capacity: 100,
        rate: rate("1000/s"),
    };
    let small = Terms::new(&[small], &fast().settings()).expect("valid");
    assert_eq!(beforehand(&mut steady(&small, 100, 5), &small), 25);
    // Less than one unit refills during a lease.
    assert_eq!(beforehand(&mut steady(&terms(0), 100, 1), &terms(0)), 0);
}

/// One lease of many requests is not enough, and neither are two leases that are over.
#[test]
fn only_steady_keys_are_leased_beforehand() {
    let mut once = Lease::default();
    for request in 0..100 {
        once.take(&fast(), 1, at(800 + request), Phase::First, false);
    }
    assert_eq!(beforehand(&mut once, &fast()), 0);
    // The smaller of the two counts is used.
    let mut growing = Lease::default();
    for millis in (600..800).step_by(20).chain(800..900) {
        growing.take(&fast(), 1, at(millis), Phase::First, false);
    }
    assert_eq!(beforehand(&mut growing, &fast()), 2);
    let lease = steady(&fast(), 100, 1);
    assert!(lease.is_due(&fast(), at(1_199)) && !lease.is_due(&fast(), at(1_200)));
    // Held requests that are decided again were counted before.
    let mut held = Lease::default();
    for request in 0..200 {
        held.take(&fast(), 1, at(600 + 2 * request), Phase::Held, false);
    }
    assert_eq!(beforehand(&mut held, &fast()), 0);
}

/// A worker requests tokens for its held requests at any time. The debt and the refill are sent
/// once.
#[test]
fn one_refill_is_under_way() {
    let terms = terms(2);
    let mut lease = Lease::default();
    lease.take(&terms, 2, at(1_000), Phase::First, false);
    let first = lease
        .request(&terms, held(3, 1), at(1_000))
        .expect("an ask");
    assert!(first.is_refill);
    assert!(!lease.is_due(&terms, at(1_001)));
    let second = lease
        .request(&terms, held(4, 2), at(1_001))
        .expect("an ask");
    let demand = Demand {
        want: 4,
        need: 2,
        debt: 0,
    };
    assert_eq!((second.demand, second.is_refill), (demand, false));
    assert_eq!(lease.request(&terms, Held::default(), at(1_001)), None);
    // The end of another lease request changes nothing. The end of the refill allows the next one.
    lease.lost(&second);
    assert!(!lease.is_due(&terms, at(1_002)));
    lease.lost(&first);
    assert!(lease.is_due(&terms, at(1_002)));
    // A refill without an answer counts as lost after two timeouts. Its late end does not affect
    // later refills.
    let stuck = lease
        .request(&terms, Held::default(), at(1_010))
        .expect("debt");
    assert!(!lease.is_due(&terms, at(1_069)) && lease.is_due(&terms, at(1_070)));
    let next = lease
        .request(&terms, Held::default(), at(1_070))
        .expect("debt");
    assert!(lease.apply(&terms, &stuck, &granted(0), at(1_071), 0));
    assert!(!lease.is_due(&terms, at(1_072)));
    lease.lost(&next);
    assert_eq!(lease.debt(), 2);
}

/// Tokens of a later answer do not prolong the life of earlier tokens, and earlier tokens are used
/// first.
#[test]
fn portions_keep_their_ends() {
    let mut lease = Lease::default();
    answered(&mut lease, 3, 1_000, &granted(3));
    answered(&mut lease, 4, 1_100, &granted(4));
    assert_eq!(lease.tokens(at(1_199)), 7);
    assert_eq!((lease.tokens(at(1_200)), lease.tokens(at(1_300))), (4, 0));
    assert_eq!(
        lease.take(&terms(0), 4, at(1_150), Phase::First, false),
        LeaseVerdict::Admit
    );
    assert_eq!((lease.tokens(at(1_199)), lease.tokens(at(1_200))), (3, 3));
    assert_eq!(lease.idle_at(), at(1_300));
}

/// A third portion joins the portion with the nearest expiry, and both then have the earlier
/// expiry.
#[test]
fn a_third_portion_joins_another() {
    // Send time of each lease request, and the balance shortly before and at each expiry.
    for (sent, left) in [
        ([1_000, 1_010, 1_100], [(1_200, 4), (1_300, 0)]),
        ([1_000, 1_090, 1_100], [(1_200, 6), (1_290, 0)]),
        ([1_100, 1_090, 1_000], [(1_200, 3), (1_290, 0)]),
        ([1_100, 1_000, 1_010], [(1_200, 1), (1_300, 0)]),
    ] {
        let mut lease = Lease::default();
        let asks = sent.map(|sent| ask(&mut lease, 4, sent));
        for (ask, units) in asks.iter().zip([1, 2, 4]) {
            lease.apply(&terms(0), ask, &granted(units), at(1_101), 0);
        }
        assert_eq!(lease.tokens(at(1_199)), 7, "{sent:?}");
        for (end, tokens) in left {
            assert_eq!(lease.tokens(at(end)), tokens, "{sent:?} at {end}");
        }
    }
}

#[test]
fn tokens_end_with_their_window() {
    let mut lease = Lease::default();
    let short = Grant {
        ends_in: at(50),
        ..granted(2)
    };
    answered(&mut lease, 2, 1_000, &short);
    assert_eq!((lease.tokens(at(1_049)), lease.tokens(at(1_050))), (2, 0));
    // A window that is longer than a lease does not prolong it.
    let long = Grant {
        ends_in: at(5_000),
        ..granted(2)
    };
    answered(&mut lease, 2, 2_000, &long);
    assert_eq!((lease.tokens(at(2_199)), lease.tokens(at(2_200))), (2, 0));
    // This answer arrives too late to be useful.
    let late = ask(&mut lease, 2, 3_000);
    assert!(lease.apply(&terms(0), &late, &granted(2), at(3_200), 0));
    assert_eq!(lease.tokens(at(3_200)), 0);
}

/// If answers arrive in another order, the answer to the latest lease request counts.
#[test]
fn the_latest_news_counts() {
    let mut lease = Lease::default();
    let early = ask(&mut lease, 1, 1_000);
    let late = ask(&mut lease, 1, 1_005);
    let news = Grant {
        left: left([7, 5]),
        ..granted(1)
    };
    lease.apply(&terms(0), &late, &news, at(1_006), 0);
    lease.apply(&terms(0), &early, &wait(5_000), at(1_007), 0);
    assert_eq!(lease.denied_until(at(1_007)), None);
    assert_eq!(
        lease.seen().map(|seen| (seen.left, seen.at)),
        Some((left([7]), at(1_005)))
    );
    // In the right order, the first one denies, and the later one ends the denial.
    answered(&mut lease, 1, 1_010, &wait(5_000));
    assert!(lease.denied_until(at(1_011)).is_some());
    answered(&mut lease, 1, 1_020, &granted(1));
    assert_eq!(lease.denied_until(at(1_021)), None);
}

/// An engine that grants nothing and gives no reason is called less and less often.
#[test]
fn unexplained_refusals_back_off() {
    let mut lease = Lease::default();
    let mut now = 1_000;
    let mut waits = Vec::new();
    for _ in 0..10 {
        let ask = lease.request(&fast(), held(1, 1), at(now)).expect("an ask");
        lease.apply(&fast(), &ask, &granted(0), at(now), 0);
        let until = lease.denied_until(at(now)).expect("denied");
        waits.push(until.since(at(now)).get() / 1_000);
        now += 1_000;
    }
    // A quarter of twice the time for one unit, and so on, up to a quarter of a lease.
    assert_eq!(
        waits,
        [
            500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 50_000, 50_000, 50_000
        ]
    );
    let ask = lease.request(&fast(), held(1, 1), at(now)).expect("an ask");
    lease.apply(&fast(), &ask, &granted(1), at(now), 0);
    assert_eq!(lease.denied_until(at(now)), None);
}

/// Damaged answers do no harm.
#[test]
fn an_answer_brings_at_most_what_was_asked_for() {
    let mut lease = Lease::default();
    let grant = Grant {
        granted: u64::MAX,
        charged: u64::MAX,
        left: left([u64::MAX; 8]),
        ..Grant::default()
    };
    answered(&mut lease, 3, 1_000, &grant);
    assert_eq!((lease.tokens(at(1_001)), lease.debt()), (3, 0));
}
