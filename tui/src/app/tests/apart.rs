//! Changes for all when the Envoys differ: each keeps everything that the change does not concern.

use loudou_api::{BanAnswer, BanBy, BanView, BucketView, EditView};
use serde_json::{Value, json};

use super::broadcasts::{changes, failed, one_away, results};
use super::of_key::{ban, to};
use super::several::{of_process, poll, press, watched};
use super::*;
use crate::app::command::Command;
use crate::app::fixture::{S, rules, snapshot};
use crate::app::watched::Watched;
use loudou_client::change::ban::BanTo;
use loudou_client::change::edit::EditTo;

fn both() -> Watched {
    let mut watched = watched();
    for number in [0, 1] {
        for at in 0..3 {
            poll(&mut watched, number, at);
        }
    }
    watched
}

fn answered(watched: &mut Watched, number: usize, sending: Box<Sending>, answer: Answer) {
    let now = watched.shown().now;
    watched.update(Some(number), Msg::Changed(sending, Ok(answer)), now);
}

/// Returns the answer to a ban, with the ban before and after. `changed` is true if the ban was
/// changed.
fn banned(before: Option<BanView>, after: Option<BanView>, changed: bool) -> Answer {
    let bucket = BucketView {
        ban: after,
        ..BucketView::default()
    };
    Answer::Ban(Box::new(BanAnswer {
        now_ns: 1_002 * S,
        before,
        bucket: Some(bucket),
        changed,
        fleet: None,
    }))
}

/// Sends a ban to all, which both Envoys answer.
fn ban_at_both(second: Answer) -> Watched {
    let mut watched = both();
    let mut sent = changes(press(&mut watched, "b<ret>a")).into_iter();
    let (_, own) = sent.next().expect("two");
    let first = banned(None, ban(BanBy::Operator, 1_602), true);
    answered(&mut watched, 0, own, first);
    let (_, other) = sent.next().expect("two");
    answered(&mut watched, 1, other, second);
    watched
}

/// The other Envoy had a ban by another operator, which the ban for all did not change. The undo
/// leaves it.
#[test]
fn an_undo_for_all_leaves_what_was_there_before() {
    let forever = Some(BanView {
        until_ns: None,
        by: BanBy::Operator,
    });
    let mut watched = ban_at_both(banned(forever, forever, false));
    let sent = changes(press(&mut watched, "ua"));
    let numbers: Vec<usize> = sent.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [0], "{sent:?}");
    assert_eq!(results(&watched), ["sending", "done: nothing to undo"]);
}

/// The other Envoy had a shorter ban, which the ban for all replaced. The undo restores it, and
/// only there.
#[test]
fn an_undo_for_all_puts_back_at_each_what_it_had() {
    let (shorter, longer) = (ban(BanBy::Penalty, 1_202), ban(BanBy::Operator, 1_602));
    let mut watched = ban_at_both(banned(shorter, longer, true));
    press(&mut watched, "u");
    let text = crate::ui::tests::text(watched.shown(), (80, 24));
    assert!(text.contains("Enter undoes it only at this one"), "{text}");
    let sent = changes(press(&mut watched, "a"));
    let [(0, first), (1, second)] = &sent[..] else {
        panic!("{sent:?}")
    };
    let rest = BanTo::Banned(Some(Nanos::from_secs(200)));
    assert_eq!((to(first), to(second)), (BanTo::Free(None), rest));
}

/// A change that never reached an Envoy is not undone there. A change that may have reached it is.
#[test]
fn an_undo_for_all_follows_what_is_in_doubt() {
    let mut watched = one_away();
    let mut sent = changes(press(&mut watched, "b<ret>a")).into_iter();
    let (_, own) = sent.next().expect("one");
    let first = || banned(None, ban(BanBy::Operator, 1_602), true);
    answered(&mut watched, 0, own, first());
    assert_eq!(changes(press(&mut watched, "ua")).len(), 1);
    assert_eq!(results(&watched), ["sending", "done: nothing to undo"]);

    let mut watched = both();
    let mut sent = changes(press(&mut watched, "b<ret>a")).into_iter();
    let (_, own) = sent.next().expect("two");
    answered(&mut watched, 0, own, first());
    let (_, other) = sent.next().expect("two");
    let lost = Failure {
        in_doubt: true,
        ..failed("no answer")
    };
    let now = watched.shown().now;
    watched.update(Some(1), Msg::Changed(other, Err(lost)), now);
    let sent = changes(press(&mut watched, "ua"));
    let lifted = sent.iter().map(|(number, sending)| (*number, to(sending)));
    let lifted: Vec<_> = lifted.collect();
    assert_eq!(lifted, [(0, BanTo::Free(None)), (1, BanTo::Free(None))]);
}

/// An Envoy that restarted lost the ban, but the user may have applied it again.
#[test]
fn an_undo_for_all_says_where_it_is_not_known_what_to_undo() {
    let mut watched = ban_at_both(banned(None, ban(BanBy::Operator, 1_602), true));
    let mut restarted = snapshot(4);
    restarted.status.instance = "fedcba9876543210".to_owned();
    let msg = Msg::Polled(Ok(Box::new(restarted)));
    watched.update(Some(1), msg, Nanos::from_secs(4));
    assert_eq!(changes(press(&mut watched, "ua")).len(), 1);
    let unknown = "FAILED: Envoy restarted since, so it is not known what to undo";
    assert_eq!(results(&watched), ["sending", unknown]);
}

