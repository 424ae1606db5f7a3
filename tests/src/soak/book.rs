//! The record of a running soak: keys in use with their requests, rules with the actions on them, and
//! counts.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::model::{Breach, Event, Outcome, Pass, Promise, Record, check};
use super::passes::Passes;
use super::plan::SLOTS;
use super::pulse::Pulses;
use super::random::Random;
use super::rules::{Kind, Numbers, Rule};
use super::timeline::{At, Deed, OPEN, Timeline};

/// A second.
pub const SECOND: u64 = 1_000_000_000;
/// The number of actions in a violation's report.
const LAST: usize = 8;
/// The number of requests in a violation's report.
const LAST_REQUESTS: usize = 16;

/// A key in use.
#[derive(Debug)]
pub struct Key {
    /// The index of its rule.
    pub rule: usize,
    /// Its name, unique within the soak.
    pub name: String,
    /// When its slot goes to another key.
    until: At,
    record: Mutex<Record>,
}

impl Key {
    /// Its recorded requests and actions.
    pub fn record(&self) -> MutexGuard<'_, Record> {
        lock(&self.record)
    }
}

/// A broken promise, with what is needed to investigate it.
#[derive(Debug, Clone)]
pub struct Violation {
    /// The rule.
    pub rule: String,
    /// The key, or another subject.
    pub key: String,
    /// The promise.
    pub breach: Breach,
    /// The last actions that affected the rule and no other key.
    pub actions: Vec<Deed>,
    /// The key's last requests.
    pub requests: Vec<Event>,
}

/// One slot for a key of a rule.
#[derive(Debug)]
struct Slot {
    key: Mutex<Arc<Key>>,
    /// Left alone for the moment.
    rests: AtomicBool,
    rests_until: Mutex<At>,
}

/// The whole record.
#[derive(Debug)]
pub struct Book {
    start: Instant,
    /// The rules under test.
    pub rules: Vec<Rule>,
    /// The requests that passed, of rules whose requests wait.
    pub passes: Arc<Passes>,
    /// The pulses of the workers.
    pub pulses: Pulses,
    timelines: Vec<Mutex<Timeline>>,
    slots: Vec<Vec<Slot>>,
    retired: Mutex<Vec<Arc<Key>>>,
    counts: Mutex<BTreeMap<&'static str, u64>>,
    violations: Mutex<Vec<Violation>>,
}

impl Book {
    /// A new record of these rules with these numbers, which began with the record of passes.
    pub fn new(
        rules: Vec<Rule>,
        numbers: &[Numbers],
        random: &mut Random,
        passes: Arc<Passes>,
        workers: usize,
    ) -> Self {
        let timeline = |&numbers: &Numbers| {
            let mut timeline = Timeline::default();
            timeline.propose(0, OPEN, numbers);
            Mutex::new(timeline)
        };
        let slots = (0..rules.len()).map(|rule| {
            let slots = (0..SLOTS).map(|n| Slot {
                key: Mutex::new(fresh(rule, n, 0, random)),
                rests: AtomicBool::new(false),
                rests_until: Mutex::new(0),
            });
            slots.collect()
        });
        Self {
            slots: slots.collect(),
            start: passes.start,
            passes,
            pulses: Pulses::new(workers),
            timelines: numbers.iter().map(timeline).collect(),
            rules,
            retired: Mutex::default(),
            counts: Mutex::default(),
            violations: Mutex::default(),
        }
    }

    /// The time since the soak began.
    pub fn now(&self) -> At {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// The actions on a rule; `None` for an unknown one.
    pub fn timeline(&self, rule: usize) -> Option<MutexGuard<'_, Timeline>> {
        self.timelines.get(rule).map(lock)
    }

    /// Records an action that is about to be done to a rule.
    pub fn note(&self, rule: usize, at: At, what: &str) {
        if let Some(mut timeline) = self.timeline(rule) {
            timeline.history.push(Deed {
                at,
                key: None,
                what: what.to_owned(),
            });
        }
    }

    /// Records an action that is about to be done to a key.
    pub fn note_key(&self, key: &Key, at: At, what: String) {
        if let Some(mut timeline) = self.timeline(key.rule) {
            let key = Some(key.name.clone());
            timeline.history.push(Deed { at, key, what });
        }
    }

    /// Records an action that is about to be done to all rules.
    pub fn note_all(&self, at: At, what: &str) {
        (0..self.rules.len()).for_each(|rule| self.note(rule, at, what));
    }

    /// The key in a slot, also while it rests.
    pub fn key(&self, rule: usize, slot: usize) -> Option<Arc<Key>> {
        let slot = self.slots.get(rule)?.get(slot)?;
        Some(Arc::clone(&lock(&slot.key)))
    }

    /// The keys of a rule: those in its slots, and those that lost their slots and have requests on their way.
    pub fn keys(&self, rule: usize) -> Vec<Arc<Key>> {
        let slots = (0..SLOTS).filter_map(|slot| self.key(rule, slot));
        // No slot is locked while `retired` is: a key moves from one to the other with both locked.
        let mut keys: Vec<Arc<Key>> = slots.collect();
        let retired = lock(&self.retired);
        keys.extend(retired.iter().filter(|key| key.rule == rule).cloned());
        drop(retired);
        keys
    }

    /// The key in a slot, unless it rests.
    pub fn busy_key(&self, rule: usize, slot: usize) -> Option<Arc<Key>> {
        let rests = &self.slots.get(rule)?.get(slot)?.rests;
        let key = self.key(rule, slot);
        key.filter(|_| !rests.load(Ordering::Relaxed))
    }

