//! Where things are on the screen, for drawing and for the mouse.
//!
//! ```text
//! 0          name, screens, connection
//! 1          totals
//! 2 …        body: on the Buckets screen a header line, then rows
//! last - 1   status: filter, freeze, counts
//! last       footer: keys
//! ```

use super::columns::{Placed, place};
use super::state::State;

/// The least size that anything but one line is drawn at.
pub(crate) const LEAST: (u16, u16) = (40, 10);
/// Lines above the body.
pub(crate) const HEAD: u16 = 2;
/// Lines below the body.
pub(crate) const FOOT: u16 = 2;

/// How many lines the body has.
pub(crate) fn body_height(size: (u16, u16)) -> u16 {
    size.1.saturating_sub(HEAD.saturating_add(FOOT))
}

/// How many rows a table in the body has below its header line.
pub(crate) fn table_height(size: (u16, u16)) -> usize {
    usize::from(body_height(size).saturating_sub(1))
}

/// The columns of the Buckets table.
pub(crate) fn columns(state: &State) -> Vec<Placed> {
    let (rule, key) = state.data.as_ref().map_or((0, 0), |data| data.longest);
    place(state.size.0, rule, key)
}

/// What of the Buckets table is at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hit {
    Header(Placed),
    /// The row with this index among the visible ones.
    Row(usize),
}

/// What of the Buckets table is at `x`, `y`.
pub(crate) fn hit(state: &State, x: u16, y: u16) -> Option<Hit> {
    let line = y.checked_sub(HEAD)?;
    if line >= body_height(state.size) {
        return None;
    }
    let Some(row) = line.checked_sub(1) else {
        let mut columns = columns(state).into_iter();
        let over = |c: &Placed| x >= c.x && x <= c.x.saturating_add(c.width);
        return columns.find(over).map(Hit::Header);
    };
    let index = state.table.offset.saturating_add(usize::from(row));
    (index < state.table.visible.len()).then_some(Hit::Row(index))
}
