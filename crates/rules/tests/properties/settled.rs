//! Requests that reserve a cost, and are settled at what they really cost when they end.

use loudou_limiter::bounds::MAX_REMEMBERED;
use loudou_limiter::{Bucket, BucketRequest, Clock, Limits, Nanos, Settling, Taken};
use proptest::prelude::*;

use super::spec::{Kind, Spec, spec_of};
use super::{config, one, only, timed};

/// A request with its pause and reservation as in [`super::Step`], its real cost, and the number of further steps after
/// which it ends.
type Step = ((u64, u64), u64, usize);

fn train(most: usize) -> impl Strategy<Value = Vec<Step>> {
    let pause = prop_oneof![3 => Just(0), 6 => 1..=32_u64, 2 => 33..=200_u64, 1 => 201..=2_000_u64];
    let reserved = prop_oneof![8 => 1..=3_u64, 2 => 4..=9_u64];
    let actual = prop_oneof![2 => Just(0), 6 => 0..=6_u64, 1 => 7..=40_u64];
    let ends = prop_oneof![2 => Just(0), 4 => 1..=5_usize, 1 => 6..=20_usize];
    prop::collection::vec(((pause, reserved), actual, ends), 1..most)
}

fn settles(kind: Kind) -> bool {
    !kind.holds() && kind != Kind::InFlight
}

fn owes(kind: Kind) -> bool {
    matches!(kind, Kind::Funnel | Kind::Greedy | Kind::Interval)
}

/// Kinds where all requests still fit if one of them takes less.
fn is_monotone(kind: Kind) -> bool {
    settles(kind) && !matches!(kind, Kind::FixedFirst | Kind::StrictLog)
}

/// Kinds in which a refused request changes nothing, for any reservations of other requests.
fn forgets_refusals(kind: Kind) -> bool {
    settles(kind) && kind != Kind::StrictLog
}

/// A request that has been admitted, with its real cost, and the step after which it ends.
struct Flight {
    ends: usize,
    taken: Taken,
    actual: u64,
    /// Its place among all admitted requests.
    place: usize,
}

struct World {
    spec: Spec,
    limits: Limits,
    bucket: Bucket,
    /// A bucket whose requests take from the beginning what they will need, unless they need more than they reserve.
    knowing: Bucket,
    flights: Vec<Flight>,
    /// Time of each admission, and the amount that the request has been charged: its reservation,
    /// and its real cost from its end on.
    charged: Vec<(u64, u64)>,
}

impl World {
    fn new(spec: Spec, start: u64) -> Self {
        let limits = one(spec);
        let bucket = limits.start(Nanos::new(start));
        Self {
            knowing: bucket.clone(),
            spec,
            limits,
            bucket,
            flights: Vec::new(),
            charged: Vec::new(),
        }
    }

    /// Returns true if the request was admitted.
    fn request(
        &mut self,
        number: usize,
        (now, reserved): (u64, u64),
        actual: u64,
        ends: usize,
    ) -> bool {
        // A limit without debts is only used where no request costs more than it reserves.
        let actual = if owes(self.spec.kind) {
            actual
        } else {
            actual.min(reserved)
        };
        let ask = BucketRequest::new(reserved, Nanos::new(now));
        let taken = Taken::new(&self.bucket, &ask);
        if self.limits.answer(&mut self.bucket, &ask).is_refused() {
            return false;
        }
        let known = BucketRequest::new(actual.min(reserved), Nanos::new(now));
        let is_refused = self.limits.answer(&mut self.knowing, &known).is_refused();
        assert!(!is_refused, "it fits where the others take less");
        self.charged.push((now, reserved));
        self.flights.push(Flight {
            ends: number + ends,
            taken,
            actual,
            place: self.charged.len() - 1,
        });
        true
    }

    /// Settles the requests that end after a step, latest first.
    fn end(&mut self, number: usize, now: u64) {
        let clock = Clock::at(Nanos::new(now));
        while let Some(place) = self
            .flights
            .iter()
            .rposition(|flight| flight.ends <= number)
        {
            let Flight {
                taken,
                actual,
                place,
                ..
            } = self.flights.remove(place);
            self.limits.settle(&mut self.bucket, &taken, actual, clock);
            let more = actual.saturating_sub(taken.cost());
            self.limits.overdraw(&mut self.knowing, more, clock);
            self.charged[place].1 = actual;
        }
    }

