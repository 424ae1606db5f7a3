//! A rule set against requests.

use loudou_limiter::{Clock, Nanos, Verdict};
use loudou_rules::evaluate::{Answer, Outcome, evaluate};
use loudou_rules::rule_set::ActiveRule;
use loudou_rules::rule_set::RuleSet;
use loudou_rules::versions::History;
use loudou_store::memory::MemoryStore;
use loudou_store::{Cas, GaveUp, SharedData, StoreFailed, StoreStats, Table, Written};
use serde_json::{Value, json};

use super::{Fake, rule};

pub(super) struct World {
    pub(super) store: MemoryStore,
    pub(super) table: Table,
    pub(super) rules: RuleSet,
    pub(super) stats: StoreStats,
}

impl World {
    pub(super) fn new(rules: &[Value]) -> Self {
        let mut store = MemoryStore::new();
        let table = Table::open(&mut store, "test", 256, [3; 16], Nanos::ZERO).expect("opens");
        let rules = rules
            .iter()
            .map(|fields| ActiveRule::new(rule(fields), History::default()));
        Self {
            store,
            table,
            rules: rules.collect(),
            stats: StoreStats::default(),
        }
    }

    pub(super) fn at(&mut self, request: &Fake, now: Nanos) -> Outcome {
        let (rules, table, stats) = (&self.rules, &self.table, &mut self.stats);
        evaluate(
            rules,
            table,
            &mut self.store,
            &mut request.clone(),
            Clock::at(now),
            stats,
        )
    }

    /// The rules that answered, each with a letter, and whether the request was refused.
    pub(super) fn ask(&mut self, request: &Fake) -> (String, bool) {
        summary(&self.at(request, Nanos::ZERO))
    }
}

/// Returns a summary such as `0a 1r`: rule 0 admitted, rule 1 refused. The other letters are
/// s(kipped), m(issing), b(anned), u(nlimited), e(rror) and o(verruled).
pub(super) fn summary(outcome: &Outcome) -> (String, bool) {
    let letters = outcome.rules.iter().map(|rule| {
        let letter = match &rule.answer {
            Answer::Decided(_) if rule.overruled => 'o',
            Answer::Decided(decision) if decision.is_refused() => 'r',
            Answer::Decided(_) => 'a',
            Answer::Skipped => 's',
            Answer::Banned(_) => 'b',
            Answer::Unlimited => 'u',
            Answer::KeyMissing => 'm',
            Answer::KeyAmbiguous => 'M',
            Answer::Outage => 'o',
            Answer::GaveUp(_) => 'e',
            Answer::ValueTooLong => 'v',
        };
        format!("{}{letter}", rule.rule)
    });
    (letters.collect::<Vec<_>>().join(" "), outcome.is_refused())
}

pub(super) fn answer(rules: &str, refused: bool) -> (String, bool) {
    (rules.to_string(), refused)
}

pub(super) fn limit(capacity: u64) -> Value {
    json!([{ "algorithm": "funnel", "capacity": capacity, "rate": "1/d" }])
}

#[test]
fn rules_are_evaluated_in_order_until_one_refuses() {
    let mut world = World::new(&[
        json!({ "name": "wide", "limits": limit(3) }),
        json!({ "name": "other-path", "match": { "path": { "prefix": "/other" } } }),
        json!({ "name": "narrow", "limits": limit(2) }),
        json!({ "name": "last", "limits": limit(9) }),
    ]);
    let request = Fake::to("/");
    assert_eq!(world.ask(&request), answer("0a 2a 3a", false));
    assert_eq!(world.ask(&request), answer("0a 2a 3a", false));
    for _ in 0..5 {
        assert_eq!(world.ask(&request), answer("0o 2r", true));
    }
    // The first rule has one left for others.
    assert_eq!(world.ask(&Fake::to("/other")), answer("0o 1o 2r", true));
    let mut kept = world.rules.to_vec();
    kept.remove(2);
    world.rules = kept.into_iter().collect();
    assert_eq!(world.ask(&request), answer("0a 2a", false));
    assert_eq!(world.ask(&request), answer("0r", true));
}

#[test]
fn no_rule_is_no_refusal() {
    assert_eq!(World::new(&[]).ask(&Fake::to("/")), answer("", false));
    let off = json!({ "mode": "off" });
    let mut world = World::new(&[off]);
    for _ in 0..3 {
        assert_eq!(world.ask(&Fake::to("/")), answer("", false));
    }
    assert_eq!(world.store.len(), 1, "only the head: no bucket was touched");
}

