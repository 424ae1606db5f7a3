//! The Keys screen: the keys of all watched Envoys, with the sums of their rates and the rates at
//! each Envoy.

use loudou_api::BucketState;
use loudou_limiter::Nanos;
use loudou_words::num::count;
use ratatui::text::{Line, Span};

use super::view::{About, View};
use super::{copied, list};
use crate::app::columns::Column;
use crate::app::command::{Binding, Command as C, bind, c, k, tab};
use crate::app::filter::Filter;
use crate::app::layout::table_height;
use crate::app::merged::{KeyRow, Part};
use crate::app::press::Code::Enter;
use crate::app::rows::BucketName;
use crate::app::screen::{Places, Screen};
use crate::app::state::{Mode, State};
use crate::app::text_field::TextField;
use crate::draw::pen::Pen;
use crate::draw::theme::Theme;
use crate::draw::widgets::{self, ColumnWidth, Head};
use crate::draw::words::{amount, rate, safe, text, width as width_of};
use crate::short_names::short_names;

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

/// The columns by which rows can be sorted.
const SORTABLE: [Column; 5] = [
    Column::State,
    Column::Rule,
    Column::Key,
    Column::Admitted,
    Column::Refused,
];

/// The Keys screen.
pub(super) struct Keys;

impl View for Keys {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn draw(&self, pen: &mut Pen<'_>, state: &State) {
        draw(pen, state);
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

    /// Selects a row. The selection then follows the row's key.
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

    /// Formats the sums and the rates at each Envoy.
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

    /// Clears the filter and the selection. If neither is set, returns to the Buckets screen.
    fn back(&self, state: &mut State) {
        let table = &mut state.keys.table;
        if table.filter_text.is_empty() && table.pinned.is_none() {
            state.screen = Screen::HOME;
            return;
        }
        table.pinned = None;
        table.clear();
        state.keys.arrange(table_height(state.size));
    }

    fn run(&self, state: &mut State, command: C) {
        let keys = &mut state.keys;
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
                state.mode = Mode::Filter(TextField::new(&text), text);
                return;
            }
            C::SortLeft => keys.table.sort = keys.table.sort.step(&SORTABLE, -1),
            C::SortRight => keys.table.sort = keys.table.sort.step(&SORTABLE, 1),
            C::Invert => keys.table.sort.descending = !keys.table.sort.descending,
            _ => return,
        }
        keys.table.rewind();
        keys.arrange(table_height(state.size));
    }

    fn sorted_by(&self, state: &mut State, column: Column) {
        let table = &mut state.keys.table;
        table.sort = table.sorted_by(column);
        table.rewind();
        state.keys.arrange(table_height(state.size));
    }

    fn filter(&self, state: &mut State, text: &str) {
        let rules = state
            .data
            .as_ref()
            .map_or(&[][..], |data| &data.rules.rules);
        if state.keys.table.filter_by(text, rules) {
            state.keys.arrange(table_height(state.size));
        }
    }

    fn filter_error<'a>(&self, state: &'a State) -> Option<&'a str> {
        state.keys.table.filter_error.as_deref()
    }

    fn accept_filter(&self, state: &mut State, text: &str) -> Result<(), String> {
        state.keys.table.applied(text)
    }
}

// The table: a column for each Envoy or, if they do not fit, one column that names the Envoy that
// refuses most.

/// Width of an Envoy's column.
const PART: u16 = 8;

