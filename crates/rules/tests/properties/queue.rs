//! A queue that is edited while requests wait, compared with a list of the requests that passed. In
//! any window, their number is at most the number that the rates in force let out, plus one.

use loudou_limiter::algorithm::LeakyQueue;
use loudou_limiter::{
    Bucket, BucketRequest, Carry, Clock, Limit, Limits, Nanos, Plan, Rate, Taken, convert,
};
use proptest::prelude::*;

use super::config;

const CAPACITY: u64 = 40;
/// One unit in the sums of what a rate lets out.
pub(super) const ONE: u128 = 1 << 40;

#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    amount: u32,
    period: u64,
    max_wait: Option<u64>,
}

impl Numbers {
    /// Numbers with which no request of a test waits.
    pub(super) const FREE: Self = Self {
        amount: 1_000_000_000,
        period: 1,
        max_wait: None,
    };

    fn limits(self, immediate: u32) -> Limits {
        Limits::new(vec![self.limit("queue", immediate)]).expect("valid")
    }

    pub(super) fn limit(self, name: &str, immediate: u32) -> Limit {
        let rate = Rate::new(self.amount, Nanos::new(self.period)).expect("a rate");
        let queue = LeakyQueue::new(CAPACITY, rate)
            .expect("valid")
            .immediate(immediate);
        let longest = Nanos::new(self.max_wait.unwrap_or(1_000_000_000));
        Limit::new(name, queue.waiting(longest).expect("valid"))
    }

    pub(super) fn lets_out(self, span: u64) -> u128 {
        (u128::from(self.amount) * u128::from(span) * ONE).div_ceil(self.period.into())
    }

    fn is_slower_than(self, other: Self) -> bool {
        u128::from(self.amount) * u128::from(other.period)
            < u128::from(other.amount) * u128::from(self.period)
    }
}

pub(super) fn numbers() -> impl Strategy<Value = Numbers> {
    let wait = prop::option::weighted(0.3, 1..=100_000_u64);
    (1..=4_u32, 1..=10_000_u64, wait).prop_map(|(amount, period, max_wait)| Numbers {
        amount,
        period,
        max_wait,
    })
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Come(u64),
    Edit(Numbers, Carry),
    /// A waiting request leaves, given by its place in the queue.
    Leave(usize),
    /// All that wait leave, the later ones first.
    AllLeave,
    /// The bucket is reset.
    Reset,
}

fn acts() -> impl Strategy<Value = Vec<(u64, Act)>> {
    let carry = prop::sample::select(vec![Carry::Keep, Carry::Proportional, Carry::Reset]);
    let act = prop_oneof![
        10 => (1..=3_u64).prop_map(Act::Come),
        3 => (numbers(), carry).prop_map(|(numbers, carry)| Act::Edit(numbers, carry)),
        2 => (0..100_usize).prop_map(Act::Leave),
        1 => Just(Act::AllLeave),
        1 => Just(Act::Reset),
    ];
    let pause = prop_oneof![4 => Just(0), 4 => 0..=2_000_u64, 2 => 2_000..=60_000_u64];
    prop::collection::vec((pause, act), 1..80)
}

struct Waiter {
    due: Nanos,
    taken: Taken,
    cost: u64,
}

struct World {
    immediate: u32,
    numbers: Numbers,
    /// Fastest numbers by which requests pass.
    pace: Numbers,
    limits: Limits,
    bucket: Bucket,
    waiting: Vec<Waiter>,
    /// The instant and cost of each request that passed, and the number of edits before it.
    passed: Vec<(u64, u64, usize)>,
    /// When numbers came, and whether they reset the queue.
    edits: Vec<(u64, Numbers, bool)>,
    /// When the numbers came into force, when they became known, and the numbers.
    heard: Vec<(u64, u64, Numbers)>,
}

