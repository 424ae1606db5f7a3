//! Examples of rule versions, with buckets that are touched long after an edit.

use loudou_limiter::{Bucket, Carry, Clock, Limits, Nanos};
use loudou_rules::config::{parse_edit, parse_rule};
use loudou_rules::rule::Rule;
use loudou_rules::versions::{Before, History};
use loudou_store::Age;
use serde_json::{Value, json};

use super::carried::{funnel, left, used};

/// A rule with one limit after the other in force, by `edit`.
struct Edited {
    rule: Rule,
    history: History,
}

impl Edited {
    fn new(first: &Limits) -> Self {
        let rule = json!({ "name": "r", "key": ["source"], "limits": first });
        let rule = parse_rule(&rule).expect("valid");
        Self {
            rule,
            history: History::default(),
        }
    }

    /// Applies an edit at this second. Returns true if it concerns any bucket.
    fn edit(&mut self, edit: &Value, carry: Carry, second: u64) -> bool {
        let before = self.rule.clone();
        parse_edit(edit).expect("valid").apply(&mut self.rule);
        let version = self.history.version + 1;
        let note = (carry, Nanos::from_secs(second), version);
        self.history.note(&before, &self.rule, note)
    }

    fn limits(&mut self, limits: &Limits, carry: Carry, second: u64) -> bool {
        self.edit(&json!({ "limits": limits }), carry, second)
    }

    /// A bucket of `version`, converted to the limits in force at 9 s.
    fn forward(&self, bucket: &Bucket, version: u32) -> Bucket {
        let of = ("k", &self.rule.limits);
        let clock = Clock::at(Nanos::from_secs(9));
        let brought = self
            .history
            .bring_forward(&self.rule, of, (bucket, version), clock);
        brought.unwrap_or_else(|| bucket.clone())
    }

    fn left(&self, bucket: &Bucket, version: u32) -> Vec<u64> {
        left(&self.rule.limits, &self.forward(bucket, version), 9)
    }
}

/// A late touch sees what an immediate conversion would have left, through several edits.
#[test]
fn a_late_touch_is_brought_forward_edit_by_edit() {
    let (a, b, c) = (funnel(10, "1/s"), funnel(20, "10/s"), funnel(40, "1/h"));
    let bucket = used(&a, 10);
    let mut rule = Edited::new(&a);
    rule.limits(&b, Carry::Proportional, 5);
    rule.limits(&c, Carry::Keep, 6);
    // 5 of 10 were used at 5 s, so 10 of 20. After one more second at 10/s, none are used.
    assert_eq!(rule.left(&bucket, 0), [40]);
    let mut rule = Edited::new(&a);
    rule.limits(&b, Carry::Proportional, 5);
    rule.limits(&c, Carry::Proportional, 5);
    // Half full, and next to nothing leaks at 1/h.
    assert_eq!(rule.left(&bucket, 0), [20]);
    // Written under b, the first edit does not concern it: 20 of 20 at 0 s are gone at 2 s.
    assert_eq!(rule.left(&used(&b, 20), 1), [40]);
    assert_eq!(rule.left(&used(&c, 10), 2), [30]);
}

#[test]
fn the_current_version_needs_no_conversion() {
    let (a, b) = (funnel(10, "1/h"), funnel(20, "1/h"));
    let mut rule = Edited::new(&a);
    rule.limits(&b, Carry::Reset, 5);
    let ages = [0, 1, 2].map(|version| rule.history.age(version));
    assert_eq!(ages, [Age::Older, Age::Current, Age::Newer]);
    let bucket = used(&b, 20);
    assert_eq!(rule.forward(&bucket, 1), bucket);
    assert_eq!(rule.forward(&bucket, 2), bucket, "nor does a newer one");
}

/// Equal limits may have been in force twice. The version shows in which period a bucket was
/// written.
#[test]
fn an_edit_there_and_back_is_two_edits() {
    let (a, b) = (funnel(10, "1/h"), funnel(20, "1/h"));
    let mut rule = Edited::new(&a);
    rule.limits(&b, Carry::Reset, 5);
    rule.limits(&a, Carry::Keep, 6);
    // Full at 0 s, reset at 5 s.
    let first = used(&a, 10);
    assert_eq!(rule.left(&first, 0), [10]);
    // The bucket is full again after the second edit, so it stays full.
    let mut second = a.start(Nanos::from_secs(7));
    a.decide(&mut second, 10, Nanos::from_secs(7));
    assert_eq!(rule.left(&second, 2), [0]);
    // This also holds with yet another edit after it.
    rule.limits(&b, Carry::Keep, 8);
    assert_eq!(rule.left(&first, 0), [20]);
    assert_eq!(rule.left(&second, 2), [10]);
}

