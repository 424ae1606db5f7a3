//! The places of a frame that a click acts on, noted while they are drawn: the mouse finds what the user sees.

use ratatui::layout::{Position, Rect};

use crate::app::press::Spot;

/// The places, in the order of drawing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spots(Vec<(Rect, Spot)>);

impl Spots {
    /// Notes a place; empty ones are left out.
    pub(crate) fn note(&mut self, area: Rect, spot: Spot) {
        if !area.is_empty() {
            self.0.push((area, spot));
        }
    }

    /// Forgets all: something was opened over them.
    pub(crate) fn cover(&mut self) {
        self.0.clear();
    }

    /// The spot under a cell; the last that was drawn is on top.
    pub(crate) fn at(&self, x: u16, y: u16) -> Option<Spot> {
        let mut all = self.0.iter().rev();
        let found = all.find(|(area, _)| area.contains(Position { x, y }));
        found.map(|(_, spot)| *spot)
    }

    /// A cell of the place with this number, which begins again behind the last.
    #[cfg(test)]
    pub(crate) fn nth(&self, number: usize) -> Option<(u16, u16)> {
        let found = self.0.get(number.checked_rem(self.0.len())?);
        found.map(|(area, _)| (area.x, area.y))
    }

    /// A cell of the first place with `spot`.
    #[cfg(test)]
    pub(crate) fn of(&self, spot: Spot) -> Option<(u16, u16)> {
        let found = self.0.iter().find(|(_, other)| *other == spot);
        found.map(|(area, _)| (area.x, area.y))
    }
}
