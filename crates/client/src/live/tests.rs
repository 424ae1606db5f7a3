//! Live changes, as a document and in a ledger.

use serde_json::json;

use super::document::{Document, read};
use super::*;

fn item(rule: &str, what: What, ends_unix_ms: Option<u64>) -> Item {
    Item {
        rule: rule.to_owned(),
        what,
        by: "ops".to_owned(),
        reason: "ticket 7".to_owned(),
        made_unix_ms: Some(1_000),
        ends_unix_ms,
    }
}

fn all() -> Vec<Item> {
    let change = json!({ "mode": "shadow", "penalty": null });
    let key = |key: &str| key.to_owned();
    vec![
        item("r", What::Edit(change), Some(9_000)),
        item(
            "r",
            What::Override {
                key: key("team-*"),
                gives: json!({ "scale": 2.5 }),
            },
            None,
        ),
        Item {
            by: String::new(),
            reason: String::new(),
            made_unix_ms: None,
            ..item("s", What::Ban { key: key("a%3Ab") }, Some(9_001))
        },
    ]
}

#[test]
fn a_document_is_read_as_it_was_written() {
    let items = all();
    let document = Document::new("0f1e2d3c4b5a6978", 7, items.iter());
    let written = serde_json::to_value(&document).expect("JSON");
    assert_eq!(written["live_version"], 1);
    assert_eq!(
        written["bans"],
        json!([{ "rule": "s", "key": "a%3Ab", "ends_unix_ms": 9001 }])
    );
    let read = read(&written).expect("valid");
    let places: Vec<String> = read.iter().map(|(at, _)| at.to_string()).collect();
    assert_eq!(places, ["edits[0]", "overrides[0]", "bans[0]"]);
    let read: Vec<Item> = read.into_iter().map(|(_, item)| item).collect();
    assert_eq!(read, items);
}

/// The problems of a document.
fn wrong(document: &Value) -> Vec<String> {
    let problems = read(document).expect_err("wrong");
    problems.iter().map(ToString::to_string).collect()
}

/// The problems of a document of the right version with these fields.
fn of(fields: Value) -> Vec<String> {
    let mut document = fields;
    document["live_version"] = json!(1);
    wrong(&document)
}

#[test]
fn documents_of_other_versions_are_refused() {
    assert_eq!(
        wrong(&json!({ "version": 1, "rules": [] })),
        [
            "(the whole file): no live_version: this is a rule file, which belongs in Envoy's configuration; \
          allowed: the output of `loudou export --live`"
        ]
    );
    assert_eq!(
        wrong(&json!({ "live_version": 2 })),
        ["live_version: 2: an unknown version; allowed: 1"]
    );
    assert_eq!(wrong(&json!([])).len(), 1);
}

#[test]
fn all_problems_of_a_document_are_reported() {
    assert_eq!(
        of(json!({ "ban": [] })),
        [
            "ban: unknown field; allowed: live_version, instance, exported_unix_ms, edits, overrides, \
          bans; did you mean `bans`?"
        ]
    );
    assert_eq!(
        of(json!({ "bans": {} })),
        ["bans: {}: an object instead of a list; allowed: a list"]
    );
    assert_eq!(
        of(json!({ "bans": [{ "rule": "r", "key": "a b" }, { "key": 7 }, "x"] })),
        [
            "bans[0].key: \"a b\": not a possible key; allowed: a key as `loudou buckets` prints it",
            "bans[1]: `rule` is missing; allowed: the name of a rule",
            "bans[1].key: 7: a number instead of a text; allowed: a text",
            "bans[2]: \"x\": a text instead of an object; allowed: an object with rule, by, reason, made_unix_ms, ends_unix_ms, key",
        ]
    );
    assert_eq!(
        of(
            json!({ "overrides": [{ "rule": "r", "key": "k", "gives": "bannd", "ends_unix_ms": "soon" }] })
        ),
        [
            "overrides[0].ends_unix_ms: \"soon\": invalid time; allowed: whole milliseconds since the Unix epoch",
            "overrides[0].gives: \"bannd\": unknown value; allowed: unlimited, banned, { scale: 10 }, { limits: […] }; \
             did you mean `banned`?",
        ]
    );
    let edits =
        of(json!({ "edits": [{ "rule": "r", "change": { "mode": "shaddow" } }, { "rule": "r" }] }));
    assert!(
        edits[0].starts_with("edits[0].change.mode: \"shaddow\""),
        "{edits:?}"
    );
    assert_eq!(
        edits[1],
        "edits[1]: `change` is missing; allowed: the changes of a rule"
    );
    let ban = json!({ "rule": "r", "key": "k" });
    assert_eq!(
        of(json!({ "bans": [ban, ban] })),
        ["bans[1]: \"ban of k\": duplicate"]
    );
}

