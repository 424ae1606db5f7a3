//! The Keys screen: the keys of all Envoys that are watched, with the sums of their rates and the part of each Envoy.

use super::copied;
use super::view::{About, View};
use crate::app::columns::{Column, Sort};
use crate::app::command::Command as C;
use crate::app::command::{Binding, bind, c, k, tab};
use crate::app::filter::Filter;
use crate::app::layout::table_height;
use crate::app::line::Line;
use crate::app::press::Code::Enter;
use crate::app::screen::{Places, Screen};
use crate::app::state::{Mode, State};
use crate::draw::pen::Pen;
use crate::draw::words::{amount, rate, safe};
use loudou_limiter::Nanos;
use loudou_words::num::count;

mod drawing;

const HERE: Places = Screen::Keys.place();

static ABOUT: About = About {
    screen: Screen::Keys,
    title: "Keys",
    tab: tab(
        Screen::Keys,
        &[c('8')],
        15,
        "keys",
        "show the keys of all Envoys that are watched, with sums",
    ),
    keys: KEYS,
    takes_turns: false,
    moves: false,
};

#[rustfmt::skip]
const KEYS: &[Binding] = &[
    bind((C::Drill, &[k(Enter)], HERE, 1, "watch", "show the selected key at the Envoy that refuses it most")),
    bind((C::Filter, &[c('/')], HERE, 3, "filter", "filter rows: text, !text, refused > 5")),
    bind((C::SortLeft, &[c('<')], HERE, 4, "sort-left", "sort by the column to the left")),
    bind((C::SortRight, &[c('>')], HERE, 4, "sort-right", "sort by the column to the right")),
    bind((C::Invert, &[c('i')], HERE, 9, "reverse", "reverse the order")),
];

/// The columns that the rows can be sorted by.
const SORTABLE: [Column; 5] = [
    Column::State,
    Column::Rule,
    Column::Key,
    Column::Admitted,
    Column::Refused,
];

/// The keys of all Envoys.
pub(super) struct Keys;

impl View for Keys {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn draw(&self, pen: &mut Pen<'_>, state: &State) {
        drawing::draw(pen, state);
    }

    fn status(&self, state: &State) -> String {
        let table = &state.keys.table;
        let (some, all) = (table.visible.len(), state.keys.rows.len());
        let number = if some == all {
            amount(count(all))
        } else {
            format!("{} of {}", amount(count(some)), amount(count(all)))
        };
        let filter = if table.filter_text.is_empty() {
            String::new()
        } else {
            format!(", filter: {}", table.filter_text)
        };
        let first = if state.keys.is_new(state.now) {
            "; the first rates are means since a key was read before"
        } else {
            ""
        };
        format!("{number} keys with most requests{filter}{first}")
    }

    fn lines(&self, state: &State) -> usize {
        state.keys.table.visible.len()
    }

    fn at(&self, state: &State) -> usize {
        state.keys.table.at
    }

    fn moved(&self, state: &State, page: usize, motion: C) -> usize {
        state.keys.table.moved(page, motion)
    }

    /// Selects a row; the selection then follows its key.
    fn select(&self, state: &mut State, at: usize) {
        let keys = &mut state.keys;
        (keys.table.at, keys.table.is_missing) = (at, false);
        if let Some(id) = keys.selected().map(|key| key.row.id.clone()) {
            keys.table.pinned = Some(id);
        }
        keys.table.scroll(table_height(state.size));
    }

    fn rule(&self, state: &State) -> Option<String> {
        state.keys.selected().map(|key| key.row.id.rule.clone())
    }

    fn copied(&self, state: &State) -> Option<String> {
        state.keys.selected().map(|key| key.row.id.key.clone())
    }

    /// The sums, and the part of each Envoy.
    fn copied_row(&self, state: &State) -> Option<String> {
        let key = state.keys.selected()?;
        let sums = copied::bucket(&key.row, Nanos::ZERO);
        let parts = key
            .at
            .iter()
            .zip(&state.targets)
            .filter_map(|(part, target)| {
                let refused = part
                    .as_ref()?
                    .rates
                    .map(|rates| rates.refused + rates.shadow);
                Some(format!("{} {}/s", safe(&target.url), rate(refused)))
            });
        let parts: Vec<String> = parts.collect();
        Some(format!("{sums}  at {}", parts.join(", ")))
    }

    fn closed(&self, state: &State) -> Option<String> {
        super::view(Screen::Targets).closed(state)
    }

    /// Clears the filter and lets go of the selection first.
    fn back(&self, state: &mut State) {
        let table = &mut state.keys.table;
        if table.filter_text.is_empty() && table.pinned.is_none() {
            state.screen = Screen::HOME;
            return;
        }
        table.pinned = None;
        table.rewind();
        table.filter_text.clear();
        table.filter = Filter::default();
        state.keys.arrange(table_height(state.size));
    }

    fn run(&self, state: &mut State, command: C) {
        let keys = &mut state.keys;
        let Sort { column, descending } = keys.table.sort;
        match command {
            C::Drill => {
                let selected = keys.selected();
                let found = selected.and_then(|key| Some((key.worst()?, key.row.id.clone())));
                if let Some((number, id)) = found {
                    (state.wants, state.wants_bucket) = (Some(number), Some(id));
                    state.screen = Screen::HOME;
                }
                return;
            }
            C::Filter => {
                let text = keys.table.filter_text.clone();
                state.mode = Mode::Filter(Line::new(&text), text);
                return;
            }
            C::SortLeft => keys.table.sort = beside(column, -1),
            C::SortRight => keys.table.sort = beside(column, 1),
            C::Invert => keys.table.sort.descending = !descending,
            _ => return,
        }
        keys.table.rewind();
        keys.arrange(table_height(state.size));
    }

    /// While the text is invalid, the last valid filter stays in effect.
    fn filter(&self, state: &mut State, text: &str) {
        let rules = state
            .data
            .as_ref()
            .map_or(&[][..], |data| &data.rules.rules);
        match Filter::of_rules(text, rules) {
            Ok(filter) => {
                state.keys.table.filter = filter;
                state.keys.table.filter_error = None;
                state.keys.arrange(table_height(state.size));
            }
            Err(error) => state.keys.table.filter_error = Some(error),
        }
    }

    fn filter_error<'a>(&self, state: &'a State) -> Option<&'a str> {
        state.keys.table.filter_error.as_deref()
    }

    fn accept_filter(&self, state: &mut State, text: &str) -> Result<(), String> {
        let table = &mut state.keys.table;
        if let Some(error) = table.filter_error.clone() {
            return Err(error);
        }
        table.applied(text);
        Ok(())
    }
}

/// A sort by the column `step` to the right.
fn beside(column: Column, step: isize) -> Sort {
    let at = SORTABLE.iter().position(|other| *other == column);
    let next = at.unwrap_or(0).checked_add_signed(step);
    let next = next.and_then(|next| SORTABLE.get(next));
    Sort::by(*next.unwrap_or(&column))
}