    /// Checks that the latest admission kept the bound in every window that ends with it.
    fn keeps_the_bound(&self) -> Result<(), TestCaseError> {
        let Some((now, _)) = self.charged.last() else {
            return Ok(());
        };
        let mut sum = 0;
        for (from, charged) in self.charged.iter().rev() {
            sum += u128::from(*charged) * u128::from(self.spec.period);
            prop_assert!(
                sum <= self.spec.bound(now - from),
                "{from} to {now}: {:?}",
                self.charged
            );
        }
        Ok(())
    }

    /// Checks that the bucket has at most as much room as the bucket of the requests which knew their costs.
    fn is_no_better(&self, now: u64) -> Result<(), TestCaseError> {
        let peek = |bucket: &Bucket, cost| only(&self.limits.peek(bucket, cost, Nanos::new(now)));
        for cost in [0, 1, 2, 5] {
            let (mine, other) = (peek(&self.bucket, cost), peek(&self.knowing, cost));
            prop_assert!(mine.is_refused() || !other.is_refused(), "{cost} at {now}");
            if !mine.is_refused() {
                prop_assert!(mine.remaining <= other.remaining, "{cost} at {now}");
                prop_assert!(mine.reset_after >= other.reset_after, "{cost} at {now}");
            }
        }
        Ok(())
    }
}

/// The steps of a train at their times.
fn steps(train: &[Step], spec: &Spec, start: u64) -> Vec<((u64, u64), u64, usize)> {
    let requests: Vec<_> = train.iter().map(|(request, ..)| *request).collect();
    let at = timed(&requests, spec.period, start).into_iter();
    at.zip(train)
        .map(|(at, (_, actual, ends))| (at, *actual, *ends))
        .collect()
}

proptest! {
    #![proptest_config(config(1_024))]

    /// At each admission and for any window before it, the costs of the requests that have ended and the reservations of
    /// the others are within the bound of the limit. So a window never costs more than the bound and what the requests
    /// in flight need beyond their reservations.
    #[test]
    fn every_window_keeps_its_bound(spec in spec_of(is_monotone), train in train(60), start in 0..=100_u64) {
        let mut world = World::new(spec, start);
        for (number, (request, actual, ends)) in steps(&train, &spec, start).into_iter().enumerate() {
            if world.request(number, request, actual, ends) {
                world.keeps_the_bound()?;
            }
            world.end(number, request.0);
        }
    }

    /// No request is better off than if all requests had known their costs beforehand.
    #[test]
    fn nothing_is_gained_by_reserving_more(spec in spec_of(is_monotone), train in train(40), start in 0..=100_u64) {
        let mut world = World::new(spec, start);
        for (number, (request, actual, ends)) in steps(&train, &spec, start).into_iter().enumerate() {
            world.request(number, request, actual, ends);
            world.end(number, request.0);
            if world.flights.is_empty() {
                for later in [0, 1, 5, spec.period / 3, spec.period, 4 * spec.period] {
                    world.is_no_better(request.0 + later)?;
                }
            }
        }
    }

    /// A request that is settled before the next one comes leaves the bucket as if it had known its cost.
    #[test]
    fn nothing_is_lost_by_reserving_more(spec in spec_of(forgets_refusals), train in train(40), start in 0..=100_u64) {
        let mut world = World::new(spec, start);
        for (number, (request, actual, _)) in steps(&train, &spec, start).into_iter().enumerate() {
            let is_admitted = world.request(number, request, actual, 0);
            world.end(number, request.0);
            if is_admitted {
                let look = |bucket: &Bucket| world.limits.used(bucket, Nanos::new(request.0));
                prop_assert_eq!(look(&world.bucket), look(&world.knowing));
            }
        }
    }

    /// A debt is repaid before the next admission: the promised time is exact, and until then every request is refused.
    #[test]
    fn a_debt_is_repaid_first(spec in spec_of(owes), reserved in 1..=9_u64, debt in 1..=2_000_u64, cost in 1..=9_u64) {
        // A longer debt is cut.
        let longest = u128::from(MAX_REMEMBERED.get()) * u128::from(spec.amount);
        prop_assume!(u128::from(debt + cost) * u128::from(spec.period) < longest);
        let limits = one(spec);
        let mut bucket = limits.start(Nanos::ZERO);
        let ask = BucketRequest::new(reserved.min(spec.capacity), Nanos::ZERO);
        let taken = Taken::new(&bucket, &ask);
        if limits.answer(&mut bucket, &ask).is_refused() {
            return Ok(());
        }
        limits.settle(&mut bucket, &taken, taken.cost() + spec.capacity + debt, Clock::at(Nanos::ZERO));
        let cost = cost.min(spec.capacity);
        let refusal = only(&limits.peek(&bucket, cost, Nanos::ZERO));
        prop_assert!(refusal.is_refused());
        prop_assert_eq!(refusal.remaining, 0);
        let wait = refusal.retry_after.expect("it will be admitted").get();
        prop_assert!(limits.peek(&bucket, cost, Nanos::new(wait - 1)).is_refused());
        prop_assert!(!limits.peek(&bucket, cost, Nanos::new(wait)).is_refused());
        // What has come back until then is at least what was overdrawn.
        let lumps = match spec.kind {
            Kind::Interval => u128::from(wait / spec.period + 1) * u128::from(spec.period),
            _ => u128::from(wait),
        };
        let back = lumps * u128::from(spec.amount);
        prop_assert!(back >= u128::from(debt + cost) * u128::from(spec.period));
    }
}