impl World {
    fn new(immediate: u32, numbers: Numbers) -> Self {
        let limits = numbers.limits(immediate);
        Self {
            immediate,
            numbers,
            pace: numbers,
            bucket: limits.start(Nanos::ZERO),
            limits,
            waiting: Vec::new(),
            passed: Vec::new(),
            edits: vec![(0, numbers, false)],
            heard: Vec::new(),
        }
    }

    fn pass_due(&mut self, now: u64) {
        while self
            .waiting
            .first()
            .is_some_and(|first| first.due.get() <= now)
        {
            let first = self.waiting.remove(0);
            self.passed
                .push((first.due.get(), first.cost, self.edits.len()));
            self.limits.pass(&mut self.bucket, &first.taken);
        }
    }

    fn come(&mut self, now: u64, cost: u64) {
        let ask = BucketRequest::new(cost, Nanos::new(now));
        let taken = Taken::new(&self.bucket, &ask);
        let answer = self.limits.answer(&mut self.bucket, &ask);
        if answer.is_refused() {
            return;
        }
        let due = answer.at().saturating_add(answer.wait());
        if answer.wait() == Nanos::ZERO {
            self.passed.push((due.get(), cost, self.edits.len()));
        } else {
            self.waiting.push(Waiter { due, taken, cost });
        }
    }

    /// Numbers of the instant `at` come into force `now`.
    fn edit(
        &mut self,
        (at, now): (u64, u64),
        numbers: Numbers,
        carry: Carry,
    ) -> Result<(), TestCaseError> {
        let new = numbers.limits(self.immediate);
        let clock = Clock::at(Nanos::new(at));
        self.bucket = convert(&self.limits, &new, carry, &self.bucket, clock);
        let mut refused = Vec::new();
        let old = core::mem::replace(&mut self.limits, new);
        for mut one in core::mem::take(&mut self.waiting) {
            one.taken = one.taken.converted(&old, &self.limits, carry, clock);
            match self.limits.plan(&old, &one.taken, one.due) {
                Plan::At(due) => {
                    // A request that came after the edit, to a worker that had not heard of it, may be planned a
                    // fraction of a slot later, because its place is computed as of the edit.
                    if one.taken.at().get() <= at && !numbers.is_slower_than(self.numbers) {
                        // What another period cannot express is rounded up.
                        prop_assert!(
                            due.get() <= one.due.get() + 1,
                            "{due:?} after {:?}",
                            one.due
                        );
                    }
                    one.due = due.max(Nanos::new(now));
                    self.waiting.push(one);
                }
                Plan::Again => {
                    prop_assert!(numbers.is_slower_than(self.numbers) || carry == Carry::Keep);
                    refused.push(one);
                }
            }
        }
        // The last one first, so that each finds its place at the end of the queue.
        for one in refused.into_iter().rev() {
            self.limits.give_back(&mut self.bucket, &one.taken);
        }
        self.heard.push((at, now, numbers));
        (self.numbers, self.pace) = (numbers, numbers);
        self.edits.push((now, numbers, carry == Carry::Reset));
        Ok(())
    }

    /// Announces numbers that are not known yet. Some requests pass by the old numbers, and some
    /// waiting requests are due by them.
    fn announce(&mut self, now: u64, numbers: Numbers) {
        if !numbers.is_slower_than(self.numbers) {
            self.pace = numbers;
        }
        self.edits.push((now, self.pace, false));
    }

    /// Waiting requests keep their places. If there are none, everything is forgotten.
    fn reset(&mut self, now: u64) {
        let clock = Clock::at(Nanos::new(now));
        let anew = self.limits.reset_behind_queue(&self.bucket, clock);
        let stays = anew.is_some();
        let last = Nanos::new(now).max(self.bucket.last);
        self.bucket = anew.unwrap_or_else(|| self.limits.start(last));
        for one in &mut self.waiting {
            one.taken = one.taken.in_place();
        }
        self.edits.push((now, self.pace, !stays));
    }

