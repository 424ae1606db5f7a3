//! The important rows stay in view, refusals in shadow mode are not counted as refusals, and only
//! data on screen are read.

use loudou_api::{BucketState, BucketView};

use super::*;
use crate::app::effects::PollRequest;
use crate::app::fixture::snapshot;
use crate::app::rows::BucketName;

/// Applies a poll that reads only some buckets, changed by `change`.
fn some(state: &mut State, poll: u64, keys: &[&str], change: impl Fn(&mut BucketView)) {
    let mut snapshot = snapshot(poll);
    snapshot.truncated = true;
    snapshot
        .buckets
        .retain(|(_, bucket)| keys.contains(&bucket.key.as_str()));
    for (_, bucket) in &mut snapshot.buckets {
        change(bucket);
    }
    update(
        state,
        Msg::Polled(Ok(Box::new(snapshot))),
        Nanos::from_secs(poll),
    );
}

fn shown(state: &State) -> Vec<String> {
    let lines = state.table.lines(19).into_iter();
    lines
        .filter_map(|index| Some(state.row(index)?.id.key.clone()))
        .collect()
}

/// Alice was selected while she was refused. Later others are refused and she is not, so her row
/// moves down. The refused keys are on screen, and so is she.
#[test]
fn the_view_stays_on_the_offenders() {
    let mut state = state(SIZE, 3);
    type_keys(&mut state, "j");
    let selected_key = selected(&state).to_owned();
    let keys: Vec<String> = (0..25).map(|number| format!("key-{number:02}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    for poll in 4..9 {
        some(&mut state, poll, &keys, |bucket| bucket.refused = poll * 50);
    }
    assert_eq!(selected(&state), selected_key);
    assert!(state.table.at > 19, "{}", state.table.at);
    assert_eq!(state.table.offset, 0);
    let shown = shown(&state);
    assert_eq!(shown.last(), Some(&selected_key));
    assert!(
        shown.iter().take(18).all(|key| key.starts_with("key-")),
        "{shown:?}"
    );
    let screen = crate::ui::tests::text(&state, SIZE);
    assert!(screen.contains(" above "), "{screen}");
    // The user moves, and the view follows. Esc leads back to the top.
    type_keys(&mut state, "j");
    assert!(state.table.offset > 0);
    type_keys(&mut state, "<esc>");
    assert_eq!((state.table.offset, state.table.at), (0, 0));
}

#[test]
fn another_order_begins_at_the_top() {
    let mut state = state(SIZE, 3);
    type_keys(&mut state, "G");
    assert!(state.table.offset > 0);
    type_keys(&mut state, "i");
    assert_eq!(state.table.offset, 0);
}

/// Refusals in shadow mode count neither in the total nor in a row's refusals.
#[test]
fn refusals_in_shadow_mode_are_counted_apart() {
    let mut state = state(SIZE, 1);
    for poll in 1..4 {
        some(&mut state, poll, &["mallory", "bob"], |bucket| {
            bucket.shadow = bucket.key == "mallory";
            bucket.refused = 100 * poll;
            bucket.state = BucketState::Refusing;
        });
    }
    let row = |key: &str| {
        let rows = &state.data.as_ref().expect("data").rows;
        rows.iter()
            .find(|row| row.id.key == key)
            .expect("a row")
            .clone()
    };
    assert_eq!(
        (row("mallory").refused(), row("mallory").would_refuse()),
        (0.0, 100.0)
    );
    assert_eq!(
        (row("bob").refused(), row("bob").would_refuse()),
        (100.0, 0.0)
    );
    // by-source is in shadow mode and would refuse one request per second.
    let total = state.total_rates().expect("rates");
    assert_eq!((total.refused, total.shadow), (12.0, 1.0));
    // Sorted by refusals, enforced refusals come first.
    assert_eq!(shown(&state)[..2], ["bob".to_owned(), "mallory".to_owned()]);
    let screen = crate::ui::tests::text(&state, (120, 40));
    assert!(screen.contains("would refuse 1"), "{screen}");
    assert!(screen.contains("(100)"), "{screen}");
}

/// A poll of some buckets keeps the others, and removes buckets that no longer exist.
#[test]
fn polls_of_some_buckets_add_up() {
    let mut state = state(SIZE, 2);
    let rows = |state: &State| state.data.as_ref().expect("data").rows.len();
    assert_eq!(rows(&state), 36);
    some(&mut state, 2, &["alice"], |_| {});
    assert_eq!(rows(&state), 36);
    let mut snapshot = snapshot(3);
    snapshot.truncated = true;
    snapshot.buckets.clear();
    snapshot.gone = vec![BucketName::new("reply-per-user", "alice")];
    update(
        &mut state,
        Msg::Polled(Ok(Box::new(snapshot))),
        Nanos::from_secs(3),
    );
    assert_eq!(rows(&state), 35);
    assert_eq!(state.history.buckets.len(), 35);
    // Each poll adds buckets, as in a store with very many of them.
    for poll in 4..10 {
        let mut snapshot = crate::app::fixture::snapshot(poll);
        snapshot.status.store.used = 5_000;
        snapshot.truncated = true;
        let (at, one) = snapshot.buckets[0].clone();
        snapshot.buckets = (0..900)
            .map(|number| {
                let key = format!("{poll}-{number}");
                (at, BucketView { key, ..one.clone() })
            })
            .collect();
        update(
            &mut state,
            Msg::Polled(Ok(Box::new(snapshot))),
            Nanos::from_secs(poll),
        );
    }
    assert_eq!(rows(&state), 2_000);
    assert_eq!(state.history.buckets.len(), 2_000);
}

fn request(state: &mut State) -> PollRequest {
    let now = state.now.saturating_add(Nanos::from_secs(10));
    let effects = update(state, Msg::Tick, now);
    let [Effect::Poll(request)] = &effects[..] else {
        panic!("{effects:?}")
    };
    request.clone()
}

/// Data that are not on screen are not read.
#[test]
fn a_poll_reads_what_is_on_screen() {
    let mut state = state(SIZE, 3);
    let of_list = request(&mut state);
    assert!(of_list.lists);
    assert_eq!(of_list.shown.len(), 19);
    assert_eq!(of_list.shown[0].key, "mallory");
    assert!(
        of_list
            .others
            .iter()
            .all(|name| !of_list.shown.contains(name))
    );
    feed(&mut state, 4);
    type_keys(&mut state, "<ret>");
    let of_bucket = request(&mut state);
    assert_eq!(
        of_bucket.shown,
        [BucketName::new("reply-per-user", "mallory")]
    );
    assert!(!of_bucket.lists && of_bucket.others.is_empty());
    feed(&mut state, 5);
    for screen in ["3", "5"] {
        type_keys(&mut state, screen);
        let other = request(&mut state);
        assert!(
            other.shown.is_empty() && !other.lists,
            "{screen}: {other:?}"
        );
        feed(&mut state, 6);
    }
    type_keys(&mut state, "1 ");
    let frozen = request(&mut state);
    assert!(frozen.shown.is_empty() && !frozen.lists);
    let now = state.now;
    feed(&mut state, 7);
    assert_eq!(state.link.due.since(now).as_millis() / 1_000, 5);
}

#[test]
fn a_rule_leads_to_its_buckets() {
    let mut state = state(SIZE, 3);
    type_keys(&mut state, "3j<ret>");
    assert_eq!(state.screen, Screen::Buckets);
    assert_eq!(state.table.filter_text, "rule = search-per-key");
    assert_eq!(state.table.visible.len(), 30);
}

/// Mallory is selected and leaves the list. When `b` is pressed, no other key must be in her place.
#[test]
fn a_selection_never_moves_to_another_customer() {
    for (filter, poll) in [("/state = refusing<ret>", true), ("", false)] {
        let mut state = state(SIZE, 3);
        type_keys(&mut state, filter);
        type_keys(&mut state, "gj<up>");
        assert_eq!(selected(&state), "mallory");
        if poll {
            some(&mut state, 4, &["mallory", "bob"], |bucket| {
                let is_bob = bucket.key == "bob";
                bucket.refused_at_ns = None;
                bucket.state = if is_bob {
                    BucketState::Refusing
                } else {
                    BucketState::Busy
                };
            });
        } else {
            let mut snapshot = snapshot(4);
            snapshot.truncated = true;
            snapshot.gone = vec![BucketName::new("reply-per-user", "mallory")];
            snapshot
                .buckets
                .retain(|(_, bucket)| bucket.key != "mallory");
            update(
                &mut state,
                Msg::Polled(Ok(Box::new(snapshot))),
                Nanos::from_secs(4),
            );
        }
        assert_eq!(selected(&state), "");
        for key in ["b", "R", "o", "y"] {
            type_keys(&mut state, key);
            assert!(matches!(state.mode, Mode::Browse), "{key}");
        }
        let screen = crate::ui::tests::text(&state, SIZE);
        assert!(screen.contains("mallory of reply-per-user"), "{screen}");
        let shown = crate::app::feed::request(&state).shown;
        assert!(shown.iter().any(|name| name.key == "mallory"));
        // She is selected again if she returns, and another key is selected if the user moves.
        feed(&mut state, 5);
        let back = if poll { "" } else { "mallory" };
        assert!(selected(&state) == back || selected(&state) == "mallory");
        type_keys(&mut state, "<esc><esc>j");
        assert_ne!(selected(&state), "");
    }
}

/// A key that a client chose must not become a pattern for other keys.
#[test]
fn a_key_with_an_asterisk_gets_no_override() {
    let mut state = state(SIZE, 3);
    some(&mut state, 3, &["mallory"], |bucket| {
        bucket.key = "tea*".to_owned();
        bucket.refused = 9_000;
    });
    some(&mut state, 5, &["mallory"], |bucket| {
        bucket.key = "tea*".to_owned();
        bucket.refused = 18_000;
    });
    assert_eq!(selected(&state), "tea*");
    type_keys(&mut state, "o");
    assert!(matches!(state.mode, Mode::Browse));
    assert!(
        state
            .toasts
            .iter()
            .any(|toast| toast.text.contains("begin with"))
    );
    type_keys(&mut state, "b");
    assert!(matches!(state.mode, Mode::OfKey(_)));
}
