//! Requests that wait and leave, compared with a list of the requests that passed.
//!
//! The list is the reference. Requests may leave, get lost, or be recorded late. In all cases, the
//! requests that passed keep the bound of their limit, in the order in which they came. When no
//! request waits any more, a new request waits for at most one request after the last one that
//! passed.

use loudou_limiter::algorithm::{
    Algorithm, Align, FixedWindow, Funnel, LeakyQueue, Refill, SmoothBursty, TokenBucket,
};
use loudou_limiter::{
    Bucket, BucketRequest, Carry, Clock, Decimal, Limit, Limits, Nanos, Rate, Taken, convert,
};
use proptest::prelude::*;

use super::config;

const LONG: Nanos = Nanos::from_secs(3_600);
/// Capacity and length of the window in addition to the queue.
const WINDOW: (u64, u64) = (7, 1_000_000);

#[derive(Clone, Copy, Debug)]
enum Kind {
    Queue { immediate: u32 },
    Funnel,
    Greedy,
    Bursty,
}

/// A limit that holds, of `amount` per `period` nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Spec {
    kind: Kind,
    capacity: u64,
    amount: u32,
    period: u64,
    with_window: bool,
}

impl Spec {
    fn rate(self) -> Rate {
        Rate::new(self.amount, Nanos::new(self.period)).expect("a rate")
    }

    fn limits(self, capacity: u64) -> Limits {
        let rate = self.rate();
        let holding: Algorithm = match self.kind {
            Kind::Queue { immediate } => {
                let queue = LeakyQueue::new(capacity + 40, rate).expect("valid");
                queue.immediate(immediate).into()
            }
            Kind::Funnel => {
                let funnel = Funnel::new(capacity, rate).expect("valid");
                funnel.waiting(LONG).expect("valid").into()
            }
            Kind::Greedy => {
                let bucket = TokenBucket::new(capacity, rate, Refill::Greedy, 0).expect("valid");
                bucket.waiting(LONG).expect("valid").into()
            }
            Kind::Bursty => {
                let none = Decimal::parse("0").expect("a number");
                let bursty = SmoothBursty::new(rate, none).expect("valid");
                bursty.waiting(LONG).expect("valid").into()
            }
        };
        let mut limits = vec![Limit::new("holds", holding)];
        if self.with_window {
            let (capacity, length) = WINDOW;
            let window = FixedWindow::new(capacity, Nanos::new(length), Align::Clock);
            limits.push(Limit::new("window", window.expect("valid")));
        }
        Limits::new(limits).expect("valid")
    }

    /// The time in which `cost` leaks, rounded up.
    fn leaks(self, cost: u64) -> u64 {
        (cost * self.period).div_ceil(self.amount.into())
    }

    /// Maximum amount that passes in `w` nanoseconds, not counting the last request's cost, in cost
    /// units by period.
    fn bound(self, w: u64) -> u128 {
        let steady = u128::from(self.amount) * u128::from(w);
        let at_once = match self.kind {
            Kind::Queue { immediate } => u64::from(immediate),
            // The larger one, after an edit.
            Kind::Funnel | Kind::Greedy => self.capacity + 1,
            Kind::Bursty => 0,
        };
        // Each instant is rounded up to a nanosecond.
        steady + u128::from(at_once * self.period) + u128::from(self.amount)
    }

    const fn counts_last(self) -> bool {
        !matches!(self.kind, Kind::Funnel | Kind::Greedy)
    }
}

fn spec() -> impl Strategy<Value = Spec> {
    let kind = prop_oneof![
        3 => (0..=3_u32).prop_map(|immediate| Kind::Queue { immediate }),
        1 => Just(Kind::Funnel),
        1 => Just(Kind::Greedy),
        1 => Just(Kind::Bursty),
    ];
    let period = prop_oneof![Just(1_000_u64), 1..=50_u64, 900..=100_000_u64];
    (kind, 1..=6_u64, 1..=4_u32, period, any::<bool>()).prop_map(
        |(kind, capacity, amount, period, with_window)| Spec {
            kind,
            capacity,
            amount,
            period,
            with_window,
        },
    )
}

#[derive(Clone, Copy, Debug)]
enum Act {
    /// A request of this cost.
    Come(u64),
    /// A waiting request leaves, given by its place in the queue.
    Leave(usize),
    /// All that wait leave, the later ones first or not.
    AllLeave(bool),
    /// Records requests that have passed and were not recorded yet.
    Note,
    /// Never records requests that have passed and were not recorded yet, as if their worker died.
    Lose,
    /// The capacity changes.
    Edit,
}

fn acts() -> impl Strategy<Value = Vec<(u64, Act)>> {
    let act = prop_oneof![
        10 => (1..=3_u64).prop_map(Act::Come),
        6 => (0..100_usize).prop_map(Act::Leave),
        1 => any::<bool>().prop_map(Act::AllLeave),
        6 => Just(Act::Note),
        1 => Just(Act::Lose),
        1 => Just(Act::Edit),
    ];
    // In 16ths of the time of one request.
    let pause = prop_oneof![6 => Just(0), 5 => 0..=16_u64, 2 => 16..=80_u64, 1 => 80..=2_000_u64];
    prop::collection::vec((pause, act), 1..90)
}

struct Waiter {
    passes: u64,
    cost: u64,
    taken: Taken,
    origin: u32,
}