#[test]
fn an_end_is_the_same_on_both_clocks() {
    let clocks = Clocks {
        now_ns: 5_000_000_000,
        unix_ms: 1_000_000,
    };
    for (at_ns, unix_ms) in [
        (5_000_000_000, 1_000_000),
        (6_500_000_001, 1_001_501),
        (4_000_000_000, 999_000),
    ] {
        assert_eq!(clocks.unix_ms(at_ns), unix_ms);
    }
    let ban = item(
        "r",
        What::Ban {
            key: "k".to_owned(),
        },
        Some(1_000),
    );
    assert_eq!(ban.left(999), TimeLeft::For(Nanos::from_millis(1)));
    assert_eq!(ban.left(1_000), TimeLeft::Nothing);
    assert!(same_end(Some(0), Some(5_000)) && !same_end(Some(0), Some(5_001)));
    assert!(same_end(None, None) && !same_end(None, Some(u64::MAX)));
}

#[test]
fn losses_are_counted() {
    let items = all();
    let line = |n: usize| gone(items.iter().take(n), 1_795_269_787_000);
    assert_eq!(line(0), "Envoy restarted at 2026-11-21 14:03:07Z");
    assert_eq!(
        line(1),
        "Envoy restarted at 2026-11-21 14:03:07Z: 1 edit of the previous instance is lost"
    );
    assert_eq!(
        line(3),
        "Envoy restarted at 2026-11-21 14:03:07Z: 1 ban, 1 edit, 1 override of the previous instance are lost"
    );
}

/// A bucket of a key, banned by an operator or not banned.
fn bucket(key: &str, is_banned: bool) -> BucketView {
    let ban = loudou_api::BanView {
        until_ns: None,
        by: BanBy::Operator,
    };
    BucketView {
        rule: "r".to_owned(),
        key: key.to_owned(),
        ban: is_banned.then_some(ban),
        ..BucketView::default()
    }
}

#[test]
fn unread_bans_are_remembered_while_there_are_too_many_buckets() {
    let mut ledger = ledger::Ledger::default();
    let look = |instance: &'static str| ledger::Poll {
        instance,
        started_unix_ms: 1_795_269_787_000,
        clocks: Clocks::default(),
        rules: None,
        events: &[],
    };
    let see = |ledger: &mut ledger::Ledger, buckets: &[BucketView], are_all: bool| {
        assert!(!ledger.poll(&look("0f1e2d3c4b5a6978")));
        ledger.buckets(buckets.iter(), are_all);
    };
    see(
        &mut ledger,
        &[bucket("a", true), bucket("b", true), bucket("c", true)],
        true,
    );
    // In a partial list, one bucket is not banned, and the others are unknown.
    see(
        &mut ledger,
        &[bucket("a", false), bucket("#0123456789abcdef", true)],
        false,
    );
    let keys = |ledger: &ledger::Ledger| -> Vec<String> {
        let lost = ledger.lost().expect("a restart");
        lost.items()
            .filter_map(|item| item.key().map(ToOwned::to_owned))
            .collect()
    };
    let mut after = ledger.clone();
    assert!(after.poll(&look("fedcba9876543210")));
    assert_eq!(keys(&after), ["b", "c"]);
    // Changes that are in effect again are not lost; a second restart drops none of the losses.
    after.buckets([bucket("b", true)].iter(), true);
    assert_eq!(keys(&after), ["c"]);
    assert!(after.poll(&look("0000000000000001")));
    assert_eq!(keys(&after), ["b", "c"]);
    // In a full list, keys that are missing have no ban.
    see(&mut ledger, &[bucket("c", true)], true);
    assert!(ledger.poll(&look("fedcba9876543210")));
    assert_eq!(keys(&ledger), ["c"]);
}
