//! Several Envoys: each has its own state, one is shown, and the others are polled for their status alone.

use super::*;
use crate::app::fixture::snapshot;
use crate::app::press::{Press, keys};
use crate::app::state::Settings;
use crate::app::watched::Watched;

pub(super) fn watched() -> Watched {
    watched_at(1..3, (120, 40))
}

/// An Envoy for each port, on a terminal of this size.
pub(super) fn watched_at(ports: std::ops::Range<u16>, size: (u16, u16)) -> Watched {
    let state = |port: u16| {
        let settings = Settings {
            url: format!("http://127.0.0.1:{port}"),
            read_only: false,
            interval: Nanos::from_secs(1),
            ..Settings::default()
        };
        State::new(settings, size)
    };
    let mut watched = Watched::new(ports.map(state).collect());
    watched.update(None, Msg::Tick, Nanos::ZERO);
    watched
}

pub(super) fn poll(watched: &mut Watched, number: usize, poll: u64) {
    let mut snapshot = snapshot(poll);
    for (_, bucket) in &mut snapshot.buckets {
        bucket.key = format!("{}-of-{number}", bucket.key);
    }
    let msg = Msg::Polled(Ok(Box::new(snapshot)));
    watched.update(Some(number), msg, Nanos::from_secs(poll));
}

pub(super) fn press(watched: &mut Watched, text: &str) -> Vec<(usize, Effect)> {
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

/// Two Envoys that should be alike and are not.
#[test]
fn envoys_apart_are_findings() {
    let mut watched = watched();
    for number in [0, 1] {
        poll(&mut watched, number, 3);
    }
    let found = |watched: &Watched| {
        let found = crate::app::findings::findings(watched.shown()).into_iter();
        found
            .map(|finding| finding.text)
            .filter(|text| text.contains("apart"))
            .collect::<Vec<_>>()
    };
    assert!(found(&watched).is_empty());
    let mut other = snapshot(4);
    other.status.version = "9.9.9".to_owned();
    other.status.rules[0].mode = "off".to_owned();
    other.status.rules.remove(1);
    let msg = Msg::Polled(Ok(Box::new(other)));
    watched.update(Some(1), msg, Nanos::from_secs(4));
    let version = &snapshot(4).status.version;
    assert_eq!(
        found(&watched),
        [
            format!("versions apart: {version} at http://127.0.0.1:1, 9.9.9 at http://127.0.0.1:2"),
            "rules apart: reply-per-user is enforce at http://127.0.0.1:1, off at \
             http://127.0.0.1:2; search-per-key is not at http://127.0.0.1:2"
                .to_owned(),
        ]
    );
}
