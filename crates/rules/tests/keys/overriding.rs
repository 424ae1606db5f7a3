//! Keys with an override, banned keys, and the causes of bans.

use loudou_limiter::{Ban, Carry, Clock, Decision, Nanos};
use loudou_rules::config::parse_edit;
use loudou_rules::evaluate::{Answer, RuleOutcome};
use loudou_rules::rule_set::ActiveRule;
use loudou_rules::versions::History;
use loudou_store::page::Slot;
use loudou_store::{BanChange, LiveRule, SetBan};
use serde_json::{Value, json};

use super::evaluating::{World, answer, limit, summary};
use super::{Fake, rule};

const S: Nanos = Nanos::from_secs(1);

fn by(user: &str) -> Fake {
    Fake::to("/").with("x-user", user)
}

/// A rule by user with these fields.
fn by_user(fields: &Value) -> Value {
    let mut rule = json!({ "name": "r", "key": [{ "header": "x-user" }], "limits": limit(2) });
    for (name, value) in fields.as_object().expect("an object") {
        rule[name] = value.clone();
    }
    rule
}

fn penalty(fields: &Value) -> Value {
    let mut penalty =
        json!({ "after": 3, "within": "60s", "ban": "10s", "factor": 2, "max": "40s" });
    for (name, value) in fields.as_object().expect("an object") {
        penalty[name] = value.clone();
    }
    by_user(&json!({ "penalty": penalty }))
}

impl World {
    /// The first rule's verdict on a request at `seconds`.
    fn says(&mut self, user: &str, seconds: u64) -> RuleOutcome {
        let outcome = self.at(&by(user), Nanos::from_secs(seconds));
        outcome.rules.into_iter().next().expect("the rule")
    }

    /// Returns the outcome as a letter.
    fn letter(&mut self, user: &str, seconds: u64) -> char {
        let outcome = self.at(&by(user), Nanos::from_secs(seconds));
        let (letters, _) = summary(&outcome);
        letters.chars().last().expect("a letter")
    }

    /// Returns the capacity and the remaining capacity.
    fn numbers(&mut self, user: &str, seconds: u64) -> Option<(u64, u64)> {
        let said = self.says(user, seconds);
        let Answer::Decided(decision) = said.answer else {
            return None;
        };
        let numbers = |decision: &Decision| (decision.capacity, decision.remaining);
        decision.reported().map(numbers)
    }

    fn set_ban(&mut self, user: &str, ban: BanChange, seconds: u64) -> Option<Slot> {
        let active = &self.rules[0];
        let set = SetBan {
            rule: &**active,
            key: user,
            ban,
            clock: Clock::at(Nanos::from_secs(seconds)),
        };
        let before = self.table.set_ban(&mut self.store, &set, &mut self.stats);
        before.expect("writable")
    }
}

#[test]
fn keys_get_what_is_theirs() {
    let mut world = World::new(&[by_user(&json!({ "overrides": {
        "alice": { "scale": 10 },
        "team-*": { "limits": limit(5) },
        "team-7": "unlimited",
        "mallory": "banned",
    } }))]);
    assert_eq!(world.numbers("bob", 0), Some((2, 1)));
    assert_eq!(world.numbers("alice", 0), Some((20, 19)));
    assert_eq!(world.numbers("team-1", 0), Some((5, 4)));
    assert_eq!(world.numbers("team-", 0), Some((5, 4)));
    assert_eq!(world.numbers("team", 0), Some((2, 1)));
    for _ in 0..100 {
        assert_eq!(world.ask(&by("team-7")), answer("0u", false));
        assert_eq!(world.ask(&by("mallory")), answer("0b", true));
    }
    // Neither needs a bucket.
    assert_eq!(world.stats.created, 5);
}

#[test]
fn a_banned_key_does_not_say_when_to_come_back() {
    let mut world = World::new(&[by_user(&json!({ "overrides": { "mallory": "banned" } }))]);
    let said = world.says("mallory", 5);
    let Answer::Banned(ban) = said.answer else {
        panic!("{said:?}");
    };
    assert_eq!(ban.lasts(S), None);
    assert_eq!(said.key.as_deref(), Some("mallory"));
    assert!(said.receipt.is_none());
}

