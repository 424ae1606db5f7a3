//! Draws the screens into a buffer and compares them with the reviewed snapshots: each state at the
//! usual size, and each screen on a small and on a large terminal, too.

use std::fmt::Write as _;

use loudou_api::{LimitView, RuleView, UpstreamView};
use loudou_limiter::Nanos;
use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::json;

mod bans;
mod charts;
pub(crate) mod drawn;
mod envoy;
mod glance;
mod head;
mod leases;
mod levels;
pub(crate) mod look;
mod more;
mod overlays;
mod questions;

pub(crate) use drawn::{draw, draw_with_spots, text};

use super::Theme;
use crate::app::effects::Effect;
use crate::app::fixture::{banned, explained, feed, rules, state, type_keys};
use crate::app::msg::{Failure, Msg};
use crate::app::state::State;
use crate::app::targets::TargetSummary;
use crate::app::update::update;

/// Usual size of a terminal.
const USUAL: (u16, u16) = (80, 24);

/// Compares the frame of a state, drawn without colours, with its snapshot.
fn compare(name: &str, state: &State, size: (u16, u16)) {
    let terminal = draw(state, &Theme::new(false, false), size);
    insta::assert_snapshot!(format!("{name}_{}x{}", size.0, size.1), terminal.backend());
}

/// Compares the screen after `keys` were typed.
fn screen(name: &str, keys: &str, more: impl Fn(&mut State)) {
    let mut state = state(USUAL, 20);
    type_keys(&mut state, keys);
    more(&mut state);
    compare(name, &state, USUAL);
}

/// Like [`screen`], but on a small, a usual, a large and a very wide terminal.
fn at_all_sizes(name: &str, keys: &str) {
    for size in [(40, 10), USUAL, (140, 40), (220, 60)] {
        let mut state = state(size, 20);
        type_keys(&mut state, keys);
        compare(name, &state, size);
    }
}

/// Returns the colours of a screen: for each line, the runs of equal style.
fn styles(terminal: &Terminal<TestBackend>) -> String {
    let buffer = terminal.backend().buffer();
    let mut out = String::new();
    for y in 0..buffer.area.height {
        let mut last = None;
        for x in 0..buffer.area.width {
            let cell = &buffer[(x, y)];
            let style = (cell.fg, cell.bg, cell.modifier);
            if last != Some(style) {
                last = Some(style);
                let (fg, bg, modifier) = style;
                let modifier: Vec<_> = modifier.iter_names().map(|(name, _)| name).collect();
                let modifier = modifier.join("+");
                write!(out, "\n{y}:{x} {fg} on {bg} {modifier} ").expect("a string");
            }
            out.push_str(cell.symbol());
        }
    }
    out
}

#[test]
fn buckets() {
    at_all_sizes("buckets", "");
}

/// A bucket with limits whose level does not drain steadily, or that hold requests.
#[test]
fn bucket_of_other_limits() {
    let limit = |name: &str, algorithm: &str, rate: &str, used: u64, reset_s: u64| LimitView {
        name: name.to_owned(),
        algorithm: algorithm.to_owned(),
        capacity: 10,
        rate: rate.to_owned(),
        used,
        remaining: 10_u64.saturating_sub(used),
        reset_after_ns: reset_s * 1_000_000_000,
        drain_ns: 60_000_000_000,
        drains: algorithm == "leaky_queue",
        ..LimitView::default()
    };
    let limits = [
        limit("slots", "concurrency", "", 7, 420),
        limit("minute", "fixed_window", "10/m", 4, 48),
        limit("queue", "leaky_queue", "10/m", 12, 72),
    ];
    screen("bucket_other", "<ret>", |state| {
        let rows = state.data.as_mut().map(|data| &mut data.rows);
        for row in rows.into_iter().flatten() {
            row.view.limits = limits.to_vec();
            row.view.reported = 0;
        }
    });
}

#[test]
fn buckets_filtered_and_frozen() {
    screen("filter", "/refused > 5 and rule = reply-per-user", |_| {});
    screen("frozen", "/key<ret> j", |_| {});
}