    /// True if the requests of a rule are to stay in flight, by [`holders`](super::holders).
    pub fn is_held(&self, rule: usize) -> bool {
        let rule = self.rules.get(rule);
        rule.is_some_and(|rule| rule.kind == Kind::Concurrency)
    }

    /// True if the requests of a rule wait for their turn, by [`waiters`](super::waiters).
    pub fn waits(&self, rule: usize) -> bool {
        let rule = self.rules.get(rule);
        rule.is_some_and(|rule| rule.kind.waits())
    }

    /// Adds to a count.
    pub fn count(&self, what: &'static str, times: u64) {
        *lock(&self.counts).entry(what).or_default() += times;
    }

    /// The value of a count.
    pub fn counted(&self, what: &str) -> u64 {
        lock(&self.counts).get(what).copied().unwrap_or(0)
    }

    /// All counts.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        lock(&self.counts).clone()
    }

    /// Records and counts a request; returns its index among the requests of the key.
    pub fn event(&self, key: &Key, event: Event) -> usize {
        let mut record = key.record();
        let index = record.events.len();
        record.events.push(event);
        drop(record);
        let what = match event.outcome {
            Outcome::Admitted => "admitted",
            Outcome::Refused => "refused",
            Outcome::Unknown => "answered by a dead sandbox or not at all",
        };
        self.count(what, 1);
        index
    }

    /// Gives slots to new keys, lets some keys rest, and checks those that are no longer used.
    pub fn turn(&self, random: &mut Random) {
        let now = self.now();
        for (rule, slots) in self.slots.iter().enumerate() {
            for (n, slot) in slots.iter().enumerate() {
                let mut key = lock(&slot.key);
                if key.until <= now {
                    let old = std::mem::replace(&mut *key, fresh(rule, n, now, random));
                    lock(&self.retired).push(old);
                }
                let mut until = lock(&slot.rests_until);
                if *until <= now {
                    let rests = random.percent(20);
                    slot.rests.store(rests, Ordering::Relaxed);
                    *until = now + random.between(1, if rests { 9 } else { 5 }) * SECOND;
                }
            }
        }
        self.check(|key| Arc::strong_count(key) == 1);
    }

    /// Checks all remaining keys, which must no longer be used.
    pub fn finish(&self) {
        for slot in self.slots.iter().flatten() {
            lock(&self.retired).push(Arc::clone(&lock(&slot.key)));
        }
        self.check(|_| true);
    }

    fn check(&self, is_done: impl Fn(&Arc<Key>) -> bool) {
        let done: Vec<Arc<Key>> = lock(&self.retired)
            .extract_if(.., |key| is_done(key))
            .collect();
        for key in done {
            let mut record = key.record();
            self.add_passes(&mut record);
            let timeline = self.timeline(key.rule);
            let (Some(rule), Some(timeline)) = (self.rules.get(key.rule), timeline) else {
                continue;
            };
            // A copy, so that actions on the rule need not wait.
            let copy = timeline.clone();
            drop(timeline);
            for breach in check(rule, &copy, &record) {
                self.violated(Violation {
                    rule: rule.name.clone(),
                    key: key.name.clone(),
                    actions: copy.last(breach.at, &key.name, LAST),
                    requests: last_requests(&record, breach.at),
                    breach,
                });
            }
            self.count("keys checked", 1);
        }
    }

    /// Adds to requests when they passed.
    fn add_passes(&self, record: &mut Record) {
        let Record {
            events, numbers, ..
        } = record;
        let mut count = 0;
        for (number, index) in numbers.drain(..) {
            let passed = self.passes.take(number);
            if let (Some(passed), Some(event)) = (passed, events.get_mut(index)) {
                let due_from = self.pulses.due_from(passed.went);
                event.pass = Some(Pass {
                    came: passed.came,
                    decided_until: self.pulses.decided_until(passed.came),
                    due_from: due_from.max(passed.came),
                    arrived: passed.arrived,
                });
                count += 1;
            }
        }
        self.count("passes of requests that may wait", count);
    }

    /// Records a violation.
    pub fn violated(&self, violation: Violation) {
        lock(&self.violations).push(violation);
    }

    /// Records a violation that concerns no single key.
    pub fn broke(&self, rule: &str, promise: Promise, what: String) {
        let at = self.now();
        let index = self.rules.iter().position(|own| own.name == rule);
        let timeline = self.timeline(index.unwrap_or(0));
        let actions = timeline.map(|own| own.last(at, "", LAST));
        self.violated(Violation {
            rule: rule.to_owned(),
            key: "-".to_owned(),
            breach: Breach { promise, at, what },
            actions: actions.unwrap_or_default(),
            requests: Vec::new(),
        });
    }

    /// All violations so far.
    pub fn violations(&self) -> Vec<Violation> {
        lock(&self.violations).clone()
    }
}

/// The last requests that were sent by then, also those that were still in flight.
fn last_requests(record: &Record, until: At) -> Vec<Event> {
    let before = record.events.iter().filter(|event| event.sent <= until);
    let mut events: Vec<Event> = before.copied().collect();
    events.sort_unstable_by_key(|event| event.answered);
    events.split_off(events.len().saturating_sub(LAST_REQUESTS))
}

fn fresh(rule: usize, slot: usize, now: At, random: &mut Random) -> Arc<Key> {
    Arc::new(Key {
        rule,
        name: format!("k{rule}-{slot}-{now:x}"),
        until: now + random.between(5_000, 20_000) * 1_000_000,
        record: Mutex::default(),
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
