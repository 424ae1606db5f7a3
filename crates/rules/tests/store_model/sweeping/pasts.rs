//! Any past of two rules, and a sweep after it.

use loudou_limiter::{Bucket, BucketRequest, Carry, Nanos};
use loudou_rules::config::parse_edit;
use loudou_store::page::{Page, Slot, Tick};
use loudou_store::{Age, BanChange, LiveRule, ReleaseReason, SetBan};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::{World, clock, take};
use super::Edited;

const S: u64 = 1_000_000_000;
/// The first two have separate overrides in some of [`overrides`]. The keys with `vip-` share one
/// override.
const KEYS: [&str; 10] = [
    "own", "free", "vip-a", "vip-b", "vip-c", "k-0", "k-1", "k-2", "k-3", "k-4",
];

/// Limits of every algorithm that scales and of some that do not.
fn limits() -> Vec<Value> {
    let both = json!([
        { "name": "a", "algorithm": "concurrency", "capacity": 3, "lease": "2s" },
        { "name": "b", "algorithm": "funnel", "capacity": 9, "rate": "1/s" },
    ]);
    vec![
        json!([{ "algorithm": "funnel", "capacity": 5, "rate": "1/s" }]),
        json!([{ "algorithm": "funnel", "capacity": 2, "rate": "1/3s", "max_wait": "9s" }]),
        json!([{ "algorithm": "token_bucket", "capacity": 6, "rate": "2/s", "initial": 3 }]),
        json!([{ "algorithm": "sliding_log", "capacity": 4, "window": "3s" }]),
        json!([{ "algorithm": "sliding_window", "capacity": 6, "window": "4s", "slots": 4 }]),
        json!([{ "algorithm": "sliding_counter", "capacity": 4, "window": "3s" }]),
        json!([{ "algorithm": "sliding_counter", "capacity": 4, "window": "3s", "align": "clock" }]),
        json!([{ "algorithm": "fixed_window", "capacity": 3, "window": "2s", "align": "clock" }]),
        json!([{ "algorithm": "leaky_queue", "capacity": 5, "rate": "1/s", "immediate": 2 }]),
        json!([{ "algorithm": "smooth_bursty", "rate": "2/s", "burst_seconds": 2, "max_wait": "2s" }]),
        json!([{ "algorithm": "smooth_warmup", "rate": "2/s", "warmup": "3s", "max_wait": "2s" }]),
        both,
    ]
}

fn overrides() -> Vec<Value> {
    let own = json!([{ "algorithm": "funnel", "capacity": 7, "rate": "1/2s" }]);
    vec![
        json!({}),
        json!({ "own": { "limits": own }, "vip-*": { "scale": 3 } }),
        json!({ "own": { "scale": 2 }, "free": "unlimited", "vip-a": { "limits": own } }),
        json!({ "vip-*": "banned", "vip-a": { "scale": 2 }, "free": { "scale": 3 } }),
    ]
}

#[derive(Clone, Debug)]
enum Event {
    /// A request of a key to the rule or to the other one, which may end at once.
    Acquire(usize, bool, bool),
    /// An operator bans or unbans a key of either rule.
    Ban(usize, bool, bool),
    Limits(usize, Carry),
    Overrides(usize, Carry),
}

fn events() -> impl Strategy<Value = Vec<(u64, Event)>> {
    let carry = prop::sample::select(vec![Carry::Keep, Carry::Proportional, Carry::Reset]);
    let key = 0..KEYS.len();
    let event = prop_oneof![
        9 => (key.clone(), prop::bool::weighted(0.8), any::<bool>())
            .prop_map(|(key, own, ends)| Event::Acquire(key, own, ends)),
        1 => (key, any::<bool>(), any::<bool>())
            .prop_map(|(key, own, bans)| Event::Ban(key, own, bans)),
        1 => (0..limits().len(), carry.clone()).prop_map(|(to, carry)| Event::Limits(to, carry)),
        1 => (0..overrides().len(), carry).prop_map(|(to, carry)| Event::Overrides(to, carry)),
    ];
    prop::collection::vec((0..S / 2, event), 1..160)
}

