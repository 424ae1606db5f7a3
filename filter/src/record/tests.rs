//! The shared record with configurations and edits.

use loudou_limiter::{Carry, Decimal};
use loudou_rules::config::{self, RuleEdit};
use loudou_rules::rule::Override;
use serde_json::json;

use super::layout::Layout;
use super::part::Id;
use super::*;
use crate::host::fake::FakeHost;

mod configurations;
mod later;

fn file(rules: &Value) -> Bases {
    let parsed = config::parse(&json!({ "version": 1, "rules": rules }));
    let file = parsed.file;
    Bases::of(&file.unwrap_or_else(|| panic!("{:?}", parsed.problems)))
}

/// The record in these bytes, for a worker that knows nothing yet.
fn read(bytes: &[u8]) -> Option<Record> {
    Record::read(Layout::read(bytes)?, None, &Bases::default())
}

fn written(record: &Record) -> Vec<u8> {
    layout::write(record, None)
}

fn rule(name: &str, capacity: u32) -> Value {
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

fn scale(times: u32) -> Override {
    Override::Scale(Decimal::from_thousandths(times * 1_000))
}

fn ended(rule: &str, edit: bool, keys: &[&str]) -> Ended {
    Ended {
        rule: rule.to_owned(),
        edit,
        keys: keys.iter().map(ToString::to_string).collect(),
    }
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
    let read = read(&written(&record)).expect("a warning is no error");
    assert_eq!(read, record);
}

#[test]
fn survives_its_own_serialisation() {
    let mut record = Record::new(
        &file(&json!([rule("a", 5), rule("b", 7)])),
        Nanos::from_secs(1),
    );
    let edited = record.rule_mut("a").expect("a");
    edited.apply(&edit(50), &author(2, Some(Nanos::from_secs(60))), 2);
    let no_penalty = config::parse_edit(&json!({ "penalty": null })).expect("an edit");
    edited.apply(&no_penalty, &author(3, None), 2);
    edited.set_override("alice", scale(2), &author(3, None), 2);
    edited.set_override(
        "team-*",
        Override::Banned,
        &author(3, Some(Nanos::from_secs(60))),
        2,
    );
    assert_eq!(read(&written(&record)).expect("back"), record);
}

#[test]
fn damaged_records_are_not_read() {
    let both = json!([rule("a", 5), rule("z", 5)]);
    let mut record = Record::new(&file(&both), Nanos::from_secs(1));
    for at in [2, 3] {
        let rule = record.rule_mut("a").expect("a");
        rule.apply(&edit(50 * at), &author(u64::from(at), None), 2);
        rule.set_override("alice", scale(at), &author(u64::from(at), None), 2);
    }
    let newer = file(&json!([rule("a", 5)]));
    let since = Nanos::from_secs(2);
    assert!(record.adopt(&newer, since, since).is_some());
    let bytes = written(&record);
    assert_eq!(read(&bytes).as_ref(), Some(&record));
    for (rule, part, place) in [
        (0, 0, ""),
        (0, 0, "/name"),
        (0, 0, "/limits/0/capacity"),
        (0, 1, "/change"),
        (0, 1, "/change/limits"),
        (0, 1, "/carry"),
        (0, 1, "/who"),
        (0, 1, "/who/by"),
        (0, 2, "/alice"),
        (0, 2, "/alice/gives"),
        (0, 2, "/alice/gives/scale"),
        (0, 2, "/alice/who"),
        (0, 3, ""),
        (0, 3, "/since"),
        (0, 3, "/version"),
        (0, 3, "/changes"),
        (0, 3, "/changes/0/version"),
        (0, 3, "/changes/0/at_ns"),
        (0, 3, "/changes/0/carry"),
        (0, 3, "/changes/0/limits"),
        (0, 3, "/changes/1/overrides"),
        (0, 3, "/changes/3/overrides/alice"),
        (1, 0, "/limits"),
    ] {
        let damaged = with_text(&record, rule, part, |text| {
            let mut json: Value = serde_json::from_slice(text).expect("JSON");
            *json.pointer_mut(place).expect(place) = json!(-1);
            json.to_string().into_bytes()
        });
        // A later build may be the cause, as well as damage.
        let read = read(&damaged).expect("the rest");
        assert_eq!(read.all().count(), 1, "{rule} {part} {place}");
        assert_eq!(written(&read), damaged, "{rule} {part} {place}");
    }
    for part in [0, 1, 2, 3] {
        let cut = with_text(&record, 0, part, |text| text[1..].to_vec());
        assert_eq!(read(&cut).expect("the rest").all().count(), 1, "{part}");
    }
    assert_eq!(read(b"{\"format\":3}"), None);
    // Reading ends without a panic for any changed byte.
    for place in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[place] ^= 1 << (place % 8);
        let _read = read(&damaged);
        assert_eq!(read(&bytes[..place]), None, "cut at {place}");
    }
}

