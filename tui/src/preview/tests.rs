//! Compares previews with an independent computation.

use loudou_rules::config::parse_rule;
use serde_json::{Value, json};

use super::*;

const HEAD: &str = "of 4 keys seen, if they go on as in the last 10s:";

/// A rule with a funnel and an override.
fn rule(mode: &str, (capacity, rate): (u32, &str)) -> Rule {
    parse(&json!({
        "name": "r", "key": ["source"], "mode": mode,
        "limits": [{ "algorithm": "funnel", "capacity": capacity, "rate": rate }],
        "overrides": { "acme": { "scale": 3 }, "vip*": "unlimited", "rogue": "banned" },
    }))
}

fn parse(rule: &Value) -> Rule {
    parse_rule(rule).expect("valid")
}

fn key(name: &'static str, used: u64, per_second: f64) -> Key<'static> {
    Key {
        name,
        used: vec![("funnel", used)],
        numbers: &[],
        per_second,
        is_banned: name == "convict",
    }
}

fn lines(before: &Rule, after: &Rule, carry: Carry, keys: &[Key<'_>]) -> Vec<String> {
    let preview = preview(before, after, carry, &mut keys.to_vec());
    preview.expect("no concurrency").lines()
}

#[test]
fn keys_are_played_under_both_numbers() {
    let keys = [
        key("calm", 0, 0.1),
        key("busy", 3, 4.0),
        key("flood", 10, 50.0),
        key("gone", 10, 0.0),
    ];
    let old = rule("enforce", (10, "10/s"));
    let effect = |before, after| lines(before, after, Carry::Keep, &keys);
    // 4/s exceeds 2/s, 0.1/s does not, and flood is refused by both.
    let stricter = rule("enforce", (10, "2/s"));
    assert_eq!(
        effect(&old, &stricter),
        [
            HEAD,
            "- 1 becomes refused: busy (loses 50%)",
            "- 1 stays refused: flood"
        ]
    );
    let wider = rule("enforce", (100, "100/s"));
    assert_eq!(effect(&old, &wider), [HEAD, "- 1 is freed: flood"]);
    assert_eq!(
        effect(&wider, &wider),
        [HEAD, "- none is refused, before and after"]
    );
}

/// An independent funnel, which drains `rate` per second and refuses requests that do not fit.
/// Returns the refusals of a minute in percent.
fn funnel((capacity, rate): (f64, f64), used: f64, per_second: f64) -> f64 {
    let (mut level, mut refused, mut all) = (used, 0.0, 0.0);
    while all < per_second * 60.0 {
        level = (level - rate / per_second).max(0.0);
        if level + 1.0 > capacity + 1e-9 {
            refused += 1.0;
        } else {
            level += 1.0;
        }
        all += 1.0;
    }
    if all > 0.0 { refused / all } else { 0.0 }
}

/// Returns the share of a key's requests that is refused. It is computed with the funnel if the
/// rule is enforced, and is zero otherwise.
fn counted_loss(key: &Key<'_>, mode: &str, (capacity, rate): (u32, f64), used: f64) -> f64 {
    let scale = if key.name == "acme" { 3.0 } else { 1.0 };
    match (mode, key.name) {
        _ if key.per_second == 0.0 => 0.0,
        ("enforce", "rogue" | "convict") => 1.0,
        ("enforce", name) if !name.starts_with("vip") => funnel(
            (f64::from(capacity) * scale, rate * scale),
            used,
            key.per_second,
        ),
        _ => 0.0,
    }
}

/// Returns the first word of each name, which is the name without its share.
fn names(keys: &[String]) -> Vec<String> {
    let names = keys.iter().filter_map(|key| key.split(' ').next());
    names.map(ToOwned::to_owned).collect()
}

/// Returns true if a line that names a key has this share, in case it is most of the key's
/// requests.
fn is_close(told: &str, share: f64) -> bool {
    let percent = told
        .split("loses ")
        .nth(1)
        .map(|told| told.replace("%)", ""));
    match percent {
        None => share < 0.55,
        Some(percent) => {
            let percent: f64 = percent.parse().expect("a number");
            (percent / 100.0 - share).abs() < 0.05
        }
    }
}

#[test]
fn every_change_of_mode_is_as_an_outside_count_has_it() {
    let keys = [
        key("calm", 0, 0.5),
        key("flood", 10, 40.0),
        key("busy", 3, 5.0),
        key("acme", 12, 15.0),
        key("vip-1", 0, 80.0),
        key("rogue", 0, 2.0),
        key("convict", 1, 1.0),
        key("gone", 10, 0.0),
    ];
    let modes = ["enforce", "shadow", "off"];
    let old = (10, 4.0);
    let of = |mode, (capacity, rate): (u32, f64)| {
        rule(mode, (capacity, &format!("{}/100s", rate * 100.0)))
    };
    for (before, after) in modes.iter().flat_map(|b| modes.map(|a| (*b, a))) {
        for new in [old, (10, 8.0), (100, 90.0), (1, 0.25)] {
            let at = format!("{before} → {after} {new:?}");
            let mut played = keys.to_vec();
            let found = preview(&of(before, old), &of(after, new), Carry::Keep, &mut played);
            let found = found.expect("no concurrency");
            let mut expected = Preview {
                seen: keys.len(),
                ..Preview::default()
            };
            for key in &played {
                let used = float(key.used[0].1);
                let was = counted_loss(key, before, old, used) > 0.0;
                let will = counted_loss(key, after, new, used);
                let list = match (was, will > 0.0) {
                    (false, true) => &mut expected.refused,
                    (true, false) => &mut expected.freed,
                    (true, true) => &mut expected.still,
                    (false, false) => continue,
                };
                list.push(key.name.to_owned());
                let mut named = found.refused.iter();
                let told = named.find(|told| told.split(' ').next() == Some(key.name));
                assert!(
                    told.is_none_or(|told| is_close(told, will)),
                    "{at}: {told:?}, {will}"
                );
            }
            let found = Preview {
                refused: names(&found.refused),
                ..found
            };
            assert_eq!(found, expected, "{at}");
        }
    }
}

#[test]
fn some_are_named_and_the_rest_counted() {
    let names = ["a", "b", "c", "d", "e", "f"];
    let keys = names.map(|name| key(name, 0, 50.0));
    let (old, new) = (rule("shadow", (10, "40/s")), rule("enforce", (10, "40/s")));
    let told = lines(&old, &new, Carry::Keep, &keys);
    assert_eq!(told[1], "- 6 become refused: a, b, c, d, e and 1 more");
    let told = lines(&new, &new, Carry::Keep, &keys);
    assert_eq!(told[1], "- 6 stay refused: a, b, c, d, e and 1 more");
    let long = [key(
        "a-key-that-is-longer-than-any-column-has-a-right-to-be",
        0,
        50.0,
    )];
    let told = lines(&new, &new, Carry::Keep, &long);
    assert_eq!(
        told[1],
        "- 1 stays refused: a-key-that-is-longer-than-any-c…"
    );
}

/// A level that does not fit the new limits refuses requests at once, unless it is reset.
#[test]
fn the_level_counts() {
    let (old, new) = (rule("enforce", (10, "1/m")), rule("enforce", (3, "1/m")));
    let keys = [key("half", 5, 1.0 / 60.0)];
    let told = |carry| lines(&old, &new, carry, &keys)[1].clone();
    assert_eq!(told(Carry::Keep), "- 1 becomes refused: half (loses 100%)");
    assert_eq!(told(Carry::Reset), "- none is refused, before and after");
}

/// Each key is played with the numbers that its last request brought, under the sources before and after the edit.
#[test]
fn keys_have_the_numbers_of_their_requests() {
    let rule = |max: u32| {
        let amount = json!({ "metadata": ["jwt", "pace"], "default": 20, "max": max });
        parse(&json!({
            "name": "r", "key": ["source"],
            "limits": [{ "algorithm": "funnel", "capacity": 10, "rate": { "amount": amount, "per": "1s" } }],
        }))
    };
    let brought = |amount| BroughtView {
        limit: "funnel".to_owned(),
        capacity: None,
        amount: Some(amount),
    };
    let (fast, slow) = ([brought(40)], [brought(2)]);
    let with = |name, numbers| Key {
        numbers,
        ..key(name, 0, 30.0)
    };
    let keys = [
        with("fast", &fast),
        with("slow", &slow),
        key("default", 0, 10.0),
    ];
    assert_eq!(
        lines(&rule(100), &rule(20), Carry::Keep, &keys),
        [
            "of 3 keys seen, if they go on as in the last 10s:",
            "- 1 becomes refused: fast",
            "- 1 stays refused: slow"
        ]
    );
}
