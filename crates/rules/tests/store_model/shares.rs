//! Effects of rules on each other. Shares of pages are lent, and held permits are never taken.

use std::collections::BTreeMap;

use loudou_limiter::{Carry, Nanos};
use loudou_rules::config::parse_rule;
use loudou_rules::rule_set::ActiveRule;
use loudou_rules::versions::History;
use loudou_store::page::{Page, SLOTS};
use loudou_store::{BanChange, Charge, GaveUp, LiveRule, Receipt, ReleaseReason, SetBan};
use serde_json::{Value, json};

use super::{World, clock, daily, edited, named, take};

mod lending;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

/// Returns limits with at most `capacity` in flight, and a thousand a day.
fn in_flight(capacity: u64, lease: &str) -> Value {
    json!([
        { "name": "a", "algorithm": "concurrency", "capacity": capacity, "lease": lease },
        { "name": "b", "algorithm": "funnel", "capacity": 1_000, "rate": "1000/d" },
    ])
}

/// Returns a flooding rule and a rule that must not be affected, both with these limits.
fn flood_and_quiet(limits: &Value) -> [ActiveRule; 2] {
    ["flood", "quiet"].map(|name| named(name, limits))
}

/// A rule of one a day that bans for an hour for the first refusal.
fn strict(name: &str) -> ActiveRule {
    let rule = parse_rule(&json!({
        "name": name, "key": [], "limits": daily(1),
        "penalty": { "after": 1, "within": "1s", "ban": "1h" },
    }));
    ActiveRule::new(rule.expect("a valid rule"), History::default())
}

impl World {
    fn charge(&mut self, rule: &ActiveRule, key: &str, now: u64) -> Result<Charge, GaveUp> {
        let take = take(rule, key, now);
        self.table.charge(&mut self.store, &take, &mut self.stats)
    }

    fn passes(&mut self, rule: &ActiveRule, key: &str, now: u64) -> bool {
        self.receipt(rule, key, now).is_some()
    }

    fn ends(&mut self, rule: &ActiveRule, key: &str, receipt: &Receipt, now: u64) {
        let give = rule.release(key, receipt, ReleaseReason::Ended, clock(now));
        let given = self.table.release(&mut self.store, &give, &mut self.stats);
        assert_eq!(given, Ok(()));
    }

    /// Sends ten requests of a key, one after another, so that its bucket is idle later than a
    /// bucket with five in flight.
    fn flood(&mut self, rule: &ActiveRule, key: &str, now: u64) {
        for _ in 0..10 {
            let receipt = self.receipt(rule, key, now).expect("admitted");
            self.ends(rule, key, &receipt, now);
        }
    }

    /// An operator bans a key for a day.
    fn ban(&mut self, rule: &ActiveRule, key: &str, now: u64) {
        let ban = SetBan {
            rule,
            key,
            ban: BanChange::Banned(Some(Nanos::from_secs(86_400))),
            clock: clock(now),
        };
        let before = self.table.set_ban(&mut self.store, &ban, &mut self.stats);
        assert_eq!(before.map(drop), Ok(()));
    }

    /// The number of slots of each rule in the only page.
    fn of_rules(&mut self) -> BTreeMap<u32, usize> {
        counts(&self.page(0))
    }

    /// The number of slots of these rules in the only page.
    fn slots_of<const N: usize>(&mut self, rules: [&ActiveRule; N]) -> [usize; N] {
        let of_rules = self.of_rules();
        rules.map(|rule| of_rules.get(&rule.tag()).copied().unwrap_or(0))
    }
}

fn counts(page: &Page) -> BTreeMap<u32, usize> {
    let mut counts = BTreeMap::new();
    for slot in &page.slots {
        *counts.entry(slot.rule_tag).or_default() += 1;
    }
    counts
}

fn keys(what: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{what}-{n}")).collect()
}

/// Each key has used up its limit and was never refused, so by worth alone each would be evicted first.
#[test]
fn a_flood_takes_no_share_of_another_rule() {
    let mut world = World::new(16);
    let [flood, quiet] = flood_and_quiet(&daily(1));
    let spent = keys("spent", 8);
    for key in &spent {
        assert!(world.passes(&quiet, key, 0));
    }
    for n in 1..1_000 {
        let key = format!("flood-{n}");
        assert!(world.passes(&flood, &key, n * MS));
        assert!(!world.passes(&flood, &key, n * MS));
    }
    assert_eq!(world.slots_of([&flood, &quiet]), [8, 8]);
    for key in &spent {
        assert!(!world.passes(&quiet, key, S), "{key}");
    }
}

