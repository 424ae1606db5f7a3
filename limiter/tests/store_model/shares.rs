//! What rules can take from each other: a share of each page, and permits that are held never.

use std::collections::BTreeMap;

use loudou_limiter::ban::Penalty;
use loudou_limiter::carry::{Carry, Versions};
use loudou_limiter::store::attempt::{Charge, Take};
use loudou_limiter::store::bans::{SetBan, SetTo};
use loudou_limiter::store::page::{Page, SLOTS};
use loudou_limiter::store::release::{Give, Receipt, Why};
use loudou_limiter::store::table::GaveUp;
use loudou_limiter::{Ask, Nanos};
use serde_json::json;

use super::{World, per_day, versions};

mod lending;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;
/// The rule that is flooded, and one that must not notice.
const FLOOD: u32 = 1;
const QUIET: u32 = 2;

/// At most `capacity` in flight, and a thousand a day.
fn in_flight(capacity: u64, lease: &str) -> Versions {
    versions(&json!([
        { "name": "a", "algorithm": "concurrency", "capacity": capacity, "lease": lease },
        { "name": "b", "algorithm": "funnel", "capacity": 1_000, "rate": "1000/d" },
    ]))
}

/// A ban of an hour for the first refusal.
fn penalty() -> Penalty {
    let file = json!({ "version": 1, "rules": [{
        "name": "r", "key": [], "limits": [{ "algorithm": "funnel", "capacity": 1, "rate": "1/d" }],
        "penalty": { "after": 1, "within": "1s", "ban": "1h" },
    }] });
    let file = loudou_limiter::config::parse(&file).file.expect("valid");
    file.rules[0].penalty.clone().expect("a penalty")
}

impl World {
    fn charge(
        &mut self,
        rule_tag: u32,
        versions: &Versions,
        penalty: Option<&Penalty>,
        key: &str,
        now: u64,
    ) -> Result<Charge, GaveUp> {
        let take = Take {
            versions,
            rule_tag,
            penalty,
            key,
            ask: Ask::new(1, Nanos::new(now)),
        };
        self.table.charge(&mut self.store, &take, &mut self.stats)
    }

    /// The receipt of a request to a rule; `None` when it is refused.
    fn passes(&mut self, rule: u32, versions: &Versions, key: &str, now: u64) -> Option<Receipt> {
        let charge = self.charge(rule, versions, None, key, now);
        charge.expect("a decision").receipt
    }

    fn ends(&mut self, rule_tag: u32, versions: &Versions, key: &str, receipt: &Receipt, now: u64) {
        let give = Give {
            versions,
            rule_tag,
            key,
            receipt,
            why: Why::Ended,
            now: Nanos::new(now),
        };
        let given = self.table.give(&mut self.store, &give, &mut self.stats);
        assert_eq!(given, Ok(()));
    }

    /// Ten requests of a key, one after another: its bucket is idle later than one with five in flight.
    fn flood(&mut self, rule: u32, versions: &Versions, key: &str, now: u64) {
        for _ in 0..10 {
            let receipt = self.passes(rule, versions, key, now).expect("admitted");
            self.ends(rule, versions, key, &receipt, now);
        }
    }

    /// An operator bans a key for a day.
    fn ban(&mut self, rule_tag: u32, versions: &Versions, key: &str, now: u64) {
        let ban = SetBan {
            versions,
            rule_tag,
            key,
            ban: SetTo::Banned(Some(Nanos::from_secs(86_400))),
            now: Nanos::new(now),
        };
        let before = self.table.set_ban(&mut self.store, &ban, &mut self.stats);
        assert_eq!(before.map(drop), Ok(()));
    }

