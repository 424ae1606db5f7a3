//! Examples of explanations.

use loudou_api::{ExplainAnswer, Says};
use loudou_limiter::{Clock, Nanos};
use loudou_rules::config::{parse, parse_sample};
use loudou_rules::evaluate::evaluate;
use loudou_rules::explain::explain;
use loudou_rules::rule_set::ActiveRule;
use loudou_rules::rule_set::RuleSet;
use loudou_store::memory::MemoryStore;
use loudou_store::{StoreStats, Table};
use serde_json::{Value, json};

use super::holds;

fn explained(rules: &Value, sample: &Value, sent: u32) -> ExplainAnswer {
    let parsed = parse(&json!({ "version": 1, "rules": rules }));
    let file = parsed.file.unwrap_or_default();
    let active = file.rules.into_iter();
    let rules: RuleSet = active
        .map(|rule| ActiveRule::new(rule, loudou_rules::versions::History::default()))
        .collect();
    let mut store = MemoryStore::new();
    let now = Nanos::from_secs(86_400);
    let mut sample = parse_sample(sample).unwrap_or_default();
    let Ok(table) = Table::open(&mut store, "s", 64, [1; 16], now) else {
        return ExplainAnswer::default();
    };
    let clock = Clock::at(now);
    for _ in 0..sent {
        let stats = &mut StoreStats::default();
        evaluate(&rules, &table, &mut store, &mut sample, clock, stats);
    }
    let explained = explain(&rules, &table, &mut store, &mut sample, clock);
    ExplainAnswer::new(&explained, &rules, now, 8)
}

/// Returns rules with every possible verdict.
fn rules_to_explain() -> Value {
    let rule = |name: &str, capacity: u32, more: &Value| {
        let burst =
            json!({ "name": "burst", "algorithm": "funnel", "capacity": capacity, "rate": "30/m" });
        let mut rule =
            json!({ "name": name, "key": [{ "header": "x-user-id" }], "limits": [burst] });
        if let (Some(rule), Some(more)) = (rule.as_object_mut(), more.as_object()) {
            rule.extend(more.clone());
        }
        rule
    };
    let penalty = json!({ "after": 2, "within": "1m", "ban": "5m" });
    let free = json!({ "headers": [{ "name": "x-plan", "exact": "free" }] });
    json!([
        rule("reply-per-user", 15, &json!({})),
        rule("free-plan", 5, &json!({ "match": free })),
        rule(
            "per-tenant",
            5,
            &json!({ "key": [{ "header": "x-tenant" }] })
        ),
        rule(
            "odd-cost",
            50,
            &json!({ "cost": { "header": "x-cost", "default": 2, "max": 9 } })
        ),
        rule(
            "old",
            5,
            &json!({ "mode": "off", "overrides": { "alice": "banned" } })
        ),
        rule("vip", 5, &json!({ "overrides": { "al*": "unlimited" } })),
        rule("strict", 2, &json!({})),
        rule(
            "candidate",
            1,
            &json!({ "mode": "shadow", "penalty": penalty })
        ),
        rule("behind", 5, &json!({})),
        rule("last", 5, &json!({ "stop": true })),
        rule("never", 5, &json!({})),
    ])
}

#[test]
fn explanations() -> serde_json::Result<()> {
    let sample: Value = serde_json::from_str(include_str!("../../examples/explain-request.json"))?;
    let answer = explained(&rules_to_explain(), &sample, 3);
    holds(&answer, include_str!("../../examples/explain.json"))?;
    let says: Vec<(&str, Says)> = answer
        .rules
        .iter()
        .map(|rule| (rule.rule.as_str(), rule.says))
        .collect();
    let expected = [
        ("reply-per-user", Says::Admit),
        ("free-plan", Says::NoMatch),
        ("per-tenant", Says::Skip),
        ("odd-cost", Says::Admit),
        ("old", Says::Off),
        ("vip", Says::Admit),
        ("strict", Says::Refuse),
        ("candidate", Says::Refuse),
        ("behind", Says::NotAsked),
        ("last", Says::NotAsked),
        ("never", Says::Stopped),
    ];
    assert_eq!(says, expected);
    Ok(())
}