/// The history of two rules.
struct Past {
    world: World,
    edited: Edited,
    now: u64,
}

fn live(first: usize, events: Vec<(u64, Event)>) -> Past {
    let mut world = World::new(64);
    let mut edited = Edited::new("swept", &limits()[first]);
    let other = Edited::new("other", &limits()[first]).active();
    let mut now = S;
    for (pause, event) in events {
        now += pause;
        let rule = edited.active();
        let of = |own: bool| if own { &rule } else { &other };
        match event {
            Event::Acquire(key, own, ends) => {
                let (rule, key) = (of(own), KEYS[key]);
                let take = take(rule, key, now);
                let charge = world
                    .table
                    .charge(&mut world.store, &take, &mut world.stats);
                if let Ok(Some(receipt)) = charge.map(|charge| charge.receipt)
                    && ends
                {
                    let give = rule.release(key, &receipt, ReleaseReason::Ended, clock(now));
                    let given = world
                        .table
                        .release(&mut world.store, &give, &mut world.stats);
                    given.expect("given back");
                }
            }
            Event::Ban(key, own, bans) => {
                let span = Nanos::from_secs(20);
                let ban = SetBan {
                    rule: of(own),
                    key: KEYS[key],
                    ban: if bans {
                        BanChange::Banned(Some(span))
                    } else {
                        BanChange::Free
                    },
                    clock: clock(now),
                };
                let set = world
                    .table
                    .set_ban(&mut world.store, &ban, &mut world.stats);
                set.expect("set");
            }
            Event::Limits(to, carry) => edited.limits(&limits()[to], carry, now),
            Event::Overrides(to, carry) => {
                let to = json!({ "overrides": overrides()[to] });
                edited.edit(&parse_edit(&to).expect("valid"), carry, now);
            }
        }
    }
    Past { world, edited, now }
}

/// Returns a slot with this bucket, as decoded from a page.
fn read_back(slot: &Slot, bucket: Bucket) -> Slot {
    let slot = Slot {
        bucket,
        ..slot.clone()
    };
    let (mut page, mut bytes) = (Page::default(), Vec::new());
    page.slots.push(slot);
    page.encode(&mut bytes);
    let page = Page::decode(&bytes).expect("a page");
    page.slots[0].clone()
}

/// A slot but for where its state began, and for what a request counts.
fn state(slot: &Slot) -> Slot {
    Slot {
        origin: 0,
        admitted: 0,
        refused: 0,
        refused_at: Tick::default(),
        refused_since_ms: 0,
        ..slot.clone()
    }
}

/// Checks that requests get equal answers in a swept world, whose past is forgotten, and in an
/// untouched world.
fn goes_on_alike(
    swept: &World,
    untouched: &World,
    (edited, key): (&Edited, &str),
    now: u64,
) -> Result<(), TestCaseError> {
    for later in [now, now + S / 3, now + 7 * S] {
        let ask = BucketRequest::new(1, Nanos::new(later));
        let (expected, left) = untouched.tried(&edited.active(), key, ask);
        let (answered, now_left) = swept.tried(&edited.forgetful(), key, ask);
        prop_assert_eq!(answered.answer, expected.answer);
        // A sweep before the end of a permit records that end. After the end, the record is
        // meaningless.
        let state = |slot: &Slot| {
            let held = Some(slot.held_until_ms).filter(|held| *held > later / 1_000_000);
            Slot {
                held_until_ms: held.unwrap_or(0),
                ..state(slot)
            }
        };
        prop_assert_eq!(state(&now_left), state(&left));
    }
    Ok(())
}

