//! Random keys and answers while several Envoys are watched cause no panic, Esc leads home, and the
//! selection stays on its key, whichever Envoy is shown.

use loudou_limiter::Nanos;
use proptest::prelude::*;

use super::random::{answer, presses};
use super::several::watched_at;
use crate::app::effects::Effect;
use crate::app::msg::Msg;
use crate::app::press::keys;
use crate::app::screen::Screen;
use crate::app::state::Mode;
use crate::app::watched::Watched;

/// Keys for several Envoys, or arbitrary keys.
fn leading() -> impl Strategy<Value = String> {
    let known = [
        "t",
        "7",
        "8",
        "8j<ret>",
        "7jm",
        "7G<ret>",
        "1jb<ret>a",
        "1jo<ret>a",
        "1R",
        "<ret>a",
        "ua",
        "1e<tab><ret>a",
        "8/a<ret>",
        "8<C-d>",
        "<esc>",
        "a<ret>",
    ];
    let known = known.map(ToOwned::to_owned).to_vec();
    prop_oneof![3 => prop::sample::select(known), 1 => presses()]
}

/// Answers effects with each Envoy's `luck`. An answer may request more effects.
fn respond(watched: &mut Watched, mut effects: Vec<(usize, Effect)>, luck: u8, now: Nanos) {
    for _ in 0..3 {
        let mut more = Vec::new();
        for (number, effect) in effects {
            let own = luck.wrapping_add(u8::try_from(number).unwrap_or(0));
            more.extend(watched.update(Some(number), answer(effect, own), now));
        }
        effects = more;
    }
}

fn stays_on_its_key(watched: &Watched) -> bool {
    let shown = watched.shown();
    let (keys, table) = (&shown.keys, &shown.table);
    let own = shown.selected_row().map(|row| &row.id);
    let of_all = keys.selected().map(|key| &key.row.id);
    let is_it = |pinned: &Option<_>, selected: Option<_>| match (pinned, selected) {
        (Some(pinned), Some(selected)) => pinned == selected,
        _ => true,
    };
    is_it(&table.pinned, own) && is_it(&keys.table.pinned, of_all)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn no_keys_panic_over_several_envoys(
        runs in prop::collection::vec((leading(), any::<u8>(), 0_u64..5_000), 1..8),
        envoys in 1_u16..6,
        size in (0_u16..140, 0_u16..50),
    ) {
        let theme = crate::ui::Theme::new(true, false);
        let mut watched = watched_at(1..1 + envoys, size);
        let mut now = Nanos::ZERO;
        for (text, luck, ms) in runs {
            for press in keys(&text) {
                let effects = watched.update(None, Msg::Press(press), now);
                respond(&mut watched, effects, luck, now);
                prop_assert!(stays_on_its_key(&watched));
            }
            now = now.saturating_add(Nanos::from_millis(ms));
            let effects = watched.update(None, Msg::Tick, now);
            respond(&mut watched, effects, luck, now);
            prop_assert!(stays_on_its_key(&watched));
            crate::ui::tests::draw(watched.shown(), &theme, size);
            let _lines = watched.unfinished();
            if watched.exit().is_some() {
                return Ok(());
            }
        }
        for press in keys("<esc><esc><esc><esc><esc><esc>") {
            watched.update(None, Msg::Press(press), now);
        }
        let shown = watched.shown();
        prop_assert!(matches!(shown.mode, Mode::Browse), "{:?}", shown.mode);
        prop_assert_eq!(shown.screen, Screen::Buckets);
    }
}
