//! Levels between two polls. The numbers in a frame of an open bucket are consistent.

use loudou_limiter::Nanos;

use super::text;
use crate::app::fixture::{banned, snapshot, state, type_keys};
use crate::app::msg::Msg;
use crate::app::state::State;
use crate::app::update::update;

const SIZE: (u16, u16) = (120, 40);

/// Returns the level in percent, and the units left, of the open bucket's first limit.
fn shown(key: &str, later_ms: u64, is_calm: bool) -> (u64, u64) {
    let mut state = state(SIZE, 0);
    for poll in 0..3 {
        let mut snapshot = snapshot(poll);
        for (_, bucket) in snapshot.buckets.iter_mut().filter(|_| is_calm) {
            (bucket.admitted, bucket.refused) = (10, 0);
        }
        let msg = Msg::Polled(Ok(Box::new(snapshot)));
        update(&mut state, msg, Nanos::from_secs(poll));
    }
    type_keys(&mut state, &format!("/{key}<ret>gj<ret>"));
    let now = state.now.saturating_add(Nanos::from_millis(later_ms));
    update(&mut state, Msg::Tick, now);
    let text = text(&state, SIZE);
    let number = |label: &str, of: &dyn Fn(&str) -> Option<u64>| {
        let found = text.split(label).nth(1).and_then(of);
        found.unwrap_or_else(|| panic!("{label}: {text}"))
    };
    // The first lines belong to the header.
    let level = text.lines().skip(3).find_map(|line| {
        let (before, _) = line.split_once('%')?;
        before.rsplit(' ').next()?.parse().ok()
    });
    let left = number("remaining ", &|rest| {
        rest.split_whitespace().next()?.parse().ok()
    });
    (level.unwrap_or_else(|| panic!("{text}")), left)
}

/// Requests fill a bucket as fast as it drains, so its level stays as read until the next answer.
#[test]
fn a_busy_bucket_does_not_sink_between_polls() {
    assert_eq!(shown("alice", 900, false), shown("alice", 0, false));
}

/// Without requests, the bucket drains, and the remaining units grow accordingly.
#[test]
fn a_calm_bucket_has_as_much_left_as_its_level_says() {
    let (before, after) = (shown("key-29", 0, true), shown("key-29", 1_900, true));
    assert!(after.0 < before.0, "{before:?} {after:?}");
    assert!(after.1 > before.1, "{before:?} {after:?}");
    assert!(
        after.0 + after.1 >= 100 && after.0 + after.1 <= 101,
        "{after:?}"
    );
}

/// Returns the waits that mallory's Bucket screen shows after this time, in its title and next to
/// its limits.
fn waits(state: &mut State, later_ms: u64) -> Vec<String> {
    type_keys(state, "/mallory<ret>gj<ret>");
    let now = state.now.saturating_add(Nanos::from_millis(later_ms));
    update(state, Msg::Tick, now);
    let text = text(state, SIZE);
    let waits = text.split("retry after ").skip(1);
    let words = waits.filter_map(|rest| rest.split([' ', '"']).next());
    words.map(str::to_owned).collect()
}

/// A wait is shown with the same number everywhere. The wait of a limit is not shown if a ban lasts
/// longer.
#[test]
fn the_title_and_the_limit_name_the_same_wait() {
    for later_ms in [0, 700, 1_400] {
        let waits = waits(&mut state(SIZE, 3), later_ms);
        let [title, limit] = &waits[..] else {
            panic!("{waits:?}")
        };
        assert_eq!(title, limit, "{later_ms}");
    }
    let mut state = banned(SIZE, 3);
    assert_eq!(waits(&mut state, 0), [""; 0]);
    let text = text(&state, SIZE);
    assert!(text.contains("⊘ banned  ends in 4m7s"), "{text}");
}
