//! Buckets that a fleet shares, and the fleet, on every screen that shows them.

use super::*;
use crate::app::fixture::shared;

/// Compares the screen after `keys` were typed.
fn shared_screen(name: &str, keys: &str, is_down: bool) {
    let mut state = shared(USUAL, 20, is_down);
    type_keys(&mut state, keys);
    compare(&format!("leases_{name}"), &state, USUAL);
}

#[test]
fn the_list_has_a_column_for_leases() {
    shared_screen("buckets", "", false);
    shared_screen("buckets_down", "", true);
}

#[test]
fn a_bucket_shows_its_lease() {
    shared_screen("bucket", "/alice<ret><ret>", false);
    shared_screen("bucket_denied", "/mallory<ret><ret>", false);
    shared_screen("bucket_down", "/alice<ret><ret>", true);
}

#[test]
fn events_show_the_fleet() {
    shared_screen("events", "5", false);
    shared_screen("events_down", "5", true);
}

/// The colours of denied leases and of disconnected workers.
#[test]
fn what_is_wrong_has_a_colour() {
    let size = (80, 24);
    let theme = Theme::new(true, false);
    let marked = |keys: &str, text: &str, is_down: bool| {
        let mut state = shared(size, 20, is_down);
        type_keys(&mut state, keys);
        let shown = styles(&draw(&state, &theme, size));
        let warn = format!("{} on Reset  ", theme.warn.fg.expect("a colour"));
        let mut runs = shown.lines().filter_map(|run| run.split_once(&warn));
        assert!(runs.any(|(_, run)| run.contains(text)), "{text}: {shown}");
    };
    marked("", "1 worker down", true);
    marked("5", "1 worker down", true);
    marked("5", "fleet down", true);
    let denied = "for 1.4s more, refused locally";
    marked("/mallory<ret><ret>", denied, false);
    let owed = "2 passed on credit, not charged yet";
    marked("/mallory<ret><ret>", owed, true);
    marked("/mallory<ret><ret>", "the relay does not answer", true);
}

/// The age of a lease grows between polls, in whole seconds.
#[test]
fn a_lease_ages() {
    let size = (120, 40);
    let mut state = shared(size, 20, false);
    type_keys(&mut state, "/alice<ret><ret>");
    let shows = |state: &State, age: &str| {
        let text = draw(state, &Theme::new(false, false), size);
        let text = text.backend().to_string();
        let lease = format!("3 here, 6 left for all Envoys {age}");
        assert!(text.contains(&lease), "{text}");
    };
    shows(&state, "just now");
    let now = state.now.saturating_add(Nanos::from_secs(2));
    update(&mut state, Msg::Tick, now);
    shows(&state, "2s ago");
}

/// Every event can be selected and seen, even below the lines of the fleet and of warnings.
#[test]
fn the_selected_event_is_in_sight() {
    let size = (40, 10);
    let mut state = shared(size, 20, true);
    type_keys(&mut state, "5jjjjjjjj");
    let text = draw(&state, &Theme::new(false, false), size);
    let text = text.backend().to_string();
    assert!(text.contains("16m     configured"), "{text}");
}
