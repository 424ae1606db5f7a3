//! The bucket store under many workers, floods, failing hosts and foreign bytes.
#![cfg(test)]

use loudou_limiter::{BucketDecision, BucketRequest, Carry, Clock, Limits, Nanos};
use loudou_rules::config::{parse_edit, parse_rule};
use loudou_rules::rule_set::ActiveRule;
use loudou_rules::versions::History;
use loudou_store::memory::MemoryStore;
use loudou_store::page::{KIND, Page, Slot};
use loudou_store::{Acquire, GaveUp, LiveRule, Receipt, SharedData, StoreStats, Table, Written};
use serde_json::{Value, json};

mod bytes;
mod ends;
mod eviction;
mod extremes;
mod failures;
mod flights;
mod leases;
mod names;
mod opening;
mod paged;
mod races;
mod refunds;
mod returns;
mod runs;
mod settled;
mod shares;
mod stepwise;
mod sweeping;
mod upstreams;
mod versions;

const SHARE: &str = "test";

/// The rule of this name, with one bucket for each key of a test.
fn named(name: &str, limits: &Value) -> ActiveRule {
    let rule = parse_rule(&json!({ "name": name, "key": [], "limits": limits }));
    ActiveRule::new(rule.expect("a valid rule"), History::default())
}

fn rule(limits: &Value) -> ActiveRule {
    named("r", limits)
}

/// Returns the tag of [`rule`], which does not depend on its limits.
fn tag() -> u32 {
    per_day(1).tag()
}

/// The limits of a rule without overrides.
fn limits(rule: &ActiveRule) -> &Limits {
    &rule.rule().limits
}

/// The rule from `at` on, with the limits of another one.
fn edited(rule: &ActiveRule, to: &ActiveRule, carry: Carry, at: u64) -> ActiveRule {
    let edit = parse_edit(&json!({ "limits": limits(to) })).expect("valid");
    let mut rule = rule.clone();
    rule.edit(&edit, carry, Nanos::new(at));
    rule
}

fn clock(now: u64) -> Clock {
    Clock::at(Nanos::new(now))
}

/// Limits: `capacity` at once and practically nothing after.
fn daily(capacity: u64) -> Value {
    json!([{ "algorithm": "funnel", "capacity": capacity, "rate": "1/d" }])
}

/// [`rule`] with [`daily`] limits.
fn per_day(capacity: u64) -> ActiveRule {
    rule(&daily(capacity))
}

fn take<'a>(rule: &'a ActiveRule, key: &'a str, now: u64) -> Acquire<'a> {
    rule.acquire(key, BucketRequest::new(1, Nanos::new(now)))
}

fn open(store: &mut dyn SharedData, buckets: u32) -> Table {
    Table::open(store, SHARE, buckets, [42; 16], Nanos::ZERO).expect("a new table")
}

/// A decision of a table without bans.
trait Decides {
    fn take(
        &self,
        store: &mut dyn SharedData,
        take: &Acquire<'_>,
        stats: &mut StoreStats,
    ) -> Result<BucketDecision, GaveUp>;
}

impl Decides for Table {
    fn take(
        &self,
        store: &mut dyn SharedData,
        take: &Acquire<'_>,
        stats: &mut StoreStats,
    ) -> Result<BucketDecision, GaveUp> {
        let charge = self.charge(store, take, stats)?;
        Ok(charge.answer.expect("nobody bans"))
    }
}

/// A store with a table of `buckets` slots, and one worker.
struct World {
    store: MemoryStore,
    table: Table,
    stats: StoreStats,
}

impl World {
    fn new(buckets: u32) -> Self {
        let mut store = MemoryStore::new();
        let table = open(&mut store, buckets);
        Self {
            store,
            table,
            stats: StoreStats::default(),
        }
    }

    fn take(&mut self, rule: &ActiveRule, key: &str, now: u64) -> Result<BucketDecision, GaveUp> {
        let take = take(rule, key, now);
        self.table.take(&mut self.store, &take, &mut self.stats)
    }

    fn admits(&mut self, rule: &ActiveRule, key: &str, now: u64) -> bool {
        let answer = self.take(rule, key, now).expect("a decision");
        !answer.is_refused()
    }

    /// Returns the receipt for giving a request's cost back; `None` if it is refused.
    fn receipt(&mut self, rule: &ActiveRule, key: &str, now: u64) -> Option<Receipt> {
        let take = take(rule, key, now);
        let charge = self.table.charge(&mut self.store, &take, &mut self.stats);
        charge.expect("a decision").receipt
    }

    fn slot(&mut self, key: &str) -> Option<Slot> {
        let id = self.table.id(tag(), key);
        self.table.get(&mut self.store, id).expect("readable")
    }

    fn page(&mut self, index: u32) -> Page {
        let page = self.table.page(&mut self.store, index).expect("readable");
        page.map(|(page, _)| page).unwrap_or_default()
    }

    /// Changes the slot of `key` directly in the store.
    fn edit(&mut self, key: &str, edit: impl FnOnce(&mut Slot)) {
        let id = self.table.id(tag(), key);
        let mut page = self.page(id.page);
        edit(page.find(id.fingerprint).expect("a bucket to edit"));
        let mut bytes = Vec::new();
        page.encode(&mut bytes);
        let written = self.store.set(&page_key(id.page), &bytes, 0);
        assert!(written.is_ok());
    }

    fn slots_in_use(&mut self) -> u64 {
        let pages = 0..self.table.pages();
        let used = pages
            .map(|index| self.page(index).slots.len())
            .sum::<usize>();
        u64::try_from(used).expect("small")
    }
}

/// The key of page `index`. Spelled out, because old and new code share these values.
fn page_key(index: u32) -> Vec<u8> {
    [SHARE.as_bytes(), &[b':', KIND], &index.to_le_bytes()].concat()
}

fn names_key(index: u32) -> Vec<u8> {
    [SHARE.as_bytes(), b":n", &index.to_le_bytes()].concat()
}
