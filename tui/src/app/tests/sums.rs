//! The Keys screen has one row for a key at all Envoys.

use super::several::{of_process, press, watched, watched_at};
use super::*;
use crate::app::fixture::snapshot;
use crate::app::merged::KeyRow;
use crate::app::rows::BucketName;
use crate::app::watched::Watched;
use crate::ui::tests::text;

/// Applies an answer at its time, with `times` as many requests as usual.
fn poll(watched: &mut Watched, number: usize, at: u64, times: u64) {
    let mut snapshot = of_process(snapshot(at), number);
    for (_, bucket) in &mut snapshot.buckets {
        bucket.refused *= times;
        bucket.admitted *= times;
    }
    let msg = Msg::Polled(Ok(Box::new(snapshot)));
    watched.update(Some(number), msg, Nanos::from_secs(at));
}

fn tick(watched: &mut Watched, at: u64) -> Vec<(usize, Effect)> {
    watched.update(None, Msg::Tick, Nanos::from_secs(at))
}

/// Returns two Envoys on the Keys screen. The second one has three times the requests of the first.
fn two() -> Watched {
    let (watched, _) = opened();
    watched
}

/// Like [`two`], with the effects of opening the screen.
fn opened() -> (Watched, Vec<(usize, Effect)>) {
    let mut watched = watched();
    for at in 0..3 {
        poll(&mut watched, 0, at, 1);
        poll(&mut watched, 1, at, 3);
    }
    press(&mut watched, "8");
    let effects = tick(&mut watched, 3);
    (watched, effects)
}

fn row<'a>(watched: &'a Watched, rule: &str, key: &str) -> Option<&'a KeyRow> {
    let mut rows = watched.shown().keys.rows.iter();
    rows.find(|row| row.row.id == BucketName::new(rule, key))
}

#[test]
fn rates_are_sums_with_the_part_of_each_envoy() {
    let watched = two();
    // The fixture's counts increase by a constant number each second.
    let refused = |at: u64| {
        let buckets = snapshot(at).buckets;
        let mut of = buckets.iter().map(|(_, bucket)| bucket);
        of.find(|bucket| bucket.key == "mallory")
            .map(|bucket| bucket.refused)
    };
    let per_second = refused(2)
        .zip(refused(1))
        .map(|(two, one)| two - one)
        .expect("two polls");
    let key = row(&watched, "reply-per-user", "mallory").expect("a row");
    let parts: Vec<f64> = key
        .at
        .iter()
        .flatten()
        .filter_map(|part| part.rates)
        .map(|rates| rates.refused)
        .collect();
    let one = f64::from(u32::try_from(per_second).expect("few"));
    assert_eq!(parts, [one, 3.0 * one]);
    assert!((key.row.refused() - 4.0 * one).abs() < 1e-9);
    assert_eq!(key.worst(), Some(1));
}

/// All Envoys read the keys on screen while the Keys screen is shown, and nothing more than usual
/// afterwards.
#[test]
fn every_envoy_reads_what_is_summed() {
    let (mut watched, effects) = opened();
    let requests = |effects: Vec<(usize, Effect)>| {
        let polls = effects
            .into_iter()
            .filter_map(|(number, effect)| match effect {
                Effect::Poll(request) => Some((number, request.lists, request.shown)),
                _ => None,
            });
        polls.collect::<Vec<_>>()
    };
    let both = requests(effects);
    assert_eq!(both.len(), 2);
    for (_, lists, shown) in &both {
        assert!(*lists && shown.contains(&BucketName::new("reply-per-user", "mallory")));
    }
    for number in [0, 1] {
        poll(&mut watched, number, 3, 1);
    }
    press(&mut watched, "7");
    let requests = requests(tick(&mut watched, 6));
    let none: Vec<_> = requests
        .iter()
        .map(|(number, lists, shown)| (*number, *lists, shown.len()))
        .collect();
    assert_eq!(none, [(0, false, 0), (1, false, 0)]);
}

#[test]
fn enter_shows_the_key_where_it_is_refused_most() {
    let mut watched = two();
    assert_eq!(watched.shown().number, 0);
    press(&mut watched, "gj");
    let id = watched
        .shown()
        .keys
        .selected()
        .expect("a row")
        .row
        .id
        .clone();
    press(&mut watched, "<ret>");
    let shown = watched.shown();
    assert_eq!((shown.number, shown.screen), (1, Screen::Buckets));
    assert_eq!(shown.selected_row().map(|row| &row.id), Some(&id));
}

