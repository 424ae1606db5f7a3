//! The columns of the Buckets table: titles, sort orders, and the choice of columns that fit.
//!
//! Wide screens show more columns. One list has their priority; its last column is the first to be
//! dropped on a narrow screen.

use std::cmp::Ordering;

use loudou_limiter::Nanos;

use super::rows::Row;

/// A column, in the order of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Column {
    State,
    Rule,
    Key,
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
            Self::State => state(a).cmp(&state(b)),
            Self::Rule => a.id.rule.cmp(&b.id.rule),
            Self::Key => a.id.key.cmp(&b.id.key),
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

fn state(row: &Row) -> u8 {
    use loudou_api::BucketState::{Banned, Busy, Held, Idle, Refusing};
    match row.view.state {
        Idle => 0,
        Busy => 1,
        Held => 2,
        Refusing if row.view.shadow => 3,
        Refusing => 4,
        Banned => 5,
    }
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

    /// The order of two rows. Ties go to the fuller bucket, then by name, so that rows do not jump.
    pub(crate) fn compare(self, a: &Row, b: &Row) -> Ordering {
        let order = self.column.compare(a, b);
        let order = if self.descending {
            order.reverse()
        } else {
            order
        };
        let level = |row: &Row| row.level(Nanos::ZERO);
        order
            .then_with(|| level(b).total_cmp(&level(a)))
            .then_with(|| a.id.cmp(&b.id))
    }
}

/// A column with its place on the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    pub(crate) column: Column,
    pub(crate) x: u16,
    pub(crate) width: u16,
}

/// The least width of each column, by priority.
const WANTED: [(Column, u16); 11] = [
    (Column::State, 1),
    (Column::Rule, 8),
    (Column::Key, 8),
    (Column::Level, 6),
    (Column::Left, 9),
    (Column::Refused, 9),
    (Column::Retry, 6),
    (Column::Leased, 6),
    (Column::Admitted, 7),
    (Column::History, 8),
    (Column::Seen, 6),
];

/// The widths that columns grow to if there is room, by priority.
const GROWN: [(Column, u16); 9] = [
    (Column::Rule, 16),
    (Column::Key, 24),
    (Column::State, 10),
    (Column::Level, 12),
    (Column::Admitted, 11),
    (Column::History, 24),
    (Column::Left, 15),
    (Column::Retry, 12),
    (Column::Seen, 10),
];

/// The columns that fit into `width`, with their places. Names are at most `rule` and `key` wide; `has_fleet`
/// adds what is leased.
pub(crate) fn place(width: u16, rule: u16, key: u16, has_fleet: bool) -> Vec<Placed> {
    let mut chosen: Vec<(Column, u16)> = Vec::new();
    let mut free = width;
    for (column, least) in WANTED {
        if column == Column::Leased && !has_fleet {
            continue;
        }
        // Narrow screens have no sparkline and no time of the last request.
        let narrow = match column {
            Column::History => width < if has_fleet { 90 } else { 60 },
            Column::Seen => width < 90,
            _ => false,
        };
        let taken = least.saturating_add(1);
        if narrow || free < taken {
            break;
        }
        free = free.saturating_sub(taken);
        chosen.push((column, least));
    }
    for (column, most) in GROWN {
        let most = match column {
            Column::Rule => most.min(rule),
            Column::Key => most.min(key),
            _ => most,
        };
        grow(&mut chosen, column, most, &mut free);
    }
    grow(&mut chosen, Column::Key, key.min(60), &mut free);
    grow(&mut chosen, Column::Level, 20, &mut free);
    grow(&mut chosen, Column::History, 60, &mut free);
    chosen.sort_by_key(|(column, _)| *column);
    let mut x = 0_u16;
    let mut placed = Vec::with_capacity(chosen.len());
    for (column, width) in chosen {
        placed.push(Placed { column, x, width });
        x = x.saturating_add(width).saturating_add(1);
    }
    placed
}

fn grow(chosen: &mut [(Column, u16)], column: Column, most: u16, free: &mut u16) {
    if let Some((_, width)) = chosen.iter_mut().find(|(other, _)| *other == column) {
        let more = most.saturating_sub(*width).min(*free);
        *width = width.saturating_add(more);
        *free = free.saturating_sub(more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(width: u16) -> Vec<Column> {
        place(width, 14, 30, false)
            .iter()
            .map(|placed| placed.column)
            .collect()
    }

    #[test]
    fn narrow_screens_drop_the_sparkline_then_rates() {
        assert!(columns(80).contains(&Column::History));
        let narrow = columns(59);
        assert!(!narrow.contains(&Column::History) && narrow.contains(&Column::Refused));
        let narrower = columns(40);
        assert!(!narrower.contains(&Column::Refused) && narrower.contains(&Column::Left));
        assert_eq!(columns(0), []);
    }

    #[test]
    fn columns_never_overlap_nor_leave_the_screen() {
        for width in 0..300 {
            for has_fleet in [false, true] {
                let placed = place(width, 40, 200, has_fleet);
                for pair in placed.windows(2) {
                    assert!(pair[0].x + pair[0].width < pair[1].x, "{width}");
                }
                if let Some(last) = placed.last() {
                    assert!(last.x + last.width <= width, "{width}");
                }
            }
        }
    }

    #[test]
    fn what_is_leased_has_a_column_where_a_fleet_shares() {
        let columns = |width, has_fleet| {
            let placed = place(width, 14, 30, has_fleet).into_iter();
            placed.map(|placed| placed.column).collect::<Vec<_>>()
        };
        for width in [80, 120] {
            assert!(columns(width, true).contains(&Column::Leased));
            assert!(!columns(width, false).contains(&Column::Leased));
        }
        assert!(!columns(80, true).contains(&Column::History));
        assert!(columns(120, true).contains(&Column::Seen));
        assert!(!columns(40, true).contains(&Column::Leased));
    }

    #[test]
    fn a_state_word_has_its_place_on_wide_screens() {
        let state = place(120, 14, 30, false)[0];
        assert_eq!((state.column, state.width), (Column::State, 10));
    }
}
