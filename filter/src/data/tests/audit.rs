//! Events that configurations leave, and reports that workers make about themselves.

use super::*;
use crate::behind;
use crate::record::Author;

fn named(names: &[&str]) -> RuleFile {
    let rule = |name: &&str| {
        json!({
            "name": name,
            "key": [{ "header": "x-user-id" }],
            "limits": [{ "algorithm": "funnel", "capacity": 2, "rate": "1/10s" }],
        })
    };
    file(&names.iter().map(rule).collect())
}

/// The lines about rules in the log since the last call.
fn told(host: &FakeHost) -> Vec<String> {
    let lines = host.logs.take();
    let about = |line: &&String| ["rule_", "edit_"].iter().any(|kind| line.starts_with(kind));
    lines.iter().filter(about).cloned().collect()
}

#[test]
fn a_removed_rule_leaves_an_event() {
    let host = FakeHost::default();
    assert!(DataPlane::new(named(&["a", "b"]), Nanos::ZERO).start(&host));
    assert_eq!(told(&host), [""; 0]);
    host.pass(Nanos::from_secs(1));
    assert!(DataPlane::new(named(&["b"]), host.now()).start(&host));
    let lines = told(&host);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with("rule_removed: rule a, "), "{lines:?}");
}

/// The edit of a removed rule does not end for a change of that rule.
#[test]
fn the_edit_of_a_removed_rule_says_so() {
    let host = FakeHost::default();
    assert!(DataPlane::new(named(&["a", "b"]), Nanos::ZERO).start(&host));
    let author = Author {
        by: "ops".to_owned(),
        reason: String::new(),
        carry: loudou_limiter::Carry::Keep,
        at: Nanos::ZERO,
        at_unix_ms: 0,
        expires_after: None,
    };
    let edit = config::parse_edit(&json!({ "mode": "shadow" })).expect("an edit");
    let edited = records().edit(&host, &mut |record| {
        let version = record.next_version();
        record
            .rule_mut("a")
            .expect("a")
            .apply(&edit, &author, version);
        true
    });
    edited.expect("edited");
    host.pass(Nanos::from_secs(1));
    assert!(DataPlane::new(named(&["b"]), host.now()).start(&host));
    let lines = told(&host);
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(
        lines[0].contains("the configuration removed this rule"),
        "{lines:?}"
    );
}

/// A worker that cannot read the rules reports it while it has requests, and is forgotten after the last.
#[test]
fn a_worker_without_the_shared_rules_reports_it() {
    let host = FakeHost::default();
    let mut worker = DataPlane::new(named(&["a"]), Nanos::ZERO);
    assert_eq!(send(&mut worker, &host, Some(b"alice")), 0);
    assert_eq!(behind::count(&host, "loudou", host.now()), 0);
    let other = host.shared_set(
        b"loudou:rules",
        b"of another version",
        loudou_store::CAS_OVERWRITE,
    );
    assert_eq!(other, Ok(Written::Done));
    let mut alone = DataPlane::new(named(&["a"]), Nanos::new(1));
    for second in [0, 1, 4, 7, 20] {
        host.now.set(Nanos::from_secs(second).get());
        send(&mut alone, &host, Some(b"alice"));
        assert_eq!(behind::count(&host, "loudou", host.now()), 1, "{second}");
    }
    host.pass(Nanos::from_secs(15));
    assert_eq!(behind::count(&host, "loudou", host.now()), 0);
}