/// An idle share is lent, and returned.
#[test]
fn a_share_that_nobody_uses_is_lent() {
    let mut world = World::new(16);
    let [flood, quiet, third, fourth, fifth] =
        ["flood", "quiet", "third", "fourth", "fifth"].map(|name| named(name, &daily(1)));
    for (now, key) in (0..).zip(keys("flood", 40)) {
        assert!(world.passes(&flood, &key, now));
    }
    assert_eq!(world.slots_of([&flood]), [16]);
    for rule in [&quiet, &third, &fourth] {
        for key in keys("other", 20) {
            assert!(world.passes(rule, &key, 100));
        }
    }
    let shares = world.slots_of([&flood, &quiet, &third, &fourth]);
    assert_eq!(shares, [4; 4]);
    // The first of them admits a fifth one, which finds the largest.
    assert!(world.passes(&fifth, "k", 200));
    assert_eq!(world.slots_of([&fifth]), [1]);
}

/// Lent slots are returned by the rule with the most buckets, even if they are worth more there.
#[test]
fn the_largest_rule_gives_first() {
    let mut world = World::new(16);
    let [flood, quiet] = flood_and_quiet(&daily(1));
    let quick = json!([{ "algorithm": "funnel", "capacity": 1, "rate": "1/m" }]);
    let quick = named("quick", &quick);
    for (rule, count) in [(&flood, 9), (&quick, 7)] {
        for key in keys("some", count) {
            assert!(world.passes(rule, &key, 0));
        }
    }
    for (count, left) in [(1, [8, 7]), (2, [7, 7]), (3, [7, 6]), (5, [6, 5])] {
        for key in keys("quiet", count) {
            world.passes(&quiet, &key, 1);
        }
        assert_eq!(world.slots_of([&flood, &quick]), left, "{count}");
    }
}

/// With more rules than slots there are no shares, but no rule is shut out.
#[test]
fn more_rules_than_slots() {
    let mut world = World::new(16);
    let rules: Vec<_> = (0..20).map(|n| format!("rule-{n}")).collect();
    for round in 0..3 {
        for name in &rules {
            let rule = named(name, &daily(1));
            assert!(world.passes(&rule, &format!("k{round}"), round));
        }
    }
    assert!(world.of_rules().values().all(|count| *count <= 2));
    // However, no rule takes the permits of another rule.
    let mut world = World::new(16);
    let (slow, more) = rules.split_at(16);
    for name in slow {
        let slow = named(name, &in_flight(5, "1h"));
        assert!(world.passes(&slow, "k", 0));
    }
    let full = world.charge(&named(&more[0], &daily(1)), "k", 1);
    assert_eq!(full.err(), Some(GaveUp::PageFull));
}

#[test]
fn bans_of_another_rule_stay() {
    let mut world = World::new(16);
    let [flood, quiet] = ["flood", "quiet"].map(strict);
    let banned = |world: &mut World, rule: &ActiveRule, key: &str, now: u64| {
        let charge = world.charge(rule, key, now);
        charge.expect("a decision").answer.is_err()
    };
    let early = keys("banned", 8);
    for key in &early {
        assert!(!banned(&mut world, &quiet, key, 0));
        assert!(banned(&mut world, &quiet, key, 0));
    }
    for n in 1..200 {
        let key = format!("flood-{n}");
        assert!(!banned(&mut world, &flood, &key, n * MS));
        assert!(banned(&mut world, &flood, &key, n * MS));
    }
    for key in &early {
        assert!(banned(&mut world, &quiet, key, S), "{key}");
    }
}

/// Buckets that operators banned do not count for the share of any rule, including their own rule.
#[test]
fn operators_bans_are_nobodys_share() {
    let mut world = World::new(16);
    let [flood, quiet] = flood_and_quiet(&daily(1));
    for key in keys("banned", 8) {
        world.ban(&quiet, &key, 0);
    }
    for rule in [&flood, &quiet] {
        for key in keys("some", 20) {
            assert!(world.passes(rule, &key, 0));
        }
    }
    assert_eq!(world.slots_of([&flood, &quiet]), [4, 12]);
}

