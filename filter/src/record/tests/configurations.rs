//! Rules that are removed, restored, and rolled back to.

use loudou_store::LiveRule;

use super::*;

/// A rule that a configuration leaves out and a later one has again has its buckets' history.
#[test]
fn a_rule_that_comes_back_knows_its_buckets() {
    let with = |capacity| file(&json!([rule("a", capacity), rule("b", 7)]));
    let without = file(&json!([rule("b", 7)]));
    let mut record = Record::new(&with(5), Nanos::from_secs(1));
    let at = Nanos::from_secs;
    let edited = record.rule_mut("a").expect("a");
    edited.apply(&edit(50), &author(2, None), 2);
    record.generation = 2;
    let adopted = record.adopt(&without, at(3), at(3)).expect("newer");
    assert_eq!(
        (adopted.removed, adopted.retired),
        (vec!["a".to_owned()], vec![ended("a", true, &[])])
    );
    assert!(record.rule("a").is_none());
    let old = with(5).rules.remove(0);
    let gone = record
        .of_buckets(0, &old)
        .expect("connections of the old listener");
    assert_eq!(gone.history.changes.len(), 2);
    assert_eq!(*gone.effective(), **old);
    record.generation = 3;
    record.adopt(&with(6), at(4), at(4)).expect("newer");
    let back = record.rule("a").expect("a");
    assert_eq!((back.history.since, back.history.version), (1, 4));
    assert_eq!(back.history.changes.len(), 3);
    assert!(record.gone.is_empty());
    assert_eq!(
        record.of_buckets(0, &old).map(|rule| &rule.base),
        Some(&back.base)
    );
}

/// Another key is another bucket: nothing is converted between the two.
#[test]
fn a_rule_with_another_key_has_buckets_of_its_own() {
    let mut record = Record::new(&file(&json!([rule("a", 5)])), Nanos::from_secs(1));
    let old = record.rules[0].base.clone();
    let mut by_path = rule("a", 6);
    by_path["key"] = json!(["path"]);
    let newer = file(&json!([by_path]));
    let at = Nanos::from_secs(2);
    let adopted = record.adopt(&newer, at, at).expect("newer");
    assert_eq!(adopted.changed, ["a"]);
    assert_eq!(record.of_buckets(0, &old).expect("gone").base, old);
    let new = record.of_buckets(0, &newer.rules[0]).expect("a");
    assert_eq!(new.base, newer.rules[0]);
    assert_ne!(new.activate().tag(), old.tag());
    assert!(new.history.changes.is_empty());
    // Back to the first key while its buckets live.
    record
        .adopt(&file(&json!([rule("a", 7)])), at, at)
        .expect("newer");
    assert_eq!(record.rules[0].history.changes.len(), 1);
    assert_eq!(record.gone.len(), 1);
}

#[test]
fn only_so_many_rules_that_are_gone_are_remembered() {
    let mut record = Record::new(&file(&json!([])), Nanos::ZERO);
    for n in 0..100 {
        let at = Nanos::from_secs(n);
        record.adopt(&file(&json!([rule(&format!("r{n}"), 5)])), at, at);
    }
    assert_eq!(record.gone.len(), 64);
    assert_eq!(record.gone.last().expect("one").base.name, "r98");
}

/// A configuration that is in force again keeps edits made in the meantime. A newly loaded
/// configuration does not.
#[test]
fn a_rollback_keeps_the_edits() {
    let with = |capacity| file(&json!([rule("a", capacity)]));
    let at = Nanos::from_secs;
    let mut record = Record::new(&with(5), at(1));
    record.adopt(&with(9), at(2), at(3)).expect("newer");
    let edited = record.rule_mut("a").expect("a");
    edited.set_override("alice", Override::Banned, &author(4, None), 3);
    // The workers may still be switching to the configuration.
    assert_eq!(record.roll_back(&with(5), Nanos::new(3_999_999_999)), None);
    assert_eq!(record.roll_back(&with(9), at(5)), None, "it is in force");
    let adopted = record.roll_back(&with(5), at(5)).expect("a rollback");
    assert_eq!(
        (adopted.changed, adopted.retired),
        (vec!["a".to_owned()], vec![])
    );
    assert_eq!(capacity(&record, "a"), 5);
    assert!(record.rule("a").expect("a").is_edited());
    // Configurations loaded before it are older now.
    assert_eq!(record.adopt(&with(9), at(2), at(6)), None);
    let adopted = record.adopt(&with(9), at(7), at(8)).expect("newer");
    assert_eq!(adopted.retired, [ended("a", false, &["alice"])]);
}

