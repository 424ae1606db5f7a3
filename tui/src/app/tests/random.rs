//! Random keys, clicks and answers cause no panic, Esc leads home, and the selection stays on its
//! bucket.

use std::time::Duration;

use loudou_api::BanAnswer;
use loudou_limiter::Nanos;
use proptest::prelude::*;

use super::again::restart;
use super::{made, send, stale};
use crate::app::effects::Effect;
use crate::app::fixture::{explained, rules, snapshot, state, type_keys};
use crate::app::msg::{Failure, Msg};
use crate::app::press::{Mouse, MouseAction, keys};
use crate::app::rows::BucketName;
use crate::app::screen::Screen;
use crate::app::state::{Mode, State};
use crate::app::update::update;
use crate::draw::pen::Spots;
use loudou_client::ClientError;
use loudou_client::change::Change;
use loudou_client::change::verb::Answer;
use loudou_client::live::apply::Done;

pub(super) fn presses() -> impl Strategy<Value = String> {
    let named = prop::sample::select(vec![
        "<ret>", "<esc>", "<tab>", "<s-tab>", "<bs>", "<up>", "<down>", "<left>", "<right>",
        "<pgdn>", "<home>", "<C-d>", "<C-u>", "<C-s>", "<lt>", " ",
    ]);
    let one = prop_oneof![
        named.prop_map(ToOwned::to_owned),
        "[ -~]".prop_filter("leaving ends the run", |key| key != "q"),
    ];
    prop::collection::vec(one, 0..40).prop_map(|keys| keys.concat())
}

/// Returns results of bans, of which every second fails, and every fourth is not answered.
fn in_parts(bans: usize) -> Vec<Result<BanAnswer, ClientError>> {
    let result = |number: usize| match number % 4 {
        1 => Err(ClientError::Restarted {
            url: "u".to_owned(),
        }),
        3 => Err(ClientError::TimedOut {
            url: "u".to_owned(),
            after: Duration::ZERO,
            had_body: false,
        }),
        _ => Ok(BanAnswer {
            changed: true,
            ..BanAnswer::default()
        }),
    };
    (0..bans).map(result).collect()
}

fn answer_to(change: &Change) -> Answer {
    match change {
        Change::Edit(edit) => Answer::Edit(Box::new(made(edit))),
        Change::Override(_) | Change::Ban(_) => Answer::Ban(Box::default()),
        Change::BanAll(all) => Answer::BanAll(in_parts(all.bans.len())),
        Change::Reset(_) => Answer::Reset(Box::default()),
    }
}

/// Answers every effect, with success or failure.
fn respond(state: &mut State, effects: Vec<Effect>, luck: u8) {
    for effect in effects {
        send(state, answer(effect, luck));
    }
}

/// Returns an answer to an effect. Depending on `luck` it is a success or a failure.
pub(super) fn answer(effect: Effect, luck: u8) -> Msg {
    let failure = || Failure {
        text: "no\n\u{1b}luck".to_owned(),
        in_doubt: luck.is_multiple_of(2),
        ..Failure::default()
    };
    match effect {
        Effect::Change(sending) if luck.is_multiple_of(3) => {
            let answer = answer_to(&sending.change);
            Msg::Changed(sending, Ok(answer))
        }
        Effect::Change(sending) if luck % 3 == 1 => {
            let mut current = rules()[1].clone();
            sending.change.verb().rule().clone_into(&mut current.name);
            Msg::Changed(sending, Err(stale(current)))
        }
        Effect::Change(sending) => Msg::Changed(sending, Err(failure())),
        Effect::ReadRule(rule) => Msg::RuleRead(rule, Err(failure())),
        Effect::Poll(_) if luck.is_multiple_of(4) => Msg::Polled(Err(failure())),
        Effect::Poll(_) => {
            let mut snapshot = snapshot(u64::from(luck % 16));
            snapshot.buckets.truncate(usize::from(luck));
            snapshot.truncated = luck.is_multiple_of(3);
            if luck.is_multiple_of(7) {
                let gone = snapshot.buckets.drain(..snapshot.buckets.len() / 2);
                let gone = gone.map(|(_, view)| BucketName::new(&view.rule, &view.key));
                snapshot.gone = gone.collect();
            }
            if luck.is_multiple_of(5) {
                restart(&mut snapshot);
            }
            Msg::Polled(Ok(Box::new(snapshot)))
        }
        Effect::Again(items) if luck.is_multiple_of(2) => {
            let done = items.into_iter().map(|item| (item, Done::SoAlready));
            Msg::Again(Ok(done.collect()))
        }
        Effect::Again(_) => Msg::Again(Err(failure())),
        Effect::Explain(_) if luck.is_multiple_of(2) => Msg::Explained(Err(failure())),
        Effect::Explain(_) => Msg::Explained(Ok(Box::new(explained()))),
        Effect::ChangeAll(_) | Effect::Suspend | Effect::Resume | Effect::Copy(_) => Msg::Resumed,
    }
}

