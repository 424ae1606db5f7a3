//! Tests the model with limiters in virtual time: it never reports a violation of a correct
//! limiter, and soon finds each broken limiter.

use super::super::random::Random;
use super::super::rules::{Family, Numbers};
use super::super::timeline::{MARGIN, OPEN};
use super::*;

const MS: u64 = 1_000_000;
const SEEDS: u64 = 200;

/// A defect of a limiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    /// One request in ten takes nothing.
    Free,
    /// A change carries units although it has to carry a fraction, or vice versa.
    OtherCarry,
    /// A change makes a bucket full.
    Full,
    /// A change makes a bucket full for ever.
    LockedOut,
    /// Every other request is decided by the numbers from before the change.
    OldNumbers,
    /// A ban ends too early.
    ShortBan,
}

/// A limiter: a level that drains, or a count that starts again with each window. In units of
/// [`ONE`].
struct Limiter {
    kind: Kind,
    flaw: Flaw,
    numbers: Numbers,
    before: Numbers,
    factor: u64,
    level: u128,
    /// For a level, the time at which it was computed. For a window, its end.
    at: At,
    requests: u64,
    changes: u64,
}

impl Limiter {
    const fn new(kind: Kind, flaw: Flaw, numbers: Numbers) -> Self {
        Self {
            kind,
            flaw,
            numbers,
            before: numbers,
            factor: 1,
            level: 0,
            at: 0,
            requests: 0,
            changes: 0,
        }
    }

    fn scale(&mut self, now: At, factor: u64) {
        self.pass(now, self.numbers);
        self.factor = factor;
    }

    fn pass(&mut self, now: At, numbers: Numbers) {
        let Numbers { capacity, refill } = numbers;
        if self.kind == Kind::FixedWindow {
            self.level = if now >= self.at { 0 } else { self.level };
            return;
        }
        let drained = ONE * u128::from(capacity * self.factor) * u128::from(now - self.at);
        self.level = self.level.saturating_sub(drained / u128::from(refill));
        self.at = now;
    }

    fn admits(&mut self, now: At) -> bool {
        self.requests += 1;
        let is_old = self.flaw == Flaw::OldNumbers && self.requests.is_multiple_of(2);
        let numbers = if is_old { self.before } else { self.numbers };
        self.pass(now, numbers);
        if self.level + ONE > ONE * u128::from(numbers.capacity * self.factor) {
            return false;
        }
        if self.flaw != Flaw::Free || !self.requests.is_multiple_of(10) {
            self.level += ONE;
        }
        if self.kind == Kind::FixedWindow && now >= self.at {
            self.at = now + numbers.refill;
        }
        true
    }

    fn change(&mut self, now: At, numbers: Numbers, family: Family) {
        self.pass(now, self.numbers);
        self.changes += 1;
        let is_share = match family {
            Family::Share => true,
            Family::Units => false,
            Family::Mixed => self.changes % 2 == 1,
        };
        let as_share = is_share != (self.flaw == Flaw::OtherCarry);
        if as_share {
            let product = self.level * u128::from(numbers.capacity);
            self.level = product.div_ceil(self.numbers.capacity.into());
            if self.kind.rounds() {
                self.level = self.level.div_ceil(ONE) * ONE;
            }
        }
        if self.flaw == Flaw::LockedOut {
            self.level = ONE * 1_000_000;
        }
        if self.flaw == Flaw::Full {
            self.level = ONE * u128::from(numbers.capacity);
        }
        (self.before, self.numbers) = (self.numbers, numbers);
    }
}

/// Something that happens to a key at an instant.
#[derive(Debug, Clone, Copy)]
enum Step {
    Request,
    Change(Numbers),
    Scale(u64),
    EndScale,
    Reset,
}

fn steps(rule: &Rule, random: &mut Random) -> Vec<(At, Step)> {
    let mut steps: Vec<(At, Step)> = (0..120)
        .map(|_| (random.between(0, 15_000) * MS + 1, Step::Request))
        .collect();
    for _ in 0..random.between(0, 8) {
        let numbers = rule.numbers(random);
        let at = random.between(1_000, 15_000) * MS;
        steps.push((at, Step::Change(numbers)));
    }
    if random.percent(30) && rule.family.has_variants() {
        let at = random.between(1_000, 10_000) * MS;
        steps.push((at, Step::Scale(random.between(2, 4))));
        steps.push((at + random.between(1_000, 5_000) * MS, Step::EndScale));
    }
    if random.percent(10) {
        steps.push((random.between(1_000, 15_000) * MS, Step::Reset));
    }
    steps.sort_by_key(|(at, _)| *at);
    steps
}

/// The history of a key: its events, and how they look from outside of Envoy.
struct KeyHistory {
    limiter: Limiter,
    timeline: Timeline,
    record: Record,
    /// Start of the current ban.
    banned: Option<At>,
}

