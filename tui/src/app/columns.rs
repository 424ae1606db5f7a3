//! The columns of the Buckets table: names, titles and sort orders.

use std::cmp::Ordering;

use loudou_limiter::Nanos;
use loudou_words::num::whole;

use super::rows::Row;
use crate::draw::widgets::{ColumnWidth, fit};

/// A column of the table. The variants are listed in the order of the table's columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Column {
    State,
    Rule,
    Key,
    /// Name of the limit whose numbers the row shows. Shown only if some bucket has several limits.
    Limit,
    Level,
    Left,
    /// Units leased to this Envoy. Shown only if a fleet shares limits.
    Leased,
    Admitted,
    Refused,
    /// Highest request rate in the last minute.
    Peak,
    History,
    /// Time since the current run of refusals began.
    Since,
    /// Remaining time of a ban or an override. Shown only if some key has an enforced ban or an
    /// edited override.
    Ends,
    /// A refused key's demand as a multiple of its limit.
    Asks,
    Retry,
    Seen,
}

impl Column {
    /// The sortable columns, in sort menu order.
    pub(crate) const SORTABLE: [Self; 10] = [
        Self::State,
        Self::Rule,
        Self::Key,
        Self::Level,
        Self::Left,
        Self::Admitted,
        Self::Refused,
        Self::Since,
        Self::Retry,
        Self::Seen,
    ];

    /// Returns the column's title in the header.
    pub(crate) const fn title(self, width: u16) -> &'static str {
        match self {
            Self::State if width < 5 => "",
            Self::State => "state",
            Self::Rule => "rule",
            Self::Key => "key",
            Self::Limit => "limit",
            Self::Level => "level",
            Self::Left if width < 8 => "left",
            Self::Left if width < 14 => "left/cap",
            Self::Left => "remaining/cap",
            Self::Leased => "leased",
            Self::Admitted if width < 11 => "admit/s",
            Self::Admitted => "admitted/s",
            Self::Refused if width < 10 => "refuse/s",
            Self::Refused => "refused/s",
            Self::Peak if width < 6 => "peak",
            Self::Peak => "peak/s",
            Self::Since => "since",
            Self::Ends => "ends in",
            Self::History if width < 20 => "60s",
            Self::History => "last 60s",
            Self::Asks => "asks",
            Self::Retry if width < 11 => "retry",
            Self::Retry => "retry after",
            Self::Seen if width < 9 => "seen",
            Self::Seen => "last seen",
        }
    }

    /// Returns the column's name in the sort menu.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::State => "state",
            Self::Left => "remaining",
            Self::History => "history",
            Self::Retry => "retry after",
            Self::Seen => "last seen",
            Self::Admitted => "admitted/s",
            Self::Refused => "refused/s",
            Self::Since => "refused since",
            _ => self.title(0),
        }
    }

    /// Returns true if the table is first sorted in descending order when the user sorts by this
    /// column.
    pub(crate) const fn is_descending_first(self) -> bool {
        !matches!(self, Self::Rule | Self::Key | Self::Left | Self::Seen)
    }

    /// Returns true if the column's text is right-aligned.
    pub(crate) const fn is_right(self) -> bool {
        matches!(
            self,
            Self::Left
                | Self::Leased
                | Self::Admitted
                | Self::Refused
                | Self::Peak
                | Self::Since
                | Self::Ends
                | Self::Asks
                | Self::Retry
                | Self::Seen
        )
    }

    fn compare(self, a: &Row, b: &Row) -> Ordering {
        match self {
            Self::State => a.severity().cmp(&b.severity()),
            Self::Rule => a.id.rule.cmp(&b.id.rule),
            Self::Key => a.id.key.cmp(&b.id.key),
            Self::Limit => limit_name(a).cmp(limit_name(b)),
            Self::Level => a.shown_level().total_cmp(&b.shown_level()),
            Self::Left => left(a).cmp(&left(b)),
            Self::Leased => leased(a).cmp(&leased(b)),
            Self::Admitted => a.admitted().total_cmp(&b.admitted()),
            // Refusals in shadow mode sort after enforced refusals.
            Self::Refused | Self::History | Self::Asks => {
                let would = || a.would_refuse().total_cmp(&b.would_refuse());
                let recent = || a.was_refused_lately().cmp(&b.was_refused_lately());
                a.refused()
                    .total_cmp(&b.refused())
                    .then_with(would)
                    .then_with(recent)
            }
            Self::Retry => {
                let wait = |row: &Row| row.retry_after_ns(Nanos::ZERO);
                wait(a).cmp(&wait(b))
            }
            Self::Since => since(a).cmp(&since(b)),
            // The table cannot be sorted by these columns.
            Self::Peak | Self::Ends => Ordering::Equal,
            Self::Seen => a.idle_ns(Nanos::ZERO).cmp(&b.idle_ns(Nanos::ZERO)),
        }
    }
}

