//! What the shared record does when configurations and edits meet.

use loudou_limiter::config;
use serde_json::json;

use super::*;

fn file(rules: &serde_json::Value) -> RuleFile {
    let parsed = config::parse(&json!({ "version": 1, "rules": rules }));
    parsed
        .file
        .unwrap_or_else(|| panic!("{:?}", parsed.problems))
}

fn rule(name: &str, capacity: u32) -> serde_json::Value {
    json!({
        "name": name,
        "key": ["source"],
        "limits": [{ "algorithm": "funnel", "capacity": capacity, "rate": "1/s" }],
    })
}

fn edit(capacity: u32) -> RuleEdit {
    let limits = json!([{ "algorithm": "funnel", "capacity": capacity, "rate": "1/s" }]);
    config::parse_edit(&json!({ "limits": limits })).expect("an edit")
}

fn author(at_s: u64, expires_after: Option<Nanos>) -> Author {
    Author {
        by: "ops".to_owned(),
        reason: "load test".to_owned(),
        carry: Carry::Keep,
        at: Nanos::from_secs(at_s),
        at_unix_ms: 0,
        expires_after,
    }
}

fn capacity(record: &Record, name: &str) -> u64 {
    let rule = record.rule(name).expect("the rule").effective();
    rule.limits
        .iter()
        .next()
        .expect("a limit")
        .algorithm()
        .capacity()
}

#[test]
fn a_rule_with_a_warning_is_read_back() {
    let mut dear = rule("dear", 3);
    dear["cost"] = json!(5);
    let record = Record::new(&file(&json!([dear])), Nanos::from_secs(1));
    let bytes = serde_json::to_vec(&record).expect("JSON");
    let read = Record::read(&bytes).expect("a warning is no error");
    assert_eq!(read, record);
}

#[test]
fn survives_its_own_serialisation() {
    let mut record = Record::new(
        &file(&json!([rule("a", 5), rule("b", 7)])),
        Nanos::from_secs(1),
    );
    record
        .rule_mut("a")
        .expect("a")
        .apply(edit(50), &author(2, Some(Nanos::from_secs(60))));
    let bytes = serde_json::to_vec(&record).expect("JSON");
    assert_eq!(Record::read(&bytes).expect("back"), record);
}

#[test]
fn what_is_damaged_is_not_read() {
    let mut record = Record::new(&file(&json!([rule("a", 5)])), Nanos::from_secs(1));
    for at in [2, 3] {
        let rule = record.rule_mut("a").expect("a");
        rule.apply(edit(50 * at), &author(u64::from(at), None));
    }
    let whole = serde_json::to_value(&record).expect("JSON");
    let read = |record: &serde_json::Value| Record::read(record.to_string().as_bytes());
    assert_eq!(read(&whole), Some(record));
    for place in [
        "/format",
        "/generation",
        "/since_ns",
        "/rules",
        "/rules/0/base",
        "/rules/0/base/limits/0/capacity",
        "/rules/0/edit",
        "/rules/0/edit/limits",
        "/rules/0/edit/carry",
        "/rules/0/edit/by",
        "/rules/0/past",
        "/rules/0/past/0/until_ns",
    ] {
        let mut damaged = whole.clone();
        *damaged.pointer_mut(place).expect(place) = json!(-1);
        assert_eq!(read(&damaged), None, "{place}");
    }
    let newer = json!({ "format": 2, "generation": 1, "since_ns": 0, "rules": [] });
    assert_eq!(read(&newer), None);
    assert_eq!(Record::read(b"{"), None);
}

#[test]
fn a_configuration_keeps_the_edits_of_rules_it_does_not_touch() {
    let mut record = Record::new(
        &file(&json!([rule("a", 5), rule("b", 7)])),
        Nanos::from_secs(1),
    );
    for name in ["a", "b"] {
        record
            .rule_mut(name)
            .expect(name)
            .apply(edit(50), &author(2, None));
    }
    let newer = file(&json!([rule("c", 1), rule("b", 8), rule("a", 5)]));
    let taken = record
        .take_up(&newer, Nanos::from_secs(3), Nanos::from_secs(3))
        .expect("newer");
    assert_eq!(taken.added, ["c"]);
    assert_eq!(
        (taken.changed, taken.retired),
        (vec!["b".to_owned()], vec!["b".to_owned()])
    );
    assert_eq!((capacity(&record, "a"), capacity(&record, "b")), (50, 8));
    assert!(
        record
            .take_up(&newer, Nanos::from_secs(4), Nanos::from_secs(4))
            .is_none(),
        "the same"
    );
}

#[test]
fn an_older_configuration_that_drains_changes_nothing() {
    let mut record = Record::new(&file(&json!([rule("a", 9)])), Nanos::from_secs(5));
    let older = file(&json!([rule("a", 5)]));
    assert!(
        record
            .take_up(&older, Nanos::from_secs(4), Nanos::from_secs(6))
            .is_none()
    );
    assert_eq!(capacity(&record, "a"), 9);
}

#[test]
fn edits_run_out() {
    let mut record = Record::new(&file(&json!([rule("a", 5)])), Nanos::ZERO);
    record
        .rule_mut("a")
        .expect("a")
        .apply(edit(50), &author(10, Some(Nanos::from_secs(60))));
    assert_eq!(record.next_expiry(), Nanos::from_secs(70));
    assert!(record.expire(Nanos::new(69_999_999_999)).is_empty());
    assert_eq!(record.expire(Nanos::from_secs(70)), ["a"]);
    assert_eq!(capacity(&record, "a"), 5);
    assert_eq!(record.next_expiry(), Nanos::MAX);
}

#[test]
fn an_edit_back_to_the_base_is_none() {
    let mut record = Record::new(&file(&json!([rule("a", 5)])), Nanos::ZERO);
    let rule = record.rule_mut("a").expect("a");
    rule.apply(edit(50), &author(1, None));
    assert!(rule.edit.is_some());
    rule.apply(edit(5), &author(2, None));
    assert!(rule.edit.is_none());
}

#[test]
fn only_so_many_versions_are_remembered() {
    let mut record = Record::new(&file(&json!([rule("a", 5)])), Nanos::ZERO);
    let rule = record.rule_mut("a").expect("a");
    for i in 0..50 {
        rule.apply(edit(100 + i), &author(u64::from(i), None));
    }
    assert_eq!(rule.past.len(), MAX_PAST);
    assert_eq!(
        rule.past.last().expect("one").until_ns,
        Nanos::from_secs(49).get()
    );
}
