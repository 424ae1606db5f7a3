//! Vertical layout of the screen.
//!
//! ```text
//! 0          name, screens, connection
//! 1          totals
//! 2 …        body: on the Buckets screen a header line, then rows
//! last - 1   status: filter, freeze, counts
//! last       footer: keys
//! ```

/// Minimum terminal size. On a smaller terminal, only one line is drawn.
pub(crate) const LEAST: (u16, u16) = (40, 10);
/// Number of lines above the body.
pub(crate) const HEAD: u16 = 2;
/// Number of lines below the body.
pub(crate) const FOOT: u16 = 2;

/// Returns the number of lines of the body.
pub(crate) fn body_height(size: (u16, u16)) -> u16 {
    size.1.saturating_sub(HEAD.saturating_add(FOOT))
}

/// Returns the number of rows that a table in the body shows below its header line.
pub(crate) fn table_height(size: (u16, u16)) -> usize {
    usize::from(body_height(size).saturating_sub(1))
}