/// A worker that does not know of an edit yet may write after it. The amount that it took counts
/// from the worker's instant.
#[test]
fn a_late_worker_is_brought_forward_from_its_last_touch() {
    let (a, b) = (funnel(10, "1/h"), funnel(20, "1/h"));
    let mut late = a.start(Nanos::ZERO);
    a.decide(&mut late, 10, Nanos::from_secs(9));
    for (carry, expected) in [
        (Carry::Reset, 20),
        (Carry::Keep, 10),
        (Carry::Proportional, 0),
    ] {
        let mut rule = Edited::new(&a);
        rule.limits(&b, carry, 5);
        let forward = rule.forward(&late, 0);
        assert_eq!(
            (forward.last, left(&b, &forward, 9)),
            (late.last, vec![expected])
        );
    }
}

/// An edit of other fields changes no bucket and creates no version. A reset always creates one.
#[test]
fn the_same_numbers_can_be_reset() {
    let a = funnel(10, "1/h");
    for edit in [json!({ "limits": a }), json!({ "mode": "shadow" })] {
        let mut rule = Edited::new(&a);
        assert!(!rule.edit(&edit, Carry::Keep, 4));
        assert!(!rule.edit(&edit, Carry::Proportional, 4));
        assert_eq!(
            (rule.history.version, rule.left(&used(&a, 10), 0)),
            (0, vec![0])
        );
        assert!(rule.edit(&edit, Carry::Reset, 5));
        assert_eq!(
            (rule.history.version, rule.left(&used(&a, 10), 0)),
            (1, vec![10])
        );
        assert_eq!(rule.left(&used(&a, 10), 1), [0], "written after it");
    }
}

/// No edit is forgotten until every bucket has been converted, even after many edits. The state of
/// a bucket whose version is no longer known is meaningless.
#[test]
fn edits_are_known_until_they_are_forgotten() {
    let mut rule = Edited::new(&funnel(1, "1/h"));
    for capacity in 2..=40 {
        assert!(rule.limits(&funnel(capacity, "1/h"), Carry::Keep, 1));
    }
    let bucket = used(&funnel(1, "1/h"), 1);
    assert_eq!((rule.history.version, rule.history.changes.len()), (39, 39));
    assert_eq!(rule.left(&bucket, 0), [39]);
    rule.history.forget(30);
    assert_eq!((rule.history.since, rule.history.changes.len()), (30, 9));
    assert_eq!(rule.left(&bucket, 30), [39]);
    let forward = rule.forward(&bucket, 29);
    assert_eq!(forward, rule.rule.limits.start(Nanos::from_secs(9)));
    // The version in force is never forgotten.
    rule.history.forget(1_000);
    assert_eq!((rule.history.since, rule.history.version), (39, 39));
    assert_eq!(rule.left(&used(&funnel(40, "1/h"), 1), 39), [39]);
}

/// An edit changes both overrides and limits. First the overrides change under the old limits, in
/// units. Then the limits change with the given carry.
#[test]
fn an_edit_of_limits_and_overrides_is_two_changes() {
    let mut rule = Edited::new(&funnel(10, "1/h"));
    let edit = json!({ "limits": funnel(20, "1/h"), "overrides": { "k*": { "scale": 2 } } });
    assert!(rule.edit(&edit, Carry::Proportional, 5));
    let [first, second] = rule.history.changes.as_slice() else {
        panic!("{:?}", rule.history.changes);
    };
    assert_eq!((first.version, second.version), (1, 1));
    assert_eq!(
        (first.carry, second.carry),
        (Carry::Keep, Carry::Proportional)
    );
    assert_eq!(
        first.before,
        Before::Overrides(vec![(String::from("k*"), None)].into())
    );
    assert_eq!(second.before, Before::Limits(funnel(10, "1/h")));
    // Five of ten are five of twenty, and then ten of forty.
    let bucket = used(&funnel(10, "1/h"), 5);
    let own = funnel(40, "2/h");
    let clock = Clock::at(Nanos::from_secs(5));
    let of = ("k", &own);
    let brought = rule
        .history
        .bring_forward(&rule.rule, of, (&bucket, 0), clock);
    assert_eq!(left(&own, &brought.expect("converted"), 5), [30]);
    // Another key is not affected, so five of ten are ten of twenty.
    let of = ("other", &rule.rule.limits);
    let brought = rule
        .history
        .bring_forward(&rule.rule, of, (&bucket, 0), clock);
    assert_eq!(
        left(&rule.rule.limits, &brought.expect("converted"), 5),
        [10]
    );
}
