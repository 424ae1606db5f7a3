//! The limits that a fleet can share, their parts in an outage, and the numbers that are reported.

use loudou_limiter::algorithm::{
    Algorithm, Align, Concurrency, FixedWindow, Funnel, Grid, LeakyQueue, Refill, SlidingLog,
    TokenBucket,
};
use loudou_limiter::lease::{Grant, Lease, LeaseVerdict, Shared, Terms, Unfit};
use loudou_limiter::{BucketRequest, Clock, Limit, Limits, Nanos, Rate, Verdict};

use crate::setup::{funnel, limits, one, rate, window};
use crate::table::{answered, at, granted, held, left, terms};

fn tokens(refill: Refill, initial: u64) -> TokenBucket {
    TokenBucket::new(10, rate("5/m"), refill, initial).expect("valid")
}

fn shared(algorithm: impl Into<Algorithm>) -> Result<Shared, Unfit> {
    let limits = one(Limit::new("limit", algorithm));
    let terms = Terms::of(&limits, &terms(0).settings());
    terms
        .map(|terms| terms.limits()[0])
        .map_err(|refused| refused.why)
}

#[test]
fn some_limits_can_be_shared() {
    let (capacity, rate) = (10, rate("5/m"));
    let leak = Ok(Shared::Leak { capacity, rate });
    let lumps = Ok(Shared::Interval { capacity, rate });
    assert_eq!(shared(Funnel::new(10, rate).expect("valid")), leak);
    assert_eq!(shared(tokens(Refill::Greedy, 10)), leak);
    assert_eq!(shared(tokens(Refill::Interval, 10)), lumps);
    // The engine's clock is a wall clock.
    let aligned = tokens(Refill::Interval, 10).aligned(Grid::Clock);
    assert_eq!(shared(aligned.expect("valid")), lumps);
    let window = at(1_000);
    let fixed = |align| FixedWindow::new(10, window, align).expect("valid");
    let on_clock = Ok(Shared::Window { capacity, window });
    assert_eq!(shared(fixed(Align::Clock)), on_clock);
    assert_eq!(shared(fixed(Align::First)), Err(Unfit::Align));
}

#[test]
fn others_cannot() {
    let waiting = Funnel::new(10, rate("5/m")).and_then(|funnel| funnel.waiting(at(1)));
    assert_eq!(shared(waiting.expect("valid")), Err(Unfit::MaxWait));
    let waiting = tokens(Refill::Interval, 10).waiting(at(1));
    assert_eq!(shared(waiting.expect("valid")), Err(Unfit::MaxWait));
    assert_eq!(shared(tokens(Refill::Greedy, 9)), Err(Unfit::Initial));
    let log = SlidingLog::new(10, at(1_000), false).expect("valid");
    assert_eq!(shared(log), Err(Unfit::Algorithm));
    let queue = LeakyQueue::new(10, rate("5/m")).expect("valid");
    assert_eq!(shared(queue), Err(Unfit::Algorithm));
    let open = Concurrency::new(10, at(1_000)).expect("valid");
    assert_eq!(shared(open), Err(Unfit::Algorithm));
}

/// Periods must be whole microseconds and fit into 53 bits, because the engine's clock and its
/// scripts are limited to that.
#[test]
fn periods_are_such_as_the_engine_knows() {
    let funnel = |period| {
        let rate = Rate::new(1, Nanos::new(period)).expect("valid");
        shared(Funnel::new(10, rate).expect("valid"))
    };
    let window = |window| {
        let window = FixedWindow::new(10, Nanos::new(window), Align::Clock);
        shared(window.expect("valid"))
    };
    let hour = 3_600_000_000_000;
    for fits in [1, 999, hour - 1, hour, hour + 1_000] {
        assert!(funnel(fits).is_ok(), "{fits}");
    }
    assert_eq!(funnel(hour + 1), Err(Unfit::Clock));
    for fits in [1_000, 1_001, hour - 1, hour + 1_000] {
        assert!(window(fits).is_ok(), "{fits}");
    }
    for unfit in [1, 999, hour + 999] {
        assert_eq!(window(unfit), Err(Unfit::Clock), "{unfit}");
    }
}

