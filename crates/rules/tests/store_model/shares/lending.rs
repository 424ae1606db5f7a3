//! Any requests of several rules in one page, checked against the guarantees of shares.

use std::collections::BTreeMap;

use loudou_store::page::{SLOTS, Slot};
use loudou_store::{GaveUp, LiveRule};
use proptest::prelude::*;
use serde_json::json;

use super::{MS, S, World, counts, daily, in_flight, named};

/// An event in a page: after a pause, a rule gets a request for a key, which may end.
#[derive(Clone, Debug)]
struct Step {
    rule: usize,
    key: usize,
    pause: u64,
    ends: bool,
}

fn step() -> impl Strategy<Value = Step> {
    let pause = prop_oneof![8 => 0..50 * MS, 1 => 0..3 * S];
    // Half of them are of one rule.
    let rule = prop_oneof![3 => Just(0_usize), 3 => 0..5_usize];
    (rule, 0..24_usize, pause, any::<bool>()).prop_map(|(rule, key, pause, ends)| Step {
        rule,
        key,
        pause,
        ends,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    /// Checks each used bucket that is evicted. It belongs to the new bucket's rule if that rule
    /// has its share. If not, it belongs to a rule above its share. A bucket with permits is
    /// evicted only if a rule above its share has no other bucket, and permits are never forgotten
    /// before their lease ends.
    #[test]
    fn only_what_is_lent_goes_to_others(steps in prop::collection::vec(step(), 30..300)) {
        let mut world = World::new(16);
        let slow = in_flight(2, "1s");
        let quick = json!([{ "algorithm": "funnel", "capacity": 5, "rate": "1/s" }]);
        let rules = [
            named("slow", &slow),
            named("two", &daily(2)),
            named("slow-too", &slow),
            named("one", &daily(1)),
            named("quick", &quick),
        ];
        let mut now = 0;
        // For each bucket, when the last permit was taken that is never given back.
        let mut taken: BTreeMap<u64, u64> = BTreeMap::new();
        for Step { rule, key, pause, ends } in steps {
            now += pause;
            let key = format!("k{key}");
            let (is_slow, rule) = (rule == 0 || rule == 2, &rules[rule]);
            let before = world.page(0);
            let is_held = |slot: &Slot| now / MS < slot.held_until_ms;
            for slot in &before.slots {
                let Some(taken) = taken.get(&slot.fingerprint) else {
                    prop_assert_eq!(slot.held_until_ms, 0);
                    continue;
                };
                prop_assert!(is_held(slot) || taken + S <= now);
            }
            let charge = world.charge(rule, &key, now);
            let after = world.page(0);
            let lives = |slot: &Slot| after.slots.iter().any(|s| s.fingerprint == slot.fingerprint);
            let gone: Vec<&Slot> = before.slots.iter().filter(|slot| !lives(slot)).collect();
            prop_assert!(gone.len() <= 1);
            let counts = counts(&before);
            let of = |tag: u32| counts.get(&tag).copied().unwrap_or(0);
            let tag = rule.tag();
            let share = SLOTS / (counts.len() + usize::from(of(tag) == 0));
            if let Some(gone) = gone.first() {
                taken.remove(&gone.fingerprint);
                if gone.is_idle(now / MS) {
                    prop_assert!(!is_held(gone));
                } else if of(tag) >= share {
                    prop_assert!(gone.rule_tag == tag && !is_held(gone));
                } else {
                    prop_assert!(of(gone.rule_tag) > share);
                    let mut lent = before.slots.iter().filter(|slot| of(slot.rule_tag) > share);
                    prop_assert!(!is_held(gone) || lent.all(is_held));
                }
                let is_idle = |slot: &Slot| slot.is_idle(now / MS);
                prop_assert!(is_idle(gone) || !before.slots.iter().any(is_idle));
            }
            match charge {
                Err(gave_up) => {
                    prop_assert_eq!(gave_up, GaveUp::PageFull);
                    let mut own = before.slots.iter().filter(|slot| slot.rule_tag == tag);
                    prop_assert!(of(tag) >= share && own.all(is_held));
                }
                Ok(charge) => if let Some(receipt) = charge.receipt && is_slow {
                    if ends {
                        world.ends(rule, &key, &receipt, now);
                    } else {
                        taken.insert(world.table.id(tag, &key).fingerprint, now);
                    }
                },
            }
        }
    }
}
