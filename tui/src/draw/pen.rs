//! Writing into a part of the frame: clipped, and safe for any text.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use unicode_width::UnicodeWidthChar as _;

use super::spots::Spots;
use super::theme::Theme;
use super::words::{self, safe};
use crate::app::press::Spot;

/// A part of the frame, with coordinates relative to its top left corner.
pub(crate) struct Pen<'a> {
    buffer: &'a mut Buffer,
    spots: &'a mut Spots,
    pub(crate) area: Rect,
    pub(crate) theme: &'a Theme,
}

impl<'a> Pen<'a> {
    /// A pen for `area`.
    pub(crate) fn new(
        buffer: &'a mut Buffer,
        spots: &'a mut Spots,
        area: Rect,
        theme: &'a Theme,
    ) -> Self {
        let area = area.intersection(buffer.area);
        Self {
            buffer,
            spots,
            area,
            theme,
        }
    }

    /// A pen for a part of this pen's area.
    pub(crate) fn part(&mut self, x: u16, y: u16, width: u16, height: u16) -> Pen<'_> {
        let part = Rect {
            x: self.area.x.saturating_add(x),
            y: self.area.y.saturating_add(y),
            width,
            height,
        };
        Pen {
            area: part.intersection(self.area),
            buffer: &mut *self.buffer,
            spots: &mut *self.spots,
            theme: self.theme,
        }
    }

    /// The width of the area.
    pub(crate) const fn width(&self) -> u16 {
        self.area.width
    }

    /// The height of the area.
    pub(crate) const fn height(&self) -> u16 {
        self.area.height
    }

    /// Notes that a click on these cells is one on `spot`.
    pub(crate) fn spot(&mut self, x: u16, y: u16, width: u16, spot: Spot) {
        let cells = self.part(x, y, width, 1).area;
        self.spots.note(cells, spot);
    }

    /// Makes everything drawn so far deaf to clicks.
    pub(crate) fn cover_spots(&mut self) {
        self.spots.cover();
    }

    /// Writes `text` up to the right edge; returns its end.
    pub(crate) fn text(&mut self, x: u16, y: u16, text: &str, style: Style) -> u16 {
        self.within(x, y, self.area.width.saturating_sub(x), text, style)
    }

    /// Writes `text` in at most `width` cells; returns its end. Text that does not fit is cut with `…`.
    pub(crate) fn within(&mut self, x: u16, y: u16, width: u16, text: &str, style: Style) -> u16 {
        let room = width.min(self.area.width.saturating_sub(x));
        let mut at = x;
        for c in self.theme.fit(&safe(text), room).chars() {
            let wide = u16::try_from(c.width().unwrap_or(0)).unwrap_or(0);
            if wide > 0 {
                self.cell(i32::from(at), i32::from(y), c, style);
            }
            at = at.saturating_add(wide);
        }
        at
    }

    /// Writes `text` at the right edge of `width` cells.
    pub(crate) fn right(&mut self, x: u16, y: u16, width: u16, text: &str, style: Style) {
        let text = safe(text);
        let text = self.theme.fit(&text, width);
        let free = width.saturating_sub(words::width(&text));
        self.within(
            x.saturating_add(free),
            y,
            width.saturating_sub(free),
            &text,
            style,
        );
    }

    /// Writes `text` in the middle of the line.
    pub(crate) fn middle(&mut self, y: u16, text: &str, style: Style) {
        let free = self.area.width.saturating_sub(words::width(&safe(text)));
        self.text(free / 2, y, text, style);
    }

    /// Writes parts one after the other; returns their end.
    pub(crate) fn spans(&mut self, x: u16, y: u16, spans: &[(&str, Style)]) -> u16 {
        spans
            .iter()
            .fold(x, |x, (text, style)| self.text(x, y, text, *style))
    }

    /// Writes one character; outside the area it is not drawn.
    pub(crate) fn cell(&mut self, x: i32, y: i32, c: char, style: Style) {
        let (Ok(x), Ok(y)) = (u16::try_from(x), u16::try_from(y)) else {
            return;
        };
        if x >= self.area.width || y >= self.area.height {
            return;
        }
        let at = (self.area.x.saturating_add(x), self.area.y.saturating_add(y));
        if let Some(cell) = self.buffer.cell_mut(at) {
            // The reset removes earlier colours.
            cell.reset();
            cell.set_char(c).set_style(style);
        }
    }

    /// Styles a line without changing its text.
    pub(crate) fn style_line(&mut self, y: u16, style: Style) {
        let line = Rect {
            y: self.area.y.saturating_add(y),
            height: 1,
            ..self.area
        };
        self.buffer.set_style(line.intersection(self.area), style);
    }

    /// Marks a line as selected; its colours stay.
    pub(crate) fn select_line(&mut self, y: u16) {
        let row = self.area.y.saturating_add(y);
        if y >= self.area.height {
            return;
        }
        for x in self.area.left()..self.area.right() {
            if let Some(cell) = self.buffer.cell_mut((x, row)) {
                if cell.fg == Color::Reset {
                    cell.set_style(self.theme.row_text);
                }
                cell.set_style(self.theme.row);
            }
        }
    }

    /// Blanks the area.
    pub(crate) fn clear(&mut self) {
        for y in 0..self.area.height {
            for x in 0..self.area.width {
                let at = (self.area.x.saturating_add(x), self.area.y.saturating_add(y));
                if let Some(cell) = self.buffer.cell_mut(at) {
                    cell.reset();
                    cell.set_style(self.theme.plain);
                }
            }
        }
    }

    /// Greys everything: the shown data are old.
    pub(crate) fn dim_all(&mut self) {
        self.buffer.set_style(self.area, self.theme.stale);
    }
}
