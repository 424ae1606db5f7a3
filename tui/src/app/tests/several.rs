//! Several Envoys: each has its own state, one is shown, and the others are polled for their status alone.

use super::*;
use crate::app::broadcast::Broadcast;
use crate::app::delivery::Delivery;
use crate::app::fixture::snapshot;
use crate::app::press::{Press, keys};
use crate::app::state::Settings;
use crate::app::watched::Watched;
use crate::change::ban::{Ban, BanTo};

fn watched() -> Watched {
    let state = |port: u16| {
        let settings = Settings {
            url: format!("http://127.0.0.1:{port}"),
            read_only: false,
            interval: Nanos::from_secs(1),
        };
        State::new(settings, (120, 40))
    };
    let mut watched = Watched::new(vec![state(1), state(2)]);
    watched.update(None, Msg::Tick, Nanos::ZERO);
    watched
}

fn poll(watched: &mut Watched, number: usize, poll: u64) {
    let mut snapshot = snapshot(poll);
    for (_, bucket) in &mut snapshot.buckets {
        bucket.key = format!("{}-of-{number}", bucket.key);
    }
    let msg = Msg::Polled(Ok(Box::new(snapshot)));
    watched.update(Some(number), msg, Nanos::from_secs(poll));
}

fn press(watched: &mut Watched, text: &str) -> Vec<(usize, Effect)> {
    let now = watched.shown().now;
    let presses: Vec<Press> = keys(text);
    let effects = presses
        .into_iter()
        .flat_map(|press| watched.update(None, Msg::Press(press), now));
    effects.collect()
}

#[test]
fn each_envoy_has_its_own_state() {
    let mut watched = watched();
    for number in [0, 1] {
        for at in 0..3 {
            poll(&mut watched, number, at);
        }
    }
    assert_eq!(selected(watched.shown()), "mallory-of-0");
    press(&mut watched, "3");
    press(&mut watched, "t");
    assert_eq!(watched.shown().screen, Screen::Rules, "the same screen");
    press(&mut watched, "1");
    assert_eq!(selected(watched.shown()), "mallory-of-1");
    press(&mut watched, "t");
    assert_eq!(watched.shown().settings.url, "http://127.0.0.1:1");
}

/// The one that is not shown is polled, but not for what nobody sees.
#[test]
fn hidden_envoys_are_polled_for_their_status() {
    let mut watched = watched();
    for number in [0, 1] {
        poll(&mut watched, number, 0);
    }
    let effects = watched.update(None, Msg::Tick, Nanos::from_secs(5));
    let requests: Vec<_> = effects
        .iter()
        .map(|(number, effect)| match effect {
            Effect::Poll(request) => (*number, request.lists, request.shown.is_empty()),
            effect => panic!("{effect:?}"),
        })
        .collect();
    assert_eq!(requests, [(0, true, false), (1, false, true)]);
}

/// A change goes to the Envoy that is shown, also if another is shown before its answer.
#[test]
fn a_change_is_of_one_envoy() {
    let mut watched = watched();
    for number in [0, 1] {
        for at in 0..3 {
            poll(&mut watched, number, at);
        }
    }
    press(&mut watched, "t");
    let effects = press(&mut watched, "b<ret><ret>");
    let sent = effects.iter().find_map(|(number, effect)| match effect {
        Effect::Change(sending) => Some((*number, sending.change.verb().key().map(str::to_owned))),
        _ => None,
    });
    assert_eq!(sent, Some((1, Some("mallory-of-1".to_owned()))));
}

