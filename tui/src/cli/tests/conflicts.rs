//! Imports and edits during edits by others, and during restarts of Envoy.

use loudou_api::{ProblemAnswer, RuleView};
use serde_json::json;

use super::canned::{self, ok};
use super::live::{OTHER, fresh, import, made};
use super::*;

#[test]
fn a_faster_editor_is_retried_and_a_restart_is_not() {
    let document = json!({
        "live_version": 1,
        "edits": [{ "rule": "per-user", "change": { "mode": "off" } }],
        "bans": [{ "rule": "per-user", "key": "mallory" }],
    });
    let stale = |instance: &str, generation: u64| {
        let problem: ProblemAnswer = ProblemAnswer {
            status: 412,
            current: Some(RuleView {
                instance: instance.to_owned(),
                generation,
                ..canned::rule()
            }),
            ..ProblemAnswer::default()
        };
        Answer::json("412 Precondition Failed", &problem)
    };
    let mut answers = fresh(0);
    answers.extend([canned::not_found(), ok(&loudou_api::BanAnswer::default())]);
    answers.extend([
        stale(OTHER, 5),
        made(5, "mode"),
        // Only the generation changed.
        stale(OTHER, 6),
        made(7, "mode"),
    ]);
    let ran = import(answers, &document.to_string(), "");
    assert_eq!(ran.code, 0, "{}", ran.seen());
    assert!(ran.requests[7].contains("if-match: \"fedcba9876543210-6\"\r\n"));
    assert!(ran.out.contains("replaces the edit by ops"), "{}", ran.out);
    let document = json!({
        "live_version": 1,
        "edits": [{ "rule": "per-user", "change": { "mode": "off" } }],
        "overrides": [{ "rule": "per-user", "key": "alice", "gives": "unlimited" }],
    });
    let mut answers = fresh(0);
    answers.push(stale("0000000000000001", 1));
    let ran = import(answers, &document.to_string(), "");
    assert_eq!(ran.code, 1);
    assert_eq!(ran.requests.len(), 3, "nothing more is tried");
    assert!(
        ran.out
            .contains("not tried: Envoy restarted in the meantime"),
        "{}",
        ran.out
    );
}

/// Edits of other rules change the generation, but need no new preview.
#[test]
fn a_moved_generation_is_no_conflict_of_an_import() {
    let document = json!({
        "live_version": 1,
        "edits": [{ "rule": "per-user", "change": { "mode": "off" } }],
    });
    let moved = |generation: u64| {
        let base = canned::rule().base;
        let problem: ProblemAnswer = ProblemAnswer {
            status: 412,
            current: Some(RuleView {
                instance: OTHER.to_owned(),
                generation,
                rule: base,
                edit: None,
                ..canned::rule()
            }),
            ..ProblemAnswer::default()
        };
        Answer::json("412 Precondition Failed", &problem)
    };
    let mut answers = fresh(0);
    answers.extend([
        moved(4),
        made(4, "mode"),
        moved(5),
        moved(6),
        made(7, "mode"),
    ]);
    let ran = import(answers, &document.to_string(), "");
    assert_eq!(ran.code, 0, "{}", ran.seen());
    let lines = ran.lines();
    let dry = lines.iter().filter(|line| line.contains("dry_run"));
    assert_eq!(dry.count(), 2, "{lines:?}");
    assert!(ran.out.ends_with("1 applied\n"), "{}", ran.out);
}

#[test]
fn a_restart_under_an_edit_is_reported() {
    let problem: ProblemAnswer = ProblemAnswer {
        status: 412,
        current: Some(RuleView {
            instance: OTHER.to_owned(),
            ..canned::rule()
        }),
        ..ProblemAnswer::default()
    };
    let answers = vec![
        ok(&canned::rule()),
        Answer::json("412 Precondition Failed", &problem),
    ];
    let ran = Loudou::answers(answers).run("set per-user --mode off");
    assert!(
        ran.err.starts_with("loudou: Envoy restarted"),
        "{}",
        ran.err
    );
    assert_eq!(ran.code, 6);
}