/// A shadow rule decides on its own bucket and refuses no request, in any position.
#[test]
fn a_shadow_rule_never_affects_the_verdict() {
    let shadow = json!({ "name": "shadow", "mode": "shadow", "limits": limit(1) });
    let enforced = json!({ "name": "enforced", "limits": limit(2) });
    let mut world = World::new(&[shadow.clone(), enforced.clone()]);
    let request = Fake::to("/");
    assert_eq!(world.ask(&request), answer("0a 1a", false));
    assert_eq!(world.ask(&request), answer("0r 1a", false));
    assert_eq!(world.ask(&request), answer("0r 1r", true));
    let mut world = World::new(&[enforced, shadow]);
    assert_eq!(world.ask(&request), answer("0a 1a", false));
    assert_eq!(world.ask(&request), answer("0a 1r", false));
    assert_eq!(world.ask(&request), answer("0r 1r", true));
}

/// A shadow rule answers as if it were the only rule. In any position, a refusal by another rule
/// gives nothing back to it and hides no request from it.
#[test]
fn a_shadow_rule_behaves_as_if_alone() {
    let shadow = json!({ "name": "shadow", "mode": "shadow", "limits": limit(3) });
    let enforced = json!({ "name": "enforced", "limits": limit(1) });
    let request = Fake::to("/");
    let mut world = World::new(&[shadow.clone(), enforced.clone()]);
    let answers = ["0a 1a", "0a 1r", "0a 1r", "0r 1r", "0r 1r"];
    for (place, expected) in answers.iter().enumerate() {
        assert_eq!(world.ask(&request), answer(expected, place > 0));
    }
    let mut world = World::new(&[enforced, shadow]);
    let answers = ["0a 1a", "0r 1a", "0r 1a", "0r 1r", "0r 1r"];
    for (place, expected) in answers.iter().enumerate() {
        assert_eq!(world.ask(&request), answer(expected, place > 0));
    }
}

/// A rule that stops is the last enforced rule for its requests, whether it admits or refuses. In
/// shadow mode, and without a key, it does not stop.
#[test]
fn a_rule_may_end_the_search() {
    let with = |fields: Value| {
        let mut first = json!({ "name": "first", "stop": true, "limits": limit(2) });
        for (field, value) in fields.as_object().expect("fields") {
            first[field.as_str()] = value.clone();
        }
        let behind = json!({ "name": "behind", "limits": limit(1) });
        let shadow = json!({ "name": "shadow", "mode": "shadow", "limits": limit(9) });
        World::new(&[first, behind, shadow])
    };
    let request = Fake::to("/");
    let mut world = with(json!({}));
    for (answers, refused) in [("0a 2a", false), ("0a 2a", false), ("0r 2a", true)] {
        assert_eq!(world.ask(&request), answer(answers, refused));
    }
    let mut world = with(json!({ "match": { "path": { "prefix": "/first" } } }));
    assert_eq!(world.ask(&Fake::to("/first")), answer("0a 2a", false));
    assert_eq!(world.ask(&request), answer("1a 2a", false));
    assert_eq!(world.ask(&request), answer("1r 2a", true));
    let mut world = with(json!({ "mode": "shadow" }));
    assert_eq!(world.ask(&request), answer("0a 1a 2a", false));
    assert_eq!(world.ask(&request), answer("0a 1r 2a", true));
    let mut world = with(json!({ "key": ["source"] }));
    assert_eq!(world.ask(&request), answer("0s 1a 2a", false));
    // After a refusal it still stops later rules.
    let mut world = with(json!({}));
    let before = json!({ "name": "before", "limits": limit(1) });
    let before = ActiveRule::new(rule(&before), History::default());
    let rules = world.rules.iter().cloned();
    world.rules = std::iter::once(before.into()).chain(rules).collect();
    assert_eq!(world.ask(&request), answer("0a 1a 3a", false));
    assert_eq!(world.ask(&request), answer("0r 3a", true));
}

/// Answers before a refusal do not count. Rules that skipped the request are not affected.
#[test]
fn only_what_let_the_request_in_is_overruled() {
    let by_source = json!({ "name": "by-source", "key": ["source"] });
    let last =
        json!({ "name": "last", "on_missing_key": "refuse", "key": [{ "header": "x-user" }] });
    let mut world = World::new(&[
        by_source,
        json!({ "name": "all", "limits": limit(1) }),
        last,
    ]);
    for _ in 0..3 {
        assert_eq!(world.ask(&Fake::to("/")), answer("0s 1o 2m", true));
    }
    let alice = Fake::to("/").with("x-user", "alice");
    assert_eq!(world.ask(&alice), answer("0s 1a 2a", false));
}

