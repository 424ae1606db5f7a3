//! The choice of columns that fit, and their places.
//!
//! Wide screens show more columns. One list has their priority; its last column is the first to be
//! dropped on a narrow screen.

use super::Column;

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
mod tests {
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
