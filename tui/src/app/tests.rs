//! Drives the app with key strings.

use loudou_api::{Access, EditAnswer, ProblemAnswer, RuleView};
use loudou_limiter::Nanos;

use super::columns::Column;
use super::effects::{Effect, Sending};
use super::fixture::{feed, state, type_keys};
use super::msg::{Failure, Msg};
use super::press::Spot;
use super::screen::Screen;
use super::state::{Exit, Mode, State};
use super::targets::TargetSummary;
use super::update::{tick_after, update};
use loudou_client::change::Change;
use loudou_client::change::edit::{Edit, EditTo};
use loudou_client::change::verb::Answer;

pub(crate) mod again;
mod apart;
mod ban_all;
mod broadcasts;
mod copies;
mod edits;
mod explain;
mod findings;
mod mouse;
mod of_key;
mod on_call;
mod previews;
mod random;
mod random_several;
mod restarts;
mod several;
mod sums;
mod targets;
mod told;
mod undo_in_doubt;
mod undo_of_bans;
mod watching;

const SIZE: (u16, u16) = (80, 24);

fn send(state: &mut State, msg: Msg) -> Vec<Effect> {
    let now = state.now;
    update(state, msg, now)
}

/// Waits until a question that opened automatically accepts answers.
fn read_question(state: &mut State) {
    let later = state.now.saturating_add(Nanos::from_secs(1));
    update(state, Msg::Tick, later);
}

fn selected(state: &State) -> &str {
    state.selected_row().map_or("", |row| &row.id.key)
}

/// Returns the change that is sent.
fn sending_of(effects: Vec<Effect>) -> Box<Sending> {
    let sending = effects.into_iter().find_map(|effect| match effect {
        Effect::Change(sending) => Some(sending),
        _ => None,
    });
    sending.expect("a change is sent")
}

fn edit_of(sending: &Sending) -> &Edit {
    match &sending.change {
        Change::Edit(edit) => edit,
        other => panic!("{other:?}"),
    }
}

fn messages(state: &State) -> String {
    let texts: Vec<&str> = state
        .toasts
        .iter()
        .map(|toast| toast.text.as_str())
        .collect();
    texts.join(
        "
",
    )
}

/// Returns the answer of a server that made `edit`.
fn made(edit: &Edit) -> EditAnswer {
    let mut after = (*edit.seen).clone();
    after.generation += 1;
    if let EditTo::Put { body, .. } = &edit.to {
        after.rule["limits"] = body["limits"].clone();
        after.rule["mode"] = body["mode"].clone();
    }
    EditAnswer {
        dry_run: false,
        before: edit.seen.rule.clone(),
        after,
        change: "burst: capacity 15 → 250".to_owned(),
        changed: true,
        fleet: None,
    }
}

fn stale(current: RuleView) -> Failure {
    Failure {
        text: "412 stale".to_owned(),
        problem: Some(Box::new(ProblemAnswer {
            current: Some(current),
            ..ProblemAnswer::default()
        })),
        in_doubt: false,
    }
}

fn answer(state: &mut State, sending: Box<Sending>) {
    let answer = made(edit_of(&sending));
    let answer = Answer::Edit(Box::new(answer));
    send(state, Msg::Changed(sending, Ok(answer)));
}

#[test]
fn the_most_refused_is_on_top_and_selected() {
    let state = state(SIZE, 3);
    assert_eq!(selected(&state), "mallory");
    assert_eq!(state.table.sort.column, Column::Refused);
    // Requests that the shadow rule would admit are not counted twice.
    assert_eq!(state.total_rates().map(|rates| rates.admitted), Some(99.0));
}

#[test]
fn the_selection_sticks_to_its_key() {
    let mut state = state(SIZE, 3);
    type_keys(&mut state, "jj");
    let key = selected(&state).to_owned();
    type_keys(&mut state, "sjjj<ret>");
    assert_ne!(state.table.at, 2);
    assert_eq!(selected(&state), key);
    feed(&mut state, 4);
    assert_eq!(selected(&state), key);
    type_keys(&mut state, "i");
    assert_eq!(selected(&state), key);
}