/// The bytes of a record in which one text is another.
fn with_text(
    record: &Record,
    rule: usize,
    part: usize,
    change: impl Fn(&[u8]) -> Vec<u8>,
) -> Vec<u8> {
    let bytes = written(record);
    let layout = Layout::read(&bytes).expect("a layout");
    let mut parts: Vec<_> = layout.rules.iter().chain(&layout.gone).flatten().collect();
    let text = change(parts[rule * PARTS + part].text);
    let other = Stored {
        id: Id::of(&text),
        text: &text,
    };
    parts[rule * PARTS + part] = &other;
    let parts: Vec<_> = parts
        .iter()
        .map(|part| (part.id, part.text.into()))
        .collect();
    layout::assemble(record, &parts)
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
            .apply(&edit(50), &author(2, None), 2);
    }
    let newer = file(&json!([rule("c", 1), rule("b", 8), rule("a", 5)]));
    let adopted = record
        .adopt(&newer, Nanos::from_secs(3), Nanos::from_secs(3))
        .expect("newer");
    assert_eq!(adopted.added, ["c"]);
    assert_eq!(
        (adopted.changed, adopted.retired),
        (vec!["b".to_owned()], vec![ended("b", true, &[])])
    );
    assert_eq!((capacity(&record, "a"), capacity(&record, "b")), (50, 8));
    assert!(
        record
            .adopt(&newer, Nanos::from_secs(4), Nanos::from_secs(4))
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
            .adopt(&older, Nanos::from_secs(4), Nanos::from_secs(6))
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
        .apply(&edit(50), &author(10, Some(Nanos::from_secs(60))), 2);
    assert_eq!(record.next_expiry(), Nanos::from_secs(70));
    assert!(record.expire(Nanos::new(69_999_999_999)).is_empty());
    assert_eq!(record.expire(Nanos::from_secs(70)), [ended("a", true, &[])]);
    assert_eq!(capacity(&record, "a"), 5);
    assert_eq!(record.next_expiry(), Nanos::MAX);
}

#[test]
fn an_edit_back_to_the_base_is_none() {
    let mut record = Record::new(&file(&json!([rule("a", 5)])), Nanos::ZERO);
    let rule = record.rule_mut("a").expect("a");
    rule.apply(&edit(50), &author(1, None), 2);
    assert!(rule.edit.is_some());
    rule.apply(&edit(5), &author(2, None), 2);
    assert!(rule.edit.is_none());
}

/// Each end is noted at its own instant, whenever the record is read.
#[test]
fn ends_are_noted_in_their_order() {
    let mut record = Record::new(&file(&json!([rule("a", 5)])), Nanos::ZERO);
    let a = record.rule_mut("a").expect("a");
    a.apply(&edit(50), &author(1, Some(Nanos::from_secs(5))), 2);
    a.set_override("alice", scale(3), &author(1, Some(Nanos::from_secs(9))), 2);
    a.set_override("bob", scale(3), &author(1, Some(Nanos::from_secs(2))), 2);
    record.generation = 2;
    let ended_all = record.expire(Nanos::from_secs(60));
    assert_eq!(ended_all, [ended("a", true, &["bob", "alice"])]);
    let changes = &record.rule("a").expect("a").history.changes;
    let at: Vec<u64> = changes.iter().map(|change| change.at.secs_ceil()).collect();
    assert_eq!(at, [1, 1, 1, 3, 6, 10]);
    let versions: Vec<u32> = changes.iter().map(|change| change.version).collect();
    assert_eq!(versions, [2, 2, 2, 3, 3, 3]);
}

/// Unchanged numbers are no change for any bucket, unless levels are reset.
#[test]
fn only_changes_for_buckets_are_noted() {
    let mut record = Record::new(&file(&json!([rule("a", 5)])), Nanos::ZERO);
    let a = record.rule_mut("a").expect("a");
    let shadow = config::parse_edit(&json!({ "mode": "shadow" })).expect("an edit");
    a.apply(&shadow, &author(1, None), 2);
    a.apply(&edit(5), &author(1, None), 3);
    assert_eq!((a.history.version, a.history.changes.len()), (1, 0));
    let reset = Author {
        carry: Carry::Reset,
        ..author(1, None)
    };
    a.apply(&edit(5), &reset, 4);
    assert_eq!((a.history.version, a.history.changes.len()), (4, 1));
}

