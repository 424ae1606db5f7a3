//! Two queues that hold one request, in one bucket or in two. The request passes when the later
//! queue admits it, so its place in the sooner queue is spent before. In any window, the cost of
//! the requests that pass a queue is bounded, with any edits in between. The bound is the amount
//! that its rates let out in the window and in the maximum wait before it, plus the maximum cost of
//! a request.

use loudou_limiter::{Bucket, BucketRequest, Carry, Clock, Limits, Nanos, Plan, Taken, convert};
use proptest::prelude::*;

use super::config;
use super::queue::{Numbers, ONE, numbers};

/// Maximum cost of a request.
const MOST: u64 = 3;

#[derive(Clone, Copy, Debug)]
enum Act {
    /// A request by one of two users.
    Come(usize, u64),
    /// New numbers of the first queue, or of the second one.
    Edit(usize, Numbers, Carry),
    /// The first queue is removed.
    Remove,
    /// A waiting request leaves, given by its place in the queue.
    Leave(usize),
}

fn acts() -> impl Strategy<Value = Vec<(u64, Act)>> {
    let carry = prop::sample::select(vec![Carry::Keep, Carry::Proportional]);
    let act = prop_oneof![
        16 => (0..2_usize, 1..=MOST).prop_map(|(user, cost)| Act::Come(user, cost)),
        3 => (0..2_usize, numbers(), carry).prop_map(|(queue, to, carry)| Act::Edit(queue, to, carry)),
        1 => Just(Act::Remove),
        2 => (0..100_usize).prop_map(Act::Leave),
    ];
    let pause = prop_oneof![6 => Just(0), 4 => 0..=2_000_u64, 1 => 2_000..=60_000_u64];
    prop::collection::vec((pause, act), 1..80)
}

/// A rule, with the buckets of the two users, or with one for both.
struct Rule {
    limits: Limits,
    buckets: Vec<Bucket>,
}

impl Rule {
    fn new(limits: Limits, buckets: usize) -> Self {
        Self {
            buckets: vec![limits.start(Nanos::ZERO); buckets],
            limits,
        }
    }

    fn place(&self, user: usize) -> usize {
        user % self.buckets.len()
    }

    fn give_back(&mut self, user: usize, taken: &Taken) {
        let place = self.place(user);
        self.limits.give_back(&mut self.buckets[place], taken);
    }
}

/// The amount that a request took from a rule, and when it may pass that rule.
struct Loan {
    taken: Taken,
    due: Nanos,
    waits: bool,
}

struct Waiter {
    user: usize,
    cost: u64,
    came: u64,
    /// By each rule.
    loans: Vec<Loan>,
}

impl Waiter {
    fn due(&self) -> u64 {
        let waits = self.loans.iter().filter(|loan| loan.waits);
        waits.map(|loan| loan.due.get()).max().unwrap_or(self.came)
    }
}

#[derive(Clone, Copy, Debug)]
struct Passed {
    user: usize,
    cost: u64,
    came: u64,
    at: u64,
}

struct World {
    /// Both queues in one rule, or a queue in each of two rules. The first is for each user, and
    /// the second is for both.
    rules: Vec<Rule>,
    numbers: [Numbers; 2],
    is_removed: bool,
    waiting: Vec<Waiter>,
    passed: Vec<Passed>,
    /// When each queue had new numbers.
    edits: [Vec<(u64, Numbers)>; 2],
}

impl World {
    fn new(is_one: bool, numbers: [Numbers; 2]) -> Self {
        let rules = if is_one {
            vec![Rule::new(both(numbers, false), 1)]
        } else {
            let [first, second] = [alone(numbers[0], "first"), alone(numbers[1], "second")];
            vec![Rule::new(first, 2), Rule::new(second, 1)]
        };
        Self {
            rules,
            numbers,
            is_removed: false,
            waiting: Vec::new(),
            passed: Vec::new(),
            edits: numbers.map(|numbers| vec![(0, numbers)]),
        }
    }

    fn pass_due(&mut self, now: u64) {
        self.waiting.sort_by_key(Waiter::due);
        while self.waiting.first().is_some_and(|first| first.due() <= now) {
            let one = self.waiting.remove(0);
            for (rule, loan) in self.rules.iter_mut().zip(&one.loans) {
                if loan.waits {
                    let place = rule.place(one.user);
                    rule.limits.pass(&mut rule.buckets[place], &loan.taken);
                }
            }
            self.passes(&one, one.due());
        }
    }

    fn passes(&mut self, one: &Waiter, at: u64) {
        self.passed.push(Passed {
            user: one.user,
            cost: one.cost,
            came: one.came,
            at,
        });
    }

    fn come(&mut self, now: u64, user: usize, cost: u64) {
        let mut one = Waiter {
            user,
            cost,
            came: now,
            loans: Vec::new(),
        };
        let ask = BucketRequest::new(cost, Nanos::new(now));
        for rule in &mut self.rules {
            let place = rule.place(user);
            let bucket = &mut rule.buckets[place];
            let taken = Taken::new(bucket, &ask);
            let answer = rule.limits.answer(bucket, &ask);
            if answer.is_refused() {
                return self.give_back(&one);
            }
            one.loans.push(Loan {
                taken,
                due: answer.at().saturating_add(answer.wait()),
                waits: answer.wait() > Nanos::ZERO,
            });
        }
        if one.due() <= now {
            self.passes(&one, now);
        } else {
            self.waiting.push(one);
        }
    }