/// A debt of one request does not keep what another one did not need.
#[test]
fn what_is_not_needed_comes_back_beside_a_debt() {
    for kind in [Kind::Funnel, Kind::Greedy, Kind::Interval] {
        let limits = one(Spec::new(kind, 10, 1, 1_000, 0));
        let mut bucket = limits.start(Nanos::ZERO);
        let mut take = |cost| {
            let ask = BucketRequest::new(cost, Nanos::ZERO);
            let taken = Taken::new(&bucket, &ask);
            assert!(!limits.answer(&mut bucket, &ask).is_refused());
            taken
        };
        let (first, second) = (take(5), take(5));
        let clock = Clock::at(Nanos::ZERO);
        limits.settle(&mut bucket, &second, 25, clock);
        assert_eq!(limits.used(&bucket, Nanos::ZERO), [30], "{kind:?}");
        limits.settle(&mut bucket, &first, 1, clock);
        assert_eq!(limits.used(&bucket, Nanos::ZERO), [26], "{kind:?}");
    }
}

/// Units leave in the order in which they were taken: what a request needed has left first, and the rest comes back
/// whole.
#[test]
fn what_was_needed_leaves_first() {
    for kind in [Kind::Funnel, Kind::Greedy, Kind::Interval] {
        let limits = one(Spec::new(kind, 20, 1, 1_000, 0));
        let mut bucket = limits.start(Nanos::ZERO);
        let ask = BucketRequest::new(10, Nanos::ZERO);
        let taken = Taken::new(&bucket, &ask);
        limits.answer(&mut bucket, &ask);
        let now = Nanos::new(4_000);
        limits.answer(&mut bucket, &BucketRequest::new(1, now));
        assert_eq!(limits.used(&bucket, now), [10 - 4 + 1], "{kind:?}");
        limits.settle(&mut bucket, &taken, 5, Clock::at(now));
        assert_eq!(limits.used(&bucket, now), [5 - 4 + 1], "{kind:?}");
    }
}

#[test]
fn the_kinds_say_how_they_settle() {
    // With this seed, limits that can hold requests do.
    let says = |kind| Spec::new(kind, 4, 1, 1_000, 3).algorithm().settling();
    for kind in [Kind::Funnel, Kind::Greedy, Kind::Interval] {
        assert_eq!(says(kind), Settling::WithDebt, "{kind:?}");
    }
    for kind in [
        Kind::FixedFirst,
        Kind::FixedClock,
        Kind::FixedDay,
        Kind::SlidingWindow,
        Kind::Log,
        Kind::Counter,
    ] {
        assert_eq!(says(kind), Settling::WithinReservation, "{kind:?}");
    }
    for kind in [
        Kind::HoldingFunnel,
        Kind::HoldingGreedy,
        Kind::Queue,
        Kind::Bursty,
        Kind::Warmup,
        Kind::InFlight,
    ] {
        assert_eq!(says(kind), Settling::Never, "{kind:?}");
    }
}
