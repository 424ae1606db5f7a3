//! Periods on the wall clock, which jumps.

use super::spec::{Kind, Spec, spec_of};
use super::{config, only, timed, train};
use loudou_limiter::algorithm::{
    Algorithm, Grid, Refill, SlidingCounter, SlidingWindow, TokenBucket,
};
use loudou_limiter::{Bucket, BucketRequest, Carry, Clock, Limit, Limits, Nanos, Taken, convert};
use loudou_rules::config::parse_limits;
use proptest::prelude::*;
use serde_json::{Value, json};

/// Periods end one after the other, and each end is an instant on the monotonic clock.
#[derive(Clone, Debug)]
struct Model {
    spec: Spec,
    /// The end of the current period.
    end: i128,
    /// True if the period is later than the period of the last request that took something.
    is_later: bool,
    /// Amounts taken in each period, with the current period first. For a token bucket, only the
    /// used amount.
    taken: Vec<u64>,
}

impl Model {
    fn new(spec: Spec) -> Self {
        let periods = match spec.kind {
            Kind::SlidingWindow => usize::try_from(spec.slots()).expect("few"),
            Kind::Counter => 2,
            _ => 1,
        };
        Self {
            spec,
            end: 0,
            is_later: false,
            taken: vec![0; periods],
        }
    }

    fn period(&self) -> i128 {
        let parts = match self.spec.kind {
            Kind::SlidingWindow => self.spec.slots(),
            _ => 1,
        };
        i128::from(self.spec.period) / i128::from(parts)
    }

    fn at(&self, now: u64) -> Self {
        let mut then = self.clone();
        while then.end <= now.into() {
            then.end += self.period();
            then.is_later = true;
            if then.spec.kind == Kind::Interval {
                then.taken[0] = then.taken[0].saturating_sub(then.spec.amount.into());
            } else {
                then.taken.pop();
                then.taken.insert(0, 0);
            }
            if then.is_idle() {
                break;
            }
        }
        then
    }

    fn is_idle(&self) -> bool {
        self.taken.iter().all(|taken| *taken == 0)
    }

    /// Returns true if a cost fits at `now`, which is in the current period or when nothing counts.
    fn fits(&self, cost: u64, now: u64) -> bool {
        let sum: u64 = self.taken.iter().sum();
        let fits = match self.spec.kind {
            Kind::Counter => {
                let window = u128::from(self.spec.period);
                let left = u128::try_from(self.end - i128::from(now)).unwrap_or(0);
                let before = u128::from(self.taken[1]) * left.min(window);
                before + u128::from(self.taken[0] + cost) * window
                    <= u128::from(self.spec.capacity) * window
            }
            Kind::SlidingWindow => {
                self.taken[0] + cost <= self.spec.slot_capacity()
                    && sum + cost <= self.spec.capacity
            }
            _ => sum + cost <= self.spec.capacity,
        };
        cost == 0 || fits
    }

    /// Takes a cost. The new period ends at the nearest end of a period on the wall clock.
    fn take(&mut self, cost: u64, now: u64, wall: u64) {
        let period = self.period();
        let left = period - i128::from(wall) % period;
        let first = i128::from(now) + left;
        if self.is_idle() {
            self.end = first;
        } else if self.is_later {
            let ends = [first, first - period, first + period];
            let nearest = ends.iter().min_by_key(|end| (*end - self.end).abs());
            self.end = *nearest.expect("one of three");
        }
        self.is_later = false;
        self.taken[0] += cost;
    }
}

fn is_periodic(kind: Kind) -> bool {
    matches!(kind, Kind::Interval | Kind::SlidingWindow | Kind::Counter)
}

