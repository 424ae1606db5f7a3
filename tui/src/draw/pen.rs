//! A pen draws widgets into a part of the frame. Drawing is clipped to the area of the pen. The pen
//! also records which places can be clicked.

use loudou_words::num::cells;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::Style;
use ratatui::text::Line;
use ratatui::widgets::{StatefulWidget, Widget};

use super::theme::Theme;
use crate::app::press::Spot;

/// Draws into a part of the frame. All areas are relative to the whole terminal.
pub(crate) struct Pen<'a> {
    buffer: &'a mut Buffer,
    spots: &'a mut Spots,
    pub(crate) area: Rect,
    pub(crate) theme: &'a Theme,
}

impl<'a> Pen<'a> {
    /// Returns a pen for the whole frame.
    pub(crate) fn new(buffer: &'a mut Buffer, spots: &'a mut Spots, theme: &'a Theme) -> Self {
        let area = buffer.area;
        Self {
            buffer,
            spots,
            area,
            theme,
        }
    }

    /// Returns a pen for the intersection of this pen's area and `area`.
    pub(crate) fn part(&mut self, area: Rect) -> Pen<'_> {
        Pen {
            area: area.intersection(self.area),
            buffer: &mut *self.buffer,
            spots: &mut *self.spots,
            theme: self.theme,
        }
    }

    /// Returns the row with this number, counted from 0 at the top of the pen's area. If the row is
    /// below the area, its height is 0.
    pub(crate) fn row(&self, y: u16) -> Rect {
        let area = self.area;
        let row = Rect {
            y: area.y.saturating_add(y),
            height: 1,
            ..area
        };
        row.intersection(area)
    }

    /// Draws a widget.
    pub(crate) fn draw(&mut self, area: Rect, widget: impl Widget) {
        widget.render(area.intersection(self.area), self.buffer);
    }

    /// Draws a widget with its state.
    pub(crate) fn draw_with<W: StatefulWidget>(
        &mut self,
        area: Rect,
        widget: W,
        state: &mut W::State,
    ) where
        W::State: Sized,
    {
        widget.render(area.intersection(self.area), self.buffer, state);
    }

    /// Draws one line. A line that does not fit is truncated with `…`.
    pub(crate) fn line(&mut self, area: Rect, line: impl Into<Line<'static>>) {
        let line = self.theme.fit_line(line.into(), area.width);
        self.draw(area, line);
    }

    /// Draws lines one below the other.
    pub(crate) fn lines(&mut self, lines: impl IntoIterator<Item = Line<'static>>) {
        let area = self.area;
        for (row, line) in area.rows().zip(lines) {
            self.line(row, line);
        }
    }

    /// Draws buttons side by side, beginning at the second cell of an area, with `gap` cells
    /// between two buttons.
    pub(crate) fn buttons(
        &mut self,
        area: Rect,
        gap: u16,
        buttons: impl IntoIterator<Item = (Line<'static>, Option<Spot>)>,
    ) {
        let mut x = area.x.saturating_add(1);
        for (line, spot) in buttons {
            let width = cells(line.width());
            let place = Rect { x, width, ..area }.intersection(area);
            if let Some(spot) = spot {
                self.spot(place, spot);
            }
            self.line(place, line);
            x = x.saturating_add(width).saturating_add(gap);
        }
    }

    /// Changes the style of an area, and keeps its text.
    pub(crate) fn style(&mut self, area: Rect, style: Style) {
        self.buffer.set_style(area.intersection(self.area), style);
    }

    /// Records that a click on these cells acts on `spot`.
    pub(crate) fn spot(&mut self, area: Rect, spot: Spot) {
        self.spots.note(area.intersection(self.area), spot);
    }

    /// Removes all clickable places recorded so far.
    pub(crate) fn cover_spots(&mut self) {
        self.spots.cover();
    }

    /// Draws one character of a picture, at a position relative to the pen's area. Does nothing if
    /// the position is outside the area.
    pub(crate) fn cell(&mut self, x: i32, y: i32, c: char, style: Style) {
        let (Ok(x), Ok(y)) = (u16::try_from(x), u16::try_from(y)) else {
            return;
        };
        let place = Position {
            x: self.area.x.saturating_add(x),
            y: self.area.y.saturating_add(y),
        };
        if !self.area.contains(place) {
            return;
        }
        if let Some(cell) = self.buffer.cell_mut(place) {
            // The reset removes earlier colours.
            cell.reset();
            cell.set_char(c).set_style(style);
        }
    }
}

/// The clickable places of a frame, in the order in which they were drawn.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spots(Vec<(Rect, Spot)>);

impl Spots {
    /// Records a place, unless it is empty.
    fn note(&mut self, area: Rect, spot: Spot) {
        if !area.is_empty() {
            self.0.push((area, spot));
        }
    }

    /// Removes all places, because the frame is drawn again or a dialog covers it.
    pub(crate) fn cover(&mut self) {
        self.0.clear();
    }

    /// Returns the spot at a cell. If several places overlap there, returns the spot of the place
    /// that was recorded last.
    pub(crate) fn at(&self, x: u16, y: u16) -> Option<Spot> {
        let mut all = self.0.iter().rev();
        let found = all.find(|(area, _)| area.contains(Position { x, y }));
        found.map(|(_, spot)| *spot)
    }

    /// Returns the top left cell of the place with this number. Numbers beyond the last place wrap
    /// around to the first.
    #[cfg(test)]
    pub(crate) fn nth(&self, number: usize) -> Option<(u16, u16)> {
        let found = self.0.get(number.checked_rem(self.0.len())?);
        found.map(|(area, _)| (area.x, area.y))
    }

    /// Returns the top left cell of the first place with `spot`.
    #[cfg(test)]
    pub(crate) fn of(&self, spot: Spot) -> Option<(u16, u16)> {
        let found = self.0.iter().find(|(_, other)| *other == spot);
        found.map(|(area, _)| (area.x, area.y))
    }
}
