//! The Keys screen: the keys of all Envoys that are watched, with the sums of their rates and the part of each Envoy.

use loudou_api::BucketState;
use loudou_limiter::Nanos;
use loudou_words::meaning::refusals;
use loudou_words::num::{cells, count};
use ratatui::style::Style;

use super::list::SCROLL_BAR;
use super::view::{About, View};
use super::{copied, list};
use crate::app::columns::{Column, Sort};
use crate::app::command::{Binding, Command as C, bind, c, k, tab};
use crate::app::filter::Filter;
use crate::app::layout::table_height;
use crate::app::line::Line;
use crate::app::merged::{KeyRow, Part};
use crate::app::press::Code::Enter;
use crate::app::press::Spot;
use crate::app::rows::BucketName;
use crate::app::screen::{Places, Screen};
use crate::app::state::{Mode, State};
use crate::draw::pen::Pen;
use crate::draw::theme::Theme;
use crate::draw::words::{amount, rate, safe, width as width_of};
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

// The table of the Keys screen: a column for each Envoy, or one that names the worst where these have no room.

/// The width of a rate with the gap before it.
const RATE: u16 = 11;
/// The width of the part of an Envoy with the gap before it.
const PART: u16 = 9;
/// The width of a glyph with its gap, and of the word behind it.
const GLYPH: u16 = 2;
const WORD: u16 = 9;
/// The least and the largest width of rules and of keys, and the width of a whole table from which on there are words.
const LEAST: (u16, u16) = (6, 10);
const MOST: (u16, u16) = (20, 40);
const ROOMY: u16 = 90;

/// A name for each Envoy.
fn names(state: &State) -> Vec<String> {
    let urls = state.targets.iter().map(|target| target.url.as_str());
    short_names(&urls.collect::<Vec<_>>())
}

/// The places of the columns.
struct Layout {
    rule: u16,
    key: u16,
    /// The place of the rates, and of the part of the first Envoy.
    rates: u16,
    parts: u16,
    end: u16,
    /// The names of the Envoys, if there is room for a column each.
    names: Vec<String>,
}

impl Layout {
    fn new(width: u16, state: &State) -> Self {
        let end = width.saturating_sub(SCROLL_BAR);
        let names = names(state);
        let keys = &state.keys.rows;
        let widest = |of: fn(&BucketName) -> &str| {
            let widths = keys.iter().map(|key| width_of(&safe(of(&key.row.id))));
            widths.max().unwrap_or(0)
        };
        let (rule, key) = (widest(|id| &id.rule), widest(|id| &id.key));
        let word = if width >= ROOMY { WORD } else { 0 };
        let first = GLYPH.saturating_add(word);
        let rates = RATE.saturating_mul(2);
        let parts = PART.saturating_mul(cells(names.len()));
        let fixed = first.saturating_add(rates).saturating_add(2);
        let room = end.saturating_sub(fixed);
        let least = LEAST.0.saturating_add(LEAST.1);
        // Without room for all Envoys, one column names the worst of them.
        let (names, parts) = if room >= parts.saturating_add(least) {
            (names, parts)
        } else {
            (
                Vec::new(),
                PART.saturating_mul(2).min(room.saturating_sub(least)),
            )
        };
        let room = room.saturating_sub(parts);
        let rule = rule
            .clamp(LEAST.0, MOST.0)
            .min(room.saturating_sub(LEAST.1).max(LEAST.0));
        let key = key.clamp(LEAST.1, MOST.1).min(room.saturating_sub(rule));
        let rates = first
            .saturating_add(rule)
            .saturating_add(key)
            .saturating_add(2);
        Self {
            rule: first,
            key: first.saturating_add(rule).saturating_add(1),
            rates,
            parts: rates.saturating_add(RATE.saturating_mul(2)),
            end,
            names,
        }
    }
}

fn draw(pen: &mut Pen<'_>, state: &State) {
    let keys = &state.keys;
    let layout = Layout::new(pen.width(), state);
    titles(pen, keys.table.sort, &layout);
    if keys.table.visible.is_empty() {
        let none = if keys.table.filter.is_empty() {
            "no key was read yet"
        } else {
            Filter::advice(&keys.table.filter_text)
                .unwrap_or("no key matches the filter; Esc clears it")
        };
        pen.middle(pen.height() / 2, none, pen.theme.dim);
    }
    let lines = keys.table.lines(table_height(state.size));
    for (index, y) in lines.iter().copied().zip(1..pen.height()) {
        let Some(key) = keys.row(index) else {
            continue;
        };
        line(pen, y, &layout, key, state);
        pen.spot(0, y, pen.width(), Spot::Line(index));
        if index == keys.table.at && !keys.table.is_missing {
            pen.select_line(y);
            list::out_of_view(pen, y, &keys.table, lines.len());
        }
    }
    list::missing(pen, &keys.table, keys.rows.iter().map(|key| &key.row));
    list::scroll_bar(pen, &keys.table, lines.len());
}