#[test]
fn bucket() {
    at_all_sizes("bucket", "<ret>");
    screen("bucket_calm", "/alice<ret><ret>j", |state| {
        update(state, Msg::Tick, Nanos::from_millis(19_700));
    });
}

/// Envoy restarted and lost its bans, edits and overrides.
#[test]
fn restarted() {
    for (name, keys) in [("restarted", ""), ("restarted_question", "a")] {
        let mut state = crate::app::tests::again::restarted(USUAL);
        type_keys(&mut state, keys);
        compare(name, &state, USUAL);
    }
}

/// The pictures in the documents, with their colours. `cargo xtask pictures` draws them from these
/// snapshots.
#[test]
fn pictures() {
    let size = (80, 24);
    for (name, keys) in [("buckets", "j"), ("bucket", "<ret>"), ("rules", "3")] {
        let mut state = state(size, 60);
        type_keys(&mut state, keys);
        let terminal = draw(&state, &Theme::new(true, false), size);
        insta::assert_snapshot!(format!("picture_{name}"), styles(&terminal));
    }
}

#[test]
fn rules_and_events() {
    at_all_sizes("rules", "3j");
    at_all_sizes("events", "5");
    at_all_sizes("envoy", "6");
}

/// Compares the screen of a server with bans, overrides and a rule to compare.
fn banned_screen(name: &str, keys: &str) {
    let mut state = banned(USUAL, 20);
    type_keys(&mut state, keys);
    compare(name, &state, USUAL);
}

#[test]
fn bans_and_overrides() {
    banned_screen("banned_buckets", "/mallory<ret>");
    banned_screen("banned_bucket", "/mallory<ret><ret>");
    banned_screen("banned_rules", "3");
    banned_screen("unban", "/mallory<ret>b");
    screen("ban", "b", |_| {});
    screen("ban_problem", "bsoon", |_| {});
    screen("ban_confirm", "b10m<tab>spam<ret>", |_| {});
    screen("override", "o", |_| {});
    screen("override_problem", "o<tab>0", |_| {});
    screen(
        "override_confirm",
        "o<right><right><tab><tab>30m<ret>",
        |_| {},
    );
}

/// A ban counts down between polls.
#[test]
fn a_ban_counts_down() {
    let size = (120, 40);
    let mut state = banned(size, 20);
    type_keys(&mut state, "/mallory<ret><ret>");
    let text = |state: &State| {
        draw(state, &Theme::new(false, false), size)
            .backend()
            .to_string()
    };
    let before = text(&state);
    assert!(
        before.contains("banned by the rule's penalty for 3m50s more"),
        "{before}"
    );
    let now = state.now.saturating_add(Nanos::from_secs(2));
    update(&mut state, Msg::Tick, now);
    let after = text(&state);
    assert!(after.contains("for 3m48s more"), "{after}");
}

/// The Bucket screen shows since when its key is refused, and the age grows with time.
#[test]
fn a_run_of_refusals_has_a_beginning() {
    let size = (120, 40);
    let mut state = state(size, 3);
    type_keys(&mut state, "/mallory<ret><ret>");
    assert!(text(&state, size).contains("refused since 12m"));
    let now_ns = state.server_ns();
    let rows = state.data.as_mut().map(|data| &mut data.rows);
    for row in rows.into_iter().flatten() {
        row.view.refused_since_ns = Some(now_ns - 90_000_000_000);
        row.view.refused_at_ns = Some(now_ns - 2_000_000_000);
    }
    let before = text(&state, size);
    let line = "refused since 1m30s ago, last 2s ago";
    assert!(before.contains(line), "{before}");
    let now = state.now.saturating_add(Nanos::from_secs(2));
    update(&mut state, Msg::Tick, now);
    let after = text(&state, size);
    let line = "refused since 1m32s ago, last 4s ago";
    assert!(after.contains(line), "{after}");
}