    fn leave(&mut self, place: usize) {
        let one = self.waiting.remove(place);
        self.limits.give_back(&mut self.bucket, &one.taken);
    }

    fn act(&mut self, now: u64, act: Act) -> Result<(), TestCaseError> {
        match act {
            Act::Come(cost) => self.come(now, cost),
            Act::Edit(numbers, carry) => self.edit((now, now), numbers, carry)?,
            Act::Reset => self.reset(now),
            Act::Leave(_) if self.waiting.is_empty() => {}
            Act::Leave(place) => self.leave(place % self.waiting.len()),
            Act::AllLeave => {
                while let Some(last) = self.waiting.len().checked_sub(1) {
                    self.leave(last);
                }
            }
        }
        Ok(())
    }

    /// If no request waits, the level is the amount that passed and has not drained.
    fn is_fair(&self, now: u64) -> Result<(), TestCaseError> {
        if self.waiting.is_empty() && !self.edits.iter().any(|(_, _, resets)| *resets) {
            let used = self.limits.used(&self.bucket, Nanos::new(now));
            // The last one's cost is at most 3.
            let most = u64::from(self.immediate) + 3 + 1;
            prop_assert!(used[0] <= most, "{} of {most} at {now}", used[0]);
        }
        Ok(())
    }

    /// Returns the amount that the rates let out between two instants, plus the amount that the
    /// resets in between forget. `first` and `last` are the numbers of edits before each instant.
    fn lets_out(&self, (from, first): (u64, usize), (to, last): (u64, usize)) -> u128 {
        let mut sum = 0;
        for (place, (begin, numbers, resets)) in self.edits.iter().enumerate() {
            let end = self.edits.get(place + 1).map_or(u64::MAX, |next| next.0);
            let span = end.min(to).saturating_sub((*begin).max(from));
            sum += numbers.lets_out(span);
            if *resets && (first..last).contains(&place) {
                // The amount that passed and has not drained. The last request's cost is at most 3.
                sum += u128::from(self.immediate + 3) * ONE;
            }
        }
        sum
    }

