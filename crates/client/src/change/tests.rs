//! The rule for conflicts: changes that are sent again, and changes that are not.

use std::time::Duration;

use loudou_api::{
    BanAnswer, BanBy, BanView, BucketView, EditAnswer, EditView, OverrideView, ProblemAnswer,
    RuleView,
};
use loudou_limiter::{Carry, Nanos};
use serde_json::{Value, json};

use super::ban::{Ban, BanTo};
use super::ban_undo::Seen;
use super::edit::{Edit, EditTo, EditUndo};
use super::key_override::Override;
use super::verb::Answer;
use super::{Change, ClientError, MAX_RESENDS};
use crate::fake::{Answer as Reply, Fake};

fn rule(generation: u64) -> RuleView {
    RuleView {
        name: "r".to_owned(),
        instance: "i".to_owned(),
        generation,
        rule: json!({ "limits": [{ "capacity": 15 }], "overrides": { "bob": "banned" } }),
        ..RuleView::default()
    }
}

fn stale(current: RuleView) -> Reply {
    let problem = ProblemAnswer {
        status: 412,
        current: Some(current),
        ..ProblemAnswer::default()
    };
    Reply::json("412 Precondition Failed", &problem)
}

fn made() -> Reply {
    let answer = EditAnswer {
        after: rule(9),
        ..EditAnswer::default()
    };
    Reply::json("200 OK", &answer)
}

/// An edit, an edit that is dropped, an override and one that is dropped.
fn changes() -> Vec<Change> {
    let edit = |to| {
        Change::Edit(Edit {
            rule: "r".to_owned(),
            to,
            seen: Box::new(rule(7)),
            carry: Carry::default(),
            reason: String::new(),
        })
    };
    let by_key = |gives| {
        Change::Override(Override {
            rule: "r".to_owned(),
            key: "alice".to_owned(),
            gives,
            expires_after: None,
            seen: Box::new(rule(7)),
            reason: String::new(),
        })
    };
    vec![
        edit(EditTo::Put {
            body: json!({ "mode": "off" }),
            expires_after: None,
            keeps_end: false,
        }),
        edit(EditTo::Drop),
        by_key(Some(json!("unlimited"))),
        by_key(None),
    ]
}

/// The outcome of sending a change to a server with these answers, and the `ETag`s it was sent with.
fn sent(mut change: Change, answers: Vec<Reply>) -> (Result<Answer, ClientError>, Vec<String>) {
    let fake = Fake::new(answers);
    let client = fake.client(Duration::from_secs(5));
    let answer = change.send(&client, false);
    let mut etags = Vec::new();
    while let Some(request) = fake.try_request() {
        let etag = request
            .lines()
            .find_map(|line| line.strip_prefix("if-match: "));
        etags.push(etag.unwrap_or_default().to_owned());
    }
    (answer, etags)
}

#[test]
fn a_moved_generation_is_no_conflict() {
    for change in changes() {
        let answers = vec![stale(rule(12)), stale(rule(13)), made()];
        let (answer, etags) = sent(change, answers);
        assert!(matches!(answer, Ok(Answer::Edit(_))), "{answer:?}");
        assert_eq!(etags, ["\"i-7\"", "\"i-12\"", "\"i-13\""]);
    }
}

#[test]
fn a_rule_that_is_not_as_seen_is_not_changed() {
    let mut limits = rule(12);
    limits.rule["limits"][0]["capacity"] = json!(40);
    let mut by_key = rule(12);
    by_key.rule["overrides"]["alice"] = json!("banned");
    let mut other = rule(1);
    "j".clone_into(&mut other.instance);
    for now in [limits, by_key, other] {
        for change in changes() {
            let (answer, etags) = sent(change, vec![stale(now.clone()), made()]);
            let error = answer.expect_err("decided anew");
            assert_eq!(error.current(), Some(&now));
            assert_eq!(etags, ["\"i-7\""]);
        }
    }
}

/// An override is decided on the limits and its own key. An edit is also decided on the edit before
/// it.
#[test]
fn only_what_a_change_was_decided_on_makes_a_conflict() {
    let mut other_key = rule(12);
    other_key.rule["overrides"]["bob"] = json!("unlimited");
    let mut edited = rule(12);
    edited.edit = Some(EditView {
        by: "another".to_owned(),
        ..EditView::default()
    });
    for (now, resent) in [(other_key, [false, true]), (edited, [false, true])] {
        for change in changes() {
            let is_override = matches!(change, Change::Override(_));
            let (answer, _etags) = sent(change, vec![stale(now.clone()), made()]);
            assert_eq!(answer.is_ok(), resent[usize::from(is_override)], "{now:?}");
        }
    }
}