/// Buckets belong to a rule's name. A key in two rules has two buckets, and a rule that keeps its
/// name keeps its buckets.
#[test]
fn buckets_belong_to_their_rule() {
    let key = json!([{ "header": "x-user" }]);
    let mut world = World::new(&[
        json!({ "name": "a", "key": key, "limits": limit(1) }),
        json!({ "name": "b", "key": key, "limits": limit(2) }),
    ]);
    let alice = Fake::to("/").with("x-user", "alice");
    let bob = Fake::to("/").with("x-user", "bob");
    assert_eq!(world.ask(&alice), answer("0a 1a", false));
    assert_eq!(world.ask(&alice), answer("0r", true));
    assert_eq!(world.ask(&bob), answer("0a 1a", false));
    assert_eq!(world.stats.created, 4);
    let renamed = json!({ "name": "c", "key": key, "limits": limit(1) });
    let kept = json!({ "name": "b", "key": key, "limits": limit(2), "mode": "enforce" });
    world.rules = [renamed, kept]
        .iter()
        .map(|fields| ActiveRule::new(rule(fields), History::default()))
        .collect();
    assert_eq!(world.ask(&alice), answer("0a 1a", false));
    assert_eq!(world.ask(&alice), answer("0r", true));
    world.rules = world.rules.iter().skip(1).cloned().collect();
    assert_eq!(world.ask(&alice), answer("0r", true));
}

#[test]
fn a_missing_key_is_skipped_refused_or_shared() {
    let rule = |policy: &str, mode: &str| json!({ "key": ["source"], "on_missing_key": policy, "mode": mode, "name": policy });
    let nobody = Fake::to("/");
    let mut world = World::new(&[rule("skip", "enforce"), rule("share", "enforce")]);
    assert_eq!(world.ask(&nobody), answer("0s 1a", false));
    assert_eq!(world.ask(&nobody), answer("0s 1r", true));
    let mut world = World::new(&[rule("refuse", "enforce"), rule("skip", "enforce")]);
    assert_eq!(world.ask(&nobody), answer("0m", true));
    let mut world = World::new(&[rule("refuse", "shadow"), rule("skip", "enforce")]);
    assert_eq!(world.ask(&nobody), answer("0m 1s", false));
}

#[test]
fn a_value_that_is_too_long_is_limited_skipped_or_refused() {
    let rule = |policy: &str, mode: &str| {
        let matches = json!({ "headers": [{ "name": "x", "regex": "a*" }] });
        json!({ "key": [], "match": matches, "on_long_value": policy, "mode": mode, "name": policy })
    };
    let long = Fake::to("/").with("x", "a".repeat(60_000));
    let mut world = World::new(&[rule("apply", "enforce"), rule("skip", "enforce")]);
    assert_eq!(world.ask(&long), answer("0a", false));
    assert_eq!(world.ask(&long), answer("0r", true));
    let mut world = World::new(&[rule("refuse", "enforce"), rule("apply", "enforce")]);
    assert_eq!(world.ask(&long), answer("0v", true));
    let mut world = World::new(&[rule("refuse", "shadow"), rule("apply", "enforce")]);
    assert_eq!(world.ask(&long), answer("0v 1a", false));
    // A rule that refuses because of the value is the last one with `stop`. A rule that is skipped
    // is not.
    let stop = |policy: &str| {
        let mut stop = rule(policy, "enforce");
        stop["stop"] = json!(true);
        World::new(&[stop, json!({ "key": [], "name": "all" })])
    };
    assert_eq!(stop("skip").ask(&long), answer("1a", false));
    assert_eq!(stop("apply").ask(&long), answer("0a", false));
}

#[test]
fn a_rule_takes_its_cost() {
    let mut world = World::new(&[json!({ "cost": 3, "limits": limit(7) })]);
    let outcome = world.at(&Fake::to("/"), Nanos::ZERO);
    let Some(Answer::Decided(decision)) = outcome.rules.first().map(|rule| &rule.answer) else {
        panic!("a decision");
    };
    let reported = decision.reported().expect("one limit");
    assert_eq!((reported.verdict, reported.remaining), (Verdict::Admit, 4));
    assert_eq!(world.ask(&Fake::to("/")), answer("0a", false));
    assert_eq!(world.ask(&Fake::to("/")), answer("0r", true));
    let days = |days: u64| Nanos::from_secs(days * 86_400);
    assert!(
        world
            .at(&Fake::to("/"), days(2).since(Nanos::new(1)))
            .is_refused()
    );
    assert!(!world.at(&Fake::to("/"), days(2)).is_refused());
}