#[test]
fn the_sums_are_of_all() {
    let mut watched = watched();
    for at in 0..3 {
        poll(&mut watched, 0, at);
    }
    let failure = Failure {
        text: "cannot reach it".to_owned(),
        ..Failure::default()
    };
    watched.update(Some(1), Msg::Polled(Err(failure)), Nanos::from_secs(2));
    press(&mut watched, "7");
    assert_eq!(watched.shown().screen, Screen::Targets);
    let screen = crate::ui::tests::text(watched.shown(), (120, 40));
    insta::assert_snapshot!("targets_120x40", screen);
    // Enter shows the selected one.
    press(&mut watched, "j<ret>");
    assert_eq!(watched.shown().settings.url, "http://127.0.0.1:2");
    assert_eq!(watched.shown().screen, Screen::Buckets);
}

fn failed(text: &str) -> Failure {
    Failure {
        text: text.to_owned(),
        ..Failure::default()
    }
}

/// The changes among effects, with their Envoys.
fn changes(effects: Vec<(usize, Effect)>) -> Vec<(usize, Box<Sending>)> {
    let changes = effects
        .into_iter()
        .filter_map(|(number, effect)| match effect {
            Effect::Change(sending) => Some((number, sending)),
            _ => None,
        });
    changes.collect()
}

fn results(watched: &Watched) -> Vec<String> {
    let (_, results) = watched.shown().broadcast.clone().expect("a change for all");
    results.iter().map(Delivery::words).collect()
}

/// One Envoy leaves while a change is on its way to both: it is sent again when it is back, and the result is shown
/// for each.
#[test]
fn a_change_for_all_waits_for_who_is_away() {
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
    watched.update(Some(0), Msg::Changed(first, Ok(answer.clone())), now);
    let (_, second) = sent.next().expect("two");
    watched.update(
        Some(1),
        Msg::Changed(second, Err(failed("cannot reach it"))),
        now,
    );
    assert_eq!(results(&watched)[1], "waits: cannot reach it");
    let again = changes({
        let msg = Msg::Polled(Ok(Box::new(snapshot(4))));
        watched.update(Some(1), msg, Nanos::from_secs(4))
    });
    let [(1, sending)] = &again[..] else {
        panic!("{again:?}")
    };
    watched.update(Some(1), Msg::Changed(sending.clone(), Ok(answer)), now);
    assert!(
        results(&watched)
            .iter()
            .all(|result| result.starts_with("done"))
    );
    let toasts: Vec<&str> = watched
        .shown()
        .toasts
        .iter()
        .map(|toast| toast.text.as_str())
        .collect();
    assert!(
        toasts.contains(&"done at 2 of 2 Envoys; 7 shows each"),
        "{toasts:?}"
    );
}

/// It does not wait for ever, and where there is no such rule, it fails.
#[test]
fn a_change_for_all_ends() {
    let mut watched = watched();
    for at in 0..3 {
        poll(&mut watched, 0, at);
    }
    let sent = changes(press(&mut watched, "b<ret>a"));
    assert_eq!(sent.len(), 1, "the other has not answered yet");
    assert_eq!(results(&watched), ["sending", "waits: not connected"]);
    let mut without = snapshot(3);
    if let Some(rules) = &mut without.rules {
        rules.rules.clear();
    }
    watched.update(None, Msg::Tick, Nanos::from_secs(700));
    assert_eq!(results(&watched)[1], "FAILED: away for 10m: not connected");
    let msg = Msg::Polled(Ok(Box::new(without)));
    assert!(changes(watched.update(Some(1), msg, Nanos::from_secs(701))).is_empty());
    // With one Envoy, there is no all.
    let mut alone = state(SIZE, 3);
    type_keys(&mut alone, "b<ret>a");
    assert!(matches!(alone.mode, Mode::Confirm(_)));
}

/// A ban is decided on the ban that was seen at one Envoy, which says nothing about the others.
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
    };
    let (_, sent) = Broadcast::new(sending, 0, &states, Nanos::ZERO);
    let conditions: Vec<bool> = sent
        .iter()
        .map(|(_, sending)| matches!(&sending.change, Change::Ban(ban) if ban.if_match.is_some()))
        .collect();
    assert_eq!(conditions, [true, false]);
}
