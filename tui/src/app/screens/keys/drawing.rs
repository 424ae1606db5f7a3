//! The table of the Keys screen: a column for each Envoy, or one that names the worst where these have no room.

use loudou_api::BucketState;
use ratatui::style::Style;

use crate::app::columns::{Column, Sort};
use crate::app::filter::Filter;
use crate::app::layout::table_height;
use crate::app::merged::{KeyRow, Part};
use crate::app::press::Spot;
use crate::app::rows::BucketName;
use crate::app::screens::list::{self, SCROLL_BAR};
use crate::app::state::State;
use crate::draw::pen::Pen;
use crate::draw::theme::Theme;
use crate::draw::words::{rate, safe, width as width_of};
use crate::short_names::short_names;
use loudou_words::meaning::refusals;
use loudou_words::num::cells;

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

pub(super) fn draw(pen: &mut Pen<'_>, state: &State) {
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
