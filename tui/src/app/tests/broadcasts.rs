//! Changes for all Envoys are sent once to each, with a result for each.

use std::collections::BTreeSet;

use super::several::{of_process, poll, press, watched};
use super::*;
use crate::app::broadcast::Broadcast;
use crate::app::broadcast::Delivery;
use crate::app::effects::Goal;
use crate::app::fixture::snapshot;
use crate::app::watched::Watched;
use loudou_client::change::ban::{Ban, BanTo};

pub(super) fn failed(text: &str) -> Failure {
    Failure {
        text: text.to_owned(),
        ..Failure::default()
    }
}

/// Returns the changes among the effects, with their Envoys.
pub(super) fn changes(effects: Vec<(usize, Effect)>) -> Vec<(usize, Box<Sending>)> {
    let changes = effects
        .into_iter()
        .filter_map(|(number, effect)| match effect {
            Effect::Change(sending) => Some((number, sending)),
            _ => None,
        });
    changes.collect()
}

pub(super) fn results(watched: &Watched) -> Vec<String> {
    let (_, results) = watched
        .shown()
        .broadcasts
        .first()
        .expect("a change for all");
    results.iter().map(Delivery::words).collect()
}

/// One Envoy disconnects while a change is being sent to both. The result shows it, and the change
/// is not sent again automatically.
#[test]
fn a_change_for_all_is_sent_once() {
    let mut watched = watched();
    for number in [0, 1] {
        for at in 0..3 {
            poll(&mut watched, number, at);
        }
    }
    let sent = changes(press(&mut watched, "o<ret>a"));
    assert_eq!(
        sent.iter().map(|(number, _)| *number).collect::<Vec<_>>(),
        [0, 1]
    );
    let now = watched.shown().now;
    let mut sent = sent.into_iter();
    let (_, first) = sent.next().expect("two");
    let answer = Answer::Edit(Box::default());
    watched.update(Some(0), Msg::Changed(first, Ok(answer)), now);
    let (_, second) = sent.next().expect("two");
    watched.update(
        Some(1),
        Msg::Changed(second, Err(failed("cannot reach it"))),
        now,
    );
    assert_eq!(results(&watched)[1], "FAILED: cannot reach it");
    let told = messages(watched.shown());
    let summary = "done at 1 of 2 Envoys, FAILED at http://127.0.0.1:2; 7 shows each, a offers what one lacks";
    assert!(told.contains(summary), "{told}");
    let again = changes({
        let msg = Msg::Polled(Ok(Box::new(of_process(snapshot(4), 1))));
        watched.update(Some(1), msg, Nanos::from_secs(4))
    });
    assert!(again.is_empty(), "{again:?}");
}

/// An edit builds on the previous edit. While that is being sent to an Envoy, the next one is not
/// sent there.
#[test]
fn an_edit_for_all_does_not_overtake_another() {
    let mut watched = watched();
    for number in [0, 1] {
        for at in 0..3 {
            poll(&mut watched, number, at);
        }
    }
    let sent = changes(press(&mut watched, "e250<ret>a"));
    let (_, here) = sent.into_iter().next().expect("two");
    let answer = Answer::Edit(Box::new(made(edit_of(&here))));
    let now = watched.shown().now;
    watched.update(Some(0), Msg::Changed(here, Ok(answer)), now);
    let sent = changes(press(&mut watched, "e<tab>60/m<ret>a"));
    let numbers: Vec<usize> = sent.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [0]);
    let behind = "FAILED: an earlier change of this rule is pending; repeat this one afterwards";
    assert_eq!(results(&watched), ["sending", behind]);
}

/// A change is not kept for an Envoy that is disconnected.
#[test]
fn a_change_for_all_is_not_kept() {
    let mut watched = watched();
    for at in 0..3 {
        poll(&mut watched, 0, at);
    }
    let sent = changes(press(&mut watched, "b<ret>a"));
    assert_eq!(sent.len(), 1, "the other has not answered yet");
    assert_eq!(results(&watched), ["sending", "FAILED: not connected"]);
    let msg = Msg::Polled(Ok(Box::new(snapshot(3))));
    assert!(changes(watched.update(Some(1), msg, Nanos::from_secs(3))).is_empty());
    // With one Envoy, there is no answer for all.
    let mut alone = state(SIZE, 3);
    type_keys(&mut alone, "b<ret>a");
    assert!(matches!(alone.mode, Mode::Confirm(_)));
}