/// Slots of whole nanoseconds.
fn periodic() -> impl Strategy<Value = Spec> {
    spec_of(is_periodic).prop_map(|spec| match spec.kind {
        Kind::SlidingWindow if spec.period < 1 << 40 => Spec {
            period: spec.period * u64::from(spec.slots()),
            ..spec
        },
        Kind::SlidingWindow => Spec {
            period: spec.period / u64::from(spec.slots()) * u64::from(spec.slots()),
            ..spec
        },
        _ => spec,
    })
}

fn on_clock(spec: Spec) -> Limits {
    let (capacity, window) = (spec.capacity, Nanos::new(spec.period));
    let algorithm: Algorithm = match spec.kind {
        Kind::SlidingWindow => {
            SlidingWindow::new(capacity, window, spec.slots(), Some(spec.slot_capacity()))
                .expect("valid")
                .aligned(Grid::Clock)
                .into()
        }
        Kind::Counter => SlidingCounter::new(capacity, window)
            .expect("valid")
            .aligned(Grid::Clock)
            .into(),
        _ => TokenBucket::new(capacity, spec.rate(), Refill::Interval, capacity)
            .and_then(|bucket| bucket.aligned(Grid::Clock))
            .expect("valid")
            .into(),
    };
    Limits::new(vec![Limit::new("l", algorithm)]).expect("one")
}

/// How far the wall clock is ahead for each request. It mostly stays as before, and is slightly
/// late.
fn walls() -> impl Strategy<Value = Vec<(Option<u64>, u64)>> {
    let jump = prop::option::weighted(0.2, 0..=1_u64 << 61);
    prop::collection::vec((jump, 0..=64_u64), 40)
}

proptest! {
    #![proptest_config(config(512))]

    #[test]
    fn decisions_equal_the_model_while_the_wall_clock_jumps(
        spec in periodic(), train in train(40), walls in walls(), start in 0..=1_000_u64,
    ) {
        let limits = on_clock(spec);
        let mut bucket = limits.start(Nanos::new(start));
        let mut model = Model::new(spec);
        let mut ahead = 0;
        for ((now, cost), (jump, late)) in timed(&train, spec.period, start).into_iter().zip(walls) {
            ahead = jump.unwrap_or(ahead);
            let wall = (ahead + now).saturating_sub(late * (spec.period / 2_000));
            let ask = BucketRequest::new(cost, Nanos::new(now)).at_wall(Nanos::new(wall));
            let decision = only(&limits.answer(&mut bucket, &ask));
            model = model.at(now);
            prop_assert_eq!(decision.is_refused(), !model.fits(cost, now));
            if let Some(wait) = decision.retry_after {
                let then = now + wait.get();
                prop_assert!(model.at(then).fits(cost, then), "admitted at retry_after");
                prop_assert!(!model.at(then - 1).fits(cost, then - 1), "but not before");
            }
            if !decision.is_refused() && cost > 0 {
                model.take(cost, now, wall);
            }
            // No period is longer than one and a half.
            prop_assert!(model.end - i128::from(now) <= model.period() * 3 / 2);
            let look = only(&limits.peek(&bucket, 0, Nanos::new(now)));
            let is = model.at(now);
            prop_assert!(look.remaining == 0 || is.fits(look.remaining, now), "what is left fits");
            prop_assert!(!is.fits(look.remaining + 1, now), "and no more");
            let reset = now + look.reset_after.get();
            prop_assert!(model.at(reset).is_idle(), "as good as new at reset_after");
            prop_assert!(reset == now || !model.at(reset - 1).is_idle(), "but not before");
        }
    }

    /// The wall clock is read up to a microsecond late. The whole refill is spent just before and
    /// just after the end of a period. No refill is given twice, and none is lost.
    #[test]
    fn clocks_that_are_not_read_at_once_give_nothing(
        amount in 1..=7_u32, ahead in 0..=1_u64 << 60,
        train in prop::collection::vec((0..=2_u64, 0..=12_u64, 0..=1_000_u64), 1..200),
    ) {
        const PERIOD: u64 = 1_000_000_000;
        // The refill never covers the whole capacity, because a bucket in which nothing counts
        // starts again.
        let capacity = u64::from(amount) * 4;
        let limits = on_clock(Spec::new(Kind::Interval, capacity, amount, PERIOD, 0));
        let start = 3 * PERIOD - (ahead + PERIOD / 2) % PERIOD;
        let mut bucket = limits.start(Nanos::new(start));
        let all = BucketRequest::new(capacity, Nanos::new(start)).at_wall(Nanos::new(start + ahead));
        prop_assert!(!limits.answer(&mut bucket, &all).is_refused());
        let (mut now, mut sum, mut ideal) = (start, 0, 0);
        let mut seen = (start + ahead) / PERIOD;
        for (periods, place, late) in train {
            let end = now - (now + ahead) % PERIOD + periods * PERIOD;
            let place = if place < 10 { place * 100 } else { PERIOD / 2 };
            now = now.max(end + place - 500);
            let wall = Nanos::new(now + ahead - late.min(now + ahead));
            let ask = BucketRequest::new(1, Nanos::new(now)).at_wall(wall);
            while !limits.answer(&mut bucket, &ask).is_refused() {
                sum += 1;
            }
            let begun = (now + ahead) / PERIOD - seen;
            seen += begun;
            ideal += begun * u64::from(amount);
            prop_assert!(sum <= ideal, "{sum} of {ideal}");
            prop_assert!(sum == ideal || place != PERIOD / 2, "{sum} of {ideal}");
        }
    }
}

