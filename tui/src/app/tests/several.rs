//! With several Envoys, each has its state. One is shown, and for the others only the status is
//! polled.

use super::*;
use crate::app::fixture::snapshot;
use crate::app::msg::Snapshot;
use crate::app::press::{Press, keys};
use crate::app::state::Settings;
use crate::app::watched::Watched;

pub(super) fn watched() -> Watched {
    watched_at(1..3, (120, 40))
}

/// Returns an Envoy for each port, on a terminal of this size.
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
    let mut snapshot = of_process(snapshot(poll), number);
    for (_, bucket) in &mut snapshot.buckets {
        bucket.key = format!("{}-of-{number}", bucket.key);
    }
    let msg = Msg::Polled(Ok(Box::new(snapshot)));
    watched.update(Some(number), msg, Nanos::from_secs(poll));
}

/// Changes the answer so that each number is another process.
pub(super) fn of_process(mut snapshot: Snapshot, number: usize) -> Snapshot {
    let instance = format!("{:016x}", number + 1);
    if let Some(rules) = &mut snapshot.rules {
        rules.instance.clone_from(&instance);
    }
    snapshot.status.instance = instance;
    snapshot
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

/// The hidden Envoy is polled, but not for data that is not shown.
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

/// A change is sent to the shown Envoy, even if another one is shown before it is answered.
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

/// Two Envoys that should be alike differ.
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
            .filter(|text| text.contains(" differ:"))
            .collect::<Vec<_>>()
    };
    assert!(found(&watched).is_empty());
    let mut other = of_process(snapshot(4), 1);
    other.status.version = "9.9.9".to_owned();
    other.status.rules[0].mode = "off".to_owned();
    other.status.rules.remove(1);
    let msg = Msg::Polled(Ok(Box::new(other)));
    watched.update(Some(1), msg, Nanos::from_secs(4));
    let version = &snapshot(4).status.version;
    assert_eq!(
        found(&watched),
        [
            format!("versions differ: {version} at :1, 9.9.9 at :2"),
            "rules differ: reply-per-user is enforce at :1, off at :2; search-per-key is not at :2"
                .to_owned(),
        ]
    );
}

/// Numbers, overrides and other parts of a rule differ, and the finding shows which.
#[test]
fn rules_with_other_numbers_are_findings() {
    let with = |change: fn(&mut serde_json::Value)| {
        let mut watched = watched();
        for number in [0, 1] {
            let mut snapshot = of_process(snapshot(0), number);
            let rules = snapshot.rules.as_mut().expect("the first answer has rules");
            if number == 1 {
                change(&mut rules.rules[0].rule);
            }
            let msg = Msg::Polled(Ok(Box::new(snapshot)));
            watched.update(Some(number), msg, Nanos::from_secs(1));
        }
        let found = crate::app::findings::findings(watched.shown()).into_iter();
        let mut apart = found
            .map(|finding| finding.text)
            .filter(|text| text.contains(" differ:"));
        apart.next().unwrap_or_default()
    };
    assert_eq!(with(|_| ()), "");
    let limits = with(|rule| rule["limits"][0]["capacity"] = serde_json::json!(99));
    let expected = "rules differ: reply-per-user has burst 15 at 30/m, daily 1000 at 1000/d at :1, \
                    burst 99 at 30/m, daily 1000 at 1000/d at :2";
    assert_eq!(limits, expected);
    let overrides = with(|rule| rule["overrides"] = serde_json::json!({ "bob": "unlimited" }));
    let expected = "rules differ: reply-per-user has 0 overrides at :1, 1 override at :2";
    assert_eq!(overrides, expected);
    let other = with(|rule| rule["stop"] = serde_json::json!(true));
    assert_eq!(
        other,
        "rules differ: reply-per-user is another rule at :2 than at :1"
    );
}

/// One Envoy with two addresses.
#[test]
fn one_process_counts_once() {
    let mut watched = watched();
    for at in 0..3 {
        for number in [0, 1] {
            let msg = Msg::Polled(Ok(Box::new(of_process(snapshot(at), 0))));
            watched.update(Some(number), msg, Nanos::from_secs(at));
        }
    }
    let found = crate::app::findings::findings(watched.shown()).into_iter();
    let mut twins = found.filter(|finding| finding.text.contains("one Envoy"));
    let text = twins.next().map(|finding| finding.text);
    assert_eq!(
        text.as_deref(),
        Some(":1 and :2 are one Envoy: it counts once in sums")
    );
    let one = watched.shown().total_rates().expect("rates").refused;
    press(&mut watched, "8");
    watched.update(None, Msg::Tick, Nanos::from_secs(3));
    let rows = watched.shown().keys.rows.iter();
    let sum: f64 = rows.map(|key| key.row.refused()).sum();
    assert!((sum - one).abs() < 1e-9, "{sum} {one}");
}

/// The header counts the warnings of the shown Envoy like the Targets screen. The differences
/// between Envoys are counted separately, and only once.
#[test]
fn the_head_counts_the_warnings_that_targets_has() {
    let mut watched = watched_at(1..3, (140, 40));
    for number in [0, 1] {
        let mut snapshot = of_process(snapshot(1), number);
        snapshot.status.warnings = vec!["one".to_owned()];
        snapshot.status.version = format!("0.{number}.0");
        let msg = Msg::Polled(Ok(Box::new(snapshot)));
        watched.update(Some(number), msg, Nanos::from_secs(1));
    }
    for number in [0, 1] {
        let state = watched.shown();
        assert_eq!(state.number, number);
        let of_targets: Vec<usize> = state.targets.iter().map(|target| target.warnings).collect();
        assert_eq!(of_targets, [1, 1]);
        let text = crate::ui::tests::text(state, (140, 40));
        assert!(text.contains("1 warning, 1 between Envoys"), "{text}");
        press(&mut watched, "t");
    }
}
