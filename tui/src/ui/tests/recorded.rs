//! The screens of a recording: a minute of `cargo xtask demo`, recorded with `loudou record`. The pictures of the
//! documents are drawn from it, too.

use std::io::Cursor;

use super::*;
use crate::app::play::{Control, Play};
use crate::app::state::{RECORDED, Settings};
use crate::tape::{End, Ending, Tape};

const DEMO: &[u8] = include_bytes!("demo.jsonl.gz");

/// A screen that has shown the whole recording, and how that is played.
fn played(size: (u16, u16)) -> (State, Play) {
    let mut tape = Tape::open(Box::new(Cursor::new(DEMO))).expect("a recording");
    assert_eq!(tape.ending, Ending::Said(End::Done));
    let settings = Settings {
        url: tape.head.urls[0].clone(),
        read_only: false,
        interval: Nanos::new(tape.head.interval_ns),
        ..Settings::default()
    };
    let mut state = State::new(settings, size);
    let marks = tape.marks.clone();
    for mark in &marks {
        let snapshot = tape.read(mark).expect("a line").expect("an answer");
        let at = Nanos::new(mark.stamp.at_ns);
        update(&mut state, Msg::Polled(Ok(snapshot)), at);
    }
    let at = |mark: &crate::tape::Mark| Nanos::new(mark.stamp.at_ns);
    let (first, last) = (&marks[0], &marks[marks.len() - 1]);
    let mut play = Play::new(at(first), at(last), first.stamp.unix_ms, state.now);
    for _ in 0..2 {
        play.control(Control::Ahead(60), state.now);
    }
    (state, play)
}

/// The same as if it were live.
fn live(size: (u16, u16)) -> State {
    played(size).0
}

#[test]
fn a_recording_on_the_screen() {
    for (name, keys) in [
        ("buckets", ""),
        ("bucket", "<ret>"),
        ("rules", "3+"),
        ("help", "?"),
    ] {
        for size in SIZES {
            let (mut state, mut play) = played(size);
            play.control(Control::Pause, state.now);
            state.play = Some(play);
            type_keys(&mut state, keys);
            let terminal = draw(&state, &Theme::new(false, false), size);
            let (columns, rows) = size;
            insta::assert_snapshot!(format!("{name}_{columns}x{rows}"), terminal.backend());
        }
    }
}

/// The pictures of the documents, with their colours.
#[test]
fn pictures() {
    let size = (80, 24);
    for (name, keys) in [("buckets", "j"), ("bucket", "<ret>"), ("rules", "3")] {
        let mut state = live(size);
        type_keys(&mut state, keys);
        let terminal = draw(&state, &Theme::new(true, false), size);
        insta::assert_snapshot!(format!("{name}_styles"), styles(&terminal));
    }
}

#[test]
fn the_end_of_a_recording_says_why() {
    let size = (80, 24);
    let (mut state, mut play) = played(size);
    play.ended("line 12 is damaged: no\u{1b}thing".to_owned(), state.now);
    state.play = Some(play);
    let text = text(&state, size);
    assert!(
        text.contains("recording ends: line 12 is damaged: no\\u{1b}thing"),
        "{text}"
    );
    assert!(text.contains("■ 18:"), "{text}");
}

/// What would need an Envoy is refused with a word, and the rest of the keys do what they do live.
#[test]
fn a_recording_cannot_be_changed() {
    let size = (120, 40);
    for keys in [
        "b", "o", "R", "e", "u", "a", "r", "x", "<ret>b", "<ret>e", "3e", "3x", "6r",
    ] {
        let (mut state, play) = played(size);
        state.play = Some(play);
        let effects = type_keys(&mut state, keys);
        assert!(effects.is_empty(), "{keys}: {effects:?}");
        let text = text(&state, size);
        assert!(text.contains(RECORDED), "{keys}: {text}");
    }
    let (mut state, play) = played(size);
    state.play = Some(play);
    for (keys, control) in [
        (" ", Control::Pause),
        ("<left>", Control::Back(10)),
        ("<right>", Control::Ahead(10)),
        ("{", Control::Back(60)),
        ("}", Control::Ahead(60)),
        ("[", Control::Slower),
        ("3]", Control::Faster),
    ] {
        let effects = type_keys(&mut state, keys);
        let asked = effects.iter().map(|effect| match effect {
            Effect::Play(control) => Some(*control),
            _ => None,
        });
        assert_eq!(asked.collect::<Vec<_>>(), [Some(control)], "{keys}");
    }
    assert!(state.frozen.is_none());
    // Live, the same keys say what they are for.
    let mut state = live(size);
    assert!(type_keys(&mut state, "<left>").is_empty());
    assert!(text(&state, size).contains("no recording is played"));
    assert!(!text(&state, size).contains("Left back"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Any keys, any way of playing, back and forth in time: nothing panics, and nothing is asked of an Envoy.
    #[test]
    fn nothing_panics_while_a_recording_is_played(
        steps in prop::collection::vec((any::<prop::sample::Index>(), 0_u64..90, any::<bool>()), 1..30),
        size in (0_u16..130, 0_u16..50),
    ) {
        const KEYS: [&str; 16] = [
            " ", "<left>", "<right>", "[", "]", "{", "}", "<ret>", "<esc>", "3+", "-", "5", "6", "ex", "bo", ":back<ret>",
        ];
        let second = Nanos::from_secs;
        let mut play = Play::new(second(0), second(90), 0, second(0));
        let mut state = state(size, 5);
        for (key, at, goes_back) in steps {
            state.play = Some(play.clone());
            for effect in type_keys(&mut state, KEYS[key.index(KEYS.len())]) {
                match effect {
                    Effect::Play(control) => play.control(control, second(at)),
                    other => prop_assert!(false, "{other:?}"),
                }
            }
            let msg = if goes_back {
                Msg::Rewind
            } else {
                Msg::Polled(Ok(Box::new(crate::app::fixture::snapshot(at))))
            };
            let effects = update(&mut state, msg, second(at));
            prop_assert!(effects.is_empty(), "{effects:?}");
            draw(&state, &Theme::new(true, false), size);
        }
    }
}
