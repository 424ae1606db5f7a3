//! Describes the differences between two rule versions in one line.

use loudou_limiter::{Limit, Penalty};
use loudou_rules::config::{
    limit_fields, short_with_algorithm, short_with_name, spoken, spoken_text as text, written,
};
use loudou_rules::joined::joined;
use loudou_rules::rule::{Override, Overrides, Rule};
use serde_json::{Map, Value};

/// JSON fields of a limit or penalty.
type Fields = Map<String, Value>;

/// Maximum number of changed overrides in a description.
const LISTED: usize = 8;

/// Describes the differences between two versions of a rule, for example `burst: capacity 15 → 30,
/// rate 30/m → 60/m; mode enforce → shadow`. Empty if there are no differences.
pub(crate) fn describe(before: &Rule, after: &Rule) -> String {
    let mut parts = Vec::new();
    for limit in &after.limits {
        match before.limits.iter().find(|old| old.name() == limit.name()) {
            None => parts.push(format!("{}: new, {}", limit.name(), in_words(limit))),
            Some(old) => parts.extend(describe_limit(old, limit)),
        }
    }
    for old in &before.limits {
        if after.limits.iter().all(|limit| limit.name() != old.name()) {
            parts.push(format!("{}: removed, was {}", old.name(), in_words(old)));
        }
    }
    if parts.is_empty() && before.limits != after.limits {
        let names: Vec<&str> = after.limits.iter().map(Limit::name).collect();
        parts.push(format!("limits in the order {}", joined(&names, ", ")));
    }
    if before.mode != after.mode {
        parts.push(format!(
            "mode {} → {}",
            before.mode.name(),
            after.mode.name()
        ));
    }
    parts.extend(describe_penalty(
        before.penalty.as_ref(),
        after.penalty.as_ref(),
    ));
    let overrides = describe_overrides(&before.overrides, &after.overrides);
    let more = overrides.len().saturating_sub(LISTED);
    parts.extend(overrides.into_iter().take(LISTED));
    if more > 0 {
        parts.push(format!("{more} more overrides"));
    }
    joined(&parts, "; ")
}

/// Describes a penalty change, for example `penalty: after 20 → 10, ban 5m → 10m`.
fn describe_penalty(before: Option<&Penalty>, after: Option<&Penalty>) -> Option<String> {
    const FIELDS: [&str; 5] = ["after", "within", "ban", "factor", "max"];
    match (before, after) {
        (None, None) => None,
        (None, Some(new)) => Some(format!("penalty: new, {}", listed(&FIELDS, &written(new)))),
        (Some(old), None) => {
            let was = listed(&FIELDS, &written(old));
            Some(format!("penalty: removed, was {was}"))
        }
        (Some(old), Some(new)) => {
            let (was, is) = (written(old), written(new));
            let differ = FIELDS
                .iter()
                .filter(|name| was.get(**name) != is.get(**name));
            let changed: Vec<String> = differ.map(|name| change(name, &was, &is, "")).collect();
            (!changed.is_empty()).then(|| format!("penalty: {}", joined(&changed, ", ")))
        }
    }
}

/// Describes each changed override, for example `override of alice: scale 10 → banned`. For a new
/// override, the description only contains its value.
fn describe_overrides(before: &Overrides, after: &Overrides) -> Vec<String> {
    let line = |pattern: &str| {
        let of = |overrides: &Overrides| overrides.of_pattern(pattern).map(gives);
        let change = match (of(before), of(after)) {
            (None, None) => String::from("none"),
            (None, Some(new)) => new,
            (Some(old), None) => format!("{old} removed"),
            (Some(old), Some(new)) => format!("{old} → {new}"),
        };
        format!("override of {pattern}: {change}")
    };
    let changed = after.changed_since(before);
    changed.iter().map(|pattern| line(pattern)).collect()
}

fn gives(value: &Override) -> String {
    match value {
        Override::Scale(scale) => format!("scale {scale}"),
        Override::Unlimited => "unlimited".to_owned(),
        Override::Banned => "banned".to_owned(),
        Override::Limits(limits) => {
            let limits = limits.iter();
            let limits = limits.map(|limit| short_with_name(&written(limit)));
            let limits: Vec<String> = limits.collect();
            joined(&limits, ", ")
        }
    }
}