fn one(mut limit: Value) -> Limits {
    limit["name"] = "a".into();
    parse_limits(&json!([limit])).expect("valid")
}

fn tokens(capacity: u64, rate: &str, align: &str) -> Limits {
    one(json!({
        "algorithm": "token_bucket", "capacity": capacity, "rate": rate, "refill": "interval",
        "align": align
    }))
}

fn window(algorithm: &str, capacity: u64, align: &str) -> Limits {
    one(json!({
        "algorithm": algorithm, "capacity": capacity, "window": "60s", "align": align
    }))
}

fn clock(now: u64, wall: u64) -> Clock {
    Clock {
        now: Nanos::from_secs(now),
        wall: Nanos::from_secs(wall),
    }
}

fn take(limits: &Limits, cost: u64, clock: Clock) -> Bucket {
    let mut bucket = limits.start_at(clock);
    let ask = BucketRequest::new(cost, clock.now).at_wall(clock.wall);
    assert!(!limits.answer(&mut bucket, &ask).is_refused());
    bucket
}

/// Returns the remaining capacity, and the seconds until the bucket is full.
fn left(limits: &Limits, bucket: &Bucket, second: u64) -> (u64, u64) {
    let decision = only(&limits.peek(bucket, 0, Nanos::from_secs(second)));
    (decision.remaining, decision.reset_after.secs_ceil())
}

/// Four are used at 100 s, ten seconds into a minute. The edit is at 120 s, after the wall clock
/// has jumped.
#[test]
fn an_edit_keeps_the_period_that_runs() {
    let edited = |old: &Limits, new: &Limits| {
        let bucket = take(old, 4, clock(100, 610));
        convert(old, new, Carry::Keep, &bucket, clock(120, 5_005))
    };
    let tokens = |capacity| tokens(capacity, "4/m", "clock");
    let counter = |capacity| window("sliding_counter", capacity, "clock");
    let both: [(&dyn Fn(u64) -> Limits, u64); 2] = [(&tokens, 30), (&counter, 90)];
    for (of, resets) in both {
        let (old, new) = (of(10), of(20));
        assert_eq!(left(&new, &edited(&old, &new), 120), (16, resets));
    }
    // Slots of six seconds. The current slot ends two seconds after it began to count.
    let (old, new) = (
        window("sliding_window", 20, "clock"),
        window("sliding_window", 40, "clock"),
    );
    assert_eq!(left(&old, &take(&old, 4, clock(100, 610)), 101), (0, 55));
    assert_eq!(left(&new, &edited(&old, &new), 120), (8, 36));
}

