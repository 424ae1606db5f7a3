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

use loudou_words::num::cells;
use ratatui::Frame;
use ratatui::layout::Rect;

use crate::app::command::Binding;
use crate::app::layout::{FOOT, HEAD, LEAST};
use crate::app::state::{Mode, State};
use crate::app::{asking, keys, screens};
use crate::draw::panel;
use crate::draw::pen::Pen;
use crate::draw::spots::Spots;
use crate::draw::words::{width, wrap};

pub(crate) use crate::draw::theme::Theme;

mod event;
mod explain;
mod form;
mod frame;
mod of_key;
mod palette;
mod question;
mod totals;

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
    draw_toasts(
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
        Mode::Help(top) => draw_help(pen, state, *top),
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

// The keys of this screen with their descriptions, from the key table.

/// Draws the keys of the screen under the help.
fn draw_help(pen: &mut Pen<'_>, state: &State, top: usize) {
    let theme = pen.theme;
    let place = state.screen.place();
    let here = keys::all().filter(|b| b.places & place != 0 && keys::is_listed(state, b));
    let here: Vec<&Binding> = here.collect();
    let title = format!("keys on {}", screens::shown(state).about().title);
    let height = cells(here.len()).saturating_add(2);
    let width = pen.width().saturating_sub(2).min(70);
    let mut pen = panel::open(pen, &title, width, height);
    let last = here.len().saturating_sub(usize::from(pen.height()));
    for (binding, y) in here.iter().skip(top.min(last)).zip(0..pen.height()) {
        let obstacle = keys::obstacle(state, binding.command);
        let names: Vec<String> = binding.keys.iter().map(ToString::to_string).collect();
        let (key, style) = match obstacle {
            None => (theme.key, theme.plain),
            Some(_) => (theme.dim, theme.dim),
        };
        pen.within(1, y, 11, &names.join(" "), key);
        let x = pen.text(13, y, binding.help, style);
        if let Some(why) = obstacle {
            pen.text(x.saturating_add(1), y, &format!("({why})"), theme.dim);
        }
    }
}

// Messages that disappear after a few seconds, at the bottom right of the body.

/// The most lines of one message.
const MOST_LINES: usize = 4;

/// Draws the messages, the newest at the bottom.
fn draw_toasts(pen: &mut Pen<'_>, state: &State) {
    let theme = pen.theme;
    let most = pen.width().saturating_sub(6).min(72);
    let mut bottom = pen.height();
    for toast in state.toasts.iter().rev() {
        let mut lines = wrap(&toast.text, most);
        lines.truncate(MOST_LINES);
        let style = if toast.is_bad { theme.bad } else { theme.good };
        let mark = if toast.is_bad {
            theme.pick('✖', 'x')
        } else {
            theme.pick('✔', '>')
        };
        let wide = lines
            .iter()
            .map(|line| width(line))
            .max()
            .unwrap_or(0)
            .saturating_add(4);
        let high = cells(lines.len());
        let Some(top) = bottom.checked_sub(high) else {
            return;
        };
        let x = pen.width().saturating_sub(wide);
        let mut part = pen.part(x, top, wide, high);
        part.clear();
        part.cell(1, 0, mark, style);
        for (line, y) in lines.iter().zip(0..) {
            part.text(3, y, line, style);
        }
        bottom = top;
    }
}