/// Five are in flight, and no request was refused yet.
#[test]
fn permits_that_are_held_are_not_evicted() {
    let [flood, quiet] = flood_and_quiet(&in_flight(5, "1m"));
    for flooded in [&quiet, &flood] {
        let mut world = World::new(16);
        let held = [0; 5].map(|now| world.receipt(&quiet, "full", now).expect("admitted"));
        for key in keys("flood", 200) {
            world.flood(flooded, &key, 1);
        }
        assert!(!world.passes(&quiet, "full", S));
        for receipt in held {
            world.ends(&quiet, "full", &receipt, S);
        }
        assert!(world.passes(&quiet, "full", S));
    }
}

/// Sixteen buckets of a rule whose requests do not end, so the rule has no room for more. A return
/// makes room, and so does the end of the lease, with any other state in the bucket.
#[test]
fn a_page_of_held_permits_takes_no_newcomer_of_its_rule() {
    let mut world = World::new(16);
    let slow = named("slow", &in_flight(5, "1s"));
    let all = keys("slow", SLOTS);
    let receipts: Vec<Receipt> = all
        .iter()
        .map(|key| world.receipt(&slow, key, 0).expect("admitted"))
        .collect();
    let before = world.page(0);
    let full = world.charge(&slow, "new", 1);
    assert_eq!(full.err(), Some(GaveUp::PageFull));
    assert_eq!(world.page(0), before);
    world.ends(&slow, &all[7], &receipts[7], 2);
    assert!(world.passes(&slow, "new", 3));
    // Two leases after the last of them, no permits are held, and the funnels are far from idle.
    let full = world.charge(&slow, "newer", 2 * S - 1);
    assert_eq!(full.err(), Some(GaveUp::PageFull));
    assert!(world.passes(&slow, "newer", 2 * S));
    assert_eq!(world.stats.evicted_lossy, 2);
}

/// A flood of slow requests fills a page. Another rule still has its share of the page, and keys
/// that the flooding rule refused stay refused.
#[test]
fn held_permits_are_no_more_than_a_share() {
    let mut world = World::new(16);
    let (slow, quiet) = (
        named("slow", &in_flight(5, "1h")),
        named("quiet", &daily(1)),
    );
    let full = [(); 6].map(|()| world.passes(&slow, "full", 0));
    assert_eq!(full.iter().filter(|passes| **passes).count(), 5);
    for key in keys("slow", 15) {
        assert!(world.passes(&slow, &key, 1));
    }
    for key in keys("quiet", 20) {
        assert!(world.passes(&quiet, &key, 2));
    }
    assert_eq!(world.slots_of([&slow, &quiet]), [8, 8]);
    assert!(!world.passes(&slow, "full", 3));
    let more = world.charge(&slow, "more", 4);
    assert_eq!(more.err(), Some(GaveUp::PageFull));
}

/// As long as a rule above its share has any other bucket, permits stay.
#[test]
fn held_permits_go_after_all_else_above_a_share() {
    let mut world = World::new(16);
    let slow = named("slow", &in_flight(5, "1h"));
    let [other, quiet] = ["other", "quiet"].map(|name| named(name, &daily(1)));
    for key in keys("slow", 9) {
        assert!(world.passes(&slow, &key, 0));
    }
    for key in keys("other", 7) {
        assert!(world.passes(&other, &key, 0));
    }
    for (count, left) in [(1, [9, 6]), (2, [9, 5]), (3, [8, 5]), (5, [6, 5])] {
        for key in keys("quiet", count) {
            world.passes(&quiet, &key, 1);
        }
        assert_eq!(world.slots_of([&slow, &other]), left, "{count}");
    }
}

/// Permits under edited numbers stay held.
#[test]
fn an_edit_leaves_permits_held() {
    let mut world = World::new(16);
    let first = named("quiet", &daily(1_000));
    assert!(world.passes(&first, "full", 0));
    let five = named("quiet", &in_flight(5, "1m"));
    let five = edited(&first, &five, Carry::Keep, 1);
    for now in 2..7 {
        assert!(world.passes(&five, "full", now));
    }
    let six = named("quiet", &in_flight(6, "2m"));
    let six = edited(&five, &six, Carry::Keep, 8);
    assert!(world.passes(&six, "full", 9));
    for key in keys("flood", 40) {
        world.flood(&six, &key, 10);
    }
    assert!(!world.passes(&six, "full", 11));
}