/// Keys that open a dialog, or arbitrary keys.
fn opened() -> impl Strategy<Value = String> {
    let known = [
        "",
        "<esc>s",
        "<esc>C",
        "<esc>:",
        "<esc>e",
        "<esc>b",
        "<esc>o",
        "<esc>x",
        "<esc>?",
        "<esc>3",
        "<esc>/a<ret>",
    ];
    let known = known.map(ToOwned::to_owned).to_vec();
    prop_oneof![3 => prop::sample::select(known), 1 => presses()]
}

/// A mouse action at an element on the screen, or at any cell, even outside of the screen.
type Pointed = (MouseAction, Result<usize, (u16, u16)>);

fn mice() -> impl Strategy<Value = Vec<Pointed>> {
    let action = prop::sample::select(vec![
        MouseAction::Click,
        MouseAction::Click,
        MouseAction::WheelUp,
        MouseAction::WheelDown,
    ]);
    let place = prop_oneof![
        3 => (0_usize..200).prop_map(Ok),
        1 => (0_u16..140, 0_u16..50).prop_map(Err),
        1 => any::<(u16, u16)>().prop_map(Err),
    ];
    prop::collection::vec((action, place), 0..12)
}

/// Applies mouse actions to a frame, which may be older than the state.
fn point(state: &mut State, mice: &[Pointed], spots: &Spots, luck: u8) {
    for (action, place) in mice {
        let nth = |number: &usize| spots.nth(*number).unwrap_or((0, 0));
        let (x, y) = place.as_ref().map_or_else(|cell| *cell, nth);
        let spot = spots.at(x, y);
        let action = *action;
        let effects = send(state, Msg::Mouse(Mouse { action, x, y, spot }));
        respond(state, effects, luck);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn no_clicks_panic_and_the_selection_stays_on_its_bucket(
        runs in prop::collection::vec((opened(), mice(), any::<u8>(), 0_u64..5_000), 1..6),
        size in (0_u16..140, 0_u16..50),
        polls in 0_u64..3,
    ) {
        let theme = crate::ui::Theme::new(true, false);
        let mut state = state(size, polls);
        for (text, mice, luck, ms) in runs {
            let (_, spots) = crate::ui::tests::draw_with_spots(&state, &theme, size);
            let effects = type_keys(&mut state, &text);
            respond(&mut state, effects, luck);
            let now = state.now.saturating_add(Nanos::from_millis(ms));
            let effects = update(&mut state, Msg::Tick, now);
            respond(&mut state, effects, luck);
            // The first actions use a frame from before the keys, the others the current one.
            let (late, timely) = mice.split_at(mice.len() / 3);
            point(&mut state, late, &spots, luck);
            let (_, spots) = crate::ui::tests::draw_with_spots(&state, &theme, size);
            point(&mut state, timely, &spots, luck);
            if state.exit.is_some() {
                return Ok(());
            }
            crate::ui::tests::draw(&state, &theme, size);
            if let Some(row) = state.selected_row() {
                let pinned = state.table.pinned.as_ref();
                prop_assert!(pinned.is_none_or(|pinned| *pinned == row.id));
            }
        }
        for press in keys("<esc><esc><esc><esc>") {
            send(&mut state, Msg::Press(press));
        }
        prop_assert!(matches!(state.mode, Mode::Browse), "{:?}", state.mode);
        prop_assert_eq!(state.screen, Screen::Buckets);
    }

    #[test]
    fn no_keys_panic_and_esc_always_leads_home(
        runs in prop::collection::vec((presses(), any::<u8>(), 0_u64..5_000), 1..6),
        size in (0_u16..140, 0_u16..50),
        polls in 0_u64..3,
    ) {
        let theme = crate::ui::Theme::new(true, false);
        let mut state = state(size, polls);
        for (text, luck, ms) in runs {
            // The palette may have found the command to quit.
            if state.exit.is_some() {
                return Ok(());
            }
            let effects = type_keys(&mut state, &text);
            respond(&mut state, effects, luck);
            let now = state.now.saturating_add(Nanos::from_millis(ms));
            let effects = update(&mut state, Msg::Tick, now);
            respond(&mut state, effects, luck);
            crate::ui::tests::draw(&state, &theme, size);
            if let Some(row) = state.selected_row() {
                let pinned = state.table.pinned.as_ref();
                prop_assert!(pinned.is_none_or(|pinned| *pinned == row.id));
            }
        }
        if state.exit.is_some() {
            return Ok(());
        }
        for press in keys("<esc><esc><esc><esc>") {
            send(&mut state, Msg::Press(press));
        }
        prop_assert!(matches!(state.mode, Mode::Browse), "{:?}", state.mode);
        prop_assert_eq!(state.screen, Screen::Buckets);
    }
}