/// A rule with `when` shows if it applies, in its line and, with numbers, below.
#[test]
fn rules_that_do_not_always_apply() {
    let shown = |applies: bool, upstreams: usize| {
        let size = (120, 40);
        let mut state = state(size, 3);
        type_keys(&mut state, "3");
        let data = state.data.as_mut().expect("data");
        let now = data.status.now_ns;
        let view = |n: usize| UpstreamView {
            cluster: format!("c{n}"),
            responses: 40,
            errors: 12,
            applies,
            since_ns: now - 5_000_000_000,
        };
        data.status.rules[0].upstreams = Some((0..upstreams).map(view).collect());
        let terminal = draw(&state, &Theme::new(true, false), size);
        terminal.backend().to_string()
    };
    let text = shown(true, 9);
    assert!(text.contains("active  burst"), "{text}");
    assert!(
        text.contains("applies to upstream c2 for 5s now; errors: 12 of 40 responses (30 %)"),
        "{text}"
    );
    assert!(!text.contains("upstream c3"), "{text}");
    let text = shown(false, 1);
    assert!(
        text.contains("inactive  burst") && text.contains("does not apply to upstream c0"),
        "{text}"
    );
    assert!(shown(false, 0).contains("no upstream has answered yet"));
}

#[test]
fn form() {
    screen("form", "e", |_| {});
    screen("form_problem", "e0<tab>fast", |_| {});
    screen("form_confirm", "e250<s-tab>launch<ret>", |_| {});
}

#[test]
fn form_conflict() {
    let theirs = || {
        let mut theirs: RuleView = rules()[0].clone();
        theirs.generation = 9;
        theirs.rule["limits"][0]["capacity"] = json!(40);
        theirs
    };
    screen("form_conflict", "e250<ret>", |state| {
        let now = state.now;
        for effect in type_keys(state, "<ret>") {
            let Effect::Change(sending) = effect else {
                continue;
            };
            let failure = Failure {
                problem: Some(Box::new(loudou_api::ProblemAnswer {
                    current: Some(theirs()),
                    ..loudou_api::ProblemAnswer::default()
                })),
                ..Failure::default()
            };
            update(state, Msg::Changed(sending, Err(failure)), now);
        }
    });
}

#[test]
fn overlays() {
    screen("help", "?", |_| {});
    screen("palette", ":so", |_| {});
    screen("sort", "s", |_| {});
    screen("reset", "R", |_| {});
}

#[test]
fn toasts() {
    screen("toast", "u", |_| {});
}

#[test]
fn connecting_and_lost() {
    let failure = |text: &str| Failure {
        text: text.to_owned(),
        ..Failure::default()
    };
    let mut state = state(USUAL, 0);
    compare("connecting", &state, USUAL);
    let refused = failure("cannot reach http://127.0.0.1:9911: refused; is Envoy running?");
    update(
        &mut state,
        Msg::Polled(Err(refused)),
        Nanos::from_millis(100),
    );
    compare("unreachable", &state, USUAL);
    feed(&mut state, 1);
    update(&mut state, Msg::Tick, Nanos::from_secs(2));
    let gone = failure("cannot reach http://127.0.0.1:9911: reset by peer");
    update(&mut state, Msg::Polled(Err(gone)), Nanos::from_secs(9));
    compare("stale", &state, USUAL);
}