#[test]
fn resends_are_bounded() {
    for change in changes() {
        let answers = (12..30).map(|generation| stale(rule(generation))).collect();
        let (answer, etags) = sent(change, answers);
        assert_eq!(answer.expect_err("given up").status(), Some(412));
        assert_eq!(etags.len(), usize::from(MAX_RESENDS) + 1);
    }
}

#[test]
fn a_preview_follows_the_same_rule() {
    for (mut change, is_resent) in changes().into_iter().zip([true, false, true, true]) {
        let fake = Fake::new(vec![stale(rule(12)), made()]);
        let client = fake.client(Duration::from_secs(5));
        let preview = change.preview(&client).expect("as seen");
        assert!(preview.is_some());
        assert_eq!(fake.try_request().is_some(), is_resent);
        let seen = change.seen().map(|seen| seen.generation);
        assert_eq!(seen, Some(if is_resent { 12 } else { 7 }));
    }
}

#[test]
fn a_ban_does_not_depend_on_the_rule() {
    let ban = Change::Ban(Ban {
        rule: "r".to_owned(),
        key: "mallory".to_owned(),
        to: BanTo::Banned(None),
        replaces: false,
        if_match: None,
        reason: String::new(),
    });
    let done = Reply::json("200 OK", &BanAnswer::default());
    let (answer, etags) = sent(ban.clone(), vec![done]);
    assert!(matches!(answer, Ok(Answer::Ban(_))), "{answer:?}");
    assert_eq!(etags, [""]);
    let (answer, etags) = sent(ban, vec![stale(rule(7)), made()]);
    assert!(answer.is_err());
    assert_eq!(etags.len(), 1);
}

fn funnel(name: &str, capacity: u64) -> Value {
    json!({ "name": name, "algorithm": "funnel", "capacity": capacity, "rate": "30/m" })
}

/// An edit of a rule with limits of these capacities.
fn edit_to(before: &[u64], body: Value, carry: Carry) -> Change {
    let limits = before.iter().zip(["burst", "daily"]);
    let limits: Vec<Value> = limits.map(|(n, name)| funnel(name, *n)).collect();
    let seen = RuleView {
        name: "per-user".to_owned(),
        rule: json!({ "name": "per-user", "mode": "enforce", "limits": limits }),
        ..RuleView::default()
    };
    Change::Edit(Edit {
        rule: "per-user".to_owned(),
        to: EditTo::Put {
            body,
            expires_after: Some(Nanos::from_secs(1_800)),
            keeps_end: false,
        },
        seen: Box::new(seen),
        carry,
        reason: "launch day".to_owned(),
    })
}

fn ban_of_team(to: BanTo, replaces: bool) -> Change {
    Change::Ban(Ban {
        rule: "per-user".to_owned(),
        key: "team *".to_owned(),
        to,
        replaces,
        if_match: None,
        reason: String::new(),
    })
}

/// The command line of each change, as it would be typed.
#[test]
fn every_change_has_a_command_line() {
    let carry = Carry::default();
    let one = json!({ "limits": [funnel("burst", 40)], "mode": "enforce" });
    let other = json!({ "limits": [funnel("burst", 15), funnel("daily", 9)], "mode": "shadow" });
    let both = json!({ "limits": [funnel("burst", 1), funnel("daily", 2)] });
    let cases = [
        (
            edit_to(&[15], one, Carry::Proportional),
            "loudou set per-user capacity=40 --carry proportional --for 30m --reason 'launch day'",
        ),
        (
            edit_to(&[15, 100], other, carry),
            "loudou set per-user capacity=9 --limit daily --mode shadow --for 30m --reason 'launch day'",
        ),
        (
            edit_to(&[15, 100], both, carry),
            "loudou set per-user capacity=1 --limit burst --for 30m --reason 'launch day' && \
             loudou set per-user capacity=2 --limit daily --for 30m --reason 'launch day'",
        ),
        (
            ban_of_team(BanTo::Banned(Some(Nanos::from_secs(600))), true),
            "loudou ban per-user 'team *' --replace --for 10m",
        ),
        (
            ban_of_team(BanTo::Free(None), false),
            "loudou unban per-user 'team *'",
        ),
        // An undo; `unban` has nothing to replace.
        (
            ban_of_team(BanTo::Free(None), true),
            "loudou unban per-user 'team *'",
        ),
    ];
    for (change, line) in cases {
        assert_eq!(change.verb().command(None).as_deref(), Some(line));
    }
    // A client may call itself like an option.
    let Change::Ban(mut ban) = ban_of_team(BanTo::Banned(Some(Nanos::from_secs(600))), true) else {
        panic!("a ban")
    };
    "--help".clone_into(&mut ban.key);
    "-x".clone_into(&mut ban.reason);
    assert_eq!(
        Change::Ban(ban).verb().command(None).as_deref(),
        Some("loudou ban --replace --for 10m --reason=-x -- per-user --help")
    );
}