/// The condition of a ban is the ban that was seen at one Envoy, which does not apply to the
/// others.
#[test]
fn the_ban_of_one_envoy_is_no_condition_at_another() {
    let states = [state(SIZE, 3), state(SIZE, 3)];
    let ban = Ban {
        rule: "reply-per-user".to_owned(),
        key: "mallory".to_owned(),
        to: BanTo::Free(None),
        replaces: false,
        if_match: Some("\"ban-penalty-5\"".to_owned()),
        reason: String::new(),
    };
    let sending = Sending {
        change: Change::Ban(ban),
        is_undo: false,
        undoes: None,
        broadcast: None,
    };
    let mut broadcast = Broadcast::new(1, (sending, None), (2, &BTreeSet::new()), Nanos::ZERO);
    let sent = broadcast.begin(0, &states, &[]);
    let conditions: Vec<bool> = sent
        .iter()
        .map(|(_, sending)| matches!(&sending.change, Change::Ban(ban) if ban.if_match.is_some()))
        .collect();
    assert_eq!(conditions, [true, false]);
}

/// Returns both Envoys, of which the second has never answered.
pub(super) fn one_away() -> Watched {
    let mut watched = watched();
    for at in 0..3 {
        poll(&mut watched, 0, at);
    }
    watched
}

/// The queue of a worker is full, and then the list of broadcasts.
#[test]
fn a_change_without_room_is_told() {
    let mut watched = watched();
    for number in [0, 1] {
        for at in 0..3 {
            poll(&mut watched, number, at);
        }
    }
    let sent = changes(press(&mut watched, "b<ret>a"));
    let (_, second) = sent[1].clone();
    let now = watched.shown().now;
    watched.update(Some(1), Msg::Busy(Goal::Change(second)), now);
    assert_eq!(
        results(&watched)[1],
        "FAILED: earlier requests are still in progress"
    );
    let mut full = one_away();
    let nine = ["b<ret>a", "o<ret>a", "Ra"].repeat(3);
    let mut sent = Vec::new();
    for (number, keys) in nine.into_iter().enumerate() {
        if number % 3 == 0 {
            press(&mut full, "j");
        }
        sent.push(changes(press(&mut full, keys)).len());
    }
    assert_eq!(sent, [1, 1, 1, 1, 1, 1, 1, 1, 0]);
    let toasts = &full.shown().toasts;
    let said = toasts.iter().any(|toast| toast.text.contains("not sent"));
    assert!(said, "{toasts:?}");
}

/// When the app exits, it names the results that it has not reported.
#[test]
fn a_change_without_an_answer_is_named_at_the_end() {
    let mut watched = one_away();
    let sent = changes(press(&mut watched, "b<ret>a"));
    let (_, first) = sent[0].clone();
    let now = watched.shown().now;
    let [here, away] = &watched.unfinished()[..] else {
        panic!("two")
    };
    let command = "loudou ban reply-per-user mallory-of-0 --for 10m";
    let told = "was sent, but not answered, at http://127.0.0.1:1";
    assert_eq!(*here, format!("{command} {told}"));
    let told = "failed: not connected, at http://127.0.0.1:2";
    assert_eq!(*away, format!("{command} {told}"));
    let banned = Answer::Ban(Box::default());
    watched.update(Some(0), Msg::Changed(first, Ok(banned)), now);
    assert!(watched.unfinished().is_empty(), "the screen said so");
}

