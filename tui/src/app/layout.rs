//! Where things are on the screen, for drawing and for the mouse.
//!
//! ```text
//! 0          name, screens, connection
//! 1          totals
//! 2 …        body: on the Buckets screen a header line, then rows
//! last - 1   status: filter, freeze, counts
//! last       footer: keys
//! ```

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