#[test]
fn ascii_stays_ascii() {
    let size = (80, 24);
    let theme = Theme::new(false, true);
    for keys in [
        "", "<ret>", "3", "5", "?", ":", "s", "R", "x", "e", "e9<ret>", "/x", " ", "b", "o",
        "b5m<ret>",
    ] {
        let mut state = banned(size, 20);
        // Texts of the server may contain other characters than ASCII.
        if let Some(data) = &mut state.data {
            data.events.clear();
        }
        type_keys(&mut state, keys);
        let terminal = draw(&state, &theme, size);
        let text = terminal.backend().to_string();
        assert!(text.is_ascii(), "{keys}: {text}");
    }
    let mut state = state(size, 20);
    type_keys(&mut state, "<ret>");
    insta::assert_snapshot!(draw(&state, &theme, size).backend(), @r#"
    " loudou   1 Buckets   2 Bucket   3 Rules   5 Events   6 Envoy  * 127.0.0.1:9911 "
    " admitted 99/s   refused 12/s   would refuse 1.0/s   ! 2 warnings on 6          "
    " reply-per-user > mallory  x refusing  retry after 1.4s  seen now               "
    "   admitted 1.0/s   refused 16/s    > burst funnel retry after 1.4s             "
    "                    o                 ###################= 98%  empty in 30s    "
    "   ___       o                 _x_    capacity 15  remaining 0  rate 30/m       "
    "  x   \=======#=========#=====/ 15                                              "
    "       \#####################/        daily token_bucket                        "
    "        \###################/    x    # ........... 9% used, all free in 2h10m  "
    "    x    \#################/          capacity 1000  remaining 910  rate 1000/d "
    "          \###############/                                                     "
    "           \#### 98% ####/     x    total: admitted 119, refused 300            "
    "            \###########/           asks 17/s, limit 0.5/s: 1000/m would        "
    "      x      \#########/            suffice (x34)                               "
    "              \#######/      x      refused since 12m ago, last just now        "
    "               \#####/              POST requests to /reply and below; key      "
    "        x       \###/               header x-user-id                            "
    "                 | |                rule: as configured                         "
    "                 |o|                                                            "
    "                  o                                                             "
    "             leaks 30/m                                                         "
    "                                                                                "
    "                                                                                "
    " Esc back  b ban  o override  e edit  M mode  x explain  u undo  ? help  q quit "
    "#);
}

#[test]
fn colours() {
    let size = (80, 24);
    let mut state = state(size, 20);
    type_keys(&mut state, "e0");
    let terminal = draw(&state, &Theme::new(true, false), size);
    insta::assert_snapshot!("form_styles", styles(&terminal));
}

#[test]
fn without_colour_the_selection_is_reversed_and_there_are_no_colours() {
    let size = (80, 24);
    let terminal = draw(&state(size, 20), &Theme::new(false, false), size);
    let buffer = terminal.backend().buffer();
    let reversed = |y| {
        buffer[(12, y)]
            .modifier
            .contains(ratatui::style::Modifier::REVERSED)
    };
    assert!(reversed(3) && !reversed(4));
    let plain = ratatui::style::Color::Reset;
    assert!(
        buffer
            .content
            .iter()
            .all(|cell| cell.fg == plain && cell.bg == plain)
    );
}

#[test]
fn hostile_keys_are_spelled_out() {
    for (keys, shown) in [
        ("/evil<ret>", "dave\\u{1b}[31m\\u{20"),
        ("/evil<ret><ret>", "dave\\u{1b}[31m\\u{202e}evil"),
        ("/evil<ret>b", "dave\\u{1b}[31m\\u{202e}evil"),
        ("/evil<ret>o", "dave\\u{1b}[31m\\u{202e}evil"),
        ("/evil<ret>b<ret>", "dave\\u{1b}[31m\\u{202e}evil"),
        ("/evil<ret>x", "dave\\u{1b}[31m\\u{202e}evil"),
    ] {
        let size = (120, 40);
        let mut state = state(size, 3);
        type_keys(&mut state, keys);
        let text = draw(&state, &Theme::new(true, false), size)
            .backend()
            .to_string();
        assert!(text.contains(shown), "{text}");
        assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'));
    }
}

#[test]
fn a_small_terminal_gets_a_message() {
    for size in [(39, 10), (40, 9), (30, 1)] {
        let text = draw(&state(size, 3), &Theme::new(true, false), size)
            .backend()
            .to_string();
        assert!(text.contains("terminal too small (need 4"), "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn no_size_panics(
        size in (0_u16..200, 0_u16..70),
        keys in prop::sample::select(vec![
            "", "<ret>", "3", "5", "5<ret>", "6", "6G", "7", "?", ":", "s", "C", "R", "x", "x<ret>", "e", "e0", "e9<ret>",
            "/x", " ", "u", "b", "b<ret>", "o", "bx", "o<tab>0",
        ]),
        polls in 0_u64..4,
        ascii in any::<bool>(),
    ) {
        let mut state = state(size, polls);
        state.targets = vec![TargetSummary::default(); 2];
        type_keys(&mut state, keys);
        // An answer without a question is ignored.
        let answer = Msg::Explained(Ok(Box::new(explained())));
        let now = state.now;
        update(&mut state, answer, now);
        draw(&state, &Theme::new(!ascii, ascii), size);
    }
}
