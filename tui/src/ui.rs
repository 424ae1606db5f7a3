//! Draws a frame from the state, without a clock or I/O. All terminal sizes are supported, even
//! zero.
//!
//! ```text
//!  loudou  1 Buckets  3 Rules  5 Events            ● connected http://…   header
//!  admitted 96/s  refused 12/s  generation 7  store 36 of 4096 buckets
//!  rule          key        level   left/of  …                            body
//!  reply-per-u…  mallory    ██████     0/15  …
//!  12 of 340 buckets · filter: refused > 5                                status
//!  Enter open  e edit  / filter  s sort  …                                footer
//! ```

use loudou_words::num::cells;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;
use ratatui::widgets::Clear;

use crate::app::layout::{FOOT, HEAD, LEAST};
use crate::app::state::{Mode, State};
use crate::app::{asking, screens};
use crate::draw::pen::{Pen, Spots};
use crate::draw::words::{text, width, wrap};

pub(crate) use crate::draw::theme::Theme;

mod explain;
mod form;
mod frame;
mod menus;
mod question;

/// Draws everything, and records the clickable places in `spots`.
pub(crate) fn view(state: &State, theme: &Theme, frame: &mut Frame<'_>, spots: &mut Spots) {
    spots.cover();
    let mut pen = Pen::new(frame.buffer_mut(), spots, theme);
    let area = pen.area;
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let words = format!("terminal too small (need {}x{})", LEAST.0, LEAST.1);
        return pen.line(area, text(&words, theme.plain));
    }
    let [head, body, foot] = Layout::vertical([
        Constraint::Length(HEAD),
        Constraint::Fill(1),
        Constraint::Length(FOOT),
    ])
    .areas(area);
    let [status, footer] =
        Layout::vertical([Constraint::Length(1), Constraint::Length(1)]).areas(foot);
    frame::header(&mut pen.part(head), state);
    draw_body(&mut pen.part(body), state);
    frame::status(&mut pen.part(status), state);
    if !matches!(state.mode, Mode::Browse) {
        pen.cover_spots();
    }
    frame::footer(&mut pen.part(footer), state);
    let over = Rect {
        y: 1,
        height: area.height.saturating_sub(FOOT),
        ..area
    };
    let covered = overlay(&mut pen.part(over), state);
    // Messages must not cover the commands of the palette, or a question, which the user would then
    // answer without reading it.
    let top = covered.map_or(body.y, |place| place.bottom().clamp(body.y, body.bottom()));
    let left = Rect {
        y: top,
        height: body.bottom().saturating_sub(top),
        ..body
    };
    draw_toasts(&mut pen.part(left), state);
}

fn draw_body(pen: &mut Pen<'_>, state: &State) {
    if state.data.is_none() {
        return frame::waiting(pen, state);
    }
    screens::shown(state).draw(pen, state);
    if state.is_stale() {
        // The data on screen is outdated.
        pen.style(pen.area, pen.theme.stale);
    }
}

/// Draws the dialog over the screen, if one is open. Returns the area of the dialog if messages
/// must not cover it.
fn overlay(pen: &mut Pen<'_>, state: &State) -> Option<Rect> {
    if let Some(sheet) = asking::sheet(state) {
        return Some(question::draw(pen, &sheet));
    }
    match &state.mode {
        // Questions have been drawn above.
        Mode::Browse | Mode::Filter(..) | Mode::Confirm(_) => {}
        Mode::Sort(at) => menus::sort(pen, state, *at),
        Mode::Help(top) => menus::help(pen, state, *top),
        Mode::Palette(field, at) => return Some(menus::palette(pen, state, field, *at)),
        Mode::Edit(form) => form::draw(pen, state, form),
        Mode::OfKey(form) => form::of_key(pen, form, state.settings.named_url()),
        Mode::Explain(explain) => explain::draw(pen, state, explain),
        Mode::Event(event) => menus::event(pen, state, event),
    }
    None
}

/// Draws the messages at the bottom right of the body, with the newest at the bottom. The messages
/// disappear after a few seconds.
fn draw_toasts(pen: &mut Pen<'_>, state: &State) {
    /// Maximum number of lines of a message.
    const MAX_LINES: usize = 4;
    let (theme, area) = (pen.theme, pen.area);
    let mut bottom = area.bottom();
    for toast in state.toasts.iter().rev() {
        let mut lines = wrap(&toast.text, area.width.saturating_sub(6).min(72));
        lines.truncate(MAX_LINES);
        let (mark, style) = if toast.is_bad {
            (theme.pick('✖', 'x'), theme.bad)
        } else {
            (theme.pick('✔', '>'), theme.good)
        };
        let longest = lines.iter().map(|line| width(line)).max().unwrap_or(0);
        let (wide, high) = (longest.saturating_add(4), cells(lines.len()));
        let Some(top) = bottom.checked_sub(high).filter(|top| *top >= area.y) else {
            return;
        };
        let place = Rect {
            x: area.right().saturating_sub(wide),
            y: top,
            width: wide,
            height: high,
        };
        pen.draw(place, Clear);
        let lines = lines.iter().zip(0..).map(|(line, number)| {
            let mark = if number == 0 { mark } else { ' ' };
            Line::from(text(&format!(" {mark} {line}"), style))
        });
        pen.part(place).lines(lines);
        bottom = top;
    }
}

#[cfg(test)]
pub(crate) mod tests;