/// After a change of the clock and of the period, the new numbers apply.
#[test]
fn an_edit_that_aligns_ends_on_the_clock() {
    let old = tokens(10, "4/m", "process");
    // The process's clock begins a minute at 120 s, the wall clock at 130 s.
    let bucket = take(&old, 4, clock(100, 630));
    assert_eq!(left(&old, &bucket, 110), (6, 10));
    let convert = |old: &Limits, new: &Limits, bucket: &Bucket| {
        convert(old, new, Carry::Keep, bucket, clock(110, 640))
    };
    let aligned = tokens(10, "4/m", "clock");
    let on_clock = convert(&old, &aligned, &bucket);
    assert_eq!(left(&aligned, &on_clock, 110), (6, 20));
    assert_eq!(left(&aligned, &on_clock, 130), (10, 0));
    let back = convert(&aligned, &old, &on_clock);
    assert_eq!(left(&old, &back, 110), (6, 10));
    let longer = tokens(10, "4/90s", "clock");
    let longer_on_clock = convert(&aligned, &longer, &on_clock);
    assert_eq!(left(&longer, &longer_on_clock, 110), (6, 80));
    // The windows start at other times, so the used amount counts as if it were taken now.
    let (old, new) = (
        window("sliding_counter", 10, "process"),
        window("sliding_counter", 10, "clock"),
    );
    let bucket = take(&old, 4, clock(100, 630));
    assert_eq!(left(&old, &bucket, 110), (6, 70));
    assert_eq!(left(&new, &convert(&old, &new, &bucket), 110), (6, 80));
}

/// A bucket that starts with less than its capacity fills on the clock from the beginning.
#[test]
fn an_initial_amount_fills_on_the_clock() {
    let limits = one(json!({
        "algorithm": "token_bucket", "capacity": 10, "rate": "4/m", "refill": "interval",
        "align": "clock", "initial": 0
    }));
    let mut bucket = limits.start_at(clock(100, 610));
    let mut ask = |second| {
        let ask =
            BucketRequest::new(1, Nanos::from_secs(second)).at_wall(Nanos::from_secs(second + 510));
        let decision = only(&limits.answer(&mut bucket, &ask));
        (
            decision.retry_after.map(Nanos::secs_ceil),
            decision.remaining,
        )
    };
    assert_eq!(ask(100), (Some(50), 0));
    assert_eq!(ask(149), (Some(1), 0));
    assert_eq!(ask(150), (None, 3));
}

/// A return goes to the period in which its cost was taken, or has no effect if the wall clock has
/// jumped since.
#[test]
fn returns_go_where_the_cost_was_taken() {
    for (limits, periods) in [
        // Two of its three tokens have not come back by then.
        (tokens(20, "1/m", "clock"), 1),
        (window("sliding_window", 20, "clock"), 10),
        (window("sliding_counter", 20, "clock"), 1),
    ] {
        // The period ends at 106 s. By then the wall clock is slightly ahead, or ahead by more than
        // half a period.
        for (jump, comes_back) in [(0, true), (1, true), (40, false)] {
            let left = 60 / periods;
            let mut bucket = limits.start_at(clock(100, 600 + left - 6));
            let first = BucketRequest::new(3, Nanos::from_secs(100))
                .at_wall(Nanos::from_secs(600 + left - 6));
            let taken = Taken::new(&bucket, &first);
            assert!(!limits.answer(&mut bucket, &first).is_refused());
            let wall = Nanos::from_secs(600 + left + 1 + jump);
            let second = BucketRequest::new(1, Nanos::from_secs(107)).at_wall(wall);
            assert!(!limits.answer(&mut bucket, &second).is_refused());
            let given = limits.give_back(&mut bucket, &taken);
            assert_eq!(given, comes_back, "{limits:?}");
        }
    }
}