/// The used amount of a key is carried over in units when an override is added, changed and removed.
#[test]
fn a_bucket_goes_on_under_an_override() {
    let limits = json!([{ "algorithm": "funnel", "capacity": 10, "rate": "1/s" }]);
    let mut world = World::new(&[by_user(&json!({ "limits": limits }))]);
    let overrides = |world: &mut World, overrides: Value, carry: Carry, at: u64| {
        let edit = parse_edit(&json!({ "overrides": overrides })).expect("valid");
        assert!(world.rules.edit("r", &edit, carry, Nanos::from_secs(at)));
    };
    for _ in 0..5 {
        world.says("alice", 10);
    }
    assert_eq!(world.numbers("alice", 10), Some((10, 4)));
    // Of the six used one has leaked at 11 s. From then on ten leak a second.
    overrides(
        &mut world,
        json!({ "alice": { "scale": 10 } }),
        Carry::Keep,
        11,
    );
    assert_eq!(world.numbers("alice", 11), Some((100, 94)));
    for _ in 0..10 {
        world.says("alice", 11);
    }
    overrides(
        &mut world,
        json!({ "ali*": { "scale": 2 } }),
        Carry::Proportional,
        12,
    );
    // Of sixteen used ten leak until the edit, and two in the second after it.
    assert_eq!(world.numbers("alice", 13), Some((20, 15)));
    overrides(&mut world, json!({}), Carry::Keep, 13);
    assert_eq!(world.numbers("alice", 13), Some((10, 4)));
    // Six of two used, of which one leaks in five seconds: 3.2 are left at 27 s.
    overrides(
        &mut world,
        json!({ "alice": { "scale": 0.2 } }),
        Carry::Keep,
        13,
    );
    assert_eq!(world.letter("alice", 27), 'r');
    overrides(&mut world, json!({}), Carry::Keep, 28);
    assert_eq!(world.numbers("alice", 28), Some((10, 6)));
    // A reset is one, also of overrides.
    overrides(
        &mut world,
        json!({ "alice": { "scale": 2 } }),
        Carry::Reset,
        28,
    );
    assert_eq!(world.numbers("alice", 28), Some((20, 19)));
}

/// A key that is unlimited or banned for a while keeps its bucket, under the rule's limits.
#[test]
fn a_bucket_outlives_an_override_without_one() {
    for word in ["unlimited", "banned"] {
        let limits = json!([{ "algorithm": "funnel", "capacity": 10, "rate": "1/s" }]);
        let mut world = World::new(&[by_user(&json!({ "limits": limits }))]);
        for _ in 0..8 {
            world.says("alice", 0);
        }
        for (overrides, at) in [(json!({ "alice": word }), 1), (json!({}), 3)] {
            let edit = parse_edit(&json!({ "overrides": overrides })).expect("valid");
            assert!(
                world
                    .rules
                    .edit("r", &edit, Carry::Proportional, Nanos::from_secs(at))
            );
            assert_eq!(world.letter("alice", at) == 'a', at == 3, "{word}");
        }
        assert_eq!(world.numbers("alice", 4), Some((10, 4)), "{word}");
    }
}

#[test]
fn an_edit_of_the_limits_scales_with_it() {
    let mut world = World::new(&[by_user(
        &json!({ "overrides": { "alice": { "scale": 10 } } }),
    )]);
    assert_eq!(world.numbers("alice", 0), Some((20, 19)));
    let edit = parse_edit(&json!({ "limits": limit(4) })).expect("valid");
    assert!(world.rules.edit("r", &edit, Carry::Keep, S));
    assert_eq!(world.numbers("bob", 2), Some((4, 3)));
    assert_eq!(world.numbers("alice", 2), Some((40, 38)));
}

#[test]
fn an_edit_replaces_overrides_and_penalty() {
    let mut rule = penalty(&json!({}));
    rule["overrides"] = json!({ "root": "unlimited" });
    let mut world = World::new(&[rule]);
    let edit = json!({ "penalty": null, "overrides": { "alice": { "scale": 10 } } });
    let edit = parse_edit(&edit).expect("valid");
    assert!(world.rules.edit("r", &edit, Carry::Keep, S));
    assert_eq!(world.numbers("alice", 1), Some((20, 19)));
    assert_eq!(world.numbers("root", 1), Some((2, 1)));
    let letters: String = (0..8).map(|_| world.letter("eve", 1)).collect();
    assert_eq!(letters, "aarrrrrr");
}