    fn keeps_the_bound(&self) -> Result<(), TestCaseError> {
        prop_assert!(self.passed.is_sorted_by_key(|(at, _, _)| *at));
        // Each instant is rounded up to a nanosecond of the fastest rate, and each conversion to a drop.
        let rounds = |numbers: &Numbers| numbers.lets_out(2);
        let fastest = self.edits.iter().map(|(_, numbers, _)| rounds(numbers));
        let fastest = fastest.max().unwrap_or(0);
        for (first, (from, _, edits)) in self.passed.iter().enumerate() {
            let mut sum = 0;
            for (at, cost, later) in self.passed.iter().skip(first) {
                // Requests that were due by numbers that were not known yet pass together.
                let heard = self.heard.iter();
                let heard = heard.filter(|(_, heard, _)| (*from..=*at).contains(heard));
                let late = heard.map(|(came, heard, numbers)| numbers.lets_out(heard - came));
                let most = self.lets_out((*from, *edits), (*at, *later))
                    + late.sum::<u128>()
                    + u128::from(self.immediate) * ONE
                    + fastest;
                prop_assert!(
                    sum <= most,
                    "{from} to {at}: {sum} of {most}: {:?}",
                    self.passed
                );
                sum += u128::from(*cost) * ONE;
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(config(1_024))]

    #[test]
    fn passes_are_spaced_at_the_rate_across_edits(
        immediate in prop_oneof![3 => Just(0_u32), 1 => 1..=3_u32],
        first in numbers(),
        acts in acts(),
    ) {
        let mut world = World::new(immediate, first);
        let mut now = 0;
        for (pause, act) in acts {
            now += pause;
            world.pass_due(now);
            world.act(now, act)?;
            world.is_fair(now)?;
        }
        world.pass_due(u64::MAX);
        world.keeps_the_bound()?;
    }

    /// Like the test above, but the old numbers decide for a while after each edit.
    #[test]
    fn passes_are_spaced_at_the_rate_where_edits_are_heard_of_late(
        immediate in prop_oneof![3 => Just(0_u32), 1 => 1..=3_u32],
        first in numbers(),
        lag in 1..=5_000_u64,
        acts in acts(),
    ) {
        let mut world = World::new(immediate, first);
        let mut now = 0;
        let mut edit = None;
        let acts = acts.into_iter().map(Some).chain([None]);
        for act in acts {
            let (pause, act) = act.map_or((lag, None), |(pause, act)| (pause, Some(act)));
            now += pause;
            if let Some((at, numbers, carry)) = edit
                && (at + lag <= now || matches!(act, Some(Act::Edit(..))))
            {
                let heard = now.min(at + lag);
                world.pass_due(heard);
                world.edit((at, heard), numbers, carry)?;
                edit = None;
            }
            world.pass_due(now);
            match act {
                Some(Act::Edit(numbers, carry)) => {
                    world.announce(now, numbers);
                    edit = Some((now, numbers, carry));
                }
                Some(act) => world.act(now, act)?,
                None => {}
            }
        }
        world.pass_due(u64::MAX);
        world.keeps_the_bound()?;
    }

    /// A request after an edit is one slot after the last waiting request. This holds for any
    /// decisions by the old numbers after the edit, while a request from before the edit waited.
    #[test]
    fn edits_that_are_heard_of_late_leave_no_gap(
        numbers in [numbers(), numbers()],
        first in 3..=CAPACITY,
        (at, heard) in (0..=60_u64, 1..=100_u64),
        asks in prop::collection::vec((0..=100_u64, 1..=3_u64), 0..10),
    ) {
        let [old, new] = numbers.map(|numbers| Numbers { max_wait: None, ..numbers });
        let slots = |numbers: Numbers, count: u64| {
            (numbers.period * count).div_ceil(numbers.amount.into())
        };
        let mut world = World::new(0, old);
        for _ in 0..=first {
            world.come(0, 1);
        }
        // By then the first one's slot is over, and the last one waits.
        let begin = slots(old, 1);
        prop_assume!(slots(old, first) > begin);
        let rest = slots(old, first) - begin - 1;
        let at = begin + rest * at / 100;
        let heard = at + (begin + rest - at) * heard / 100;
        world.pass_due(at);
        let mut asks = asks;
        asks.sort_unstable();
        for (place, cost) in asks {
            let now = at + (heard - at) * place / 100;
            world.pass_due(now);
            world.come(now, cost);
        }
        world.pass_due(heard);
        world.edit((at, heard), new, Carry::Keep)?;
        let last = world.waiting.last().expect("the last one waits");
        let (due, cost) = (last.due.get(), last.cost);
        let answer = world.limits.decide(&mut world.bucket.clone(), 1, Nanos::new(due));
        let (after, slots) = (answer.wait().get(), slots(new, cost));
        prop_assert!(after <= slots + 1, "{after} after it, not {slots}");
        // It may have been due before the edit became known.
        prop_assert!(due == heard || after + 1 >= slots, "{after} after it, not {slots}");
    }
}

/// A request that waits for less than a thousandth of its place is due now, and the next request is
/// a whole place after it.
#[test]
fn a_reset_in_the_last_nanosecond_of_a_place() -> Result<(), TestCaseError> {
    let numbers = |amount, period| Numbers {
        amount,
        period,
        max_wait: None,
    };
    let mut world = World::new(0, numbers(3, 4_886));
    for now in [0, 1_280, 1_539, 3_257] {
        world.pass_due(now);
        world.come(now, 1);
    }
    world.edit((3_257, 3_257), numbers(1, 3), Carry::Reset)?;
    let due: Vec<u64> = world.waiting.iter().map(|one| one.due.get()).collect();
    prop_assert_eq!(due, [3_257, 3_260]);
    Ok(())
}
