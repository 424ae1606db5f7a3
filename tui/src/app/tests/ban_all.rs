//! The ban of a key in all rules, and its undo.

use std::time::Duration;

use loudou_api::{BanAnswer, BanBy, BanView, BucketView, ProblemAnswer, Rules};
use serde_json::json;

use super::of_key::ban;
use super::several::{of_process, press, watched};
use super::undo_of_bans::{done, question};
use super::{SIZE, messages, send, sending_of};
use crate::app::effects::{Effect, Sending};
use crate::app::fixture::{rules, snapshot, state, type_keys};
use crate::app::msg::Msg;
use crate::app::state::{Mode, State};
use loudou_client::ClientError;
use loudou_client::change::Change;
use loudou_client::change::ban::BanTo;
use loudou_client::change::ban_all::BanAll;
use loudou_client::change::verb::Answer;
use loudou_limiter::Nanos;

type Outcome = Result<BanAnswer, ClientError>;

fn all_of(sending: &Sending) -> &BanAll {
    match &sending.change {
        Change::BanAll(all) => all,
        other => panic!("{other:?}"),
    }
}

/// Returns each rule, with the ban of the key in it.
fn bans(sending: &Sending) -> Vec<(&str, BanTo)> {
    let bans = all_of(sending).bans.iter();
    bans.map(|ban| (ban.rule.as_str(), ban.to)).collect()
}

/// Returns the result in a rule that accepts the ban, with the ban before and after.
#[expect(clippy::unnecessary_wraps, reason = "the others are errors")]
fn obeyed(before: Option<BanView>, after: Option<BanView>) -> Outcome {
    Ok(BanAnswer {
        now_ns: 1_002_000_000_000,
        before,
        bucket: Some(BucketView {
            ban: after,
            ..BucketView::default()
        }),
        changed: true,
        fleet: None,
    })
}

fn refused(status: u16, title: &str) -> Outcome {
    let problem = ProblemAnswer {
        status,
        title: title.to_owned(),
        ..ProblemAnswer::default()
    };
    Err(ClientError::Problem {
        status,
        problem: Box::new(problem),
    })
}

fn lost() -> Outcome {
    Err(ClientError::TimedOut {
        url: "http://127.0.0.1:9911".to_owned(),
        after: Duration::from_secs(5),
        had_body: false,
    })
}

fn answer(state: &mut State, sending: Box<Sending>, results: Vec<Outcome>) {
    send(state, Msg::Changed(sending, Ok(Answer::BanAll(results))));
}

/// Adds this many rules that have the key to an Envoy.
fn with_rules(state: &mut State, more: usize) {
    let mut all = rules();
    for number in 0..more {
        let mut rule = all[0].clone();
        rule.name = format!("more-{number}");
        all.push(rule);
    }
    // One rule has a single bucket for all requests, and another has keys of another form.
    let mut keyless = all[0].clone();
    (keyless.name, keyless.rule["key"]) = ("keyless".to_owned(), json!([]));
    let mut by_address = all[0].clone();
    (by_address.name, by_address.rule["key"]) = ("by-address".to_owned(), json!(["source"]));
    all.extend([keyless, by_address]);
    let mut snapshot = snapshot(3);
    snapshot.rules = Some(Rules {
        rules: all,
        ..Rules::default()
    });
    send(state, Msg::Polled(Ok(Box::new(snapshot))));
}

const TEN_MINUTES: BanTo = BanTo::Banned(Some(Nanos::from_secs(600)));

/// Returns a state in which mallory was banned in both enforced rules.
fn banned_here() -> State {
    let mut state = state(SIZE, 3);
    let sending = sending_of(type_keys(&mut state, "B<ret>"));
    let own = ban(BanBy::Operator, 1_602);
    answer(
        &mut state,
        sending,
        vec![obeyed(None, own), obeyed(None, own)],
    );
    state
}