/// The problem names the first limit that a fleet cannot share, and what it can share instead.
#[test]
fn the_refusal_names_the_limit() {
    let log = SlidingLog::new(10, at(1_000), false).expect("valid");
    let both = limits([funnel(5, "1/s"), Limit::new("minute", log)]);
    let refused = Terms::of(&both, &terms(0).settings()).expect_err("a log");
    assert_eq!(
        refused.to_string(),
        "limit `minute`: `sliding_log` cannot be shared by a fleet; funnel, token_bucket and \
         fixed_window can"
    );
    let first = FixedWindow::new(10, at(1_000), Align::First).expect("valid");
    let refused = Terms::of(&one(Limit::new("day", first)), &terms(0).settings());
    assert_eq!(
        refused
            .expect_err("its windows begin with a request")
            .to_string(),
        "limit `day`: the windows of a `fixed_window` of a fleet lie on the clock; set `align: clock`"
    );
}

#[test]
fn impossible_numbers_make_no_terms() {
    let new = |limits: &[Shared]| Terms::new(limits, &terms(0).settings());
    let leak = |capacity| Shared::Leak {
        capacity,
        rate: rate("1/s"),
    };
    let window = |window| Shared::Window {
        capacity: 1,
        window,
    };
    assert!(new(&[leak(1); 8]).is_some());
    assert!(new(&[]).is_none() && new(&[leak(1); 9]).is_none());
    for limit in [
        leak(0),
        leak(1_000_000_001),
        window(Nanos::ZERO),
        window(Nanos::MAX),
    ] {
        assert!(new(&[leak(1), limit]).is_none(), "{limit:?}");
    }
}

/// Returns the capacity and the rate of the only limit's part.
fn part(algorithm: impl Into<Algorithm>, envoys: u32) -> (u64, String) {
    let divided = one(Limit::new("limit", algorithm)).divided(envoys);
    let divided = divided.expect("of a fleet");
    let part = divided.iter().next().expect("one").algorithm();
    (part.capacity(), part.rate().expect("a rate").to_string())
}

#[test]
fn an_outage_divides_the_limits() {
    let funnel = |capacity, pace| Funnel::new(capacity, rate(pace)).expect("valid");
    let expected = |capacity, pace: &str| (capacity, pace.to_string());
    assert_eq!(part(funnel(20, "100/s"), 1), expected(20, "100/s"));
    assert_eq!(part(funnel(20, "100/s"), 0), expected(20, "100/s"));
    assert_eq!(part(funnel(20, "100/s"), 8), expected(2, "100/8s"));
    assert_eq!(part(funnel(20, "100/s"), 50), expected(1, "100/50s"));
    // If the period would exceed its maximum, the part refills less often, or fewer units at once.
    assert_eq!(part(funnel(1, "1/366d"), 4), expected(1, "1/366d"));
    assert_eq!(part(funnel(8, "9/366d"), 4), expected(2, "2/366d"));
    let lumps = |capacity, pace| {
        TokenBucket::new(capacity, rate(pace), Refill::Interval, capacity).expect("valid")
    };
    assert_eq!(part(lumps(20, "10/s"), 4), expected(5, "2/s"));
    assert_eq!(part(lumps(20, "10/s"), 25), expected(1, "1/3s"));
    let day = FixedWindow::new(10, Nanos::from_secs(86_400), Align::Clock).expect("valid");
    assert_eq!(part(day, 3), expected(3, "3/d"));
    let log = SlidingLog::new(10, at(1_000), false).expect("valid");
    assert_eq!(one(Limit::new("log", log)).divided(2), None);
}

/// A part starts full, and a level that was written for another number of Envoys keeps its share.
#[test]
fn a_part_reads_the_level_of_another_one() {
    let whole = one(funnel(100, "100/s"));
    let (two, four) = (
        whole.divided(2).expect("fits"),
        whole.divided(4).expect("fits"),
    );
    let mut bucket = two.start(at(1_000));
    two.decide(&mut bucket, 40, at(1_000));
    let remaining = |limits: &Limits, millis| {
        let look = limits.peek(&bucket, 0, at(millis));
        look.reported().expect("a limit").remaining
    };
    assert_eq!((remaining(&two, 1_000), remaining(&four, 1_000)), (10, 5));
    assert_eq!((remaining(&two, 1_400), remaining(&four, 1_400)), (30, 15));
    let tokens = one(Limit::new("tokens", tokens(Refill::Interval, 10)));
    let part = tokens.divided(5).expect("fits");
    assert!(part.forgets_losslessly());
    let fresh = part.start(at(0));
    assert_eq!(
        part.peek(&fresh, 0, at(0))
            .reported()
            .expect("a limit")
            .remaining,
        2
    );
}

