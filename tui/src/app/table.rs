//! The Buckets table: its rows in order, and the part of them that is on screen.

use super::columns::{Column, Sort};
use super::filter::Filter;
use super::rows::BucketName;

/// The Buckets table: its sort, filter and selection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    /// The columns that the user chose; `None` for the usual ones.
    pub(crate) columns: Option<Vec<Column>>,
    pub(crate) sort: Sort,
    pub(crate) filter: Filter,
    pub(crate) filter_text: String,
    /// The problem of the text being typed; the last valid filter stays in effect.
    pub(crate) filter_error: Option<String>,
    /// The indices of the rows that pass the filter, in order.
    pub(crate) visible: Vec<usize>,
    /// The bucket that the selection follows; `None` until the user moves: the top row.
    pub(crate) pinned: Option<BucketName>,
    /// The index of the selection in `visible`.
    pub(crate) at: usize,
    /// Whether the pinned bucket is not among the visible rows: then none is selected.
    pub(crate) is_missing: bool,
    /// The first row on screen. Only the user moves it: rows that are sorted anew do not.
    pub(crate) offset: usize,
}

impl Table {
    /// The index in `visible` of each line of a table with this many lines. A selection that is out of view has the
    /// first or the last line.
    pub(crate) fn lines(&self, height: usize) -> Vec<usize> {
        let end = self.offset.saturating_add(height);
        let mut lines: Vec<usize> = (self.offset..end.min(self.visible.len())).collect();
        let edge = if self.is_missing {
            None
        } else if self.at < self.offset {
            lines.first_mut()
        } else if self.at >= end {
            lines.last_mut()
        } else {
            None
        };
        if let Some(edge) = edge.filter(|_| self.at < self.visible.len()) {
            *edge = self.at;
        }
        lines
    }

    /// Shows the first rows, whatever is selected.
    pub(crate) const fn rewind(&mut self) {
        self.offset = 0;
    }
}