fn describe_limit(old: &Limit, new: &Limit) -> Option<String> {
    if old == new {
        return None;
    }
    let name = new.name();
    let algorithm = new.algorithm().name();
    if old.algorithm().name() != algorithm {
        return Some(format!("{name}: {} → {}", in_words(old), in_words(new)));
    }
    let (before, after) = (spoken(old), spoken(new));
    let (was, is) = (written(old), written(new));
    let mut changed = Vec::new();
    for field in limit_fields(algorithm) {
        // `spoken` omits fields with default values, so values that are derived from other fields
        // are not listed.
        if before.get(field.name) != after.get(field.name) {
            let default = field.default.unwrap_or_default();
            changed.push(change(field.name, &was, &is, default));
        }
    }
    Some(format!("{name}: {}", joined(&changed, ", ")))
}

/// Describes a field change, for example `capacity 15 → 30`. `default` is the value that a missing
/// field represents.
fn change(name: &str, was: &Fields, is: &Fields, default: &str) -> String {
    // JSON pointers to the parts of a number that is read from request metadata.
    const PARTS: [(&str, &str); 7] = [
        ("/metadata", "metadata"),
        ("/default", "default"),
        ("/max", "max"),
        ("/amount/metadata", "metadata"),
        ("/amount/default", "default"),
        ("/amount/max", "max"),
        ("/per", "per"),
    ];
    if let (Some(was), Some(is)) = (was.get(name), is.get(name))
        && was.is_object()
        && is.is_object()
    {
        let of = |value: &Value, pointer| value.pointer(pointer).map(text).unwrap_or_default();
        let parts = PARTS.iter().filter_map(|(pointer, part)| {
            let (was, is) = (of(was, pointer), of(is, pointer));
            (was != is).then(|| format!("{name} {part} {was} → {is}"))
        });
        return joined(&parts.collect::<Vec<_>>(), ", ");
    }
    let value = |fields: &Fields| fields.get(name).map_or_else(|| default.to_owned(), text);
    format!("{name} {} → {}", value(was), value(is))
}

/// Describes a limit, for example `funnel 15 at 30/m`.
fn in_words(limit: &Limit) -> String {
    short_with_algorithm(&written(limit))
}

/// Lists the fields that are present, for example `after 20, ban 5m`.
fn listed(names: &[&str], fields: &Fields) -> String {
    let mut listed = Vec::new();
    for name in names {
        if let Some(value) = fields.get(*name) {
            listed.push(format!("{name} {}", text(value)));
        }
    }
    joined(&listed, ", ")
}

#[cfg(test)]
mod tests {
    use loudou_rules::config::parse_rule;
    use serde_json::json;

    use super::*;

    fn rule(limits: &Value, mode: &str) -> Rule {
        let rule = json!({ "name": "r", "key": [], "limits": limits, "mode": mode });
        parse_rule(&rule).expect("valid")
    }

    /// Describes a change to a rule's only limit.
    fn described(before: Value, after: Value) -> String {
        let enforced = |limit: Value| rule(&json!([limit]), "enforce");
        describe(&enforced(before), &enforced(after))
    }