/// The key that bans also unbans, once the key is banned in all rules that can have it.
#[test]
fn the_key_unbans_if_all_rules_ban() {
    let ban_to = |banned: &[&str], by: BanBy| {
        let mut state = state(SIZE, 3);
        let mut snapshot = snapshot(4);
        let mallory = |(_, bucket): &&(u64, BucketView)| bucket.key == "mallory";
        let row = snapshot
            .buckets
            .iter()
            .find(mallory)
            .expect("mallory")
            .clone();
        snapshot.buckets.retain(|bucket| !mallory(&bucket));
        for rule in ["reply-per-user", "search-per-key"] {
            let mut row = row.clone();
            row.1.rule = rule.to_owned();
            row.1.ban = ban(by, 1_602).filter(|_| banned.contains(&rule));
            // The bans of another key do not count.
            let mut other = row.clone();
            other.1.key = "another".to_owned();
            other.1.ban = ban(BanBy::Operator, 1_602);
            snapshot.buckets.extend([row, other]);
        }
        send(&mut state, Msg::Polled(Ok(Box::new(snapshot))));
        let sending = sending_of(type_keys(&mut state, "/mallory<ret>B<ret>"));
        all_of(&sending).of.to
    };
    let both = &["reply-per-user", "search-per-key"];
    assert_eq!(ban_to(&[], BanBy::Operator), TEN_MINUTES);
    assert_eq!(ban_to(&["reply-per-user"], BanBy::Operator), TEN_MINUTES);
    assert_eq!(ban_to(both, BanBy::Operator), BanTo::Free(None));
    assert_eq!(ban_to(both, BanBy::Penalty), BanTo::Free(None));
    // An unban does not end the ban by an override.
    assert_eq!(ban_to(both, BanBy::Override), TEN_MINUTES);
}

#[test]
fn one_question_bans_a_key_in_all_rules_and_one_undo_unbans_it() {
    let mut state = state(SIZE, 3);
    assert!(type_keys(&mut state, "B").is_empty());
    assert_eq!(
        question(&state),
        (
            "Ban mallory in all 2 rules for 10m?",
            "rules: reply-per-user, search-per-key; left out, not in mode enforce: by-source"
                .to_owned()
        )
    );
    let Mode::Confirm(pending) = &state.mode else {
        panic!("{:?}", state.mode)
    };
    let line = "loudou ban --all-rules mallory --for 10m";
    assert_eq!(pending.command(None).as_deref(), Some(line));
    let at = pending.command(Some("http://a:1"));
    assert_eq!(at, Some(format!("{line} --url http://a:1")));
    let sending = sending_of(type_keys(&mut state, "<ret>"));
    let (first, second) = ("reply-per-user", "search-per-key");
    assert_eq!(
        bans(&sending),
        [(first, TEN_MINUTES), (second, TEN_MINUTES)]
    );
    // In the second rule the key had a shorter ban before.
    let (own, earlier) = (ban(BanBy::Operator, 1_602), ban(BanBy::Penalty, 1_302));
    let results = vec![obeyed(None, own), obeyed(earlier, own)];
    answer(&mut state, sending, results);
    assert_eq!(
        messages(&state),
        "mallory is banned in all 2 rules for 10m; u undoes"
    );
    type_keys(&mut state, "u");
    assert_eq!(
        question(&state).0,
        "Undo the last change for mallory in 2 rules?"
    );
    let undo = sending_of(type_keys(&mut state, "<ret>"));
    assert!(undo.is_undo);
    let rest = BanTo::Banned(Some(Nanos::from_secs(300)));
    assert_eq!(bans(&undo), [(first, BanTo::Free(None)), (second, rest)]);
    let tags: Vec<_> = all_of(&undo)
        .bans
        .iter()
        .map(|ban| ban.if_match.as_deref())
        .collect();
    assert_eq!(tags, [Some("\"ban-operator-1602000000000\""); 2]);
    let results = vec![obeyed(own, None), obeyed(own, earlier)];
    answer(&mut state, undo, results);
    assert!(messages(&state).contains("undone: the bans of mallory are as before in 2 rules"));
    assert!(state.undos.is_empty());
}