#[test]
fn refused_too_often_is_banned_longer_each_time_and_forgotten() {
    let mut world = World::new(&[penalty(&json!({}))]);
    let letters = |world: &mut World, times: usize, at: u64| -> String {
        (0..times).map(|_| world.letter("eve", at)).collect()
    };
    // The refusal that triggers the ban already reports the end of the ban.
    assert_eq!(letters(&mut world, 6, 0), "aarrbb");
    assert_eq!(letters(&mut world, 1, 9), "b");
    assert_eq!(world.letter("bob", 9), 'a');
    assert_eq!(letters(&mut world, 4, 10), "rrbb");
    assert_eq!(letters(&mut world, 1, 29), "b");
    assert_eq!(letters(&mut world, 3, 30), "rrb");
    assert_eq!(letters(&mut world, 1, 69), "b");
    assert_eq!(letters(&mut world, 3, 70), "rrb");
    // The last ban is over at 110, and is forgotten at 150.
    assert_eq!(letters(&mut world, 1, 110), "r");
    assert_eq!(letters(&mut world, 3, 171), "rrb");
    assert_eq!(letters(&mut world, 1, 180), "b");
    assert_eq!(letters(&mut world, 1, 181), "r");
}

#[test]
fn a_ban_tells_how_long_it_lasts_and_takes_nothing() {
    let mut world = World::new(&[penalty(&json!({ "after": 1 }))]);
    let letters: String = (0..3).map(|_| world.letter("eve", 0)).collect();
    assert_eq!(letters, "aab");
    let Answer::Banned(ban) = world.says("eve", 4).answer else {
        panic!("banned");
    };
    assert_eq!(ban.lasts(Nanos::from_secs(4)), Some(Nanos::from_secs(6)));
    let id = world.table.id(world.rules[0].tag(), "eve");
    let slot = world.table.get(&mut world.store, id).expect("readable");
    let slot = slot.expect("a bucket");
    assert_eq!((slot.admitted, slot.refused), (2, 2));
    // Not idle before everything is forgotten.
    assert_eq!(slot.idle_at_ms, 172_800_000);
    assert_eq!(slot.ban_history.clean_at_ms, 50_000);
}

#[test]
fn a_key_that_lives_on_is_kept_until_its_ban_is_forgotten() {
    let limits = json!([{ "algorithm": "funnel", "capacity": 1, "rate": "1/s" }]);
    let penalty = json!({ "after": 1, "within": "1s", "ban": "10s", "max": "40s" });
    let mut world = World::new(&[by_user(&json!({ "limits": limits, "penalty": penalty }))]);
    assert_eq!(world.letter("eve", 0), 'a');
    assert_eq!(world.letter("eve", 0), 'b');
    let id = world.table.id(world.rules[0].tag(), "eve");
    let slot = world.table.get(&mut world.store, id).expect("readable");
    assert_eq!(slot.map(|slot| slot.idle_at_ms), Some(50_000));
}

#[test]
fn a_rule_in_shadow_mode_bans_nobody_else() {
    let mut shadow = penalty(&json!({ "after": 1 }));
    shadow["mode"] = json!("shadow");
    let mut other = by_user(&json!({ "limits": limit(9) }));
    other["name"] = json!("other");
    let mut world = World::new(&[shadow, other]);
    for expected in ["0a 1a", "0a 1a", "0b 1a", "0b 1a"] {
        assert_eq!(world.ask(&by("eve")), answer(expected, false));
    }
}