    #[test]
    fn numbers_of_every_kind() {
        let funnel = |capacity: u32, rate: &str| json!({ "name": "n", "algorithm": "funnel", "capacity": capacity, "rate": rate });
        assert_eq!(
            described(funnel(15, "30/m"), funnel(30, "60/60s")),
            "n: capacity 15 → 30, rate 30/m → 60/m"
        );
        assert_eq!(described(funnel(15, "30/m"), funnel(15, "30/60s")), "");
        let window = |window: &str, slots: u32| json!({ "name": "n", "algorithm": "sliding_window", "capacity": 60, "window": window, "slots": slots });
        // Changes to the derived `slot_capacity` are not listed.
        assert_eq!(
            described(window("1m", 10), window("2m", 6)),
            "n: window 1m → 2m, slots 10 → 6"
        );
        let mut other = window("1m", 10);
        other["slot_capacity"] = json!(50);
        assert_eq!(
            described(window("1m", 10), other),
            "n: slot_capacity 12 → 50"
        );
        let log = |refused: bool| json!({ "name": "n", "algorithm": "sliding_log", "capacity": 5, "window": "1m", "count_refused": refused });
        assert_eq!(
            described(log(false), log(true)),
            "n: count_refused false → true"
        );
        let sourced = |max: u32, pace: &str| {
            let number =
                |name: &str| json!({ "metadata": ["jwt", name], "default": 5, "max": max });
            json!({ "name": "n", "algorithm": "funnel", "capacity": number("quota"),
                "rate": { "amount": number(pace), "per": "1m" } })
        };
        assert_eq!(
            described(sourced(50, "pace"), sourced(60, "speed")),
            "n: capacity max 50 → 60, rate metadata [\"jwt\",\"pace\"] → [\"jwt\",\"speed\"], rate max 50 → 60"
        );
        assert_eq!(
            described(funnel(15, "30/m"), sourced(50, "pace")),
            "n: capacity 15 → quota (5), rate 30/m → pace (5)/m"
        );
        let mut waits = funnel(15, "30/m");
        waits["max_wait"] = json!("5s");
        assert_eq!(described(waits, funnel(15, "30/m")), "n: max_wait 5s → 0s");
    }

    #[test]
    fn limits_that_come_go_and_turn_into_others() {
        let bucket = |initial: u32| json!({ "name": "n", "algorithm": "token_bucket", "capacity": 9, "rate": "1/s", "initial": initial });
        let window =
            json!({ "name": "n", "algorithm": "fixed_window", "capacity": 9, "window": "1d" });
        assert_eq!(
            described(bucket(9), window.clone()),
            "n: token_bucket 9 at 1/s → fixed_window 9, window 1d"
        );
        assert_eq!(described(bucket(9), bucket(4)), "n: initial 9 → 4");
        let mut other = window.clone();
        other["name"] = json!("m");
        assert_eq!(
            described(window.clone(), other),
            "m: new, fixed_window 9, window 1d; \
             n: removed, was fixed_window 9, window 1d"
        );
        let off = rule(&json!([window]), "off");
        let on = rule(&json!([window]), "enforce");
        assert_eq!(describe(&off, &on), "mode off → enforce");
    }

    #[test]
    fn penalties_and_overrides() {
        let with = |fields: Value| {
            let mut rule = json!({ "name": "r", "key": [], "limits": [
                { "name": "n", "algorithm": "funnel", "capacity": 5, "rate": "1/s" }
            ] });
            for (name, value) in fields.as_object().expect("fields") {
                rule[name] = value.clone();
            }
            parse_rule(&rule).expect("valid")
        };
        let described = |before: Value, after: Value| describe(&with(before), &with(after));
        let penalty = |ban: &str| json!({ "penalty": { "after": 3, "within": "1m", "ban": ban, "max": "1h" } });
        let all = "after 3, within 1m, ban 5m, factor 1, max 1h";
        assert_eq!(
            described(json!({}), penalty("5m")),
            format!("penalty: new, {all}")
        );
        assert_eq!(
            described(penalty("5m"), json!({})),
            format!("penalty: removed, was {all}")
        );
        assert_eq!(
            described(penalty("5m"), penalty("9m")),
            "penalty: ban 5m → 9m"
        );
        assert_eq!(described(penalty("5m"), penalty("5m")), "");
        let limits = json!([{ "name": "n", "algorithm": "funnel", "capacity": 9, "rate": "1/s" }]);
        let overriding = |overrides: Value| json!({ "overrides": overrides });
        assert_eq!(
            described(
                overriding(
                    json!({ "a": { "scale": 2.5 }, "b*": "banned", "c": "unlimited", "same": "banned" })
                ),
                overriding(
                    json!({ "a": "unlimited", "c": { "limits": limits }, "d": "banned", "same": "banned" })
                ),
            ),
            "override of a: scale 2.5 → unlimited; \
             override of c: unlimited → n 9 at 1/s; \
             override of d: banned; override of b*: banned removed"
        );
        let many: Map<String, Value> = (0..20)
            .map(|n| (format!("k{n}"), json!("banned")))
            .collect();
        let many = described(json!({}), overriding(Value::Object(many)));
        assert!(many.ends_with("; 12 more overrides"), "{many}");
    }
}