impl KeyHistory {
    fn request(&mut self, now: At, [sent, answered]: [At; 2], is_lost: bool) {
        let lasts = if self.limiter.flaw == Flaw::ShortBan {
            200 * MS
        } else {
            1_000 * MS
        };
        let is_banned = self
            .banned
            .is_some_and(|at| (at..at + lasts).contains(&now));
        let outcome = match !is_banned && self.limiter.admits(now) {
            _ if is_lost => Outcome::Unknown,
            true => Outcome::Admitted,
            false => Outcome::Refused,
        };
        self.record.events.push(Event {
            sent,
            answered,
            outcome,
            opened: 0,
            held_until: None,
            pass: None,
        });
    }

    fn change(&mut self, now: At, [sent, answered]: [At; 2], step: Step, family: Family) {
        match step {
            Step::Request => {}
            Step::Change(numbers) => {
                self.limiter.change(now, numbers, family);
                self.timeline.propose(sent, OPEN, numbers);
                self.timeline.settle(sent, answered);
            }
            Step::Scale(factor) => {
                self.limiter.scale(now, factor);
                let span = own(Gives::Scale(factor), sent, answered);
                self.record.spans.push(span);
            }
            Step::EndScale => {
                self.limiter.scale(now, 1);
                for span in &mut self.record.spans {
                    (span.sure_until, span.until) = (sent, answered + MARGIN);
                }
            }
            Step::Reset => {
                self.limiter.level = 0;
                self.record.resets.push((sent, answered));
            }
        }
    }
}

/// Simulates a limiter with random events of a key. Returns the violations that the model finds.
fn live(rule: &Rule, flaw: Flaw, seed: u64) -> Vec<Promise> {
    let mut random = Random::new(seed, 0);
    let first = rule.numbers(&mut random);
    let mut life = KeyHistory {
        limiter: Limiter::new(rule.kind, flaw, first),
        timeline: Timeline::default(),
        record: Record::default(),
        banned: random.percent(30).then(|| random.between(500, 4_000) * MS),
    };
    life.timeline.propose(0, OPEN, first);
    for (now, step) in steps(rule, &mut random) {
        let sent = now.saturating_sub(random.between(1, 40 * MS));
        let interval = [sent, now + random.between(1, 40 * MS)];
        match step {
            Step::Request => life.request(now, interval, random.percent(2)),
            change => life.change(now, interval, change, rule.family),
        }
    }
    if let Some(at) = life.banned {
        let mut span = own(Gives::Banned, at - 5 * MS, at + 5 * MS);
        (span.sure_until, span.until) = (at + 995 * MS, at + 1_005 * MS);
        life.record.spans.push(span);
    }
    let breaches = check(rule, &life.timeline, &life.record);
    breaches.iter().map(|breach| breach.promise).collect()
}

fn own(gives: Gives, from: At, sure_from: At) -> KeySpan {
    KeySpan {
        from,
        sure_from,
        sure_until: OPEN,
        until: OPEN,
        gives,
        is_ban: gives == Gives::Banned,
    }
}

fn rules() -> impl Iterator<Item = Rule> {
    let kinds = [Kind::Funnel, Kind::TokenBucket, Kind::FixedWindow];
    let known = move |rule: &Rule| kinds.contains(&rule.kind);
    Rule::all().into_iter().filter(known)
}

#[test]
fn nothing_is_found_in_a_limiter_that_is_right() {
    for rule in rules() {
        for seed in 0..SEEDS {
            assert_eq!(live(&rule, Flaw::None, seed), [], "{} {seed}", rule.name);
        }
    }
}

#[test]
fn what_is_wrong_is_found() {
    let found = |flaw: Flaw, rule: &Rule, promise: Promise| {
        let seeds = (0..SEEDS).filter(|&seed| live(rule, flaw, seed).contains(&promise));
        seeds.count()
    };
    let slow = || rules().filter(|rule| rule.slow && !rule.is_mixed());
    for (flaw, promise) in [
        (Flaw::Free, Promise::AtMost),
        (Flaw::Full, Promise::AtLeast),
        (Flaw::OldNumbers, Promise::AtMost),
        (Flaw::ShortBan, Promise::Banned),
    ] {
        for rule in slow() {
            let count = found(flaw, &rule, promise);
            assert!(count > 3, "{flaw:?} in {}: {count} of {SEEDS}", rule.name);
        }
    }
    // Even in rules with mixed edits, the model finds a limiter that ends a ban too early or that
    // stays full.
    let mixed = || rules().filter(Rule::is_mixed);
    for (flaw, promise) in [
        (Flaw::ShortBan, Promise::Banned),
        (Flaw::Free, Promise::AtMost),
        (Flaw::LockedOut, Promise::AtLeast),
    ] {
        let total: usize = mixed().map(|rule| found(flaw, &rule, promise)).sum();
        assert!(total > 10, "{flaw:?}: {total}");
    }
    // The distinction between units and fractions matters only for limiters that keep a level over
    // a change.
    let total: usize = slow()
        .map(|rule| found(Flaw::OtherCarry, &rule, Promise::AtMost))
        .sum();
    assert!(total > 10, "{total}");
}
