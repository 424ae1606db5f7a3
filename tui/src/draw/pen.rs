//! A part of the frame into which widgets are drawn. Drawing is clipped to its area. The pen also
//! records the places that can be clicked.

use loudou_words::num::cells;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::Style;
use ratatui::text::Line;
use ratatui::widgets::{StatefulWidget, Widget};

use super::theme::Theme;
use crate::app::press::Spot;

/// A part of the frame. Areas are relative to the whole terminal.
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

    /// Returns the line with this number from the top. If the line is below the area, its height is
    /// 0.
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

    /// Draws one line. If it does not fit, it is cut with `…`.
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

    /// Draws buttons from the second cell of an area on, with `gap` cells in between.
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

    /// Changes the style of an area and leaves its text.
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

    /// Draws one character at a position relative to the area, for pictures. Does nothing if the
    /// position is outside of the area.
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

    /// Removes all places, because something was opened over them.
    pub(crate) fn cover(&mut self) {
        self.0.clear();
    }

    /// Returns the spot under a cell. If several places overlap, the one drawn last is on top.
    pub(crate) fn at(&self, x: u16, y: u16) -> Option<Spot> {
        let mut all = self.0.iter().rev();
        let found = all.find(|(area, _)| area.contains(Position { x, y }));
        found.map(|(_, spot)| *spot)
    }

    /// Returns a cell of the place with this number. Numbers beyond the last place continue with
    /// the first.
    #[cfg(test)]
    pub(crate) fn nth(&self, number: usize) -> Option<(u16, u16)> {
        let found = self.0.get(number.checked_rem(self.0.len())?);
        found.map(|(area, _)| (area.x, area.y))
    }

    /// Returns a cell of the first place with `spot`.
    #[cfg(test)]
    pub(crate) fn of(&self, spot: Spot) -> Option<(u16, u16)> {
        let found = self.0.iter().find(|(_, other)| *other == spot);
        found.map(|(area, _)| (area.x, area.y))
    }
}