    fn give_back(&mut self, one: &Waiter) {
        for (rule, loan) in self.rules.iter_mut().zip(&one.loans) {
            rule.give_back(one.user, &loan.taken);
        }
    }

    /// The rule at `place` has new limits.
    fn change(&mut self, now: u64, place: usize, new: Limits, carry: Carry) {
        let clock = Clock::at(Nanos::new(now));
        let rule = &mut self.rules[place];
        let old = core::mem::replace(&mut rule.limits, new);
        for bucket in &mut rule.buckets {
            *bucket = convert(&old, &rule.limits, carry, bucket, clock);
        }
        let mut late = Vec::new();
        for mut one in core::mem::take(&mut self.waiting) {
            let loan = &mut one.loans[place];
            loan.taken = loan.taken.converted(&old, &rule.limits, carry, clock);
            match rule.limits.plan(&old, &loan.taken, loan.due) {
                Plan::Again if loan.waits => late.push(one),
                Plan::At(due) if loan.waits => {
                    loan.due = due;
                    self.waiting.push(one);
                }
                _ => self.waiting.push(one),
            }
        }
        for one in late.into_iter().rev() {
            self.give_back(&one);
        }
    }

    fn act(&mut self, now: u64, act: Act) {
        let is_one = self.rules.len() == 1;
        match act {
            Act::Come(user, cost) => self.come(now, user, cost),
            Act::Edit(queue, to, carry) => {
                self.numbers[queue] = to;
                self.edits[queue].push((now, to));
                if is_one {
                    let limits = both(self.numbers, self.is_removed);
                    self.change(now, 0, limits, carry);
                } else if queue == 1 || !self.is_removed {
                    let name = ["first", "second"][queue];
                    self.change(now, queue, alone(to, name), carry);
                }
            }
            Act::Remove if self.is_removed => {}
            Act::Remove => {
                self.is_removed = true;
                if is_one {
                    self.change(now, 0, both(self.numbers, true), Carry::Keep);
                } else {
                    // Its key is not limited any more.
                    let free = Numbers::FREE;
                    self.rules[0] = Rule::new(alone(free, "first"), 2);
                    for one in &mut self.waiting {
                        one.loans[0].due = one.loans[0].due.min(Nanos::new(now));
                    }
                }
            }
            Act::Leave(_) if self.waiting.is_empty() => {}
            Act::Leave(place) => {
                let one = self.waiting.remove(place % self.waiting.len());
                self.give_back(&one);
            }
        }
    }

    /// Checks the bound of a queue that all these requests passed, with these edits of its numbers.
    fn keeps_the_bound(passed: &[Passed], edits: &[(u64, Numbers)]) -> Result<(), TestCaseError> {
        let lets_out = |from: u64, to: u64| {
            let spans = edits.iter().enumerate().map(|(place, (begin, numbers))| {
                let end = edits.get(place + 1).map_or(u64::MAX, |next| next.0);
                numbers.lets_out(end.min(to).saturating_sub((*begin).max(from)))
            });
            spans.sum::<u128>()
        };
        // As for one queue, an instant is rounded up, and a conversion is rounded to a drop.
        let rounds = edits.iter().map(|(_, numbers)| numbers.lets_out(2));
        let rounds = rounds.max().unwrap_or(0);
        for (first, from) in passed.iter().enumerate() {
            let (mut sum, mut longest, mut largest) = (0, 0, 0);
            for to in &passed[first..] {
                longest = longest.max(to.at - to.came);
                largest = largest.max(to.cost);
                sum += u128::from(to.cost) * ONE;
                let most = lets_out(from.at.saturating_sub(longest), to.at) + rounds;
                let most = most + u128::from(largest) * ONE;
                prop_assert!(
                    sum <= most,
                    "{from:?} to {to:?}: {sum} of {most}: {passed:?}"
                );
            }
        }
        Ok(())
    }
}

fn alone(numbers: Numbers, name: &str) -> Limits {
    Limits::new(vec![numbers.limit(name, 0)]).expect("valid")
}

fn both([first, second]: [Numbers; 2], is_removed: bool) -> Limits {
    let mut limits = vec![first.limit("first", 0), second.limit("second", 0)];
    limits.drain(..usize::from(is_removed));
    Limits::new(limits).expect("valid")
}

proptest! {
    #![proptest_config(config(512))]

    #[test]
    fn two_queues_keep_their_rates_but_for_the_longest_wait(
        is_one: bool,
        first in [numbers(), numbers()],
        acts in acts(),
    ) {
        let mut world = World::new(is_one, first);
        let mut now = 0;
        for (pause, act) in acts {
            now += pause;
            world.pass_due(now);
            world.act(now, act);
        }
        world.pass_due(u64::MAX);
        World::keeps_the_bound(&world.passed, &world.edits[1])?;
        if !world.is_removed {
            for user in 0..2 {
                let is_own = |one: &&Passed| is_one || one.user == user;
                let own: Vec<_> = world.passed.iter().filter(is_own).copied().collect();
                World::keeps_the_bound(&own, &world.edits[0])?;
            }
        }
    }
}