/// A question names all its answers. For a fleet it explains that one Envoy is sufficient.
#[test]
fn a_question_says_who_gets_the_change() {
    let mut watched = watched();
    for number in [0, 1] {
        for at in 0..3 {
            poll(&mut watched, number, at);
        }
    }
    press(&mut watched, "b<ret>");
    let text = crate::ui::tests::text(watched.shown(), (80, 24));
    assert!(
        text.contains("Enter yes, at 127.0.0.1:1   a yes, at all 2   Esc no"),
        "{text}"
    );
    // If there is no room, the name is left out first.
    let now = watched.shown().now;
    watched.update(None, Msg::Resize(40, 16), now);
    let narrow = crate::ui::tests::text(watched.shown(), (40, 16));
    watched.update(None, Msg::Resize(120, 40), now);
    assert!(narrow.contains("Enter yes   a yes, at all 2 "), "{narrow}");
    assert!(!text.contains("fleet"), "{text}");
    let mut snapshot = snapshot(3);
    snapshot.status.fleet = Some(loudou_api::FleetStatus {
        envoys: 7,
        ..Default::default()
    });
    let msg = Msg::Polled(Ok(Box::new(snapshot)));
    watched.update(Some(0), msg, Nanos::from_secs(3));
    let text = crate::ui::tests::text(watched.shown(), (80, 24));
    let told = "The fleet (7 Envoys) shares it: one Envoy is enough.";
    assert!(text.contains(told), "{text}");
    press(&mut watched, "<esc>e250<ret>");
    let text = crate::ui::tests::text(watched.shown(), (80, 24));
    let told = "Enter send, at 127.0.0.1:1   a yes, at all 2   Esc back";
    assert!(text.contains(told), "{text}");
}

/// The names of the Envoys in a question differ, even if they are cut.
#[test]
fn a_question_names_the_envoy_that_is_shown() {
    for (urls, told) in [
        (
            ["http://10.0.0.1:9911", "http://10.0.0.2:9911"],
            "yes, at 10.0.0.2:9911   a",
        ),
        (
            [
                "http://a.default.svc.cluster.local:1",
                "http://b.default.svc.cluster.local:1",
            ],
            "yes, at b   a",
        ),
        (
            [
                "http://envoy.default.svc.cluster.local:1",
                "http://envoy.default.svc.cluster.local:2",
            ],
            "yes, at :2   a",
        ),
        (
            [
                "http://envoy.default.svc.kube.east.cluster.example.org",
                "http://envoy.default.svc.kube.west.cluster.example.org",
            ],
            "yes, at Envoy 2 of 2   a",
        ),
    ] {
        let mut watched = watched();
        for number in [0, 1] {
            for at in 0..3 {
                poll(&mut watched, number, at);
            }
        }
        press(&mut watched, "tb<ret>");
        let mut state = watched.shown().clone();
        for (target, url) in state.targets.iter_mut().zip(urls) {
            url.clone_into(&mut target.url);
        }
        let text = crate::ui::tests::text(&state, (80, 24));
        assert!(text.contains(told), "{told}: {text}");
    }
}

/// Marks select the Envoys of a change. Here the shown Envoy is not marked.
#[test]
fn a_change_for_some_is_for_those_that_are_marked() {
    let mut watched = watched();
    for number in [0, 1] {
        for at in 0..3 {
            poll(&mut watched, number, at);
        }
    }
    press(&mut watched, "7jm");
    assert!(watched.shown().targets[1].is_marked);
    // The mark stays after polls, and while another Envoy is shown.
    poll(&mut watched, 1, 3);
    press(&mut watched, "1tt");
    press(&mut watched, "b<ret>");
    let text = crate::ui::tests::text(watched.shown(), (80, 24));
    assert!(text.contains("a yes, at the 1 marked"), "{text}");
    let sent = changes(press(&mut watched, "a"));
    let numbers: Vec<usize> = sent.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [1]);
    assert_eq!(results(&watched), ["not asked", "sending"]);
    let (number, sending) = sent[0].clone();
    let now = watched.shown().now;
    let banned = Answer::Ban(Box::default());
    watched.update(Some(number), Msg::Changed(sending, Ok(banned)), now);
    let toasts = &watched.shown().toasts;
    let said = toasts
        .iter()
        .any(|toast| toast.text.starts_with("done at 1 of 1 Envoys"));
    assert!(said, "{toasts:?}");
    press(&mut watched, "7m");
    assert!(
        watched
            .shown()
            .targets
            .iter()
            .all(|target| !target.is_marked)
    );
}
