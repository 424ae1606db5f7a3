//! Compares edits with a model in exact fractions, which was written from the documented guarantees
//! and not from the code. The used amount is never less than in the model, and hardly more.

use loudou_limiter::algorithm::{
    Algorithm, Align, FixedWindow, Funnel, Refill, SlidingLog, TokenBucket,
};
use loudou_limiter::{Carry, Clock, Limit, Limits, Nanos, Rate, convert};
use proptest::prelude::*;

use super::fraction::Fraction;
use super::{config, only};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Funnel,
    Greedy,
    Window,
    Log,
}

#[derive(Clone, Copy, Debug)]
struct Numbers {
    kind: Kind,
    capacity: u64,
    amount: u32,
    /// Of the rate, or the length of the window.
    period: u64,
}

impl Numbers {
    fn limits(&self) -> Limits {
        let rate = Rate::new(self.amount, Nanos::new(self.period)).expect("positive");
        let (capacity, window) = (self.capacity, Nanos::new(self.period));
        let algorithm: Algorithm = match self.kind {
            Kind::Funnel => Funnel::new(capacity, rate).expect("valid").into(),
            Kind::Greedy => TokenBucket::new(capacity, rate, Refill::Greedy, capacity)
                .expect("valid")
                .into(),
            Kind::Window => FixedWindow::new(capacity, window, Align::First)
                .expect("valid")
                .into(),
            Kind::Log => SlidingLog::new(capacity, window, false)
                .expect("valid")
                .into(),
        };
        Limits::new(vec![Limit::new("a", algorithm)]).expect("one")
    }

    const fn leaks(&self) -> bool {
        matches!(self.kind, Kind::Funnel | Kind::Greedy)
    }
}

/// Portions of the used amount, each with its end. An amount that leaks is one portion without an
/// end.
#[derive(Debug)]
struct Model {
    numbers: Numbers,
    portions: Vec<(u64, Fraction)>,
    /// Amount by which the limiter may exceed the model, because it rounds up.
    slack: Fraction,
    /// Amount by which the limiter may be below the model, because it rounds shares to the nearest
    /// drop.
    less: Fraction,
    now: u64,
}

impl Model {
    fn used(&self) -> Fraction {
        let portions = self.portions.iter();
        portions.fold(Fraction::whole(0), |sum, (_, portion)| sum.plus(portion))
    }

    fn most(&self) -> Fraction {
        self.used().plus(&self.slack)
    }

    fn least(&self) -> Fraction {
        self.used().minus(&self.less)
    }

    /// Time passes.
    fn until(&mut self, now: u64) {
        let Numbers { amount, period, .. } = self.numbers;
        if self.numbers.leaks() {
            let leaked = u128::from(amount) * u128::from(now - self.now);
            let left = self.used().minus(&Fraction::new(leaked, period.into()));
            self.portions = vec![(0, left)];
        } else {
            self.portions.retain(|(end, _)| *end > now);
        }
        self.now = now;
    }

    fn take(&mut self, cost: u64) {
        let running = self.portions.first().map(|(end, _)| *end);
        let end = running.filter(|_| self.numbers.kind == Kind::Window);
        let end = end.unwrap_or(self.now + self.numbers.period);
        self.portions.insert(0, (end, Fraction::whole(cost)));
    }

    /// In units, the used amount stays. In proportion, its share stays, and also the amount used
    /// beyond the capacity, as far as the new capacity does not cover it.
    fn carried(&self, used: &Fraction, new: u64, carry: Carry) -> Fraction {
        let old = self.numbers.capacity;
        match carry {
            Carry::Proportional if *used <= Fraction::whole(old) => {
                used.times(&Fraction::new(new.into(), old.into()))
            }
            Carry::Proportional => used
                .minus(&Fraction::whole(old))
                .plus(&Fraction::whole(new)),
            _ => used.clone(),
        }
    }