fn draw(pen: &mut Pen<'_>, state: &State) {
    let (theme, keys) = (pen.theme, &state.keys);
    let table = &keys.table;
    let [body, edge] = list::beside_scroll_bar(pen.area);
    let urls: Vec<&str> = state
        .targets
        .iter()
        .map(|target| target.url.as_str())
        .collect();
    let names = short_names(&urls);
    let widest = |of: fn(&BucketName) -> &str| {
        let widths = keys.rows.iter().map(|key| width_of(&safe(of(&key.row.id))));
        widths.max().unwrap_or(0)
    };
    let (rule, key) = (widest(|id| &id.rule), widest(|id| &id.key));
    let state_wish = ColumnWidth {
        in_steps: true,
        ..ColumnWidth::growing(5, 1, 10, 16)
    };
    let mut wishes = vec![
        state_wish,
        ColumnWidth::growing(3, 6, rule.clamp(6, 20), rule.max(6)),
        ColumnWidth::growing(2, 10, key.clamp(10, 40), key.max(10)),
        ColumnWidth::fixed(1, 11),
        ColumnWidth::fixed(0, 11),
    ];
    let fixed = wishes.len();
    let mut widths = widgets::fit(
        body.width,
        &[
            wishes.as_slice(),
            &vec![ColumnWidth::fixed(9, PART); names.len()],
        ]
        .concat(),
    );
    let has_parts = widths.iter().all(|width| *width > 0);
    if !has_parts {
        wishes.push(ColumnWidth::growing(
            4,
            8,
            PART.saturating_mul(2),
            PART.saturating_mul(3),
        ));
        widths = widgets::fit(body.width, &wishes);
    }
    let mut heads: Vec<Head> = SORTABLE
        .iter()
        .zip(&widths)
        .map(|(column, width)| list::head(theme, *column, *width, table.sort))
        .collect();
    let behind = widths.get(fixed..).unwrap_or_default();
    let titles = if has_parts {
        names.clone()
    } else {
        vec!["most at".to_owned()]
    };
    let titles = titles
        .iter()
        .map(|title| (safe(title).into_owned(), has_parts));
    heads.extend(widgets::heads(titles, behind));
    let lines = table.lines(table_height(state.size));
    let state_width = widths.first().copied().unwrap_or(0);
    let rows = lines.iter().filter_map(|index| {
        let key = keys.row(*index)?;
        let mut cells = row(theme, state, key, state_width);
        if has_parts {
            cells.extend(
                key.at
                    .iter()
                    .map(|part| of_part(theme, part.as_ref()).into()),
            );
        } else {
            cells.push(most_at(theme, key, &names));
        }
        Some((*index, cells))
    });
    let rows = rows.collect();
    let selected = (!table.is_missing).then_some(table.at);
    widgets::table(&mut pen.part(body), &heads, rows, selected);
    list::out_of_view(pen, table, &lines);
    if table.visible.is_empty() {
        let none = if table.filter.is_empty() {
            "no key was read yet"
        } else {
            Filter::advice(&table.filter_text).unwrap_or("no key matches the filter; Esc clears it")
        };
        list::nothing(pen, none);
    }
    list::missing(pen, state, table, keys.rows.iter().map(|key| &key.row));
    widgets::scroll_bar(pen, edge, table.offset, lines.len(), table.visible.len());
}

/// Returns the cells with the state, the rule, the key and the summed rates.
fn row(theme: &Theme, state: &State, key: &KeyRow, state_width: u16) -> Vec<Line<'static>> {
    let (standing, rates) = (key.row.standing(), key.row.rates);
    let (glyph, style) = theme.state(standing);
    let word = if state_width > 1 { standing.word() } else { "" };
    let id = &key.row.id;
    vec![
        text(format!("{glyph} {word}").trim_end(), style).into(),
        text(&id.rule, theme.dim).into(),
        text(&state.shown_key(&id.key), theme.strong).into(),
        text(&rate(rates.map(|rates| rates.admitted)), theme.good).into(),
        list::refused(theme, rates).into(),
    ]
}

/// Names the Envoy that refuses the key most, and shows at how many Envoys the key has a bucket.
fn most_at(theme: &Theme, key: &KeyRow, names: &[String]) -> Line<'static> {
    let name = key.worst().and_then(|number| names.get(number));
    let have = key.at.iter().flatten().count();
    let number = format!(" {have}/{}", key.at.len());
    let name = name.map_or("", String::as_str);
    vec![text(name, theme.plain), text(&number, theme.dim)].into()
}

/// Formats a key's refusals at one Envoy, or `banned` if the key is banned there.
fn of_part(theme: &Theme, part: Option<&Part>) -> Span<'static> {
    match part {
        None => text(theme.pick("·", "."), theme.dim),
        Some(part) if part.state == BucketState::Banned && !part.shadow => {
            text("banned", theme.bad)
        }
        Some(part) => list::refused(theme, part.rates),
    }
}