#[test]
fn motions_move_and_stop_at_the_ends() {
    let mut state = state(SIZE, 2);
    for (presses, at) in [
        ("G", 35),
        ("j", 35),
        ("g", 0),
        ("k", 0),
        ("<C-d>", 9),
        ("<C-u>", 0),
        ("<pgdn>", 19),
        ("<pgup>", 0),
        ("<down><down><up>", 1),
    ] {
        type_keys(&mut state, presses);
        assert_eq!(state.table.at, at, "{presses}");
        let offset = state.table.offset;
        assert!(offset <= at && at < offset + 19, "{presses}: {offset}");
    }
}

#[test]
fn a_filter_works_while_it_is_typed_and_esc_takes_it_back() {
    let mut state = state(SIZE, 3);
    type_keys(&mut state, "/key-0");
    assert_eq!(state.table.visible.len(), 10);
    type_keys(&mut state, "<ret>");
    assert!(matches!(state.mode, Mode::Browse));
    assert_eq!(state.table.filter_text, "key-0");
    type_keys(&mut state, "/<C-u>refused > 5");
    assert_eq!(state.table.visible.len(), 1);
    type_keys(&mut state, "<esc>");
    assert_eq!(
        (state.table.visible.len(), &*state.table.filter_text),
        (10, "key-0")
    );
    type_keys(&mut state, "<esc>");
    assert_eq!(
        (state.table.visible.len(), &*state.table.filter_text),
        (36, "")
    );
}

#[test]
fn a_filter_with_a_mistake_is_not_kept() {
    let mut state = state(SIZE, 3);
    type_keys(&mut state, "/refused > x<ret>");
    assert!(matches!(state.mode, Mode::Filter(..)));
    assert!(messages(&state).contains("needs a number"));
    type_keys(&mut state, "<bs>5<ret>");
    assert_eq!(state.table.visible.len(), 1);
}

#[test]
fn a_viewer_changes_nothing_and_sees_why() {
    let mut viewer = state(SIZE, 3);
    if let Some(data) = &mut viewer.data {
        data.status.access = Access::View;
    }
    assert!(type_keys(&mut viewer, "eRubo").is_empty());
    assert!(matches!(viewer.mode, Mode::Browse));
    assert!(messages(&viewer).contains("may only view"));
    let mut locked = state(SIZE, 3);
    locked.settings.read_only = true;
    assert!(type_keys(&mut locked, "e").is_empty());
    assert!(messages(&locked).contains("--read-only"));
}

#[test]
fn a_key_of_another_screen_shows_where_it_works() {
    let mut state = state(SIZE, 3);
    type_keys(&mut state, "3/");
    assert!(messages(&state).contains("/ (filter) works only on: Buckets"));
}

/// A screen without animation draws two frames per second, because drawing is the largest part of its work.
#[test]
fn only_an_animated_screen_draws_often() {
    let mut state = state(SIZE, 3);
    state.link.in_flight = Some(state.now);
    assert_eq!(tick_after(&state), Nanos::from_millis(500));
    type_keys(&mut state, "<ret>");
    assert_eq!(tick_after(&state), Nanos::from_millis(80));
    type_keys(&mut state, " ");
    assert_eq!(tick_after(&state), Nanos::from_millis(500), "frozen");
}

#[test]
fn a_frozen_screen_stands_still_and_catches_up() {
    let mut state = state(SIZE, 3);
    type_keys(&mut state, " ");
    let before = state.selected_row().cloned();
    feed(&mut state, 4);
    feed(&mut state, 5);
    assert_eq!(state.selected_row().cloned(), before);
    assert_eq!(state.age(), Nanos::ZERO);
    type_keys(&mut state, " ");
    assert_ne!(state.selected_row().cloned(), before);
    assert_eq!(
        state.data.as_ref().map(|data| data.read_at),
        Some(Nanos::from_secs(5))
    );
}

#[test]
fn a_lost_connection_keeps_the_data_and_shows_their_age() {
    let mut state = state(SIZE, 3);
    let failure = Failure {
        text: "cannot reach".to_owned(),
        ..Failure::default()
    };
    update(&mut state, Msg::Tick, Nanos::from_secs(4));
    update(&mut state, Msg::Polled(Err(failure)), Nanos::from_secs(6));
    assert_eq!(state.link.up, Some(false));
    assert_eq!(state.table.visible.len(), 36);
    assert!(state.is_stale());
    assert_eq!(state.age(), Nanos::from_secs(4));
    feed(&mut state, 9);
    assert!(!state.is_stale());
    assert!(messages(&state).contains("connected again"));
}

