//! The reasons for which a rule was evaluated or not, and the state of its bucket.

use loudou_limiter::{Ban, Clock, Nanos, Verdict};
use loudou_rules::config::parse_sample;
use loudou_rules::evaluate::Answer;
use loudou_rules::explain::Standing::{Asked, BehindRefusal, BehindStop, NotFor, NotNow, Off};
use loudou_rules::explain::{Allowance, RuleExplained, explain};
use loudou_store::{Cas, GaveUp, SharedData, StoreFailed, StoreStats, Written};
use serde_json::{Value, json};

use super::{World, limit};

const START: Clock = Clock::at(Nanos::ZERO);

fn rule(name: &str, capacity: u32, more: &Value) -> Value {
    let mut rule = json!({ "name": name, "key": [], "limits": limit(capacity) });
    for (field, value) in more.as_object().expect("fields") {
        rule[field] = value.clone();
    }
    rule
}

/// A rule with `when` is not evaluated while the upstream of the request is healthy.
#[test]
fn a_rule_that_waits_for_an_upstream_to_fail() {
    let when = json!({ "upstream_error_rate_over": 0.5, "least": 1, "within": "1s" });
    let rules = json!([
        rule("brake", 1, &json!({ "when": when, "stop": true })),
        rule("always", 9, &json!({})),
    ]);
    let mut world = World::new(&rules, 64);
    let when = world.rules[0].rule().when.expect("there is one");
    let (table, mut stats) = (world.table.clone(), StoreStats::default());
    table.respond(
        &mut world.store,
        &when,
        b"bad",
        true,
        Nanos::ZERO,
        &mut stats,
    );
    let mut standings = |cluster: &str| {
        let explained = world.explain(&json!({ "cluster": cluster }), START);
        explained
            .rules
            .iter()
            .map(|rule| rule.standing)
            .collect::<Vec<_>>()
    };
    assert_eq!(standings("good"), [NotNow, Asked(0)]);
    assert_eq!(standings("bad"), [Asked(0), BehindStop(0)]);
}

#[test]
fn every_reason_not_to_be_asked() {
    let no_match = json!({ "match": { "path": { "exact": "/other" } } });
    let off_and_no_match = json!({ "mode": "off", "match": { "path": { "exact": "/other" } } });
    let rules = json!([
        rule("off", 9, &json!({ "mode": "off" })),
        rule("other", 9, &no_match),
        rule("first", 9, &json!({})),
        rule("off-other", 9, &off_and_no_match),
        rule("narrow", 1, &json!({})),
        rule("behind", 9, &json!({})),
        rule("shadow", 9, &json!({ "mode": "shadow" })),
        rule("last", 9, &json!({ "stop": true })),
        rule("never", 9, &json!({})),
        rule("tried", 9, &json!({ "mode": "shadow" })),
    ]);
    let mut world = World::new(&rules, 64);
    let request = json!({});
    let standings = |world: &mut World| -> Vec<_> {
        let explained = world.explain(&request, START);
        explained.rules.iter().map(|rule| rule.standing).collect()
    };
    let free = [
        Off,
        NotFor,
        Asked(0),
        Off,
        Asked(1),
        Asked(2),
        Asked(3),
        Asked(4),
        BehindStop(7),
        Asked(5),
    ];
    assert_eq!(standings(&mut world), free);
    assert_eq!(standings(&mut world), free, "nothing was taken");
    world.send(&request, START);
    let refused = [
        Off,
        NotFor,
        Asked(0),
        Off,
        Asked(1),
        BehindRefusal(4),
        Asked(2),
        BehindRefusal(4),
        BehindStop(7),
        Asked(3),
    ];
    assert_eq!(standings(&mut world), refused);

    let explained = world.explain(&request, START);
    assert_eq!(explained.outcome.verdict(), Verdict::Refuse);
    assert!(explained.outcome.rules[0].overruled);
    // A rule that is off is explained like other rules, with its match and the state of its bucket.
    assert!(explained.rules[0].failing.is_none() && explained.rules[0].bucket.is_some());
    assert!(explained.rules[3].failing.is_some() && explained.rules[3].bucket.is_none());
}

/// The state before the request, and the state that it would leave.
#[test]
fn a_bucket_is_told_before_and_after() {
    let limits = json!([
        { "name": "burst", "algorithm": "funnel", "capacity": 3, "rate": "1/s" },
        { "name": "queue", "algorithm": "funnel", "capacity": 1, "rate": "1/s", "max_wait": "9s" },
    ]);
    let rules = json!([{ "name": "r", "key": [], "limits": limits }]);
    let mut world = World::new(&rules, 64);
    world.send(&json!({}), START);
    let explained = world.explain(&json!({}), START);
    let bucket = explained.rules[0].bucket.as_ref().expect("a bucket");
    let [burst, queue] = bucket.limits.as_slice() else {
        panic!("two limits");
    };
    assert_eq!(
        (burst.used, burst.now.remaining, burst.answer.remaining),
        (1, 2, 1)
    );
    assert_eq!(
        (burst.now.reset_after, burst.answer.reset_after),
        (Nanos::from_secs(1), Nanos::from_secs(2))
    );
    assert_eq!((queue.used, queue.now.remaining), (1, 0));
    assert_eq!(
        (queue.answer.verdict, queue.answer.wait),
        (Verdict::Hold, Nanos::from_secs(1))
    );
    assert_eq!(bucket.reported, 1);
    assert_eq!(explained.outcome.wait(), Nanos::from_secs(1));

    let dear = world.explain(&json!({ "cost": 3 }), START);
    let bucket = dear.rules[0].bucket.as_ref().expect("a bucket");
    let burst = &bucket.limits[0];
    assert_eq!(
        (burst.answer.verdict, burst.now.verdict),
        (Verdict::Refuse, Verdict::Admit)
    );
    assert_eq!(burst.answer.retry_after, Some(Nanos::from_secs(1)));
    assert_eq!(dear.rules[0].price.expect("a price").cost, 3);
}