/// A change that was made at one Envoy is undone only there.
#[test]
fn the_undo_of_a_change_at_one_is_not_for_all() {
    let mut watched = both();
    let mut sent = changes(press(&mut watched, "b<ret><ret>")).into_iter();
    let (_, own) = sent.next().expect("one");
    let first = banned(None, ban(BanBy::Operator, 1_602), true);
    answered(&mut watched, 0, own, first);
    press(&mut watched, "u");
    let text = crate::ui::tests::text(watched.shown(), (80, 24));
    assert!(
        text.contains("Enter yes, at 127.0.0.1:1   Esc no"),
        "{text}"
    );
    let why = crate::app::keys::obstacle(watched.shown(), Command::YesAll);
    assert_eq!(
        why.as_deref(),
        Some("an undo restores the previous state of this Envoy only")
    );
    assert!(press(&mut watched, "a").is_empty());
    assert_eq!(changes(press(&mut watched, "<ret>")).len(), 1);
}

/// Returns both Envoys, of which the second has other limits in the first rule.
fn other_limits() -> Watched {
    let mut watched = watched();
    let mut own = snapshot(0);
    let rule = own.rules.as_mut().and_then(|rules| rules.rules.first_mut());
    let rule = rule.expect("a rule");
    rule.rule["limits"][1]["capacity"] = json!(2000);
    rule.rule["mode"] = json!("shadow");
    for number in [0, 1] {
        for at in 0..3 {
            poll(&mut watched, number, at);
        }
    }
    let msg = Msg::Polled(Ok(Box::new(own)));
    watched.update(Some(1), msg, Nanos::from_secs(3));
    watched
}

fn body(sending: &Sending) -> &Value {
    match &edit_of(sending).to {
        EditTo::Put { body, .. } => body,
        EditTo::Drop => panic!("{sending:?}"),
    }
}

/// At the other Envoy, another operator's edit ends in ten minutes. If the user edits both Envoys
/// without typing an end, this end stays. An end that the user types applies to both.
#[test]
fn an_edit_for_all_keeps_the_end_that_it_finds() {
    let end = |keys: &str| {
        let mut watched = both();
        let mut other = of_process(snapshot(0), 1);
        let mut rule = rules()[0].clone();
        let now_ns = other.status.now_ns;
        rule.edit = Some(EditView {
            by: "somebody".to_owned(),
            at_ns: now_ns,
            at_unix_ms: 0,
            expires_at_ns: Some(now_ns + 600 * S),
            reason: String::new(),
        });
        (rule.generation, other.status.generation) = (8, 8);
        let read = other.rules.as_mut().expect("rules");
        (read.rules[0], read.generation) = (rule, 8);
        let msg = Msg::Polled(Ok(Box::new(other)));
        watched.update(Some(1), msg, Nanos::from_secs(2));
        press(&mut watched, "3e250");
        press(&mut watched, keys);
        let sent = changes(press(&mut watched, "<ret>a"));
        let ends = sent.iter().map(|(_, sending)| match &edit_of(sending).to {
            EditTo::Put { expires_after, .. } => expires_after.map(|span| span.as_millis() / 1_000),
            EditTo::Drop => panic!("{sending:?}"),
        });
        ends.collect::<Vec<_>>()
    };
    assert_eq!(end(""), [None, Some(600)]);
    assert_eq!(end("<s-tab><s-tab>30m"), [Some(1_800); 2]);
}

/// An edit of one field at all Envoys changes only that field at each of them.
#[test]
fn an_edit_for_all_changes_nothing_else_at_the_others() {
    let mut watched = other_limits();
    let sent = changes(press(&mut watched, "e250<ret>a"));
    let [(0, own), (1, other)] = &sent[..] else {
        panic!("{sent:?}")
    };
    assert_eq!(body(own)["limits"][1]["capacity"], 1000);
    assert_eq!(body(other)["limits"][0]["capacity"], 250);
    assert_eq!(body(other)["limits"][1]["capacity"], 2000);
    assert_eq!(body(other).get("mode"), None);
}

/// If the Envoy on the screen is not marked, its form must not wait for an answer, because none
/// will arrive.
#[test]
fn an_edit_for_others_closes_its_form() {
    let mut watched = both();
    press(&mut watched, "7jm13e250<ret>");
    let text = crate::ui::tests::text(watched.shown(), (80, 24));
    assert!(text.contains("yes, at the 1 marked (not here)"), "{text}");
    let sent = changes(press(&mut watched, "a"));
    assert_eq!(sent.len(), 1, "{sent:?}");
    assert!(matches!(watched.shown().mode, Mode::Browse));
    let told = messages(watched.shown());
    assert!(told.contains("here: not asked; 7 shows each"), "{told}");
}

/// The other Envoy restarts while its screen is frozen. The change for it is based on its current
/// rule.
#[test]
fn a_frozen_screen_holds_no_change_for_all_up() {
    let mut watched = both();
    press(&mut watched, "t t");
    let mut restarted = snapshot(0);
    let instance = "fedcba9876543210";
    restarted.status.instance = instance.to_owned();
    let rules = restarted.rules.as_mut().expect("rules");
    for rule in &mut rules.rules {
        rule.instance = instance.to_owned();
    }
    let msg = Msg::Polled(Ok(Box::new(restarted)));
    watched.update(Some(1), msg, Nanos::from_secs(4));
    let sent = changes(press(&mut watched, "e250<ret>a"));
    let [(0, _), (1, other)] = &sent[..] else {
        panic!("{sent:?}")
    };
    assert_eq!(edit_of(other).seen.instance, instance);
}

/// Two edits of a rule can be distinguished.
#[test]
fn a_change_for_all_is_named_by_its_command_line() {
    let mut watched = one_away();
    press(&mut watched, "e250<ret>a");
    let (title, _) = watched
        .shown()
        .broadcasts
        .first()
        .expect("a change for all");
    assert_eq!(
        title,
        "loudou set reply-per-user capacity=250 --limit burst"
    );
}
