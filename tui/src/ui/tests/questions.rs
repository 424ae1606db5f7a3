//! Questions can be read completely at every size, and are never covered by a message.

use super::*;
use crate::app::asking;
use crate::app::press::{Mouse, MouseAction};
use crate::app::targets::TargetSummary;

/// The smallest terminal.
const SMALL: (u16, u16) = (40, 10);

/// All questions, with the keys that open them.
const QUESTIONS: [&str; 6] = [
    "a",
    "R",
    "b10m<tab>spam<ret>",
    "o<right><right><tab><tab>30m<ret>",
    "e250<s-tab>launch<ret>",
    "e250<s-tab>launch<ret><ret>",
];

/// Returns a question. The key `a` needs an Envoy that restarted.
fn asked(size: (u16, u16), keys: &str) -> State {
    let mut state = if keys == "a" {
        crate::app::tests::again::restarted(size)
    } else {
        state(size, 20)
    };
    type_keys(&mut state, keys);
    assert!(asking::is_open(&state.mode), "{keys}");
    state
}

/// Returns the text inside the frame of the screen.
fn shown(state: &State, size: (u16, u16)) -> String {
    let text = text(state, size);
    let lines = text.lines().filter_map(|line| line.split('│').nth(1));
    lines.map(str::trim).collect::<Vec<_>>().join(" ")
}

/// Returns everything that can be read by scrolling down.
fn read_through(state: &mut State, size: (u16, u16)) -> String {
    let mut read = shown(state, size);
    for _ in 0..40 {
        let before = text(state, size);
        type_keys(state, "<down>");
        if text(state, size) == before {
            break;
        }
        read.push(' ');
        read.push_str(&shown(state, size));
    }
    read
}

#[test]
fn the_whole_question_can_be_read_on_the_smallest_terminal() {
    for (keys, words) in [
        ("a", &["Apply", "again?", "mallory,", "left"][..]),
        (
            "b10m<tab>spam<ret>",
            &["Ban", "spam", "loudou ban", "--reason"],
        ),
        (
            "e250<s-tab>launch<ret>",
            &[
                "15 → 250",
                "buckets keep the units that are used",
                "reason: launch",
                "--reason launch",
            ],
        ),
    ] {
        let mut state = asked(SMALL, keys);
        let first = shown(&state, SMALL);
        let read = read_through(&mut state, SMALL);
        for word in words {
            assert!(read.contains(word), "{keys}: {word}: {read}");
        }
        // Scrolls up with other keys, and down with the wheel.
        type_keys(&mut state, "g");
        assert_eq!(shown(&state, SMALL), first);
        let wheel = Mouse {
            action: MouseAction::WheelDown,
            x: 5,
            y: 5,
            spot: None,
        };
        let now = state.now;
        update(&mut state, Msg::Mouse(wheel), now);
        assert_ne!(shown(&state, SMALL), first, "{keys}");
    }
}

/// The answers are always visible, even if there are several Envoys and some are marked.
#[test]
fn the_answers_stay_below_the_text() {
    for marked in [false, true] {
        let mut state = asked(SMALL, "b10m<tab>spam<ret>");
        state.targets = vec![TargetSummary::default(); 12];
        state.targets[3].is_marked = marked;
        state.targets[4].is_marked = marked;
        for _ in 0..12 {
            let text = text(&state, SMALL);
            let all = if marked {
                "a yes, at the 2 marked (not here)"
            } else {
                "a yes, at all 12"
            };
            for answer in ["Enter yes", all, "Esc no"] {
                assert!(text.contains(answer), "{answer}: {text}");
            }
            type_keys(&mut state, "j");
        }
    }
}

/// Scrolling neither answers nor closes a question.
#[test]
fn motions_are_no_answers() {
    for keys in QUESTIONS {
        let mut state = asked(SMALL, keys);
        for motion in [
            "j", "k", "<pgdn>", "<pgup>", "<C-d>", "<C-u>", "G", "g", "<up>",
        ] {
            assert!(type_keys(&mut state, motion).is_empty(), "{keys}: {motion}");
            assert!(asking::is_open(&state.mode), "{keys}: {motion}");
        }
    }
}

/// If there is no room beside a question, a message waits until the question is answered.
#[test]
fn a_message_waits_for_the_answer() {
    let mut state = asked(SMALL, "R");
    state.toast(true, "Envoy restarted");
    let shows = |state: &State| text(state, SMALL).contains("Envoy restarted");
    assert!(!shows(&state));
    let now = state.now.saturating_add(Nanos::from_secs(60));
    update(&mut state, Msg::Tick, now);
    type_keys(&mut state, "n");
    assert!(shows(&state));
    let now = state.now.saturating_add(Nanos::from_secs(4));
    update(&mut state, Msg::Tick, now);
    assert!(!shows(&state));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Messages change neither the text of a question nor its answers.
    #[test]
    fn a_message_never_covers_a_question(
        size in (40_u16..130, 10_u16..50),
        keys in prop::sample::select(QUESTIONS.to_vec()),
        messages in 1_usize..4,
    ) {
        let mut state = asked(size, keys);
        state.toasts.clear();
        let theme = Theme::new(false, false);
        let before = draw(&state, &theme, size);
        for number in 0..messages {
            state.toast(true, format!("message {number} {}", "of many words ".repeat(12)));
        }
        let after = draw(&state, &theme, size);
        let place = question_place(&before);
        for position in place.positions() {
            let cells = [&before, &after].map(|terminal| terminal.backend().buffer()[position].clone());
            prop_assert_eq!(&cells[0], &cells[1], "at {}", position);
        }
    }
}

/// Returns the box of the question, found by its corners.
fn question_place(terminal: &Terminal<TestBackend>) -> ratatui::layout::Rect {
    let buffer = terminal.backend().buffer();
    let find = |corner: &str| {
        let mut all = buffer.area.positions();
        all.find(|at| buffer[*at].symbol() == corner)
            .expect("a corner")
    };
    let (begin, end) = (find("╭"), find("╯"));
    ratatui::layout::Rect::new(begin.x, begin.y, end.x - begin.x + 1, end.y - begin.y + 1)
}