/// Returns the remaining units and the times in milliseconds.
fn reported(lease: &Lease, terms: &Terms, verdict: LeaseVerdict, cost: u64) -> Numbers {
    let ask = BucketRequest::new(cost, at(1_001)).at_wall(at(100_500));
    let answer = lease.decision(terms, verdict, &ask);
    let numbers = answer.reported().expect("a limit");
    assert_eq!(answer.at(), at(1_001));
    (
        answer.reported_index(),
        numbers.verdict,
        numbers.remaining,
        numbers.retry_after.map(Nanos::millis_ceil),
        numbers.reset_after.millis_ceil(),
    )
}

type Numbers = (usize, Verdict, u64, Option<u64>, u64);

#[test]
fn a_verdict_is_reported_with_what_is_known() {
    let terms = terms(0);
    let mut lease = Lease::default();
    let unknown = reported(&lease, &terms, LeaseVerdict::Admit, 1);
    assert_eq!(unknown, (0, Verdict::Admit, 0, None, 10_000));
    let grant = Grant {
        left: left([5]),
        ..granted(3)
    };
    answered(&mut lease, 3, 1_000, &grant);
    let known = reported(&lease, &terms, LeaseVerdict::Admit, 1);
    assert_eq!(known, (0, Verdict::Admit, 8, None, 2_000));
    let more = Grant {
        left: left([9]),
        ..grant
    };
    answered(&mut lease, 3, 1_000, &more);
    assert_eq!(reported(&lease, &terms, LeaseVerdict::Admit, 1).2, 10);
    let retry_after = Some(at(700));
    let refused = reported(&lease, &terms, LeaseVerdict::Refuse { retry_after }, 1);
    assert_eq!(refused, (0, Verdict::Refuse, 10, Some(700), 0));
    let never = LeaseVerdict::Refuse { retry_after: None };
    let never = reported(&lease, &terms, never, 11);
    assert_eq!(never, (0, Verdict::Refuse, 10, None, 0));
}

/// If there are several limits, the reported limit is one that can have refused for this long.
#[test]
fn a_refusal_is_reported_by_a_limit_that_explains_it() {
    let both = limits([
        funnel(5, "1/s"),
        window(1_000, at(2_000)),
        funnel(1_000, "1/m"),
    ]);
    let terms = Terms::of(&both, &terms(0).settings()).expect("of a fleet");
    let lease = Lease::default();
    let index = |cost, millis: Option<u64>| {
        let retry_after = millis.map(at);
        reported(&lease, &terms, LeaseVerdict::Refuse { retry_after }, cost).0
    };
    assert_eq!(index(1, Some(900)), 0);
    assert_eq!(index(1, Some(1_900)), 1);
    assert_eq!(index(1, Some(30_000)), 2);
    // With a debt, the wait can be longer than any limit needs until it is full.
    assert_eq!(index(1, Some(500_000)), 0);
    assert_eq!(index(6, None), 0);
    // A window ends at the latest after its length on the wall clock.
    let ask = BucketRequest::new(1, at(1_001)).at_wall(at(100_500));
    let answer = lease.decision(&terms, LeaseVerdict::Admit, &ask);
    let resets: Vec<_> = answer
        .decisions()
        .map(|d| d.reset_after.as_millis())
        .collect();
    assert_eq!(resets, [5_000, 1_500, 60_000_000]);
}

/// Returns the verdict on a request without tokens. For each limit, also returns the remaining
/// units, and the times in milliseconds until the request passes and until the limit is full.
fn numbers(lease: &Lease, terms: &Terms, wait: Option<u64>, cost: u64) -> Vec<Own> {
    let verdict = wait.map_or(LeaseVerdict::Admit, |wait| LeaseVerdict::Refuse {
        retry_after: Some(at(wait)),
    });
    let ask = BucketRequest::new(cost, at(1_001)).at_wall(at(100_500));
    let answer = lease.decision(terms, verdict, &ask);
    let own = answer.decisions().map(|one| {
        let wait = one.retry_after.map(Nanos::as_millis);
        (one.remaining, wait, one.reset_after.as_millis())
    });
    own.collect()
}