    /// The number of slots of each rule in the only page.
    fn of_rules(&mut self) -> BTreeMap<u32, usize> {
        counts(&self.page(0))
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

/// Each of them has spent his limit and was never refused, so on worth alone each would go first.
#[test]
fn a_flood_takes_no_share_of_another_rule() {
    let mut world = World::new(16);
    let limits = per_day(1);
    let spent = keys("spent", 8);
    for key in &spent {
        assert!(world.passes(QUIET, &limits, key, 0).is_some());
    }
    for n in 1..1_000 {
        let key = format!("flood-{n}");
        assert!(world.passes(FLOOD, &limits, &key, n * MS).is_some());
        assert!(world.passes(FLOOD, &limits, &key, n * MS).is_none());
    }
    assert_eq!(world.of_rules(), BTreeMap::from([(FLOOD, 8), (QUIET, 8)]));
    for key in &spent {
        assert!(world.passes(QUIET, &limits, key, S).is_none(), "{key}");
    }
}

/// An idle share is lent out, and comes back.
#[test]
fn a_share_that_nobody_uses_is_lent() {
    let mut world = World::new(16);
    let limits = per_day(1);
    for (now, key) in (0..).zip(keys("flood", 40)) {
        assert!(world.passes(FLOOD, &limits, &key, now).is_some());
    }
    assert_eq!(world.of_rules(), BTreeMap::from([(FLOOD, 16)]));
    for rule in [QUIET, 3, 4] {
        for key in keys("other", 20) {
            assert!(world.passes(rule, &limits, &key, 100).is_some());
        }
    }
    let shares = [(FLOOD, 4), (QUIET, 4), (3, 4), (4, 4)];
    assert_eq!(world.of_rules(), BTreeMap::from(shares));
    // The first of them lets a fifth one in, who finds the largest.
    assert!(world.passes(5, &limits, "k", 200).is_some());
    assert_eq!(world.of_rules().get(&5), Some(&1));
}

/// What is lent comes back from the rule that has the most, even if it is worth more there.
#[test]
fn the_largest_rule_gives_first() {
    let mut world = World::new(16);
    let (slow, quick) = (
        per_day(1),
        versions(&json!([
            { "algorithm": "funnel", "capacity": 1, "rate": "1/m" }
        ])),
    );
    for (rule, limits, count) in [(FLOOD, &slow, 9), (3, &quick, 7)] {
        for key in keys("some", count) {
            assert!(world.passes(rule, limits, &key, 0).is_some());
        }
    }
    for (count, left) in [(1, (8, 7)), (2, (7, 7)), (3, (7, 6)), (5, (6, 5))] {
        for key in keys("quiet", count) {
            world.passes(QUIET, &slow, &key, 1);
        }
        let of_rules = world.of_rules();
        assert_eq!((of_rules[&FLOOD], of_rules[&3]), left, "{count}");
    }
}

/// With more rules than slots there is no share, and still none of them is shut out.
#[test]
fn more_rules_than_slots() {
    let mut world = World::new(16);
    let limits = per_day(1);
    for round in 0..3 {
        for rule in 0..20 {
            assert!(
                world
                    .passes(rule, &limits, &format!("k{round}"), round)
                    .is_some()
            );
        }
    }
    assert!(world.of_rules().values().all(|count| *count <= 2));
    // But none of them takes the permits of another.
    let mut world = World::new(16);
    let slow = in_flight(5, "1h");
    for rule in 0..16 {
        assert!(world.passes(rule, &slow, "k", 0).is_some());
    }
    let full = world.charge(16, &limits, None, "k", 1);
    assert_eq!(full.err(), Some(GaveUp::PageFull));
}

#[test]
fn bans_of_another_rule_stay() {
    let mut world = World::new(16);
    let (limits, penalty) = (per_day(1), penalty());
    let banned = |world: &mut World, rule: u32, key: &str, now: u64| {
        let charge = world.charge(rule, &limits, Some(&penalty), key, now);
        charge.expect("a decision").answer.is_err()
    };
    let early = keys("banned", 8);
    for key in &early {
        assert!(!banned(&mut world, QUIET, key, 0));
        assert!(banned(&mut world, QUIET, key, 0));
    }
    for n in 1..200 {
        let key = format!("flood-{n}");
        assert!(!banned(&mut world, FLOOD, &key, n * MS));
        assert!(banned(&mut world, FLOOD, &key, n * MS));
    }
    for key in &early {
        assert!(banned(&mut world, QUIET, key, S), "{key}");
    }
}

/// What operators have banned is no rule's share: neither does it cost its own rule one.
#[test]
fn operators_bans_are_nobodys_share() {
    let mut world = World::new(16);
    let limits = per_day(1);
    for key in keys("banned", 8) {
        world.ban(QUIET, &limits, &key, 0);
    }
    for rule in [FLOOD, QUIET] {
        for key in keys("some", 20) {
            assert!(world.passes(rule, &limits, &key, 0).is_some());
        }
    }
    assert_eq!(world.of_rules(), BTreeMap::from([(FLOOD, 4), (QUIET, 12)]));
}

/// Five are in flight, and nobody was refused yet.
#[test]
fn permits_that_are_held_are_not_evicted() {
    for flooded in [QUIET, FLOOD] {
        let mut world = World::new(16);
        let limits = in_flight(5, "1m");
        let held = [0; 5].map(|now| world.passes(QUIET, &limits, "full", now).expect("admitted"));
        for key in keys("flood", 200) {
            world.flood(flooded, &limits, &key, 1);
        }
        assert!(world.passes(QUIET, &limits, "full", S).is_none());
        for receipt in held {
            world.ends(QUIET, &limits, "full", &receipt, S);
        }
        assert!(world.passes(QUIET, &limits, "full", S).is_some());
    }
}

/// Sixteen of one rule whose requests do not end: the rule has no room for more. A return makes some, and
/// so does the lease, whatever else is in the bucket.
#[test]
fn a_page_of_held_permits_takes_no_newcomer_of_its_rule() {
    let mut world = World::new(16);
    let limits = in_flight(5, "1s");
    let all = keys("slow", SLOTS);
    let receipts: Vec<Receipt> = all
        .iter()
        .map(|key| world.passes(FLOOD, &limits, key, 0).expect("admitted"))
        .collect();
    let before = world.page(0);
    let full = world.charge(FLOOD, &limits, None, "new", 1);
    assert_eq!(full.err(), Some(GaveUp::PageFull));
    assert_eq!(world.page(0), before);
    world.ends(FLOOD, &limits, &all[7], &receipts[7], 2);
    assert!(world.passes(FLOOD, &limits, "new", 3).is_some());
    // Two leases after the last of them, nobody holds anything, and the funnels are far from idle.
    let full = world.charge(FLOOD, &limits, None, "newer", 2 * S - 1);
    assert_eq!(full.err(), Some(GaveUp::PageFull));
    assert!(world.passes(FLOOD, &limits, "newer", 2 * S).is_some());
    assert_eq!(world.stats.evicted_lossy, 2);
}

/// A flood of slow requests holds a page; another rule has its share of it nonetheless, and whoever is
/// refused by the flooded one stays so.
#[test]
fn held_permits_are_no_more_than_a_share() {
    let mut world = World::new(16);
    let (slow, limits) = (in_flight(5, "1h"), per_day(1));
    let full: Vec<_> = (0..6)
        .map(|_| world.passes(FLOOD, &slow, "full", 0))
        .collect();
    assert_eq!(full.iter().flatten().count(), 5);
    for key in keys("slow", 15) {
        assert!(world.passes(FLOOD, &slow, &key, 1).is_some());
    }
    for key in keys("quiet", 20) {
        assert!(world.passes(QUIET, &limits, &key, 2).is_some());
    }
    assert_eq!(world.of_rules(), BTreeMap::from([(FLOOD, 8), (QUIET, 8)]));
    assert!(world.passes(FLOOD, &slow, "full", 3).is_none());
    let more = world.charge(FLOOD, &slow, None, "more", 4);
    assert_eq!(more.err(), Some(GaveUp::PageFull));
}

/// As long as a rule above its share has anything else, permits stay.
#[test]
fn held_permits_go_after_all_else_above_a_share() {
    let mut world = World::new(16);
    let (slow, limits) = (in_flight(5, "1h"), per_day(1));
    for key in keys("slow", 9) {
        assert!(world.passes(FLOOD, &slow, &key, 0).is_some());
    }
    for key in keys("other", 7) {
        assert!(world.passes(3, &limits, &key, 0).is_some());
    }
    for (count, left) in [(1, (9, 6)), (2, (9, 5)), (3, (8, 5)), (5, (6, 5))] {
        for key in keys("quiet", count) {
            world.passes(QUIET, &limits, &key, 1);
        }
        let of_rules = world.of_rules();
        assert_eq!((of_rules[&FLOOD], of_rules[&3]), left, "{count}");
    }
}

/// Whoever holds permits under numbers that were edited holds them still.
#[test]
fn an_edit_leaves_permits_held() {
    let mut world = World::new(16);
    let mut limits = per_day(1_000);
    assert!(world.passes(QUIET, &limits, "full", 0).is_some());
    limits.replace(
        in_flight(5, "1m").current().clone(),
        Carry::Keep,
        Nanos::new(1),
    );
    for now in 2..7 {
        assert!(world.passes(QUIET, &limits, "full", now).is_some());
    }
    limits.replace(
        in_flight(6, "2m").current().clone(),
        Carry::Keep,
        Nanos::new(8),
    );
    assert!(world.passes(QUIET, &limits, "full", 9).is_some());
    for key in keys("flood", 40) {
        world.flood(QUIET, &limits, &key, 10);
    }
    assert!(world.passes(QUIET, &limits, "full", 11).is_none());
}