#[test]
fn an_operator_bans_and_lets_free() {
    let mut world = World::new(&[penalty(&json!({}))]);
    // Without a bucket, too.
    assert_eq!(world.set_ban("eve", BanChange::Banned(Some(S)), 0), None);
    assert_eq!(world.letter("eve", 0), 'b');
    assert_eq!(world.letter("eve", 1), 'a');
    let before = world
        .set_ban("eve", BanChange::Banned(None), 1)
        .expect("a bucket");
    assert_eq!(before.admitted, 1);
    let said = world.says("eve", 1_000_000).answer;
    assert!(matches!(said, Answer::Banned(Ban::ENDLESS)), "{said:?}");
    world.set_ban("eve", BanChange::Free, 1_000_000);
    assert_eq!(world.letter("eve", 1_000_000), 'a');
    // The strikes are forgotten with the ban.
    let id = world.table.id(world.rules[0].tag(), "eve");
    let slot = world.table.get(&mut world.store, id).expect("readable");
    assert_eq!(
        slot.map(|slot| (slot.ban_history, slot.flags)),
        Some(Default::default())
    );
    // Without a bucket, an unban has no effect.
    assert_eq!(world.set_ban("nobody", BanChange::Free, 0), None);
    assert_eq!(world.stats.created, 1);
}

/// A key without limits has no bucket, but an operator's ban applies.
#[test]
fn an_unlimited_key_can_be_banned() {
    let mut world = World::new(&[by_user(&json!({ "overrides": { "root": "unlimited" } }))]);
    assert_eq!(world.letter("root", 0), 'u');
    world.set_ban("root", BanChange::Banned(Some(S)), 0);
    assert_eq!(world.letter("root", 0), 'b');
    assert_eq!(world.letter("root", 1), 'u');
}

/// A request that a later rule's ban refuses gets back the amount that an earlier rule took.
#[test]
fn a_ban_is_a_refusal_for_other_rules() {
    let first = json!({ "name": "first", "limits": limit(2) });
    let mut world = World::new(&[first, by_user(&json!({ "overrides": { "eve": "banned" } }))]);
    for _ in 0..5 {
        assert_eq!(world.ask(&by("eve")), answer("0o 1b", true));
    }
    assert_eq!(world.ask(&by("bob")), answer("0a 1a", false));
    assert_eq!(world.ask(&by("bob")), answer("0a 1a", false));
}

/// A penalty after an operator's ban is not an operator's ban, and may be evicted like any other.
#[test]
fn an_operators_ban_ends_with_its_pin() {
    let mut world = World::new(&[penalty(&json!({ "after": 1 }))]);
    world.set_ban("eve", BanChange::Banned(Some(S)), 0);
    assert_eq!(world.letter("eve", 0), 'b');
    let letters: String = (0..4).map(|_| world.letter("eve", 1)).collect();
    assert_eq!(letters, "aabb");
    let id = world.table.id(world.rules[0].tag(), "eve");
    let slot = world.table.get(&mut world.store, id).expect("readable");
    assert_eq!(slot.map(|slot| slot.flags), Some(0));
}

/// An edit does not affect a key whose override has the rule's former limits, unless the edit resets levels.
#[test]
fn an_edit_leaves_buckets_of_an_override_alone() {
    for carry in [Carry::Keep, Carry::Proportional, Carry::Reset] {
        let own = json!({ "overrides": { "alice": { "limits": limit(10) } }, "limits": limit(10) });
        let mut world = World::new(&[by_user(&own)]);
        for _ in 0..10 {
            world.letter("alice", 0);
        }
        assert_eq!(world.letter("alice", 0), 'r');
        let edit = parse_edit(&json!({ "limits": limit(1_000) })).expect("valid");
        assert!(world.rules.edit("r", &edit, carry, S));
        let expected = if carry == Carry::Reset { 'a' } else { 'r' };
        assert_eq!(world.letter("alice", 2), expected, "{carry:?}");
    }
}

/// The wall clock is read if the limits of any key need it.
#[test]
fn an_override_may_want_the_wall_clock() {
    let by_clock = json!([{
        "algorithm": "fixed_window", "capacity": 5, "window": "1h", "align": "clock",
    }]);
    let reads =
        |fields: Value| ActiveRule::new(rule(&by_user(&fields)), History::default()).reads_wall();
    assert!(!reads(json!({})));
    assert!(!reads(
        json!({ "overrides": { "a": { "scale": 2 }, "b": "unlimited" } })
    ));
    assert!(reads(
        json!({ "overrides": { "a": { "limits": by_clock } } })
    ));
    assert!(reads(
        json!({ "limits": by_clock, "overrides": { "a": { "limits": limit(1) } } })
    ));
}
