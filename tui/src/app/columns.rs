//! The columns of the Buckets table: names, titles, sort orders.

use std::cmp::Ordering;

use loudou_limiter::Nanos;

use super::rows::Row;
use loudou_words::meaning::Standing;
use loudou_words::num::whole;

mod placing;

pub(crate) use placing::{Placed, Wishes, place};

/// A column, in the order of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Column {
    State,
    Rule,
    Key,
    /// The name of the limit that the numbers are of; only where a bucket has several.
    Limit,
    Level,
    Left,
    /// The units leased here; only where a fleet shares limits.
    Leased,
    Admitted,
    Refused,
    History,
    Retry,
    Seen,
}

impl Column {
    /// The sortable columns, in the order of the sort menu.
    pub(crate) const SORTABLE: [Self; 9] = [
        Self::State,
        Self::Rule,
        Self::Key,
        Self::Level,
        Self::Left,
        Self::Admitted,
        Self::Refused,
        Self::Retry,
        Self::Seen,
    ];

    /// The name in the header.
    pub(crate) const fn title(self, width: u16) -> &'static str {
        match self {
            Self::State if width < 5 => "",
            Self::State => "state",
            Self::Rule => "rule",
            Self::Key => "key",
            Self::Limit => "limit",
            Self::Level => "level",
            Self::Left if width < 14 => "left/cap",
            Self::Left => "remaining/cap",
            Self::Leased => "leased",
            Self::Admitted if width < 11 => "admit/s",
            Self::Admitted => "admitted/s",
            Self::Refused => "refused/s",
            Self::History if width < 10 => "60s",
            Self::History => "last 60s",
            Self::Retry if width < 11 => "retry",
            Self::Retry => "retry after",
            Self::Seen if width < 9 => "seen",
            Self::Seen => "last seen",
        }
    }

    /// The name in the sort menu.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::State => "state",
            Self::Left => "remaining",
            Self::History => "history",
            Self::Retry => "retry after",
            Self::Seen => "last seen",
            Self::Admitted => "admitted/s",
            _ => self.title(0),
        }
    }

    /// Whether the first sort by it puts the largest value on top.
    pub(crate) const fn is_descending_first(self) -> bool {
        !matches!(self, Self::Rule | Self::Key | Self::Left | Self::Seen)
    }

    /// Whether its text is right-aligned.
    pub(crate) const fn is_right(self) -> bool {
        matches!(
            self,
            Self::Left | Self::Leased | Self::Admitted | Self::Refused | Self::Retry | Self::Seen
        )
    }

    fn compare(self, a: &Row, b: &Row) -> Ordering {
        match self {
            Self::State => severity(a).cmp(&severity(b)),
            Self::Rule => a.id.rule.cmp(&b.id.rule),
            Self::Key => a.id.key.cmp(&b.id.key),
            Self::Limit => limit_name(a).cmp(limit_name(b)),
            Self::Level => a.level(Nanos::ZERO).total_cmp(&b.level(Nanos::ZERO)),
            Self::Left => left(a).cmp(&left(b)),
            Self::Leased => leased(a).cmp(&leased(b)),
            Self::Admitted => a.admitted().total_cmp(&b.admitted()),
            // Refusals in shadow mode come after all others.
            Self::Refused | Self::History => {
                let would = || a.would_refuse().total_cmp(&b.would_refuse());
                a.refused().total_cmp(&b.refused()).then_with(would)
            }
            Self::Retry => {
                let wait = |row: &Row| row.retry_after_ns(Nanos::ZERO);
                wait(a).cmp(&wait(b))
            }
            Self::Seen => a.idle_ns(Nanos::ZERO).cmp(&b.idle_ns(Nanos::ZERO)),
        }
    }
}

/// How much the state of a bucket matters. Requests do not count: rows would jump with each one.
pub(crate) fn severity(row: &Row) -> Standing {
    Standing::of(&row.view, false)
}

/// The requests per second as a power of four: it changes seldom.
fn magnitude(row: &Row) -> u32 {
    let all = row.admitted() + row.refused() + row.would_refuse();
    // A tenth is the least that is told apart.
    let tenths = whole(all * 10.0);
    tenths
        .checked_ilog(4)
        .map_or(0, |power| power.saturating_add(1))
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

/// The sort order of the rows.
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
    /// A sort by `column`, the interesting end on top.
    pub(crate) const fn by(column: Column) -> Self {
        Self {
            column,
            descending: column.is_descending_first(),
        }
    }

    /// A sort by the sortable column `step` to the right.
    pub(crate) fn step(self, step: isize) -> Self {
        let all = Column::SORTABLE;
        let at = all.iter().position(|column| *column == self.column);
        let next = at.unwrap_or(0).checked_add_signed(step);
        next.and_then(|next| all.get(next))
            .map_or(self, |column| Self::by(*column))
    }

    /// The order of two rows. Ties go to the key with many more requests, then by name: a level moves with each poll, and
    /// rows would jump while the user aims at one.
    pub(crate) fn compare(self, a: &Row, b: &Row) -> Ordering {
        let order = self.column.compare(a, b);
        let order = if self.descending {
            order.reverse()
        } else {
            order
        };
        order
            .then_with(|| magnitude(b).cmp(&magnitude(a)))
            .then_with(|| a.id.cmp(&b.id))
    }
}