/// Returns the order of magnitude of the request rate, as a power of four, which rarely changes
/// between polls.
fn magnitude(row: &Row) -> u32 {
    let all = row.admitted() + row.refused() + row.would_refuse();
    // The rate is measured in tenths of a request per second.
    let tenths = whole(all * 10.0);
    tenths
        .checked_ilog(4)
        .map_or(0, |power| power.saturating_add(1))
}

fn since(row: &Row) -> Option<u64> {
    let since_ns = row.view.refused_since_ns?;
    Some(row.as_of_ns.saturating_sub(since_ns))
}

fn limit_name(row: &Row) -> &str {
    row.limit().map_or("", |limit| limit.name.as_str())
}

fn left(row: &Row) -> u64 {
    row.limit().map_or(u64::MAX, |limit| limit.remaining)
}

fn leased(row: &Row) -> Option<u64> {
    row.view.lease.as_ref().map(|lease| lease.tokens)
}

/// Sort order of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sort {
    pub(crate) column: Column,
    pub(crate) descending: bool,
}

impl Default for Sort {
    fn default() -> Self {
        Self::by(Column::Refused)
    }
}

impl Sort {
    /// Returns a sort by `column` in the column's default direction.
    pub(crate) const fn by(column: Column) -> Self {
        Self {
            column,
            descending: column.is_descending_first(),
        }
    }

    /// Returns the sort by the column among `all` that is `step` columns to the right.
    pub(crate) fn step(self, all: &[Column], step: isize) -> Self {
        let at = all.iter().position(|column| *column == self.column);
        let next = at.unwrap_or(0).checked_add_signed(step);
        next.and_then(|next| all.get(next))
            .map_or(self, |column| Self::by(*column))
    }

    /// Compares two rows. Among ties, buckets with a single request come last, so that keys that a
    /// client invents do not push other keys out of view. Other ties are decided by a much higher
    /// request rate, then by name. Levels do not break ties: they change with each poll, so rows
    /// would jump.
    pub(crate) fn compare(self, a: &Row, b: &Row) -> Ordering {
        let order = self.column.compare(a, b);
        let order = if self.descending {
            order.reverse()
        } else {
            order
        };
        order
            .then_with(|| a.has_one_request().cmp(&b.has_one_request()))
            .then_with(|| magnitude(b).cmp(&magnitude(a)))
            .then_with(|| a.id.cmp(&b.id))
    }
}

// Selection of the columns that fit. Wide screens show more columns.

/// Widths of the longest rule name, key and capacity, in cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Longest {
    pub(crate) rule: u16,
    pub(crate) key: u16,
    /// Width of the widest capacity.
    pub(crate) capacity: u16,
}

/// Width of the column of ends from which it has a word.
pub(crate) const WITH_WORD: u16 = 15;

