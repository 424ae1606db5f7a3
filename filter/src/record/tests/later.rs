//! A record that a later build has written, or left.

use super::*;
use crate::host::Host as _;

const AT: fn(u64) -> Nanos = Nanos::from_secs;

/// The record of `a`, `new` and `z` by a later build: `new` has a field that this build does not know.
fn by_later_build() -> Vec<u8> {
    let all = json!([rule("a", 5), rule("new", 6), rule("z", 7)]);
    let mut record = Record::new(&file(&all), AT(1));
    let edited = record.rule_mut("z").expect("z");
    edited.apply(&edit(50), &author(2, None), 2);
    record.generation = 2;
    with_text(&record, 1, 0, |text| {
        let mut rule: Value = serde_json::from_slice(text).expect("JSON");
        rule["tls_version"] = json!("1.3");
        rule.to_string().into_bytes()
    })
}

fn at_host(bytes: &[u8]) -> (FakeHost, Records) {
    let host = FakeHost::default();
    let records = Records::new("s", Bases::default());
    let created = host.shared_set(b"s:rules", bytes, loudou_store::CAS_ABSENT);
    assert_eq!(created, Ok(loudou_store::Written::Done));
    (host, records)
}

fn stored(host: &FakeHost) -> Vec<u8> {
    let mut bytes = Vec::new();
    let found = host.shared_get(b"s:rules", &mut bytes);
    assert!(found.is_ok_and(|found| found.is_some()));
    bytes
}

/// The other rules are in force, shown and edited. The unknown rule is preserved, to the byte.
#[test]
fn a_rule_with_an_unknown_field_concerns_itself_alone() {
    let before = by_later_build();
    let (host, records) = at_host(&before);
    let record = records.read(&host).expect("a record");
    assert_eq!(record.later.names().collect::<Vec<_>>(), ["new"]);
    assert_eq!((capacity(&record, "a"), capacity(&record, "z")), (5, 50));
    let edited = records.edit(&host, &mut |record| {
        let rule = record.rule_mut("a").expect("a");
        rule.apply(&edit(9), &author(3, None), 3);
        true
    });
    assert_eq!(capacity(&edited.expect("edited"), "a"), 9);
    // The later build finds its own rule at its place, with all of its parts.
    let (old, new) = (before, stored(&host));
    let parts = |bytes: &[u8]| {
        let layout = Layout::read(bytes).expect("a layout");
        let texts = layout.rules[1].map(|part| part.text.to_vec());
        (layout.rules.len(), texts)
    };
    assert_eq!(parts(&old), parts(&new));
    // A worker of this build does not decide by it, and uses its own rule.
    let own = file(&json!([rule("a", 5), rule("new", 6), rule("z", 7)]));
    let record = records.read(&host).expect("a record");
    assert!(record.of_buckets(1, &own.rules[1]).is_none());
    assert!(record.of_buckets(2, &own.rules[2]).is_some());
    assert!(!record.is_of(&own), "it is another configuration");
}

/// A configuration of this build that is loaded later takes over.
#[test]
fn a_configuration_of_this_build_takes_over() {
    let mut record = read(&by_later_build()).expect("a record");
    let own = file(&json!([rule("a", 5), rule("new", 6), rule("z", 7)]));
    let adopted = record.adopt(&own, AT(5), AT(5)).expect("newer");
    assert_eq!(adopted.unreadable, ["new"]);
    assert_eq!(adopted.retired, [], "the edit of z stays");
    assert_eq!((capacity(&record, "new"), capacity(&record, "z")), (6, 50));
    assert_eq!(read(&written(&record)).as_ref(), Some(&record));
    assert!(record.is_of(&own));
}

/// Data that a later build appends is preserved by all changes.
#[test]
fn appended_state_is_kept() {
    let mut bytes = written(&Record::new(&file(&json!([rule("a", 5)])), AT(1)));
    bytes.extend_from_slice(&5_u32.to_le_bytes());
    bytes.extend_from_slice(b"\0more");
    let (host, records) = at_host(&bytes);
    records.read(&host).expect("a record");
    let edited = records.edit(&host, &mut |record| {
        let rule = record.rule_mut("a").expect("a");
        rule.apply(&edit(9), &author(3, None), 3);
        true
    });
    edited.expect("edited");
    assert!(stored(&host).ends_with(b"\x05\0\0\0\0more"));
    for damaged in [&bytes[..bytes.len() - 1], &[&bytes[..], b"x"].concat()] {
        assert_eq!(read(damaged), None);
    }
}

/// A later build that keeps the rules under another key leaves these for workers and for answers.
/// An edit of them would not be in force, so it is refused. If this build is loaded again, its
/// rules apply.
#[test]
fn a_record_that_was_left_is_read_but_not_edited() {
    let rules = file(&json!([rule("a", 5)]));
    let mut bytes = written(&Record::new(&rules, AT(1)));
    bytes.extend_from_slice(&1_u32.to_le_bytes());
    bytes.push(1);
    let (host, records) = at_host(&bytes);
    assert_eq!(capacity(&records.read(&host).expect("a record"), "a"), 5);
    let edited = records.edit(&host, &mut |_| true);
    assert_eq!(edited, Err(RecordError::Moved));
    assert_eq!(stored(&host), bytes);
    let adopt = |record: &mut Record| record.adopt(&rules, AT(2), AT(2));
    let (record, adopted) = records.change(&host, adopt).expect("changed");
    assert!(adopted.is_some() && !record.later.has_moved());
    records.edit(&host, &mut |_| true).expect("edited");
}

/// Another build may serialize the rule differently. That is not another configuration, and retires
/// no edits.
#[test]
fn the_same_rule_in_other_words_is_the_same_configuration() {
    let rules = file(&json!([rule("a", 5)]));
    let mut record = Record::new(&rules, AT(1));
    let a = record.rule_mut("a").expect("a");
    a.apply(&edit(50), &author(2, None), 2);
    let bytes = with_text(&record, 0, 0, |text| {
        let spaced = [b" ", text, b" "].concat();
        assert_ne!(Id::of(&spaced), Id::of(text));
        spaced
    });
    let mut record = read(&bytes).expect("a record");
    assert!(record.is_of(&rules));
    assert_eq!(record.adopt(&rules, AT(3), AT(3)), None);
    let both = file(&json!([rule("a", 5), rule("b", 5)]));
    let adopted = record.adopt(&both, AT(4), AT(4)).expect("newer");
    assert_eq!((adopted.changed, adopted.retired), (vec![], vec![]));
    assert_eq!(capacity(&record, "a"), 50);
}