/// If a key was not read for a while, its first rate is outdated, and the status line shows that.
#[test]
fn the_first_rates_are_said_to_be_old() {
    let mut watched = two();
    let foot =
        |watched: &Watched| text(watched.shown(), (120, 40)).contains("the first rates are means");
    assert!(foot(&watched));
    tick(&mut watched, 7);
    assert!(!foot(&watched));
    press(&mut watched, "18");
    tick(&mut watched, 8);
    assert!(foot(&watched));
}

/// If the selected key leaves the list, no other key is selected.
#[test]
fn the_selection_stays_on_its_key() {
    let mut watched = two();
    press(&mut watched, "gjj");
    let id = watched
        .shown()
        .keys
        .selected()
        .expect("a row")
        .row
        .id
        .clone();
    press(&mut watched, ">i");
    assert_eq!(
        watched.shown().keys.selected().map(|key| &key.row.id),
        Some(&id)
    );
    for number in [0, 1] {
        let mut snapshot = of_process(snapshot(5), number);
        snapshot.buckets.retain(|(_, bucket)| bucket.key != id.key);
        let msg = Msg::Polled(Ok(Box::new(snapshot)));
        watched.update(Some(number), msg, Nanos::from_secs(5));
    }
    tick(&mut watched, 6);
    assert!(watched.shown().keys.selected().is_none());
    let screen = text(watched.shown(), (120, 40));
    assert!(screen.contains("none is selected"), "{screen}");
    // The next step selects a visible row, not the row after the lost one.
    press(&mut watched, "j");
    let first = watched.shown().keys.row(0).map(|key| key.row.id.clone());
    assert_eq!(
        watched
            .shown()
            .keys
            .selected()
            .map(|key| key.row.id.clone()),
        first
    );
}

#[test]
fn what_is_away_or_old_is_in_no_sum() {
    let mut watched = two();
    let failure = Failure {
        text: "cannot reach it".to_owned(),
        ..Failure::default()
    };
    watched.update(Some(1), Msg::Polled(Err(failure)), Nanos::from_secs(3));
    tick(&mut watched, 4);
    let key = row(&watched, "reply-per-user", "mallory").expect("a row");
    assert!(key.at[1].is_none());
    // The first Envoy only has a bucket that was read a minute ago.
    let mut later = of_process(snapshot(60), 0);
    later.buckets.clear();
    later.truncated = true;
    let msg = Msg::Polled(Ok(Box::new(later)));
    watched.update(Some(0), msg, Nanos::from_secs(60));
    tick(&mut watched, 61);
    assert!(watched.shown().keys.rows.is_empty());
}

#[test]
fn a_frozen_screen_sums_nothing() {
    let mut watched = two();
    press(&mut watched, " ");
    let before = watched.shown().keys.rows.len();
    let effects = tick(&mut watched, 30);
    let lists = effects
        .iter()
        .any(|(_, effect)| matches!(effect, Effect::Poll(request) if request.lists));
    assert!(!lists);
    assert_eq!(watched.shown().keys.rows.len(), before);
}

/// Filter, order and selection stay, whichever Envoy is shown.
#[test]
fn choices_stay_when_another_envoy_is_shown() {
    let mut watched = two();
    press(&mut watched, "1/mallory<ret>gj>");
    press(&mut watched, "k");
    let chosen = |watched: &Watched| {
        let table = &watched.shown().table;
        (table.filter_text.clone(), table.sort, table.pinned.clone())
    };
    let before = chosen(&watched);
    assert_eq!(before.0, "mallory");
    press(&mut watched, "t");
    assert_eq!(watched.shown().number, 1);
    assert_eq!(chosen(&watched), before);
    assert_eq!(selected(watched.shown()), "mallory");
}

#[test]
fn the_screen_at_three_sizes() {
    for (columns, rows) in [(80, 24), (120, 40), (40, 10)] {
        for envoys in [2_u16, 12] {
            let mut watched = watched_at(9_901..9_901 + envoys, (columns, rows));
            for at in 0..3 {
                for number in 0..usize::from(envoys) {
                    poll(
                        &mut watched,
                        number,
                        at,
                        u64::try_from(number).expect("few") + 1,
                    );
                }
            }
            press(&mut watched, "8");
            tick(&mut watched, 3);
            press(&mut watched, "j");
            let screen = text(watched.shown(), (columns, rows));
            insta::assert_snapshot!(format!("keys_of_{envoys}_{columns}x{rows}"), screen);
        }
    }
}