type Own = (u64, Option<u64>, u64);

#[test]
fn each_limit_has_its_own_numbers() {
    let both = limits([
        funnel(5, "10/s"),
        window(1_000, at(2_000)),
        funnel(1_000, "1/m"),
    ]);
    let terms = Terms::of(&both, &terms(0).settings()).expect("of a fleet");
    let with = |tokens, units| {
        let mut lease = Lease::default();
        let grant = Grant {
            left: left(units),
            ..granted(tokens)
        };
        let ask = lease
            .request(&terms, held(2, 1), at(1_000))
            .expect("an ask");
        assert!(lease.apply(&terms, &ask, &grant, at(1_001), 0));
        lease
    };
    // This Envoy has two unused tokens, which count for each limit.
    let lease = with(2, [1, 970, 1_000]);
    assert_eq!(
        numbers(&lease, &terms, None, 1),
        [(3, None, 200), (972, None, 1_500), (1_000, None, 0)]
    );
    // The reported limit has too few units, and refills in time.
    let lease = with(0, [1, 970, 3]);
    let rest = [(970, None, 1_500), (3, None, 59_820_000)];
    let first = numbers(&lease, &terms, Some(150), 2);
    assert_eq!(first, [&[(1, Some(150), 400)], rest.as_slice()].concat());
    // A limit that would refill sooner waits only for its own units.
    assert_eq!(
        numbers(&lease, &terms, Some(60_000), 4),
        [
            (1, Some(300), 400),
            (970, None, 1_500),
            (3, Some(60_000), 59_820_000)
        ]
    );
    // With a debt, the wait can be longer than any limit needs.
    let lease = with(0, [5, 0, 3]);
    assert_eq!(
        numbers(&lease, &terms, Some(700_000), 2),
        [
            (5, None, 0),
            (0, Some(700_000), 1_500),
            (3, None, 59_820_000)
        ]
    );
    // No limit explains the wait.
    let waits = numbers(&lease, &terms, Some(30), 0);
    assert_eq!(waits[1].1, Some(30));
    let unexplained = numbers(&with(0, [5, 9, 3]), &terms, Some(30), 1);
    assert!(
        unexplained.iter().all(|one| one.1 == Some(30)),
        "{unexplained:?}"
    );
}

/// During an outage, a part of the limits decides on a bucket that edits and views read with the whole limits. Lumps of a
/// part may come in longer periods, but no reader may see a refill that has not happened.
#[test]
fn the_whole_reads_what_a_part_of_lumps_has_used() {
    let day = Nanos::from_secs(86_400);
    let rate = Rate::new(1, day).expect("a rate");
    let lumps = TokenBucket::new(100, rate, Refill::Interval, 100).expect("valid");
    for align in [Grid::Process, Grid::Clock] {
        let lumps = lumps.aligned(align).expect("lumps");
        let whole = one(Limit::new("lumps", lumps));
        let part = whole.divided(3).expect("fits");
        let clock = |days: u64| Clock {
            now: Nanos::from_secs(86_400 * (days + 7)),
            wall: Nanos::from_secs(86_400 * (days + 20_000)),
        };
        let ask = |days| BucketRequest::new(33, clock(days).now).at_wall(clock(days).wall);
        let mut bucket = part.start_at(clock(0));
        assert!(!part.answer(&mut bucket, &ask(0)).is_refused());
        assert_eq!(whole.used(&bucket, clock(0).now), [33], "{align:?}");
        assert_eq!(part.used(&bucket, clock(0).now), [33], "{align:?}");
        // The whole bucket regains one unit a day, and the part one unit in three days.
        assert_eq!(whole.used(&bucket, clock(6).now), [33 - 6], "{align:?}");
        let left = part.used(&bucket, clock(6).now);
        assert!(left == [31] || left == [32], "{align:?}: {left:?}");
        // And vice versa.
        let mut bucket = whole.start_at(clock(0));
        whole.answer(&mut bucket, &ask(0));
        assert_eq!(part.used(&bucket, clock(0).now), [33], "{align:?}");
    }
}