#[test]
fn edited_overrides_lie_on_top() {
    let mut base = rule("a", 5);
    base["overrides"] = json!({ "alice": { "scale": 2 }, "eve": "banned" });
    let mut record = Record::new(&file(&json!([base])), Nanos::ZERO);
    let a = record.rule_mut("a").expect("a");
    let gives = |a: &RuleRecord, key: &str| a.effective().overrides.get(key).cloned();
    a.set_override("alice", scale(3), &author(1, None), 2);
    a.set_override("bob", Override::Unlimited, &author(1, None), 2);
    assert_eq!(gives(a, "alice"), Some(scale(3)));
    assert_eq!(gives(a, "bob"), Some(Override::Unlimited));
    assert_eq!(gives(a, "eve"), Some(Override::Banned));
    // A value that already applies is no edit.
    a.set_override("alice", scale(2), &author(2, None), 2);
    assert!(!a.drop_override("alice", Nanos::from_secs(9), 2));
    assert!(a.is_edited());
    // Overrides replaced as a whole are as they were sent.
    let whole = config::parse_edit(&json!({ "overrides": { "carol": "banned" } }));
    a.apply(&whole.expect("an edit"), &author(3, None), 2);
    let keys: Vec<String> = a.effective().overrides.iter().map(|(key, _)| key).collect();
    assert_eq!(keys, ["carol"]);
    a.set_override("alice", scale(3), &author(4, None), 2);
    a.drop_edit(Carry::Keep, Nanos::from_secs(5), 2);
    assert_eq!(gives(a, "alice"), Some(scale(3)));
    assert_eq!(gives(a, "eve"), Some(Override::Banned));
    assert!(a.drop_override("alice", Nanos::from_secs(9), 2));
    assert_eq!(gives(a, "alice"), Some(scale(2)));
    assert!(!a.is_edited());
}

#[test]
fn edited_overrides_run_out_and_are_retired() {
    let mut record = Record::new(&file(&json!([rule("a", 5), rule("b", 5)])), Nanos::ZERO);
    let a = record.rule_mut("a").expect("a");
    a.apply(&edit(50), &author(1, None), 2);
    a.set_override("alice", scale(3), &author(1, Some(Nanos::from_secs(9))), 2);
    a.set_override("bob", scale(3), &author(1, None), 2);
    assert_eq!(record.next_expiry(), Nanos::from_secs(10));
    assert_eq!(record.expire(Nanos::new(9_999_999_999)), []);
    let now = Nanos::from_secs(10);
    assert_eq!(record.expire(now), [ended("a", false, &["alice"])]);
    assert_eq!(record.next_expiry(), Nanos::MAX);
    let newer = file(&json!([rule("a", 6), rule("b", 5)]));
    let adopted = record.adopt(&newer, now, now).expect("newer");
    assert_eq!(adopted.retired, [ended("a", true, &["bob"])]);
    assert!(!record.rule("a").expect("a").is_edited());
}

/// Edits cannot make the record so large that reading it takes long.
#[test]
fn edits_do_not_grow_without_bound() {
    let host = FakeHost::default();
    let rules: Vec<_> = (0..9).map(|n| rule(&format!("r{n}"), 5)).collect();
    let first = Record::new(&file(&json!(rules)), Nanos::ZERO);
    let records = Records::new("loudou", Bases::default());
    assert_eq!(records.create(&host, &first), Ok(true));
    let limits = json!([{ "algorithm": "funnel", "capacity": 9, "rate": "1/s" }]);
    let large = json!({ "limits": limits });
    let gives = config::parse_override("k", &large, None).expect("an override");
    let long = Author {
        reason: "r".repeat(200),
        ..author(1, None)
    };
    let fill = |record: &mut Record, rules: usize| {
        for rule in record.rules.iter_mut().take(rules).map(Rc::make_mut) {
            for n in 0..1_000 {
                rule.set_override(&format!("{n:0128}"), gives.clone(), &long, 2);
            }
        }
        true
    };
    assert!(edit_record(&records, &host, &mut |record| fill(record, 1)).is_ok());
    assert_eq!(
        edit_record(&records, &host, &mut |record| fill(record, 9)),
        Err(RecordError::TooLarge)
    );
    let kept = records.change(&host, |_| None::<()>).expect("readable").0;
    assert_eq!(kept.generation, 2);
    // Configurations have no such bound, and edits that make the record smaller are always accepted.
    let filled = records.change(&host, |record| fill(record, 9).then_some(()));
    filled.expect("changed");
    let mut fewer = |record: &mut Record| {
        let rule = record.rule_mut("r0").expect("r0");
        rule.drop_override(&format!("{:0128}", 0), Nanos::from_secs(9), 3)
    };
    assert!(edit_record(&records, &host, &mut fewer).is_ok());
}

fn edit_record(
    records: &Records,
    host: &FakeHost,
    change: &mut dyn FnMut(&mut Record) -> bool,
) -> Result<(), RecordError> {
    records.edit(host, change).map(|_| ())
}