#[test]
fn a_question_about_many_rules_is_bounded_and_names_no_impossible_rule() {
    let mut state = state(SIZE, 3);
    with_rules(&mut state, 18);
    type_keys(&mut state, "B");
    let (title, detail) = question(&state);
    assert_eq!(title, "Ban mallory in all 20 rules for 10m?");
    let first = "rules: reply-per-user, search-per-key, more-0, more-1, more-2, more-3, more-4, more-5 and 12 more";
    assert!(detail.starts_with(first), "{detail}");
    assert!(
        !detail.contains("keyless") && !detail.contains("by-address"),
        "{detail}"
    );
}

#[test]
fn a_rule_that_fails_is_named_and_only_the_others_are_undone() {
    let mut state = state(SIZE, 3);
    let sending = sending_of(type_keys(&mut state, "B<ret>"));
    let own = ban(BanBy::Operator, 1_602);
    let results = vec![obeyed(None, own), refused(503, "no room")];
    answer(&mut state, sending, results);
    let told = "mallory: banned in 1 of 2 rules; search-per-key: 503 no room; u undoes";
    assert_eq!(messages(&state), told);
    assert!(state.toasts.iter().all(|toast| toast.is_bad));
    let undo = sending_of(type_keys(&mut state, "u<ret>"));
    assert_eq!(bans(&undo), [("reply-per-user", BanTo::Free(None))]);
}

#[test]
fn a_ban_that_every_rule_refuses_leaves_nothing_to_undo() {
    let mut state = state(SIZE, 3);
    // The undo is about this ban, not about the earlier one.
    let other = sending_of(type_keys(&mut state, "b<ret><ret>"));
    done(&mut state, other, None, ban(BanBy::Operator, 1_602));
    let sending = sending_of(type_keys(&mut state, "B<ret>"));
    answer(
        &mut state,
        sending,
        vec![refused(403, "no"), refused(403, "no")],
    );
    assert!(messages(&state).contains("mallory: banned in 0 of 2 rules; reply-per-user: 403 no"));
    assert!(messages(&state).contains("(and 1 more)"));
    assert!(type_keys(&mut state, "u").is_empty());
    assert!(matches!(state.mode, Mode::Browse), "{:?}", state.mode);
    assert!(
        messages(&state).contains("nothing to undo of the ban of mallory in all rules: 403 no")
    );
}

#[test]
fn what_an_undo_did_not_undo_can_still_be_undone() {
    let mut state = banned_here();
    let undo = sending_of(type_keys(&mut state, "u<ret>"));
    let own = ban(BanBy::Operator, 1_602);
    let results = vec![obeyed(own, None), refused(412, "changed")];
    answer(&mut state, undo, results);
    let told = "mallory: undone in 1 of 2 rules; search-per-key: 412 changed";
    assert!(messages(&state).contains(told), "{}", messages(&state));
    let undo = sending_of(type_keys(&mut state, "u<ret>"));
    assert_eq!(bans(&undo), [("search-per-key", BanTo::Free(None))]);
    answer(&mut state, undo, vec![obeyed(own, None)]);
    assert!(state.undos.is_empty());
}

#[test]
fn a_ban_without_an_answer_is_in_doubt_in_its_rule_alone() {
    let mut state = state(SIZE, 3);
    let sending = sending_of(type_keys(&mut state, "B<ret>"));
    let results = vec![obeyed(None, ban(BanBy::Operator, 1_602)), lost()];
    answer(&mut state, sending, results);
    let undo = sending_of(type_keys(&mut state, "u<ret>"));
    assert_eq!(bans(&undo), [("reply-per-user", BanTo::Free(None))]);
    answer(
        &mut state,
        undo,
        vec![obeyed(ban(BanBy::Operator, 1_602), None)],
    );
    type_keys(&mut state, "u");
    assert_eq!(
        question(&state).0,
        "There was no answer to the ban of mallory. Undo it?"
    );
    let undo = sending_of(type_keys(&mut state, "<ret>"));
    assert_eq!(undo.change.verb().rule(), "search-per-key");
}

