//! Drawing: from state to frame, without any clock or I/O. Sizes of zero and up are fine.
//!
//! ```text
//!  loudou  1 Buckets  3 Rules  5 Events            ● connected http://…   header
//!  admitted 96/s  refused 12/s  generation 7  store 812/4096
//!  rule          key        level   left/of  …                            body
//!  reply-per-u…  mallory    ██████     0/15  …
//!  12 of 340 buckets · filter: refused > 5                                status
//!  Enter open  e edit  / filter  s sort  …                                footer
//! ```

use ratatui::Frame;
use ratatui::layout::Rect;

use crate::app::asking;
use crate::app::layout::{FOOT, HEAD, LEAST};
use crate::app::screens;
use crate::app::state::{Mode, State};
use crate::draw::pen::Pen;
use crate::draw::spots::Spots;

mod event;
mod explain;
mod form;
mod frame;
mod help;
mod of_key;
mod palette;
mod question;
mod toast;
mod totals;

pub(crate) use crate::draw::theme::Theme;

/// Draws everything, and notes in `spots` where clicks act.
pub(crate) fn view(state: &State, theme: &Theme, frame: &mut Frame<'_>, spots: &mut Spots) {
    let area = frame.area();
    spots.cover();
    let mut pen = Pen::new(frame.buffer_mut(), spots, area, theme);
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let text = format!("terminal too small (need {}x{})", LEAST.0, LEAST.1);
        pen.text(0, 0, &text, theme.plain);
        return;
    }
    frame::header(&mut pen.part(0, 0, area.width, HEAD), state);
    let height = area.height.saturating_sub(HEAD.saturating_add(FOOT));
    body(&mut pen.part(0, HEAD, area.width, height), state);
    let foot = HEAD.saturating_add(height);
    frame::status(&mut pen.part(0, foot, area.width, 1), state);
    if !matches!(state.mode, Mode::Browse) {
        pen.cover_spots();
    }
    frame::footer(
        &mut pen.part(0, foot.saturating_add(1), area.width, 1),
        state,
    );
    let covered = overlay(
        &mut pen.part(0, 1, area.width, height.saturating_add(HEAD)),
        state,
    );
    // Messages never cover a question, whose answers do what is written above them, nor the commands of the palette.
    let top = covered.map_or(HEAD, |place| place.bottom().clamp(HEAD, foot));
    toast::draw(
        &mut pen.part(0, top, area.width, foot.saturating_sub(top)),
        state,
    );
}

fn body(pen: &mut Pen<'_>, state: &State) {
    if state.data.is_none() {
        frame::waiting(pen, state);
        return;
    }
    screens::shown(state).draw(pen, state);
    if state.is_stale() {
        pen.dim_all();
    }
}

/// Draws what is open over the screen. Returns its place if messages must not cover it.
fn overlay(pen: &mut Pen<'_>, state: &State) -> Option<Rect> {
    if let Some(sheet) = asking::sheet(state) {
        return Some(question::draw(pen, &sheet));
    }
    match &state.mode {
        // Questions are drawn above.
        Mode::Browse | Mode::Filter(..) | Mode::Confirm(_) => {}
        Mode::Sort(at) => palette::sort_menu(pen, state, *at),
        Mode::Help(top) => help::draw(pen, state, *top),
        Mode::Palette(line, at) => return Some(palette::draw(pen, state, line, *at)),
        Mode::Edit(form) => form::draw(pen, state, form),
        Mode::OfKey(form) => of_key::draw(pen, form, state.settings.named_url()),
        Mode::Explain(explain) => explain::draw(pen, state, explain),
        Mode::Event(event) => event::draw(pen, state, event),
    }
    None
}

#[cfg(test)]
pub(crate) mod tests;