struct World {
    spec: Spec,
    limits: Limits,
    bucket: Bucket,
    origin: u32,
    is_wide: bool,
    waiting: Vec<Waiter>,
    /// Passed, but the bucket does not know it.
    unnoted: Vec<Waiter>,
    /// True if some requests were lost, so that the bucket may not know enough to revert.
    lost: bool,
    /// The instant and cost of each request that passed, in the order of arrival.
    passed: Vec<(u64, u64)>,
}

impl World {
    fn new(spec: Spec) -> Self {
        let limits = spec.limits(spec.capacity);
        Self {
            spec,
            bucket: limits.start(Nanos::ZERO),
            limits,
            origin: 0,
            is_wide: false,
            waiting: Vec::new(),
            unnoted: Vec::new(),
            lost: false,
            passed: Vec::new(),
        }
    }

    /// Lets requests pass whose time has come.
    fn pass_due(&mut self, now: u64) {
        while self
            .waiting
            .first()
            .is_some_and(|first| first.passes <= now)
        {
            let first = self.waiting.remove(0);
            self.passed.push((first.passes, first.cost));
            self.unnoted.push(first);
        }
    }

    fn leave(&mut self, place: usize) {
        let one = self.waiting.remove(place);
        if one.origin == self.origin {
            self.limits.give_back(&mut self.bucket, &one.taken);
        }
    }

    fn act(&mut self, now: u64, act: Act) {
        match act {
            Act::Come(cost) => self.come(now, cost),
            Act::Leave(_) if self.waiting.is_empty() => {}
            Act::Leave(place) => self.leave(place % self.waiting.len()),
            Act::AllLeave(from_the_end) => {
                while let Some(last) = self.waiting.len().checked_sub(1) {
                    self.leave(if from_the_end { last } else { 0 });
                }
            }
            Act::Note => {
                for one in core::mem::take(&mut self.unnoted) {
                    if one.origin == self.origin {
                        self.limits.pass(&mut self.bucket, &one.taken);
                    }
                }
            }
            Act::Lose => {
                let current = |one: &Waiter| one.origin == self.origin;
                self.lost |= self.unnoted.iter().any(current);
                self.unnoted.clear();
            }
            Act::Edit => {
                self.is_wide = !self.is_wide;
                let new = self
                    .spec
                    .limits(self.spec.capacity + u64::from(self.is_wide));
                let clock = Clock::at(Nanos::new(now));
                self.bucket = convert(&self.limits, &new, Carry::Keep, &self.bucket, clock);
                self.limits = new;
                self.origin += 1;
                // A waiting request keeps a place that it cannot give back, and the level may
                // exceed the capacity.
                self.lost = true;
            }
        }
    }

    fn come(&mut self, now: u64, cost: u64) {
        let ask = BucketRequest::new(cost, Nanos::new(now));
        let taken = Taken::new(&self.bucket, &ask);
        let answer = self.limits.answer(&mut self.bucket, &ask);
        if answer.is_refused() {
            return;
        }
        let passes = answer.at().get() + answer.wait().get();
        if answer.wait() == Nanos::ZERO {
            self.passed.push((passes, cost));
        } else {
            let origin = self.origin;
            self.waiting.push(Waiter {
                passes,
                cost,
                taken,
                origin,
            });
        }
    }

    /// When no request waits, a new request waits at most for its cost and for the last request.
    fn is_fair(&mut self, now: u64) -> Result<(), TestCaseError> {
        let empty = self.limits.peek(&self.bucket, 0, Nanos::new(now));
        let left = empty
            .decisions()
            .next()
            .map_or(Nanos::ZERO, |holds| holds.reset_after);
        self.lost &= left > Nanos::ZERO;
        if self.lost || !self.waiting.is_empty() || !self.unnoted.is_empty() {
            return Ok(());
        }
        let answer = self.limits.peek(&self.bucket, 1, Nanos::new(now));
        let holds = answer.decisions().next().expect("the first");
        let (at, cost) = self.passed.last().copied().unwrap_or((0, 1));
        let latest = at + self.spec.leaks(cost) + 2;
        prop_assert!(!holds.is_refused(), "{now}");
        prop_assert!(
            answer.at().get() + holds.wait.get() <= latest.max(now),
            "at {now}: it waits {} after one of {cost} at {at}",
            holds.wait.get()
        );
        Ok(())
    }

    fn keeps_the_bound(&self) -> Result<(), TestCaseError> {
        prop_assert!(
            self.passed.is_sorted_by_key(|(at, _)| *at),
            "{:?}",
            self.passed
        );
        for (first, (from, _)) in self.passed.iter().enumerate() {
            let mut sum = 0;
            for (at, cost) in self.passed.iter().skip(first) {
                let own = u128::from(*cost) * u128::from(self.spec.period);
                let counted = if self.spec.counts_last() {
                    sum
                } else {
                    sum + own
                };
                prop_assert!(
                    counted <= self.spec.bound(at - from),
                    "{from} to {at}: {:?}",
                    self.passed
                );
                sum += own;
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(config(1_024))]

    #[test]
    fn places_come_back_and_nothing_more(spec in spec(), acts in acts()) {
        let mut world = World::new(spec);
        let mut now = 0;
        for (pause, act) in acts {
            now += pause * spec.leaks(1).max(16) / 16;
            world.pass_due(now);
            world.act(now, act);
            world.is_fair(now)?;
        }
        now += 10 * LONG.get();
        world.pass_due(now);
        world.keeps_the_bound()?;
    }
}
