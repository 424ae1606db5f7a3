//! Charts over longer time spans, with gaps for times that were not watched.

use super::*;
use crate::app::fixture::snapshot;
use crate::app::history::Scale;
use crate::app::screen::Screen;

/// Returns a state after three minutes. Envoy was unreachable for one of them, and then the screen
/// was frozen for half a minute.
fn watched(size: (u16, u16), keys: &str) -> State {
    let mut state = state(size, 60);
    type_keys(&mut state, keys);
    for poll in (120..180).chain([211, 212]) {
        if poll == 211 {
            state.now = Nanos::from_secs(179);
            type_keys(&mut state, " ");
        }
        if poll == 212 {
            type_keys(&mut state, " ");
        }
        feed(&mut state, poll);
    }
    state
}

#[test]
fn charts_have_gaps() {
    for (name, keys) in [("bucket", "<ret>+"), ("rules", "3+")] {
        let state = watched(USUAL, keys);
        assert_eq!(state.scale, Scale::FiveMinutes);
        compare(&format!("charts_{name}"), &state, USUAL);
    }
}

/// The keys change the time span from a minute to an hour and back, and show a message at the ends.
#[test]
fn the_keys_for_time() {
    let size = (120, 40);
    let mut state = state(size, 20);
    type_keys(&mut state, "3");
    let shown = |state: &State| text(state, size);
    for (key, words) in [
        ("", "peak 12 in 1m"),
        ("-", "1m is the shortest time of charts"),
        ("+", "peak 12 in 5m"),
        ("=", "peak 12 in 15m"),
        ("+", "peak 12 in 1h"),
        ("+", "1h is the longest time of charts"),
        ("-", "peak 12 in 15m"),
    ] {
        type_keys(&mut state, key);
        assert!(shown(&state).contains(words), "{key}: {}", shown(&state));
    }
    // The keys work on every screen that has charts. Elsewhere they do nothing.
    type_keys(&mut state, "<esc><ret>");
    assert!(shown(&state).contains("in 15m"), "{}", shown(&state));
    type_keys(&mut state, "<esc>-");
    assert!(
        shown(&state).contains("works only on: Bucket, Rules"),
        "{}",
        shown(&state)
    );
}

/// While Envoy is unreachable, charts continue to move. The time without answers is a gap at their
/// end.
#[test]
fn charts_go_on_without_answers() {
    let size = (120, 40);
    let mut state = state(size, 70);
    type_keys(&mut state, "3");
    let full = text(&state, size);
    assert!(!full.contains('·'), "{full}");
    let failed = Failure {
        text: "cannot reach it".to_owned(),
        ..Failure::default()
    };
    update(&mut state, Msg::Polled(Err(failed)), Nanos::from_secs(80));
    update(&mut state, Msg::Tick, Nanos::from_secs(90));
    let gap = text(&state, size);
    assert!(gap.contains(&format!("█{}", "·".repeat(17))), "{gap}");
}

/// The open bucket keeps an hour of history, with any content of the table. Other buckets keep a
/// minute.
#[test]
fn an_open_bucket_is_remembered() {
    let size = (120, 40);
    let mut state = state(size, 5);
    type_keys(&mut state, "<ret>");
    assert_eq!(state.screen, Screen::Bucket);
    let open = state.open.clone().expect("a bucket is open");
    for poll in 5..900 {
        let mut snapshot = snapshot(poll);
        snapshot.rules = None;
        let msg = Msg::Polled(Ok(Box::new(snapshot)));
        update(&mut state, msg, Nanos::from_secs(poll));
    }
    for (id, track) in &state.history.buckets {
        let quarter = track.chart(Scale::QuarterHour.span_ns(), state.charts_end_ns(), 15);
        // An idle time is one sample, however long it is.
        let busy = quarter
            .iter()
            .flatten()
            .filter(|rates| rates.admitted > 0.0);
        let minutes = busy.count();
        let is_bounded = minutes <= 2 && *id != open;
        assert!(is_bounded || minutes == 15, "{id:?}: {minutes}");
    }
}