/// If a rule is local to each Envoy, its edit may have limits that no fleet can share. On a
/// fleet-wide base, that edit would make each Envoy limit alone.
#[test]
fn a_rollback_retires_edits_that_a_fleet_cannot_share() {
    let rules = |scope: &str| {
        let rules = ["a", "b", "c"].map(|name| {
            let mut rule = rule(name, 5);
            rule["scope"] = json!(scope);
            rule
        });
        let whole = json!({ "version": 1, "fleet": { "cluster": "relay" }, "rules": rules });
        Bases::of(&config::parse(&whole).file.expect("valid"))
    };
    let at = Nanos::from_secs;
    let mut record = Record::new(&rules("fleet"), at(1));
    record.adopt(&rules("envoy"), at(2), at(2)).expect("newer");
    let log = json!([{ "algorithm": "sliding_log", "capacity": 7, "window": "1m" }]);
    let change = config::parse_edit(&json!({ "limits": log })).expect("an edit");
    record
        .rule_mut("a")
        .expect("a")
        .apply(&change, &author(3, None), 3);
    let own = json!({ "limits": log });
    let own = config::parse_override("alice", &own, None).expect("an override");
    record
        .rule_mut("b")
        .expect("b")
        .set_override("alice", own, &author(3, None), 3);
    record
        .rule_mut("c")
        .expect("c")
        .apply(&edit(50), &author(3, None), 3);
    let adopted = record
        .roll_back(&rules("fleet"), at(5))
        .expect("a rollback");
    assert_eq!(adopted.retired, []);
    assert_eq!(
        adopted.unshared,
        [ended("a", true, &[]), ended("b", false, &["alice"])]
    );
    for (name, left) in [("a", 5), ("b", 5), ("c", 50)] {
        assert_eq!(capacity(&record, name), left, "{name}");
        let effective = record.rule(name).expect("the rule").effective();
        assert_eq!(config::unshared(effective), [], "{name}");
    }
}

/// However often configurations alternate while listeners drain, the configuration in force is
/// detected in time.
#[test]
fn rollbacks_are_bounded_by_time() {
    let with = |capacity| file(&json!([rule("a", capacity)]));
    let mut record = Record::new(&with(5), Nanos::ZERO);
    let at = Nanos::from_millis;
    let mut noticed = Vec::new();
    // Two listeners with different rules in one namespace. Each request belongs to the other
    // configuration.
    for n in 0..2_000 {
        let other = with(if capacity(&record, "a") == 5 { 6 } else { 5 });
        if record.roll_back(&other, at(100 * n)).is_some() {
            noticed.push(100 * n);
        }
    }
    // One a second, and then one in ten seconds.
    let first: Vec<u64> = (1..=16).map(|n| 1_000 * n).collect();
    assert_eq!(noticed[..16], first);
    let last: Vec<u64> = (1..=18).map(|n| 16_000 + 10_000 * n).collect();
    assert_eq!(noticed[16..], last);
    // It ends, and each of them is forgotten after ten seconds.
    let over = 196_000;
    for (later, left) in [
        (0, 16),
        (9_999, 16),
        (10_000, 15),
        (159_999, 1),
        (160_000, 0),
    ] {
        assert_eq!(record.rollbacks(at(over + later)), left, "{later}");
    }
    // A new configuration resets the count.
    let newer = at(over + 1);
    record.adopt(&with(50), newer, newer).expect("newer");
    assert_eq!(record.rollbacks(newer), 0);
}

/// A connection that looks like a rollback loses no edits: edits of a rule that the first
/// configuration lacks apply again with the second one.
#[test]
fn a_rollback_and_back_again_keeps_the_edits_of_all_rules() {
    let first = file(&json!([rule("a", 5)]));
    let second = file(&json!([rule("a", 5), rule("b", 7)]));
    let at = Nanos::from_secs;
    let mut record = Record::new(&first, at(1));
    record.adopt(&second, at(2), at(2)).expect("newer");
    let b = record.rule_mut("b").expect("b");
    b.set_override("alice", Override::Banned, &author(3, None), 3);
    b.set_override("bob", Override::Banned, &author(3, Some(at(4))), 3);
    let adopted = record.roll_back(&first, at(5)).expect("a rollback");
    assert_eq!(
        (adopted.removed, adopted.retired),
        (vec!["b".to_owned()], vec![])
    );
    assert_eq!(record.expire(at(7)), [ended("b", false, &["bob"])]);
    record.roll_back(&second, at(8)).expect("a rollback");
    let b = record.rule("b").expect("b");
    assert_eq!(
        b.effective().overrides.get("alice"),
        Some(&Override::Banned)
    );
    assert_eq!(b.effective().overrides.get("bob"), None);
    // A new configuration without the rule retires it.
    let adopted = record.adopt(&first, at(9), at(9)).expect("newer");
    assert_eq!(adopted.retired, [ended("b", false, &["alice"])]);
    assert!(
        record
            .of_buckets(1, &second.rules[1])
            .is_some_and(|b| !b.is_edited())
    );
}

/// A rollback can leave out more edited rules than are remembered.
#[test]
fn edits_of_rules_that_are_forgotten_are_retired() {
    let rules: Vec<_> = (0..100).map(|n| rule(&format!("r{n}"), 5)).collect();
    let at = Nanos::from_secs;
    let mut record = Record::new(&file(&json!([])), at(0));
    record
        .adopt(&file(&json!(rules)), at(1), at(1))
        .expect("newer");
    for name in ["r7", "r99"] {
        let edited = record.rule_mut(name).expect("the rule");
        edited.apply(&edit(50), &author(2, None), 2);
    }
    let adopted = record
        .roll_back(&file(&json!([])), at(5))
        .expect("a rollback");
    assert_eq!(adopted.removed.len(), 100);
    assert_eq!(adopted.retired, [ended("r7", true, &[])]);
}
