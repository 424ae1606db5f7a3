//! A table of buckets with its sort order, filter, selection and scroll position.

use loudou_api::RuleView;

use super::columns::{Column, Sort};
use super::command::Command;
use super::filter::Filter;
use super::motion::moved;
use super::rows::{BucketName, Row};

/// Sort order, filter and selection of a table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    pub(crate) sort: Sort,
    pub(crate) filter: Filter,
    pub(crate) filter_text: String,
    /// Error in the filter that is being typed. The last valid filter stays in effect.
    pub(crate) filter_error: Option<String>,
    /// Indices of the rows that pass the filter, sorted.
    pub(crate) visible: Vec<usize>,
    /// The bucket that the selection follows. `None` until the user moves the selection, so that
    /// the top row stays selected.
    pub(crate) pinned: Option<BucketName>,
    /// Index of the selection in `visible`.
    pub(crate) at: usize,
    /// True if the pinned bucket is not among the visible rows. No row is selected then.
    pub(crate) is_missing: bool,
    /// Index of the first row on screen. Only the user scrolls the table. Sorting the rows again
    /// does not scroll it.
    pub(crate) offset: usize,
}

impl Table {
    /// Returns the index in `visible` of each line of a table with this many lines. A selection
    /// that is out of view is shown on the first or the last line.
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

    /// Reads a filter that is being typed. While the text is invalid, the last valid filter stays in
    /// effect. Returns true if the filter is valid.
    pub(crate) fn filter_by(&mut self, text: &str, rules: &[RuleView]) -> bool {
        match Filter::of_rules(text, rules) {
            Ok(filter) => (self.filter, self.filter_error) = (filter, None),
            Err(error) => self.filter_error = Some(error),
        }
        self.filter_error.is_none()
    }

    /// Clears the filter.
    pub(crate) fn clear(&mut self) {
        self.rewind();
        self.filter_text.clear();
        (self.filter, self.filter_error) = (Filter::default(), None);
    }

    /// Returns the order after a click on a heading, which reverses the order if the rows are
    /// already sorted by this column.
    pub(crate) fn sorted_by(&self, column: Column) -> Sort {
        let (now, mut by) = (self.sort, Sort::by(column));
        if now.column == column {
            by.descending = !now.descending;
        }
        by
    }

    /// Handles a filter that the user applied. If the filter hides the pinned bucket, the bucket is
    /// unpinned and the first row is selected. A bucket that leaves the list for another reason
    /// stays pinned. Returns the error of an invalid filter.
    pub(crate) fn applied(&mut self, text: &str) -> Result<(), String> {
        if let Some(error) = &self.filter_error {
            return Err(error.clone());
        }
        text.clone_into(&mut self.filter_text);
        if self.is_missing {
            (self.pinned, self.is_missing, self.at) = (None, false, 0);
            self.rewind();
        }
        Ok(())
    }

    /// Scrolls to the first row. The selection does not change.
    pub(crate) const fn rewind(&mut self) {
        self.offset = 0;
    }

    /// Applies the filter and the sort order to the rows again. The selection stays on its bucket.
    pub(crate) fn arrange<'a>(&mut self, rows: impl Iterator<Item = &'a Row>, height: usize) {
        let mut shown: Vec<(usize, &Row)> = rows
            .enumerate()
            .filter(|(_, row)| self.filter.shows(row))
            .collect();
        shown.sort_by(|(_, a), (_, b)| self.sort.compare(a, b));
        let found = self
            .pinned
            .as_ref()
            .and_then(|pinned| shown.iter().position(|(_, row)| row.id == *pinned));
        let last = shown.len().saturating_sub(1);
        self.at = match (&self.pinned, found) {
            (None, _) => 0,
            (Some(_), Some(at)) => at,
            (Some(_), None) => self.at.min(last),
        };
        // The selection must not move to another bucket, because the user's next key press, such as
        // a ban, would act on that bucket.
        self.is_missing = self.pinned.is_some() && found.is_none();
        self.visible = shown.into_iter().map(|(index, _)| index).collect();
        self.clamp_scroll(height);
    }

    /// Returns the index of the selection after a movement command. If no row is selected, a step
    /// selects the first line on screen.
    pub(crate) fn moved(&self, page: usize, motion: Command) -> usize {
        if self.is_missing && matches!(motion, Command::Down | Command::Up) {
            return self.offset;
        }
        moved(self.at, self.visible.len(), page, motion)
    }

    /// Limits the scroll position so that no lines stay empty if there are enough rows to fill the
    /// table.
    pub(crate) fn clamp_scroll(&mut self, height: usize) {
        let most = self.visible.len().saturating_sub(height.max(1));
        self.offset = self.offset.min(most);
    }

    /// Scrolls so that the selection is visible.
    pub(crate) fn scroll(&mut self, height: usize) {
        let height = height.max(1);
        let most = self.visible.len().saturating_sub(height);
        let least = self.at.saturating_add(1).saturating_sub(height);
        self.offset = self.offset.clamp(least, self.at.max(least)).min(most);
    }
}