/// A rule, an override and a ban, each until this time.
fn until(until_ns: u64) -> (RuleView, BanView) {
    let edit = EditView {
        expires_at_ns: Some(until_ns),
        ..EditView::default()
    };
    let mut seen = rule(7);
    seen.overrides = vec![OverrideView {
        key: "bob".to_owned(),
        edit: edit.clone(),
    }];
    seen.edit = Some(edit);
    let ban = BanView {
        until_ns: Some(until_ns),
        by: BanBy::Operator,
    };
    (seen, ban)
}

/// The remaining time is shown, and is part of a command line. It is in whole seconds, rounded up.
#[test]
fn what_an_undo_puts_back_lasts_for_whole_seconds() {
    let (seen, before) = until(500_000_000_000);
    let edited = Answer::Edit(Box::new(EditAnswer {
        before: seen.rule.clone(),
        after: rule(8),
        change: "burst: capacity 15 → 250".to_owned(),
        ..EditAnswer::default()
    }));
    let banned = Answer::Ban(Box::new(BanAnswer {
        before: Some(before),
        bucket: Some(BucketView {
            ban: Some(BanView {
                until_ns: None,
                ..before
            }),
            ..BucketView::default()
        }),
        changed: true,
        ..BanAnswer::default()
    }));
    let edit = Change::Edit(Edit {
        rule: "r".to_owned(),
        to: EditTo::Drop,
        seen: Box::new(seen.clone()),
        carry: Carry::default(),
        reason: String::new(),
    });
    let by_key = Change::Override(Override {
        rule: "r".to_owned(),
        key: "bob".to_owned(),
        gives: None,
        expires_after: None,
        seen: Box::new(seen),
        reason: String::new(),
    });
    let ban = Change::Ban(Ban {
        rule: "r".to_owned(),
        key: "bob".to_owned(),
        to: BanTo::Banned(None),
        replaces: false,
        if_match: None,
        reason: String::new(),
    });
    for (change, answer) in [(edit, &edited), (by_key, &edited), (ban, &banned)] {
        let undo = change.undo(answer).expect("an undo");
        let (_, change) = undo
            .ask(53_408_000_001, |_, _, _| Seen::Unknown)
            .expect("a rest");
        let line = change.verb().command(None).expect("a command line");
        assert!(line.contains(" --for 447s "), "{line}");
    }
}

const S: u64 = 1_000_000_000;

/// A rule with an edit that ends at this time, or has no end.
fn edited(expires_at_ns: Option<u64>) -> RuleView {
    let edit = EditView {
        by: "ops".to_owned(),
        expires_at_ns,
        ..EditView::default()
    };
    RuleView {
        edit: Some(edit),
        ..rule(7)
    }
}

/// The undo of an edit with this carry, of a rule that looked like `seen` before it, at 100 s.
fn undo(seen: RuleView, carry: Carry) -> Edit {
    let answer = EditAnswer {
        before: seen.rule.clone(),
        after: rule(8),
        change: "capacity 15 → 40".to_owned(),
        changed: true,
        ..EditAnswer::default()
    };
    let edit = Edit {
        rule: "r".to_owned(),
        to: EditTo::Put {
            body: json!({ "limits": [{ "capacity": 40 }] }),
            expires_after: None,
            keeps_end: false,
        },
        seen: Box::new(seen),
        carry,
        reason: String::new(),
    };
    let undo = EditUndo::new(&edit, &Answer::Edit(Box::new(answer))).expect("it had an effect");
    undo.ask(100 * S).1
}