/// A host on which everything fails.
struct Broken;

impl SharedData for Broken {
    fn get(&mut self, _: &[u8], _: &mut Vec<u8>) -> Result<Option<Cas>, StoreFailed> {
        Err(StoreFailed)
    }

    fn set(&mut self, _: &[u8], _: &[u8], _: Cas) -> Result<Written, StoreFailed> {
        Err(StoreFailed)
    }
}

#[test]
fn on_error_decides_when_the_store_does_not() {
    let rule = |name: &str, on_error: &str, mode: &str| json!({ "name": name, "on_error": on_error, "mode": mode });
    for (first, expected) in [
        (rule("a", "admit", "enforce"), answer("0e 1e", true)),
        (rule("a", "refuse", "enforce"), answer("0e", true)),
        (rule("a", "refuse", "shadow"), answer("0e 1e", true)),
    ] {
        let mut world = World::new(&[first, rule("b", "refuse", "enforce")]);
        let (rules, table, stats) = (&world.rules, &world.table, &mut world.stats);
        let outcome = evaluate(
            rules,
            table,
            &mut Broken,
            &mut Fake::to("/"),
            Clock::at(Nanos::ZERO),
            stats,
        );
        assert_eq!(summary(&outcome), expected);
        assert!(matches!(
            outcome.rules[0].answer,
            Answer::GaveUp(GaveUp::Failed)
        ));
    }
    let mut world = World::new(&[rule("a", "admit", "enforce")]);
    let (rules, table, stats) = (&world.rules, &world.table, &mut world.stats);
    let outcome = evaluate(
        rules,
        table,
        &mut Broken,
        &mut Fake::to("/"),
        Clock::at(Nanos::ZERO),
        stats,
    );
    assert!(!outcome.is_refused());
}

/// A rule with `when` is evaluated only while the request's upstream fails, and stops only then.
#[test]
fn a_rule_that_applies_while_its_upstream_fails() {
    let when = json!({ "upstream_error_rate_over": 0.5, "least": 2, "within": "1s" });
    let mut world = World::new(&[
        json!({ "name": "brake", "when": when, "stop": true, "limits": limit(1), "match": { "path": { "prefix": "/a" } } }),
        json!({ "name": "always", "limits": limit(9) }),
    ]);
    let to = |cluster: &str| Fake {
        cluster: Some(cluster.into()),
        ..Fake::to("/a")
    };
    let when = world.rules[0].rule().when.expect("there is one");
    assert_eq!(world.ask(&to("up")), answer("1a", false));
    for _ in 0..2 {
        let (table, stats) = (&world.table, &mut world.stats);
        table.respond(&mut world.store, &when, b"up", true, Nanos::ZERO, stats);
    }
    assert_eq!(world.ask(&to("up")), answer("0a", false));
    assert_eq!(world.ask(&to("up")), answer("0r", true));
    // Another upstream, no upstream, another path, another time.
    assert_eq!(world.ask(&to("other")), answer("1a", false));
    assert_eq!(world.ask(&Fake::to("/a")), answer("1a", false));
    assert_eq!(world.ask(&Fake::to("/b")), answer("1a", false));
    let later = world.at(&to("up"), Nanos::from_secs(1));
    assert_eq!(summary(&later), answer("1a", false));
}

/// The upstream of a request is not read if no matching rule has `when`.
#[test]
fn without_when_nothing_is_asked() {
    let when = json!({ "upstream_error_rate_over": 0.5 });
    let elsewhere = json!({ "path": { "prefix": "/a" } });
    let mut world = World::new(&[
        json!({ "name": "elsewhere", "when": when, "match": elsewhere }),
        json!({ "name": "off", "when": when, "mode": "off" }),
        json!({ "name": "always", "limits": limit(9) }),
    ]);
    let asked = |world: &mut World, path: &str| {
        let mut request = Fake::to(path);
        let (rules, table, stats) = (&world.rules, &world.table, &mut world.stats);
        let clock = Clock::at(Nanos::ZERO);
        evaluate(rules, table, &mut world.store, &mut request, clock, stats);
        request.asked.contains(&"(cluster)".to_string())
    };
    assert!(!asked(&mut world, "/b"));
    assert!(asked(&mut world, "/a"));
}