/// Sweeps all pages after a past, and compares each bucket with a bucket that was converted by a
/// request.
fn a_sweep_is_a_touch(
    first: usize,
    events: Vec<(u64, Event)>,
    late: u64,
    skew: u64,
) -> Result<(), TestCaseError> {
    let Past {
        mut world,
        edited,
        now,
    } = live(first, events);
    // The clock of the sweep may even lag behind the clock of the last touch.
    let now = now + late - skew.min(now);
    let rule = edited.active();
    let untouched = World {
        store: world.store.clone(),
        table: world.table.clone(),
        stats: world.stats,
    };
    for page in 0..world.table.pages() {
        let before = world.named_slots(page);
        let mut origins = world.page(page).origins;
        let is_behind = |slot: &Slot| slot.rule_tag == rule.tag() && slot.version < rule.version();
        let behind = before.iter().filter(|(slot, _)| is_behind(slot)).count();
        prop_assert_eq!(world.sweep(page, &rule, now), Ok(behind));
        let after = world.named_slots(page);
        prop_assert_eq!(before.len(), after.len());
        for ((before, key), (after, _)) in before.iter().zip(&after) {
            if !is_behind(before) {
                prop_assert_eq!(after, before);
                continue;
            }
            prop_assert_eq!(rule.age(after.version), Age::Current);
            let mut touched = rule.bucket_of(key, before, clock(now));
            // Its promises have the root of the earlier origin.
            let root = u64::from(before.origin) + 1;
            if after.origin != before.origin {
                rule.limits_of(key).set_root(&mut touched, root);
            }
            prop_assert_eq!(&after.bucket, &read_back(before, touched).bucket);
            prop_assert_eq!(after.ban_history, before.ban_history);
            prop_assert_eq!(
                (after.admitted, after.refused),
                (before.admitted, before.refused)
            );
            let (touched, slot) =
                untouched.tried(&rule, key, BucketRequest::new(0, Nanos::new(now)));
            if edited.brought(&rule, key, before, now).is_none() {
                let same = Slot {
                    version: before.version,
                    ..after.clone()
                };
                prop_assert_eq!(&same, before);
            } else {
                origins = origins.wrapping_add(1);
                prop_assert_eq!(after.origin, origins);
                // A refusal is a touch.
                if touched.answer.is_ok_and(|answer| !answer.is_refused()) {
                    let settled = Slot {
                        ban_history: slot.ban_history,
                        ..after.clone()
                    };
                    prop_assert_eq!(state(&settled), state(&slot));
                }
            }
            goes_on_alike(&world, &untouched, (&edited, key), now)?;
        }
        prop_assert_eq!(world.page(page).origins, origins);
        let swept = world.raw_page(page);
        prop_assert_eq!(world.sweep(page, &rule, now + S), Ok(0));
        prop_assert_eq!(world.raw_page(page), swept);
    }
    Ok(())
}

/// An edit at the exact instant at which the last waiting request may pass.
#[test]
fn a_line_that_has_passed_is_none() {
    let waits = |key: usize| (0, Event::Acquire(key, true, false));
    let to = |pause: u64, limits: usize| (pause, Event::Limits(limits, Carry::Keep));
    // The second request waits for half a second.
    let events = vec![to(0, 9), waits(3), waits(3), to(S / 2, 1)];
    a_sweep_is_a_touch(0, events, 0, 0).expect("alike");
}

/// A banned key whose permit ends, by a limit that an edit has removed.
#[test]
fn a_permit_that_has_ended_holds_nothing() {
    let to = |limits: usize| (0, Event::Limits(limits, Carry::Keep));
    let events = vec![
        to(11),
        (0, Event::Acquire(7, true, false)),
        (0, Event::Ban(7, true, true)),
        to(0),
    ];
    a_sweep_is_a_touch(0, events, 0, 0).expect("alike");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    /// After any past, sweeping all pages does what touching all keys would do, and nothing else. Then the
    /// past can be forgotten.
    #[test]
    fn a_sweep_is_a_touch_of_each_bucket(
        first in 0..limits().len(), events in events(),
        late in 0..5 * S, skew in prop_oneof![3 => Just(0), 1 => 0..2 * S],
    ) {
        a_sweep_is_a_touch(first, events, late, skew)?;
    }
}