/// An undo restores the edit before it for the rest of its time. If that has ended meanwhile, the configuration applies.
#[test]
fn an_undo_over_an_edit_that_ended_drops() {
    let put = |expires_after| EditTo::Put {
        body: json!({ "limits": [{ "capacity": 15 }] }),
        expires_after,
        keeps_end: false,
    };
    for (earlier, to) in [
        (rule(7), EditTo::Drop),
        (edited(Some(40 * S)), EditTo::Drop),
        (edited(Some(100 * S)), EditTo::Drop),
        (edited(Some(100 * S + 1)), put(Some(Nanos::from_secs(1)))),
        (edited(None), put(None)),
    ] {
        assert_eq!(undo(earlier.clone(), Carry::Keep).to, to, "{earlier:?}");
    }
}

/// A trial has no mode, so the undo of its edit or of its end must not contain one.
#[test]
fn the_undo_of_a_trial_contains_only_limits() {
    let mut seen = edited(None);
    seen.name = "r~trial".to_owned();
    seen.rule["mode"] = json!("shadow");
    let answer = EditAnswer {
        before: seen.rule.clone(),
        after: seen.clone(),
        change: "capacity 15 → 40".to_owned(),
        changed: true,
        ..EditAnswer::default()
    };
    let edit = Edit::dropping(seen);
    let undo = EditUndo::new(&edit, &Answer::Edit(Box::new(answer))).expect("it had an effect");
    let EditTo::Put { body, .. } = undo.ask(100 * S).1.to else {
        panic!("it starts the trial again");
    };
    assert_eq!(body, json!({ "limits": [{ "capacity": 15 }] }));
}

/// Levels that were reset cannot be restored, so that an undo does not reset them a second time.
#[test]
fn an_undo_never_resets() {
    for carry in [Carry::Keep, Carry::Proportional, Carry::Reset] {
        let undone = undo(rule(7), carry).carry;
        assert_ne!(undone, Carry::Reset, "{carry:?}");
        assert!(carry == Carry::Reset || undone == carry, "{carry:?}");
    }
}

/// An end that is kept is never in the past, because the server would refuse it.
#[test]
fn an_end_that_is_now_is_kept_as_the_least() {
    for (until_ns, kept) in [
        (0, 1),
        (100 * S, 1),
        (101 * S, 1),
        (101 * S + 1, 2),
        (160 * S, 60),
    ] {
        let mut edit = Edit {
            rule: "r".to_owned(),
            to: EditTo::Put {
                body: json!({}),
                expires_after: None,
                keeps_end: true,
            },
            seen: Box::new(rule(7)),
            carry: Carry::Keep,
            reason: String::new(),
        };
        edit.keep_end(&edited(Some(until_ns)), 100 * S);
        let EditTo::Put { expires_after, .. } = edit.to else {
            panic!("{:?}", edit.to);
        };
        assert_eq!(expires_after, Some(Nanos::from_secs(kept)), "{until_ns}");
    }
}

/// An edit that changes only its end has a body with the rule's mode at the other Envoy. A body
/// with another part leaves the mode there unchanged.
#[test]
fn a_body_with_only_an_end_has_a_part_at_another_envoy() {
    let with_mode = |mode: &str| {
        let mut rule = rule(7);
        rule.rule["mode"] = json!(mode);
        rule
    };
    let at_another = |body: Value| {
        let edit = Edit {
            rule: "r".to_owned(),
            to: EditTo::Put {
                body,
                expires_after: Some(Nanos::from_secs(60)),
                keeps_end: false,
            },
            seen: Box::new(with_mode("enforce")),
            carry: Carry::Keep,
            reason: String::new(),
        };
        match edit
            .at_another(with_mode("shadow"), 0)
            .expect("it can be")
            .to
        {
            EditTo::Put { body, .. } => body,
            EditTo::Drop => panic!("a put"),
        }
    };
    let same = json!([{ "capacity": 15 }]);
    assert_eq!(
        at_another(json!({ "limits": same, "mode": "enforce" })),
        json!({ "mode": "shadow" })
    );
    assert_eq!(
        at_another(json!({ "mode": "off" })),
        json!({ "mode": "off" })
    );
    let other = json!({ "limits": [{ "capacity": 40 }], "mode": "enforce" });
    let limits = at_another(other);
    assert_eq!(limits.get("mode"), None);
    assert_eq!(limits["limits"][0]["capacity"], json!(40));
}
