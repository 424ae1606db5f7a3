//! Tests the model with queues in virtual time: it never reports a violation of a queue that
//! replans waiting requests after a change, and soon finds other queues.

use super::super::random::Random;
use super::super::rules::{Family, Numbers};
use super::super::timeline::OPEN;
use super::*;

const MS: u64 = 1_000_000;
const SEEDS: u64 = 30;
const LASTS: u64 = 12_000;

/// A defect of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    /// Waiting requests keep their instants after a change.
    KeepInstants,
    /// Requests that arrive after a change wait as long as the earlier requests would have taken by
    /// the old numbers.
    OldLine,
    /// A change lets all waiting requests pass.
    Burst,
    /// One request in ten takes no place.
    Free,
    /// A change forgets that a request has just passed.
    Forgets,
    /// The queue has one place too few.
    Narrow,
}

/// A waiting request. It passes when the queue has let this many units out, or at an instant that
/// was planned earlier.
struct Waiting {
    event: Event,
    place: u128,
    due: Option<At>,
}

/// A simulated queue, and how it looks from outside of Envoy. Places are in units of [`ONE`].
struct Queue {
    flaw: Flaw,
    numbers: Numbers,
    /// Units that the queue has let out so far. A new request gets this place or a later one.
    out: u128,
    next: u128,
    waiting: Vec<Waiting>,
    /// Time until which the workers do not look for a change.
    blind: At,
    /// Time at which the requests from before the last change would all have passed by the old
    /// numbers.
    old_line: At,
    timeline: Timeline,
    record: Record,
    random: Random,
}

impl Queue {
    fn rate(numbers: Numbers) -> u128 {
        ONE * u128::from(numbers.capacity) / u128::from(numbers.refill)
    }

    fn due(&self, place: u128, now: At) -> At {
        let wait = place.saturating_sub(self.out) / Self::rate(self.numbers);
        now + u64::try_from(wait).expect("a short line")
    }

    fn come(&mut self, now: At) {
        let sent = now - self.random.between(0, 30 * MS).min(now);
        let event = Event {
            sent,
            answered: now,
            outcome: Outcome::Refused,
            opened: 0,
            held_until: None,
            pass: None,
        };
        let places = self.numbers.capacity - u64::from(self.flaw == Flaw::Narrow);
        if self.next.saturating_sub(self.out) > ONE * u128::from(places) {
            let answered = now + self.random.between(0, 30 * MS);
            self.record.events.push(Event { answered, ..event });
            return;
        }
        let place = self.next.max(self.out);
        let is_free = self.flaw == Flaw::Free && self.record.events.len().is_multiple_of(10);
        self.next = place + if is_free { 0 } else { ONE };
        let is_behind = self.flaw == Flaw::OldLine && now < self.old_line;
        self.waiting.push(Waiting {
            event,
            place,
            due: is_behind.then_some(self.old_line),
        });
    }

    fn change(&mut self, now: At, numbers: Numbers) {
        let last = self.waiting.iter().map(|one| one.place).max();
        self.old_line = last.map_or(0, |place| self.due(place, now));
        for index in 0..self.waiting.len() {
            let due = match self.flaw {
                Flaw::KeepInstants => self.due(self.waiting[index].place, now),
                Flaw::Burst => now,
                _ => continue,
            };
            self.waiting[index].due.get_or_insert(due);
        }
        if self.flaw == Flaw::Forgets {
            self.out = self.next.min(self.out + ONE);
        }
        self.numbers = numbers;
        self.blind = now + self.random.between(0, 20) * MS;
        let sent = now - self.random.between(0, 40 * MS);
        self.timeline.propose(sent, OPEN, numbers);
        let answered = now + self.random.between(0, 40 * MS);
        self.timeline.settle(sent, answered);
    }

    fn pass(&mut self, now: At) {
        if now < self.blind {
            return;
        }
        let out = self.out;
        let is_due = |one: &mut Waiting| match one.due {
            Some(due) => due <= now,
            None => one.place <= out,
        };
        let due: Vec<Waiting> = self.waiting.extract_if(.., is_due).collect();
        // Sometimes a worker is late. The pulses then show a little more than its lateness.
        let is_busy = self.random.percent(10);
        let late = self.random.between(0, if is_busy { 60 } else { 2 } * MS);
        let pulse = self.random.between(2 * MS, 12 * MS);
        for one in due {
            let came = one.event.answered;
            let arrived = now + late + self.random.between(0, 5 * MS);
            self.record.events.push(Event {
                answered: arrived + self.random.between(0, 20 * MS),
                outcome: Outcome::Admitted,
                pass: Some(Pass {
                    came,
                    decided_until: came + pulse,
                    due_from: now.saturating_sub(pulse).max(came),
                    arrived,
                }),
                ..one.event
            });
        }
    }
}

/// Simulates a queue with random changes and bursts of requests. Returns the violations that the
/// model finds.
fn live(slow: bool, flaw: Flaw, seed: u64) -> Vec<Breach> {
    let rule = Rule {
        name: "line".to_owned(),
        kind: Kind::Line,
        family: Family::Mixed,
        slow,
    };
    let mut random = Random::new(seed, 7);
    let first = rule.numbers(&mut random);
    let mut queue = Queue {
        flaw,
        numbers: first,
        out: 0,
        next: 0,
        waiting: Vec::new(),
        blind: 0,
        old_line: 0,
        timeline: Timeline::default(),
        record: Record::default(),
        random,
    };
    queue.timeline.propose(0, OPEN, first);
    let mut rush = 0;
    for ms in 1..LASTS {
        let now = ms * MS;
        queue.out += Queue::rate(queue.numbers) * u128::from(MS);
        if ms.is_multiple_of(1_000) {
            rush = queue.random.between(0, 8);
        }
        if queue.random.between(0, 99) < rush {
            queue.come(now);
        }
        if ms > 500 && queue.random.between(1, 1_500) == 1 {
            let numbers = rule.numbers(&mut queue.random);
            queue.change(now, numbers);
        }
        queue.pass(now);
    }
    for one in queue.waiting.drain(..) {
        let event = Event {
            answered: LASTS * MS,
            outcome: Outcome::Unknown,
            ..one.event
        };
        queue.record.events.push(event);
    }
    check(&rule, &queue.timeline, &queue.record)
}

#[test]
fn nothing_is_found_in_a_queue_that_plans_anew() {
    for slow in [true, false] {
        for seed in 0..SEEDS {
            assert_eq!(live(slow, Flaw::None, seed), [], "slow {slow}, {seed}");
        }
    }
}

#[test]
fn queues_with_old_plans_are_found() {
    for (flaw, promise, least) in [
        (Flaw::KeepInstants, Promise::AtLeast, 15),
        (Flaw::KeepInstants, Promise::AtMost, 15),
        (Flaw::OldLine, Promise::AtMost, 15),
        (Flaw::OldLine, Promise::AtLeast, 5),
        (Flaw::Burst, Promise::AtMost, 25),
        (Flaw::Free, Promise::AtMost, 25),
        (Flaw::Forgets, Promise::AtMost, 5),
        (Flaw::Narrow, Promise::AtLeast, 5),
    ] {
        let seeds = (0..2 * SEEDS).filter(|seed| {
            let found = live(seed % 2 == 0, flaw, seed / 2);
            found.iter().any(|breach| breach.promise == promise)
        });
        let count = seeds.count();
        assert!(
            count >= least,
            "{flaw:?}, {promise:?}: {count} of {}",
            2 * SEEDS
        );
    }
}