fn titles(pen: &mut Pen<'_>, sort: Sort, layout: &Layout) {
    let theme = pen.theme;
    pen.style_line(0, theme.head);
    let title = |column: Column, title: &str, is_right: bool| {
        if column == sort.column {
            list::sorted(title, is_right, sort, theme)
        } else {
            title.to_owned()
        }
    };
    let state = if layout.rule > GLYPH { "state" } else { "" };
    pen.text(0, 0, &title(Column::State, state, false), theme.head);
    pen.text(
        layout.rule,
        0,
        &title(Column::Rule, "rule", false),
        theme.head,
    );
    pen.text(layout.key, 0, &title(Column::Key, "key", false), theme.head);
    let admitted = title(Column::Admitted, "admitted/s", true);
    let refused = title(Column::Refused, "refused/s", true);
    pen.right(layout.rates, 0, RATE, &admitted, theme.head);
    pen.right(
        layout.rates.saturating_add(RATE),
        0,
        RATE,
        &refused,
        theme.head,
    );
    for (name, x) in layout
        .names
        .iter()
        .zip((layout.parts..).step_by(usize::from(PART)))
    {
        pen.right(x.saturating_add(1), 0, PART - 1, name, theme.head);
    }
    if layout.names.is_empty() {
        let x = layout.parts.saturating_add(1);
        pen.within(x, 0, layout.end.saturating_sub(x), "most at", theme.head);
    }
}

fn line(pen: &mut Pen<'_>, y: u16, layout: &Layout, key: &KeyRow, state: &State) {
    let theme = pen.theme;
    let standing = key.row.standing();
    let (glyph, style) = theme.state(standing);
    pen.cell(0, i32::from(y), glyph, style);
    if layout.rule > GLYPH {
        let word = standing.word();
        pen.within(GLYPH, y, WORD - 1, word, style);
    }
    let rule = layout.key.saturating_sub(layout.rule).saturating_sub(1);
    pen.within(layout.rule, y, rule, &key.row.id.rule, theme.dim);
    let room = layout.rates.saturating_sub(layout.key);
    pen.within(layout.key, y, room, &key.row.id.key, theme.strong);
    let rates = key.row.rates;
    let admitted = rate(rates.map(|rates| rates.admitted));
    pen.right(layout.rates, y, RATE, &admitted, theme.good);
    let (refused, style) = refused(
        theme,
        key.row.rates.map(|rates| (rates.refused, rates.shadow)),
    );
    pen.right(layout.rates.saturating_add(RATE), y, RATE, &refused, style);
    if layout.names.is_empty() {
        most_at(pen, y, layout, key, state);
        return;
    }
    for (part, x) in key
        .at
        .iter()
        .zip((layout.parts..).step_by(usize::from(PART)))
    {
        let (text, style) = of_part(theme, part.as_ref());
        pen.right(x.saturating_add(1), y, PART - 1, &text, style);
    }
}

/// The Envoy that refuses the key most, and how many have it.
fn most_at(pen: &mut Pen<'_>, y: u16, layout: &Layout, key: &KeyRow, state: &State) {
    let theme = pen.theme;
    let names = names(state);
    let name = key.worst().and_then(|number| names.get(number));
    let have = key.at.iter().flatten().count();
    let x = layout.parts.saturating_add(1);
    let room = layout.end.saturating_sub(x);
    let number = format!(" {have}/{}", key.at.len());
    let name = name.map_or("", String::as_str);
    let x = pen.within(
        x,
        y,
        room.saturating_sub(width_of(&number)),
        name,
        theme.plain,
    );
    pen.text(x, y, &number, theme.dim);
}

/// The part of one Envoy: what it refuses, or that it refuses all.
fn of_part(theme: &Theme, part: Option<&Part>) -> (String, Style) {
    match part {
        None => (theme.pick('·', '.').to_string(), theme.dim),
        Some(part) if part.state == BucketState::Banned && !part.shadow => {
            ("banned".to_owned(), theme.bad)
        }
        Some(part) => refused(theme, part.rates.map(|rates| (rates.refused, rates.shadow))),
    }
}

/// What is refused per second; in parentheses what a rule in shadow mode would refuse.
fn refused(theme: &Theme, rates: Option<(f64, f64)>) -> (String, Style) {
    let Some((refused, would)) = rates else {
        return (rate(None), theme.dim);
    };
    let in_shadow = (would > 0.0).then(|| refusals(rate(Some(would)), true));
    match in_shadow {
        Some(would) if refused > 0.0 => (format!("{} {would}", rate(Some(refused))), theme.bad),
        Some(would) => (would, theme.shadow),
        None if refused > 0.0 => (rate(Some(refused)), theme.bad),
        None => (rate(Some(refused)), theme.dim),
    }
}