/// A skipped rule shows the answer that it would give.
#[test]
fn whoever_is_not_asked_has_a_level_too() {
    let rules = json!([rule("empty", 1, &json!({})), rule("behind", 5, &json!({}))]);
    let mut world = World::new(&rules, 64);
    world.send(&json!({}), START);
    let explained = world.explain(&json!({}), START);
    assert_eq!(explained.rules[1].standing, BehindRefusal(0));
    let behind = explained.rules[1].bucket.as_ref().expect("a bucket").limits[0];
    assert_eq!(
        (behind.used, behind.now.remaining, behind.answer.remaining),
        (1, 4, 3)
    );
    assert_eq!(behind.answer.verdict, Verdict::Admit);
}

/// A store that cannot be read.
struct Broken;

impl SharedData for Broken {
    fn get(&mut self, _: &[u8], _: &mut Vec<u8>) -> Result<Option<Cas>, StoreFailed> {
        Err(StoreFailed)
    }

    fn set(&mut self, _: &[u8], _: &[u8], _: Cas) -> Result<Written, StoreFailed> {
        panic!("explaining writes nothing")
    }
}

#[test]
fn a_store_that_fails_is_told() {
    let refuses = json!({ "on_error": "refuse" });
    let world = World::new(&json!([rule("r", 5, &refuses)]), 64);
    let document = json!({});
    let mut sample = parse_sample(&document).expect("a sample");
    let explained = explain(&world.rules, &world.table, &mut Broken, &mut sample, START);
    let answer = &explained.outcome.rules[0].answer;
    assert!(
        matches!(answer, Answer::GaveUp(GaveUp::Failed)),
        "{answer:?}"
    );
    assert!(explained.outcome.is_refused() && explained.rules[0].bucket.is_none());
}

/// Earlier rules may evict its bucket. Then a new bucket answers.
#[test]
fn a_bucket_that_has_to_make_room_answers_as_a_new_one() {
    let rules: Vec<Value> = (0..17)
        .map(|n| rule(&format!("r{n}"), 5, &json!({})))
        .collect();
    // One page, on which 16 of the 17 find room.
    let mut world = World::new(&json!(rules), 16);
    world.send(&json!({}), START);
    let explained = world.explain(&json!({}), START);
    let made_room = |rule: &RuleExplained| {
        let limit = rule.bucket.as_ref().expect("a bucket").limits[0];
        (limit.now.remaining, limit.answer.remaining) == (4, 4)
    };
    assert!(explained.rules.iter().any(made_room));
    let outcome = world.send(&json!({}), START);
    assert_eq!(format!("{:?}", explained.outcome), format!("{outcome:?}"));
}

/// Like the test above, but for a skipped rule.
#[test]
fn windows_on_the_wall_clock_are_told_by_it() {
    let limits =
        json!([{ "algorithm": "fixed_window", "capacity": 5, "window": "1h", "align": "clock" }]);
    let rules = json!([rule("r", 1, &json!({ "mode": "off", "limits": limits }))]);
    let clock = Clock {
        now: Nanos::from_secs(7),
        wall: Nanos::from_secs(36_000 - 100),
    };
    let explained = World::new(&rules, 64).explain(&json!({}), clock);
    let limit = explained.rules[0].bucket.as_ref().expect("a bucket").limits[0];
    assert_eq!(limit.answer.reset_after, Nanos::from_secs(100));
}

/// For an evaluated rule, and for a skipped one.
#[test]
fn bans_and_overrides_are_told() {
    let overrides = json!({ "alice": "banned", "bob": "unlimited", "carol": { "scale": 3 } });
    let key = json!([{ "header": "x-user-id" }]);
    let penalty = json!({ "after": 1, "within": "1s", "ban": "10s" });
    let more = json!({ "key": key, "overrides": overrides, "penalty": penalty });
    let mut off = more.clone();
    off["mode"] = json!("off");
    let rules = json!([rule("r", 2, &more), rule("off", 2, &off)]);
    let mut world = World::new(&rules, 64);
    let by = |user: &str| json!({ "headers": { "x-user-id": user } });
    let mut told = |user: &str| {
        let rules = world.explain(&by(user), START).rules;
        let capacity = |rule: &RuleExplained| Some(rule.bucket.as_ref()?.limits[0].now.capacity);
        let each = rules.iter().map(|rule| (rule.allowance, capacity(rule)));
        each.collect::<Vec<_>>()
    };
    assert_eq!(told("alice"), [(Allowance::Banned(Ban::ENDLESS), None); 2]);
    assert_eq!(told("bob"), [(Allowance::Unlimited, None); 2]);
    assert_eq!(told("carol"), [(Allowance::Limits, Some(6)); 2]);
    for _ in 0..3 {
        world.send(&by("dave"), START);
    }
    let until = Some(Nanos::from_secs(10));
    let rules = world.explain(&by("dave"), START).rules;
    assert_eq!(rules[0].allowance, Allowance::Banned(Ban { until }));
    let bucket = rules[0].bucket.as_ref().expect("it stays");
    assert_eq!(bucket.limits[0].used, 2);
    assert_eq!(rules[1].allowance, Allowance::Limits);
}