    /// Applies other numbers. `is_new` means that the limiter has no used amount, not even from
    /// rounding.
    fn edit(&mut self, new: Numbers, carry: Carry, is_new: bool) {
        let old = self.numbers;
        let is_same = new.kind == old.kind || new.leaks() && old.leaks();
        let (was, most, least) = (self.used(), self.most(), self.least());
        let used = self.carried(&was, new.capacity, carry);
        let rounded = match (new.leaks(), carry) {
            // Two drops, and less than a billionth of a unit.
            (true, _) => Fraction::new(2, new.period.into()).plus(&Fraction::new(1, 1 << 31)),
            (false, Carry::Keep) if is_same => Fraction::whole(0),
            (false, _) => Fraction::whole(1),
        };
        let more = self.carried(&most, new.capacity, carry).minus(&used);
        self.slack = more.plus(&rounded);
        self.less = used.minus(&self.carried(&least, new.capacity, carry));
        if carry == Carry::Proportional {
            // Half a drop, and less than a billionth of a unit.
            let drop = Fraction::new(u128::from(new.leaks()), 2 * u128::from(new.period));
            self.less = self.less.plus(&drop).plus(&Fraction::new(1, 1 << 31));
        }
        if is_new {
            self.portions.clear();
            self.slack = Fraction::whole(0);
            self.less = Fraction::whole(0);
        } else if is_same && !new.leaks() {
            for (end, portion) in &mut self.portions {
                // Amounts count longer by the increase in window length, but no longer than one
                // window.
                let left = (*end - self.now) + new.period.saturating_sub(old.period);
                *end = self.now + left.min(new.period);
                if carry == Carry::Proportional {
                    // All portions end with the window.
                    *portion = Fraction::whole(0);
                }
            }
            if let (Carry::Proportional, Some((_, portion))) = (carry, self.portions.first_mut()) {
                *portion = used;
            }
        } else {
            // A level, or a window that begins with the edit.
            self.portions = vec![(self.now + new.period, used)];
        }
        self.numbers = new;
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    BucketRequest(u64),
    Edit(Numbers, Carry),
}

/// At least a thousand drops to a unit, so that thirty edits round less than one up.
fn numbers(kinds: Vec<Kind>) -> impl Strategy<Value = Numbers> {
    let period = prop_oneof![
        1_000..=5_000_u64,
        Just(1_000_000_000),
        900_000_000..=3_000_000_000_u64
    ];
    with_period(kinds, period)
}

/// So few drops that each is seen, or as above.
fn coarse(kinds: Vec<Kind>) -> impl Strategy<Value = Numbers> {
    let few = with_period(kinds.clone(), 1..=20_u64);
    prop_oneof![1 => few, 1 => numbers(kinds)]
}

fn with_period(
    kinds: Vec<Kind>,
    period: impl Strategy<Value = u64>,
) -> impl Strategy<Value = Numbers> {
    let kind = prop::sample::select(kinds);
    (kind, 1..=20_u64, 1..=7_u32, period).prop_map(|(kind, capacity, amount, period)| Numbers {
        kind,
        capacity,
        amount,
        period,
    })
}

fn steps(
    numbers: impl Strategy<Value = Numbers> + 'static,
    carries: Vec<Carry>,
) -> impl Strategy<Value = Vec<(u64, Step)>> {
    let edit = (numbers, prop::sample::select(carries));
    let step = prop_oneof![
        1 => (1..=3_u64).prop_map(Step::BucketRequest),
        1 => edit.prop_map(|(numbers, carry)| Step::Edit(numbers, carry)),
    ];
    let pause =
        prop_oneof![3 => Just(0), 2 => 0..=9_u64, 2 => 0..=2_000_u64, 2 => 0..=600_000_000_u64];
    prop::collection::vec((pause, step), 1..60)
}

/// Runs the limiter and the model on the same steps. Returns how much rounding may have added in
/// the end.
fn run(first: Numbers, steps: &[(u64, Step)]) -> Result<Fraction, TestCaseError> {
    let mut limits = first.limits();
    let mut bucket = limits.start(Nanos::ZERO);
    let mut model = Model {
        numbers: first,
        portions: Vec::new(),
        slack: Fraction::whole(0),
        less: Fraction::whole(0),
        now: 0,
    };
    for (pause, step) in steps {
        let now = model.now + pause;
        model.until(now);
        match *step {
            Step::BucketRequest(cost) => {
                let capacity = Fraction::whole(model.numbers.capacity);
                let fits = |used: &Fraction| used.plus(&Fraction::whole(cost)) <= capacity;
                let answer = only(&limits.decide(&mut bucket, cost, Nanos::new(now)));
                if answer.is_refused() {
                    prop_assert!(!fits(&model.most()), "{step:?} at {now}: {model:?}");
                } else {
                    prop_assert!(fits(&model.least()), "{step:?} at {now}: {model:?}");
                    model.take(cost);
                }
            }
            Step::Edit(numbers, carry) => {
                let is_new = limits.used(&bucket, Nanos::new(now)) == [0];
                let new = numbers.limits();
                let clock = Clock::at(Nanos::new(now));
                bucket = convert(&limits, &new, carry, &bucket, clock);
                limits = new;
                model.edit(numbers, carry, is_new);
            }
        }
        // Whole units, rounded up.
        let used = Fraction::whole(limits.used(&bucket, Nanos::new(now))[0]);
        prop_assert!(
            used >= model.least(),
            "{step:?} at {now}: {used:?}, {model:?}"
        );
        let most = model.most().plus(&Fraction::whole(1));
        prop_assert!(used < most, "{step:?} at {now}: {used:?}, {model:?}");
    }
    Ok(model.slack)
}

const LEAKS: [Kind; 2] = [Kind::Funnel, Kind::Greedy];

/// Edits of numbers, in units.
fn of(kinds: &[Kind]) -> impl Strategy<Value = (Numbers, Vec<(u64, Step)>)> + use<> {
    let numbers = || numbers(kinds.to_vec());
    (numbers(), steps(numbers(), vec![Carry::Keep]))
}

proptest! {
    #![proptest_config(config(512))]

    /// Any number of edits that change only the numbers adds less than a unit.
    #[test]
    fn edits_of_numbers_are_exact(
        (first, steps) in prop_oneof![of(&LEAKS), of(&[Kind::Window]), of(&[Kind::Log])],
    ) {
        prop_assert!(run(first, &steps)? < Fraction::whole(1));
    }

    /// From one algorithm to another.
    #[test]
    fn edits_of_algorithms_are_exact(
        first in coarse(vec![Kind::Funnel, Kind::Greedy, Kind::Window, Kind::Log]),
        steps in steps(
            coarse(vec![Kind::Funnel, Kind::Greedy, Kind::Window, Kind::Log]),
            vec![Carry::Keep],
        ),
    ) {
        run(first, &steps)?;
    }

    /// Also holds in proportion (`mixed` tests both). The entries of a log are rounded separately.
    #[test]
    fn edits_in_proportion_are_exact(
        first in coarse(vec![Kind::Funnel, Kind::Greedy, Kind::Window]),
        steps in steps(
            coarse(vec![Kind::Funnel, Kind::Greedy, Kind::Window]),
            vec![Carry::Proportional],
        ),
    ) {
        run(first, &steps)?;
    }
}