/// Returns the columns that fit into `width`, with their widths. Some columns are shown only if
/// they have a value in some row, which `is_used` returns.
pub(crate) fn fitting(
    width: u16,
    longest: Longest,
    is_used: impl Fn(Column) -> bool,
) -> Vec<(Column, u16)> {
    let Longest {
        rule,
        key,
        capacity,
    } = longest;
    let left = capacity.saturating_mul(2).saturating_add(1).clamp(6, 15);
    // The column shows a state as a glyph, followed by words if there is room: `◐ busy`, `✗ refused
    // 45s ago`.
    let state = ColumnWidth {
        in_steps: true,
        ..ColumnWidth::growing(0, if width < 100 { 1 } else { 10 }, 10, 17)
    };
    let minute = if width < 100 { 6 } else { 12 };
    // A ban and an override are a glyph or a word: `⊘ 59m15s`, `operator 59m15s`.
    let ends = ColumnWidth {
        in_steps: true,
        ..ColumnWidth::growing(7, 8, WITH_WORD, WITH_WORD)
    };
    let name = |rank, least: u16, good: u16, most: u16, longest: u16| {
        let least = least.min(longest.max(5));
        let most = most.min(longest).max(least);
        ColumnWidth::growing(rank, least, good.min(most), most)
    };
    // Narrow screens omit the sparkline, the retry time and the time of the last request. The `Ends` column takes
    // precedence over the rates, because it is only present if there is a ban or an override.
    let has = |column| match column {
        Column::Leased | Column::Ends => is_used(column),
        Column::Limit => width >= 130 && is_used(column),
        Column::History => width >= if is_used(Column::Leased) { 90 } else { 70 },
        Column::Asks => width >= 100 || is_used(column),
        Column::Retry => width >= 90,
        Column::Seen => width >= 125,
        _ => true,
    };
    let all = [
        (Column::State, state),
        (Column::Rule, name(1, 8, 16, 32, rule)),
        (Column::Key, name(2, 10, 24, 60, key)),
        (Column::Limit, ColumnWidth::growing(15, 6, 12, 12)),
        (Column::Level, ColumnWidth::growing(3, 6, 10, 20)),
        (Column::Left, ColumnWidth::growing(4, left, left.max(9), 15)),
        (Column::Leased, ColumnWidth::fixed(9, 6)),
        (Column::Admitted, ColumnWidth::growing(12, 8, 8, 11)),
        (Column::Refused, ColumnWidth::growing(5, 9, 10, 10)),
        (Column::Peak, ColumnWidth::growing(10, 5, 6, 6)),
        (Column::History, ColumnWidth::growing(8, minute, 20, 60)),
        (Column::Since, ColumnWidth::growing(6, 5, 5, 6)),
        (Column::Ends, ends),
        (Column::Asks, ColumnWidth::fixed(11, 5)),
        (Column::Retry, ColumnWidth::growing(13, 6, 6, 12)),
        (Column::Seen, ColumnWidth::growing(14, 6, 6, 10)),
    ];
    let all: Vec<(Column, ColumnWidth)> =
        all.into_iter().filter(|(column, _)| has(*column)).collect();
    let wishes: Vec<ColumnWidth> = all.iter().map(|(_, wish)| *wish).collect();
    let widths = all
        .into_iter()
        .map(|(column, _)| column)
        .zip(fit(width, &wishes));
    widths.filter(|(_, width)| *width > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(width: u16, has_fleet: bool) -> Vec<Column> {
        let longest = Longest {
            rule: 14,
            key: 30,
            capacity: 3,
        };
        let is_used = |column| match column {
            Column::Leased => has_fleet,
            column => column == Column::Limit,
        };
        let fitting = fitting(width, longest, is_used).into_iter();
        fitting.map(|(column, _)| column).collect()
    }

    #[test]
    fn narrow_screens_drop_the_sparkline_then_rates() {
        assert!(columns(80, false).contains(&Column::History));
        let narrow = columns(59, false);
        assert!(!narrow.contains(&Column::History) && narrow.contains(&Column::Refused));
        let narrower = columns(40, false);
        assert!(!narrower.contains(&Column::Refused) && narrower.contains(&Column::Left));
        assert_eq!(columns(0, false), []);
    }

    #[test]
    fn what_is_leased_has_a_column_where_a_fleet_shares() {
        for width in [80, 120] {
            assert!(columns(width, true).contains(&Column::Leased));
            assert!(!columns(width, false).contains(&Column::Leased));
        }
        assert!(!columns(80, true).contains(&Column::History));
        assert!(columns(80, true).contains(&Column::Since));
        assert!(columns(130, true).contains(&Column::Seen));
        assert!(!columns(40, true).contains(&Column::Leased));
    }
}