#[test]
fn polls_ask_for_no_more_than_is_new() {
    let mut state = state(SIZE, 1);
    let effects = update(&mut state, Msg::Tick, Nanos::from_secs(3));
    let [Effect::Poll(request)] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!((request.generation, request.after_seq), (Some(7), 3));
    assert!(update(&mut state, Msg::Tick, Nanos::from_secs(30)).is_empty());
}

#[test]
fn polls_ask_for_the_text_that_is_looked_for() {
    let mut state = state(SIZE, 1);
    // The poll starts at once, because the buckets may not have been read yet.
    let effects = type_keys(&mut state, "/Key-0<ret>");
    let [Effect::Poll(request)] = &effects[..] else {
        panic!("{effects:?}")
    };
    let key = request
        .wanted
        .first()
        .and_then(|wanted| wanted.key.as_deref());
    assert_eq!(key, Some("Key-0"));
}

#[test]
fn the_mouse_selects_opens_and_sorts() {
    let mut state = state(SIZE, 3);
    mouse::click(&mut state, Spot::Line(2));
    assert_eq!(state.table.at, 2);
    mouse::click(&mut state, Spot::Line(2));
    assert_eq!(state.screen, Screen::Bucket);
    type_keys(&mut state, "<esc>");
    let head = Spot::Head(Column::Rule);
    mouse::click(&mut state, head);
    assert_eq!(state.table.sort.column, Column::Rule);
    let was = state.table.sort.descending;
    mouse::click(&mut state, head);
    assert_eq!(state.table.sort.descending, !was);
}

fn target(url: &str) -> TargetSummary {
    TargetSummary {
        url: url.to_owned(),
        ..TargetSummary::default()
    }
}

#[test]
fn the_palette_finds_and_runs() {
    let mut state = state(SIZE, 3);
    type_keys(&mut state, ":events<ret>");
    assert_eq!(state.screen, Screen::Events);
    type_keys(&mut state, ":filter<ret>");
    assert!(messages(&state).contains("works only on: Buckets"));
    type_keys(&mut state, ":searchkey<ret>");
    assert_eq!(state.screen, Screen::Buckets);
    assert_eq!(state.table.filter_text, "rule = search-per-key");
    state.targets = vec![
        target("http://10.0.0.7:9911"),
        target("http://10.0.0.8:9911"),
    ];
    type_keys(&mut state, ":10.0.0.8<ret>");
    assert_eq!(state.wants, Some(1));
}

#[test]
fn tab_completes_in_the_palette() {
    let mut state = state(SIZE, 3);
    let typed = |state: &State| match &state.mode {
        Mode::Palette(line, at) => (line.text().to_owned(), *at),
        other => panic!("{other:?}"),
    };
    type_keys(&mut state, ":frz<tab>");
    assert_eq!(typed(&state), ("freeze".to_owned(), 0));
    type_keys(&mut state, "<C-u>reply<tab>");
    assert_eq!(typed(&state), ("buckets of reply-per-user".to_owned(), 0));
    // The selected line stays selected even if an earlier line matches as well.
    state.targets = vec![target("http://10.0.0.170"), target("http://10.0.0.17")];
    type_keys(&mut state, "<C-u>10.0.0.17<down><tab>");
    assert_eq!(typed(&state), ("watch http://10.0.0.17".to_owned(), 1));
    // Nothing matches.
    type_keys(&mut state, "<C-u>zzzz<tab>");
    assert_eq!(typed(&state), ("zzzz".to_owned(), 0));
}

#[test]
fn the_detail_stays_on_its_bucket_and_esc_comes_back() {
    let mut state = state(SIZE, 3);
    type_keys(&mut state, "jj<ret>");
    let key = state.open.clone().map(|id| id.key);
    assert_eq!(key.as_deref(), Some(selected(&state)));
    type_keys(&mut state, "j3<esc>2");
    assert_eq!(
        (state.open.clone().map(|id| id.key), state.limit),
        (key, Some(1))
    );
    type_keys(&mut state, "<esc>q");
    assert_eq!(state.exit, Some(Exit::Quit));
}

#[test]
fn the_report_of_a_panic_outlives_a_quit() {
    let report = || Msg::Fatal("a panic".to_owned());
    for messages in [[Msg::Quit, report()], [report(), Msg::Quit]] {
        let mut state = state(SIZE, 3);
        for message in messages {
            send(&mut state, message);
        }
        assert_eq!(state.exit, Some(Exit::Fatal("a panic".to_owned())));
    }
}