/// Undoing a later ban in a rule restores this ban, which can be undone afterwards.
#[test]
fn a_later_ban_in_one_rule_is_undone_before() {
    let mut state = banned_here();
    let (own, later) = (ban(BanBy::Operator, 1_602), ban(BanBy::Operator, 4_602));
    let longer = sending_of(type_keys(&mut state, "b1h<ret><ret>"));
    done(&mut state, longer, own, later);
    let undo = sending_of(type_keys(&mut state, "u<ret>"));
    let back = ban(BanBy::Operator, 1_603);
    done(&mut state, undo, later, back);
    let undo = sending_of(type_keys(&mut state, "u<ret>"));
    let tags: Vec<_> = all_of(&undo)
        .bans
        .iter()
        .map(|ban| ban.if_match.as_deref())
        .collect();
    let tag = |until: &str| format!("\"ban-operator-{until}000000000\"");
    assert_eq!(tags, [Some(&*tag("1603")), Some(&*tag("1602"))]);
}

#[test]
fn a_key_of_no_rule_is_not_asked_about() {
    let mut state = state(SIZE, 3);
    let mut snapshot = snapshot(3);
    let mut all = rules();
    for rule in &mut all {
        rule.rule["mode"] = json!("shadow");
    }
    snapshot.rules = Some(Rules {
        rules: all,
        ..Rules::default()
    });
    send(&mut state, Msg::Polled(Ok(Box::new(snapshot))));
    type_keys(&mut state, "B");
    assert!(matches!(state.mode, Mode::Browse), "{:?}", state.mode);
    assert!(
        messages(&state).contains("no rule with this key is in mode enforce (reply-per-user, ")
    );
}

/// At each Envoy, the key is banned in the rules of that Envoy, and the ban is undone where it was
/// made.
#[test]
fn a_ban_in_all_rules_goes_to_all_envoys() {
    let mut watched = watched();
    for number in [0, 1] {
        for at in 0..3 {
            let mut snapshot = of_process(snapshot(at), number);
            if let (1, Some(rules)) = (number, &mut snapshot.rules) {
                rules.rules.remove(0);
            }
            let msg = Msg::Polled(Ok(Box::new(snapshot)));
            watched.update(Some(number), msg, Nanos::from_secs(at));
        }
    }
    let changes = |effects: Vec<(usize, Effect)>| -> Vec<(usize, Box<Sending>)> {
        let effects = effects.into_iter();
        let changes = effects.filter_map(|(number, effect)| match effect {
            Effect::Change(sending) => Some((number, sending)),
            _ => None,
        });
        changes.collect()
    };
    let sent = changes(press(&mut watched, "Ba"));
    let [(0, here), (1, there)] = &sent[..] else {
        panic!("{sent:?}")
    };
    assert_eq!(bans(here).len(), 2);
    assert_eq!(bans(there), [("search-per-key", TEN_MINUTES)]);
    let (own, now) = (ban(BanBy::Operator, 1_602), watched.shown().now);
    let results = [vec![obeyed(None, own), obeyed(None, own)], vec![lost()]];
    for ((number, sending), results) in sent.into_iter().zip(results) {
        let msg = Msg::Changed(sending, Ok(Answer::BanAll(results)));
        watched.update(Some(number), msg, now);
    }
    let told = messages(watched.shown());
    let failed = "done at 1 of 2 Envoys, FAILED at http://127.0.0.1:2";
    assert!(told.contains(failed), "{told}");
    let undone = changes(press(&mut watched, "ua"));
    let [(0, undo)] = &undone[..] else {
        panic!("{undone:?}")
    };
    assert_eq!(bans(undo).len(), 2);
    // Nothing is assumed about the Envoy that did not answer.
    let (_, results) = &watched.shown().broadcasts[0];
    assert_eq!(
        results[1].words(),
        "FAILED: it is not known what to undo there"
    );
}
