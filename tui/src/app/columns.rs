//! The columns of the Buckets table: names, titles, sort orders.

use std::cmp::Ordering;

use loudou_limiter::Nanos;
use loudou_words::meaning::Standing;
use loudou_words::num::whole;

use super::rows::Row;

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

// The choice of columns that fit, and their places.
//
// Wide screens show more columns. One list has their priority; its last column is the first to be
// dropped on a narrow screen.

/// A column with its place on the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    pub(crate) column: Column,
    pub(crate) x: u16,
    pub(crate) width: u16,
}

/// The least width of each column, by priority.
const WANTED: [(Column, u16); 12] = [
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
    (Column::Limit, 6),
];

/// The widths that columns grow to if there is room, by priority.
const GROWN: [(Column, u16); 11] = [
    (Column::Rule, 16),
    (Column::Key, 24),
    (Column::State, 10),
    (Column::Level, 12),
    (Column::Admitted, 11),
    (Column::History, 24),
    (Column::Left, 15),
    (Column::Retry, 12),
    (Column::Seen, 10),
    (Column::Limit, 12),
    (Column::State, STATE),
];

/// The width of a state with its age: `◐ refused 5s ago`.
const STATE: u16 = 16;

/// The wishes for the columns.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wishes {
    /// The widths of the longest rule and of the longest key.
    pub(crate) longest: (u16, u16),
    /// Whether there is something leased to show.
    pub(crate) has_fleet: bool,
    /// Whether a bucket has several limits.
    pub(crate) has_limits: bool,
}

/// The columns that fit into `width`, with their places.
pub(crate) fn place(width: u16, wishes: Wishes) -> Vec<Placed> {
    let mut fitting = fitting(width, wishes);
    let mut free = fitting.iter().fold(width, |free, (_, least)| {
        free.saturating_sub(least.saturating_add(1))
    });
    let (rule, key) = wishes.longest;
    for (column, most) in GROWN {
        let most = match column {
            Column::Rule => most.min(rule),
            Column::Key => most.min(key),
            _ => most,
        };
        // A part of a word says nothing: its room is for the other columns.
        let is_part = column == Column::State && !has_room(&fitting, column, most, free);
        if is_part {
            continue;
        }
        grow(&mut fitting, column, most, &mut free);
    }
    grow(&mut fitting, Column::Key, key.min(60), &mut free);
    grow(&mut fitting, Column::Level, 20, &mut free);
    grow(&mut fitting, Column::History, 60, &mut free);
    fitting.sort_by_key(|(column, _)| *column);
    let mut x = 0_u16;
    let mut placed = Vec::with_capacity(fitting.len());
    for (column, width) in fitting {
        placed.push(Placed { column, x, width });
        x = x.saturating_add(width).saturating_add(1);
    }
    placed
}

/// The columns that fit, by priority, with their least widths.
fn fitting(width: u16, wishes: Wishes) -> Vec<(Column, u16)> {
    let mut fitting: Vec<(Column, u16)> = Vec::new();
    let mut free = width;
    for (column, least) in WANTED {
        let is_absent = match column {
            Column::Leased => !wishes.has_fleet,
            Column::Limit => !wishes.has_limits,
            _ => false,
        };
        if is_absent {
            continue;
        }
        // Narrow screens have no sparkline and no time of the last request.
        let narrow = match column {
            Column::History => width < if wishes.has_fleet { 90 } else { 60 },
            Column::Seen => width < 90,
            Column::Limit => width < 130,
            _ => false,
        };
        let taken = least.saturating_add(1);
        if narrow || free < taken {
            break;
        }
        free = free.saturating_sub(taken);
        fitting.push((column, least));
    }
    fitting
}

/// Whether a column can have all of this width.
fn has_room(chosen: &[(Column, u16)], column: Column, most: u16, free: u16) -> bool {
    let mut chosen = chosen.iter();
    let found = chosen.find(|(other, _)| *other == column);
    found.is_some_and(|(_, width)| most.saturating_sub(*width) <= free)
}

fn grow(chosen: &mut [(Column, u16)], column: Column, most: u16, free: &mut u16) {
    if let Some((_, width)) = chosen.iter_mut().find(|(other, _)| *other == column) {
        let more = most.saturating_sub(*width).min(*free);
        *width = width.saturating_add(more);
        *free = free.saturating_sub(more);
    }
}

#[cfg(test)]
mod placing_tests {
    use super::*;

    fn placed(width: u16, longest: (u16, u16), has_fleet: bool) -> Vec<Placed> {
        let wishes = Wishes {
            longest,
            has_fleet,
            has_limits: true,
        };
        place(width, wishes)
    }

    fn columns(width: u16) -> Vec<Column> {
        placed(width, (14, 30), false)
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
                let placed = placed(width, (40, 200), has_fleet);
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
            let placed = placed(width, (14, 30), has_fleet).into_iter();
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

    /// Where a state has no room for its words, it is a glyph, and other columns have the room.
    #[test]
    fn a_state_is_a_glyph_or_has_its_words() {
        for width in 0..200 {
            for longest in [(5, 5), (8, 9), (14, 30)] {
                let placed = placed(width, longest, false);
                let state = placed.iter().find(|placed| placed.column == Column::State);
                let width = state.map_or(1, |placed| placed.width);
                assert!([1, 10, STATE].contains(&width), "{longest:?} {width}");
            }
        }
    }

    #[test]
    fn a_state_word_has_its_place_on_wide_screens() {
        let state = placed(120, (14, 30), false)[0];
        assert_eq!((state.column, state.width), (Column::State, 10));
    }
}
