//! The record of a running soak: the keys in use with their requests, the rules with the actions on
//! them, and counts.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::heartbeat::Heartbeats;
use super::model::{Breach, Event, Outcome, Pass, Promise, Record, check};
use super::passes::Passes;
use super::plan::SLOTS;
use super::random::Random;
use super::rules::{Kind, Numbers, Rule};
use super::timeline::{At, OPEN, RuleAction, Timeline};

/// One second, in nanoseconds.
pub const SECOND: u64 = 1_000_000_000;
/// Number of actions in the report of a violation.
const LAST: usize = 8;
/// Number of requests in the report of a violation.
const LAST_REQUESTS: usize = 16;

/// A key in use.
#[derive(Debug)]
pub struct Key {
    /// Index of the key's rule.
    pub rule: usize,
    /// Name of the key, unique within the soak.
    pub name: String,
    /// Time at which the key's slot goes to another key.
    until: At,
    record: Mutex<Record>,
}

impl Key {
    /// Returns the key's requests and actions.
    pub fn record(&self) -> MutexGuard<'_, Record> {
        lock(&self.record)
    }
}

/// A breach of a promise, with data for its investigation.
#[derive(Debug, Clone)]
pub struct Violation {
    /// Name of the rule.
    pub rule: String,
    /// Name of the key, or of another subject.
    pub key: String,
    /// The breach.
    pub breach: Breach,
    /// Last actions that concerned the rule and no other key.
    pub actions: Vec<RuleAction>,
    /// Last requests of the key.
    pub requests: Vec<Event>,
}

/// A slot for one key of a rule.
#[derive(Debug)]
struct Slot {
    key: Mutex<Arc<Key>>,
    /// True if the clients currently leave the key alone.
    rests: AtomicBool,
    rests_until: Mutex<At>,
}

/// Everything that the soak records.
#[derive(Debug)]
pub struct Book {
    start: Instant,
    /// Rules under test.
    pub rules: Vec<Rule>,
    /// Passed requests of the rules whose requests wait.
    pub passes: Arc<Passes>,
    /// Pulses of the workers.
    pub heartbeats: Heartbeats,
    timelines: Vec<Mutex<Timeline>>,
    slots: Vec<Vec<Slot>>,
    retired: Mutex<Vec<Arc<Key>>>,
    counts: Mutex<BTreeMap<&'static str, u64>>,
    violations: Mutex<Vec<Violation>>,
}

impl Book {
    /// Creates a record of these rules with these numbers. It uses the start time of `passes`.
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
            heartbeats: Heartbeats::new(workers),
            timelines: numbers.iter().map(timeline).collect(),
            rules,
            retired: Mutex::default(),
            counts: Mutex::default(),
            violations: Mutex::default(),
        }
    }

    /// Returns the time since the soak began.
    pub fn now(&self) -> At {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Returns the actions on a rule. `None` for an unknown index.
    pub fn timeline(&self, rule: usize) -> Option<MutexGuard<'_, Timeline>> {
        self.timelines.get(rule).map(lock)
    }

    /// Records an action on a rule, just before it is carried out.
    pub fn note(&self, rule: usize, at: At, what: &str) {
        if let Some(mut timeline) = self.timeline(rule) {
            timeline.history.push(RuleAction {
                at,
                key: None,
                what: what.to_owned(),
            });
        }
    }

    /// Records an action on a key, just before it is carried out.
    pub fn note_key(&self, key: &Key, at: At, what: String) {
        if let Some(mut timeline) = self.timeline(key.rule) {
            let key = Some(key.name.clone());
            timeline.history.push(RuleAction { at, key, what });
        }
    }

    /// Records an action on all rules, just before it is carried out.
    pub fn note_all(&self, at: At, what: &str) {
        (0..self.rules.len()).for_each(|rule| self.note(rule, at, what));
    }

    /// Returns the key in a slot, even if the clients leave it alone.
    pub fn key(&self, rule: usize, slot: usize) -> Option<Arc<Key>> {
        let slot = self.slots.get(rule)?.get(slot)?;
        Some(Arc::clone(&lock(&slot.key)))
    }

    /// Returns the keys of a rule that are in slots, and the keys that lost their slots and still
    /// have requests in flight.
    pub fn keys(&self, rule: usize) -> Vec<Arc<Key>> {
        let slots = (0..SLOTS).filter_map(|slot| self.key(rule, slot));
        // Do not lock a slot while `retired` is locked, because a key moves from its slot to
        // `retired` with both locked.
        let mut keys: Vec<Arc<Key>> = slots.collect();
        let retired = lock(&self.retired);
        keys.extend(retired.iter().filter(|key| key.rule == rule).cloned());
        drop(retired);
        keys
    }

    /// Returns the key in a slot. `None` if the clients leave it alone.
    pub fn busy_key(&self, rule: usize, slot: usize) -> Option<Arc<Key>> {
        let rests = &self.slots.get(rule)?.get(slot)?.rests;
        let key = self.key(rule, slot);
        key.filter(|_| !rests.load(Ordering::Relaxed))
    }

    /// Returns true if [`holders`](super::holders) sends the requests of the rule, and keeps them
    /// in flight.
    pub fn is_held(&self, rule: usize) -> bool {
        let rule = self.rules.get(rule);
        rule.is_some_and(|rule| rule.kind == Kind::Concurrency)
    }

    /// Returns true if [`waiters`](super::waiters) sends the requests of the rule, and they wait
    /// for their turn.
    pub fn waits(&self, rule: usize) -> bool {
        let rule = self.rules.get(rule);
        rule.is_some_and(|rule| rule.kind.waits())
    }

    /// Adds to a counter.
    pub fn count(&self, what: &'static str, times: u64) {
        *lock(&self.counts).entry(what).or_default() += times;
    }

    /// Returns the value of a counter.
    pub fn counted(&self, what: &str) -> u64 {
        lock(&self.counts).get(what).copied().unwrap_or(0)
    }

    /// Returns all counters.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        lock(&self.counts).clone()
    }

    /// Records and counts a request. Returns its index among the requests of the key.
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

    /// Gives slots to new keys, lets the clients leave some keys alone, and checks the keys that
    /// are no longer used.
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

    /// Checks all remaining keys. They must not be used any more.
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
            // Copy the timeline, so that actions on the rule need not wait.
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

    /// Adds the times at which requests passed.
    fn add_passes(&self, record: &mut Record) {
        let Record {
            events, numbers, ..
        } = record;
        let mut count = 0;
        for (number, index) in numbers.drain(..) {
            let passed = self.passes.take(number);
            if let (Some(passed), Some(event)) = (passed, events.get_mut(index)) {
                let due_from = self.heartbeats.due_from(passed.went);
                event.pass = Some(Pass {
                    came: passed.came,
                    decided_until: self.heartbeats.decided_until(passed.came),
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

    /// Records a violation that concerns more than one key.
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

    /// Returns all violations so far.
    pub fn violations(&self) -> Vec<Violation> {
        lock(&self.violations).clone()
    }
}

/// Returns the last requests that were sent until then, including requests in flight.
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
