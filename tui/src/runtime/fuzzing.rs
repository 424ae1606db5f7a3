//! Recordings without a terminal, for `cargo xtask fuzz`.

use std::io::Cursor;

use loudou_limiter::Nanos;
use ratatui::backend::TestBackend;

use super::player::at;
use crate::app::history::Scale;
use crate::app::keymap::Keymap;
use crate::app::msg::{Failure, Msg};
use crate::app::play::Play;
use crate::app::screen::Screen;
use crate::app::state::{Settings, State};
use crate::app::update::update;
use crate::draw::spots::Spots;
use crate::draw::theme::Look;
use crate::draw::theme::color::Depth;
use crate::tape::{Bad, Tape};
use crate::ui::{Theme, view};

/// The most answers that are played.
const MOST: usize = 50;
const SIZE: (u16, u16) = (120, 40);

/// Plays the beginning of a recording. Returns what all screens show then, or what is wrong with it.
pub fn played(bytes: &[u8]) -> String {
    played_or_bad(bytes).unwrap_or_else(|bad| bad.to_string())
}

fn played_or_bad(bytes: &[u8]) -> Result<String, Bad> {
    let mut tape = Tape::open(Box::new(Cursor::new(bytes.to_vec())))?;
    let marks = tape.marks.clone();
    let first = marks.first().map(|mark| (at(mark), mark.stamp.unix_ms));
    let (begin, unix_ms) = first.unwrap_or_default();
    let last = marks.last().map(at).unwrap_or_default();
    let mut state = State::new(
        Settings {
            url: tape.head.urls.concat(),
            is_usual: true,
            read_only: true,
            interval: Nanos::new(tape.head.interval_ns),
            keymap: Keymap::default(),
        },
        SIZE,
    );
    state.scale = Scale::Hour;
    state.play = Some(Play::new(begin, last, unix_ms, Nanos::ZERO));
    for mark in marks.iter().take(MOST) {
        let answer = tape.read(mark)?.map_err(|text| Failure {
            text,
            ..Failure::default()
        });
        drop(update(&mut state, Msg::Polled(answer), at(mark)));
    }
    let theme = Theme::of(&Look {
        depth: Depth::Indexed,
        ..Look::default()
    });
    let mut spots = Spots::default();
    let mut shown = String::new();
    state.open = state.selected_row().map(|row| row.id.clone());
    for screen in [
        Screen::Buckets,
        Screen::Bucket,
        Screen::Rules,
        Screen::Events,
        Screen::Envoy,
    ] {
        state.screen = screen;
        let backend = TestBackend::new(SIZE.0, SIZE.1);
        let Ok(mut terminal) = ratatui::Terminal::new(backend);
        let Ok(_) = terminal.draw(|frame| view(&state, &theme, frame, &mut spots));
        let cells = terminal.backend().buffer().content.iter();
        shown.extend(cells.map(ratatui::buffer::Cell::symbol));
    }
    Ok(shown)
}
