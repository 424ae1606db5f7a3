//! Several Envoys: each has its own state, one is shown, and the others are polled for their status alone.

use super::*;
use crate::app::fixture::snapshot;
use crate::app::press::{Press, keys};
use crate::app::state::Settings;
use crate::app::views::Views;

fn views() -> Views {
    let state = |port: u16| {
        let settings = Settings {
            url: format!("http://127.0.0.1:{port}"),
            read_only: false,
            interval: Nanos::from_secs(1),
        };
        State::new(settings, (120, 40))
    };
    let mut views = Views::new(vec![state(1), state(2)]);
    views.update(None, Msg::Tick, Nanos::ZERO);
    views
}

fn poll(views: &mut Views, number: usize, poll: u64) {
    let mut snapshot = snapshot(poll);
    for (_, bucket) in &mut snapshot.buckets {
        bucket.key = format!("{}-of-{number}", bucket.key);
    }
    let msg = Msg::Polled(Ok(Box::new(snapshot)));
    views.update(Some(number), msg, Nanos::from_secs(poll));
}

fn press(views: &mut Views, text: &str) -> Vec<(usize, Effect)> {
    let now = views.shown().now;
    let presses: Vec<Press> = keys(text);
    let effects = presses
        .into_iter()
        .flat_map(|press| views.update(None, Msg::Press(press), now));
    effects.collect()
}

#[test]
fn each_envoy_has_its_own_state() {
    let mut views = views();
    for number in [0, 1] {
        for at in 0..3 {
            poll(&mut views, number, at);
        }
    }
    assert_eq!(selected(views.shown()), "mallory-of-0");
    press(&mut views, "3");
    press(&mut views, "t");
    assert_eq!(views.shown().screen, Screen::Rules, "the same screen");
    press(&mut views, "1");
    assert_eq!(selected(views.shown()), "mallory-of-1");
    press(&mut views, "t");
    assert_eq!(views.shown().settings.url, "http://127.0.0.1:1");
}

/// The one that is not shown is polled, but not for what nobody sees.
#[test]
fn hidden_envoys_are_polled_for_their_status() {
    let mut views = views();
    for number in [0, 1] {
        poll(&mut views, number, 0);
    }
    let effects = views.update(None, Msg::Tick, Nanos::from_secs(5));
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
    let mut views = views();
    for number in [0, 1] {
        for at in 0..3 {
            poll(&mut views, number, at);
        }
    }
    press(&mut views, "t");
    let effects = press(&mut views, "b<ret><ret>");
    let sent = effects.iter().find_map(|(number, effect)| match effect {
        Effect::Change(sending) => Some((*number, sending.change.verb().key().map(str::to_owned))),
        _ => None,
    });
    assert_eq!(sent, Some((1, Some("mallory-of-1".to_owned()))));
}

#[test]
fn the_sums_are_of_all() {
    let mut views = views();
    for at in 0..3 {
        poll(&mut views, 0, at);
    }
    let failure = Failure {
        text: "cannot reach it".to_owned(),
        ..Failure::default()
    };
    views.update(Some(1), Msg::Polled(Err(failure)), Nanos::from_secs(2));
    press(&mut views, "7");
    assert_eq!(views.shown().screen, Screen::Targets);
    let screen = crate::ui::tests::text(views.shown(), (120, 40));
    insta::assert_snapshot!("targets_120x40", screen);
    // Enter shows the selected one.
    press(&mut views, "j<ret>");
    assert_eq!(views.shown().settings.url, "http://127.0.0.1:2");
    assert_eq!(views.shown().screen, Screen::Buckets);
}
