//! Widgets that several screens share: tables whose columns adapt to the available width, boxes,
//! scroll bars, levels and charts. The widgets are based on ratatui's widgets, and have ASCII
//! substitutes for all characters.

use loudou_print::bars::{growing, in_cell};
use loudou_words::num::{share, whole};
use loudou_words::text::humanise;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::symbols::{bar, border};
use ratatui::text::{Line, Span};
use ratatui::widgets::{
    Block, Cell, Clear, Row, Scrollbar, ScrollbarOrientation, ScrollbarState, Sparkline, Table,
    TableState,
};

use super::pen::Pen;
use super::theme::Theme;
use super::words::{rate, text};
use crate::app::press::Spot;

// Tables.

/// Widths that a column can have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ColumnWidth {
    /// Rank of the column when widths are assigned. Columns with the highest rank are left out
    /// first.
    pub(crate) rank: u8,
    /// The column is left out if it cannot get `least` cells. All columns grow to `good` before any
    /// column grows to `most`.
    pub(crate) least: u16,
    pub(crate) good: u16,
    pub(crate) most: u16,
    /// True if the column can only have one of these three widths, because a truncated word would
    /// be meaningless.
    pub(crate) in_steps: bool,
}

impl ColumnWidth {
    /// Returns the widths of a column that cannot grow.
    pub(crate) const fn fixed(rank: u8, width: u16) -> Self {
        Self::growing(rank, width, width, width)
    }

    /// Returns the widths of a column that can grow.
    pub(crate) const fn growing(rank: u8, least: u16, good: u16, most: u16) -> Self {
        Self {
            rank,
            least,
            good,
            most,
            in_steps: false,
        }
    }
}

/// Distributes `room` cells among columns, with one cell between two columns. Columns that are left
/// out get width 0.
pub(crate) fn fit(room: u16, wishes: &[ColumnWidth]) -> Vec<u16> {
    let mut by_rank: Vec<(usize, &ColumnWidth)> = wishes.iter().enumerate().collect();
    by_rank.sort_by_key(|(_, wish)| wish.rank);
    let mut widths = vec![0_u16; wishes.len()];
    // The last column needs no gap.
    let mut free = room.saturating_add(1);
    for (at, wish) in &by_rank {
        let Some(left) = free.checked_sub(wish.least.saturating_add(1)) else {
            break;
        };
        free = left;
        if let Some(width) = widths.get_mut(*at) {
            *width = wish.least;
        }
    }
    for most in [
        |wish: &ColumnWidth| wish.good,
        |wish: &ColumnWidth| wish.most,
    ] {
        for (at, wish) in &by_rank {
            let Some(width) = widths.get_mut(*at).filter(|width| **width > 0) else {
                continue;
            };
            let more = most(wish).saturating_sub(*width);
            let more = if more <= free {
                more
            } else if wish.in_steps {
                0
            } else {
                free
            };
            *width = width.saturating_add(more);
            free = free.saturating_sub(more);
        }
    }
    widths
}

/// Heading of a column, and its width.
pub(crate) struct Head {
    pub(crate) title: Line<'static>,
    pub(crate) width: u16,
    pub(crate) is_right: bool,
    /// True if the cells contain bars or charts, which would look wrong in reversed colours.
    pub(crate) is_picture: bool,
    /// Action of a click on the heading.
    pub(crate) spot: Option<Spot>,
}

/// Returns the headings of columns that cannot be used for sorting. The flag is true for a column
/// that is aligned right, such as a column of numbers.
pub(crate) fn heads<T: Into<Line<'static>>>(
    titles: impl IntoIterator<Item = (T, bool)>,
    widths: &[u16],
) -> Vec<Head> {
    let titles = titles.into_iter().zip(widths);
    let heads = titles.map(|((title, is_right), width)| Head {
        title: title.into(),
        width: *width,
        is_right,
        is_picture: false,
        spot: None,
    });
    heads.collect()
}

/// Draws headings and, below them, the visible rows. Each row consists of a number, which
/// identifies the row if it is clicked, and its cells. Columns with width 0 are left out. The row
/// `selected` is highlighted.
pub(crate) fn table(
    pen: &mut Pen<'_>,
    heads: &[Head],
    rows: Vec<(usize, Vec<Line<'static>>)>,
    selected: Option<usize>,
) {
    let (theme, area) = (pen.theme, pen.area);
    let wide = || heads.iter().filter(|head| head.width > 0);
    let constraints: Vec<Constraint> = wide().map(|head| Constraint::Length(head.width)).collect();
    let places = Layout::horizontal(&constraints)
        .spacing(1)
        .split(pen.row(0));
    let cell = |line: Line<'static>, head: &Head| {
        let line = theme.fit_line(line, head.width);
        Cell::from(if head.is_right {
            line.right_aligned()
        } else {
            line
        })
    };
    let whole_row = theme.has_colours();
    let mut state = TableState::new();
    let mut shown = Vec::with_capacity(rows.len());
    for ((number, line), y) in rows.into_iter().zip(0_u16..) {
        if selected == Some(number) {
            state.select(Some(usize::from(y)));
        }
        pen.spot(pen.row(y.saturating_add(1)), Spot::Line(number));
        let cells = line.into_iter().zip(heads);
        let cells = cells
            .filter(|(_, head)| head.width > 0)
            .map(|(mut line, head)| {
                let marked = selected == Some(number) && !whole_row && !head.is_picture;
                let style = if marked { theme.row } else { Style::new() };
                // Dim text would be hard to read in reversed colours.
                let spans = line.iter_mut().filter(|_| marked);
                spans.for_each(|span| span.style = span.style.remove_modifier(Modifier::DIM));
                cell(line, head).style(style)
            });
        shown.push(Row::new(cells));
    }
    for (head, place) in wide().zip(places.iter()) {
        if let Some(spot) = head.spot {
            pen.spot(*place, spot);
        }
    }
    let titles = wide().map(|head| cell(head.title.clone(), head));
    let table = Table::new(shown, constraints)
        .header(Row::new(titles).style(theme.head))
        .row_highlight_style(if whole_row { theme.row } else { Style::new() });
    pen.draw_with(area, table, &mut state);
}

/// Returns the index of the first visible line, so that line `at` of `len` lines is among the
/// `height` visible lines.
pub(crate) fn first_line(len: usize, height: u16, at: usize) -> usize {
    let height = usize::from(height);
    let last = len.saturating_sub(height);
    at.saturating_add(2).saturating_sub(height).min(last)
}

/// Draws a scroll bar for a table of `all` rows, in which `shown` rows are visible, beginning with
/// row `first`. Draws nothing if all rows are visible.
pub(crate) fn scroll_bar(pen: &mut Pen<'_>, area: Rect, first: usize, shown: usize, all: usize) {
    let places = all.saturating_sub(shown);
    if places == 0 {
        return;
    }
    let theme = pen.theme;
    let bar = Scrollbar::new(ScrollbarOrientation::VerticalRight)
        .begin_symbol(None)
        .end_symbol(None)
        .thumb_symbol(theme.pick("█", "#"))
        .thumb_style(theme.dim)
        .track_symbol(Some(theme.pick("│", "|")))
        .track_style(theme.track);
    let mut state = ScrollbarState::new(places.saturating_add(1))
        .position(first)
        .viewport_content_length(shown);
    pen.draw_with(area, bar, &mut state);
}

// Boxes.

const ASCII_BORDER: border::Set<'_> = border::Set {
    top_left: "+",
    top_right: "+",
    bottom_left: "+",
    bottom_right: "+",
    vertical_left: "|",
    vertical_right: "|",
    horizontal_top: "-",
    horizontal_bottom: "-",
};

/// Draws an empty box in the centre of the pen's area, with at most `width` by `height` cells.
/// Returns a pen for the inside of the box, and the area of the box.
pub(crate) fn open<'a>(
    pen: &'a mut Pen<'_>,
    title: &str,
    width: u16,
    height: u16,
) -> (Pen<'a>, Rect) {
    let theme = pen.theme;
    let area = pen.area.centered(
        Constraint::Length(width.min(pen.area.width)),
        Constraint::Length(height.min(pen.area.height)),
    );
    let set = if theme.ascii {
        ASCII_BORDER
    } else {
        border::ROUNDED
    };
    let mut block = Block::bordered().border_set(set).border_style(theme.dim);
    if !title.is_empty() {
        let corner = Span::styled(theme.pick("─", "-"), theme.dim);
        let title = Line::from(vec![corner, text(&format!(" {title} "), theme.name)]);
        block = block.title(theme.fit_line(title, area.width.saturating_sub(3)));
    }
    let inside = block.inner(area);
    pen.draw(area, Clear);
    pen.draw(area, block);
    (pen.part(inside), area)
}

/// Returns one line per string, all in the same style.
pub(crate) fn all(texts: &[String], style: Style) -> impl Iterator<Item = Line<'static>> + '_ {
    texts.iter().map(move |line| Line::from(text(line, style)))
}

// Levels and charts, which are drawn in eighths of a cell.

const RISING: bar::Set<'_> = bar::NINE_LEVELS;

const ASCII_RISING: bar::Set<'_> = bar::Set {
    full: "#",
    seven_eighths: "=",
    three_quarters: "=",
    five_eighths: "-",
    half: "-",
    three_eighths: ".",
    one_quarter: ".",
    one_eighth: ".",
    empty: " ",
};

/// Returns how many eighths of a cell a level from 0 to 1 fills in a bar of `cells` cells. A level
/// above 0 fills at least one eighth.
pub(crate) fn filled_by_level(level: f64, cells: u16) -> u16 {
    if level > 0.0 {
        share(level, cells.saturating_mul(8)).max(1)
    } else {
        0
    }
}

/// Returns a bar of `width` cells that shows a level from 0 to 1.
pub(crate) fn level(theme: &Theme, width: u16, level: f64, style: Style) -> [Span<'static>; 2] {
    let eighths = filled_by_level(level, width);
    let (full, empty): (Vec<u16>, Vec<u16>) = (0..width)
        .map(|cell| in_cell(eighths, cell))
        .partition(|eighths| *eighths > 0);
    let full: String = full
        .into_iter()
        .map(|eighths| growing(eighths, theme.ascii))
        .collect();
    let empty = theme.pick("·", ".").repeat(empty.len());
    [Span::styled(full, style), Span::styled(empty, theme.track)]
}

/// A chart of rates over time. `values` begins with the oldest rate, and contains `None` for each
/// unknown rate.
pub(crate) struct Chart {
    pub(crate) name: &'static str,
    pub(crate) style: Style,
    pub(crate) values: Vec<Option<f64>>,
    pub(crate) now: Option<f64>,
    pub(crate) span_ns: u64,
    /// Rate of the limit, drawn as a line.
    pub(crate) limit: Option<f64>,
}

/// Width of the axis in cells.
pub(crate) const AXIS: u16 = 7;

/// Draws a chart in the pen's area. The first line shows the chart's name and the current rate. The
/// axis and the columns are below.
pub(crate) fn chart(pen: &mut Pen<'_>, chart: &Chart) {
    let theme = pen.theme;
    let [head, body] =
        Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(pen.area);
    let peak = chart.values.iter().flatten().copied().fold(0.0, f64::max);
    pen.line(
        head,
        vec![
            Span::styled(chart.name, chart.style),
            text(&format!(" {}", rate(chart.now)), theme.strong),
            text(
                &format!("  peak {} in {}", rate(Some(peak)), humanise(chart.span_ns)),
                theme.dim,
            ),
        ],
    );
    // A limit far above all rates is left out, because the rates would be invisible on its scale.
    let limit = chart
        .limit
        .filter(|limit| *limit <= peak * 4.0 || peak <= 0.0);
    let top = limit.unwrap_or(0.0).max(peak);
    let [axis, plot] =
        Layout::horizontal([Constraint::Length(AXIS), Constraint::Fill(1)]).areas(body);
    if top <= 0.0 || body.is_empty() {
        return baseline(pen, plot, &chart.values);
    }
    let eighths = f64::from(plot.height) * 8.0;
    let scaled = |value: f64| whole((value / top).clamp(0.0, 1.0) * eighths);
    let data: Vec<Option<u64>> = chart
        .values
        .iter()
        .map(|value| value.map(|value| whole((value / top * eighths).ceil())))
        .collect();
    let sparkline = Sparkline::default()
        .data(data)
        .max(u64::from(plot.height).saturating_mul(8))
        .bar_set(if theme.ascii { ASCII_RISING } else { RISING })
        .absent_value_symbol(" ")
        .style(chart.style);
    pen.draw(plot, sparkline);
    baseline(pen, plot, &chart.values);
    let mut label = |y: u16, value: f64, style: Style| {
        let row = Rect {
            y,
            height: 1,
            ..axis
        };
        let mark = theme.pick("┤", "|");
        let wide = usize::from(AXIS).saturating_sub(2);
        pen.line(
            row,
            text(&format!("{:>wide$} {mark}", rate(Some(value))), style),
        );
    };
    label(axis.y, top, theme.dim);
    if let Some(limit) = limit {
        let above = u16::try_from(scaled(limit) / 8)
            .unwrap_or(0)
            .min(plot.height.saturating_sub(1));
        let y = plot.bottom().saturating_sub(1).saturating_sub(above);
        label(y, limit, theme.name);
        limit_line(
            pen,
            Rect {
                y,
                height: 1,
                ..plot
            },
            chart,
        );
    }
}

/// Draws the line of the limit wherever no column reaches the limit.
fn limit_line(pen: &mut Pen<'_>, row: Rect, chart: &Chart) {
    let theme = pen.theme;
    let limit = chart.limit.unwrap_or(f64::INFINITY);
    for (column, value) in row.columns().zip(&chart.values) {
        if value.is_none_or(|value| value < limit) {
            pen.line(column, Span::styled(theme.pick("─", "-"), theme.name));
        }
    }
}

/// Draws the bottom row of a chart, with a dot for each unknown rate and a line for each rate of
/// zero.
fn baseline(pen: &mut Pen<'_>, plot: Rect, values: &[Option<f64>]) {
    let theme = pen.theme;
    let row = Rect {
        y: plot.bottom().saturating_sub(1),
        height: plot.height.min(1),
        ..plot
    };
    for (column, value) in row.columns().zip(values) {
        let glyph = match value {
            None => theme.pick("·", " "),
            Some(value) if *value <= 0.0 => theme.pick("▁", "_"),
            Some(_) => continue,
        };
        pen.line(column, Span::styled(glyph, theme.track));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_get_room_by_rank_and_never_overlap() {
        let mut state = ColumnWidth::growing(0, 1, 10, 16);
        state.in_steps = true;
        let wishes = [
            state,
            ColumnWidth::growing(2, 6, 20, 60),
            ColumnWidth::fixed(1, 9),
            ColumnWidth::growing(3, 8, 24, 60),
        ];
        for room in 0..300 {
            let widths = fit(room, &wishes);
            let shown: Vec<u16> = widths.iter().copied().filter(|width| *width > 0).collect();
            let sum: u16 = shown.iter().sum();
            assert!(
                sum + u16::try_from(shown.len().saturating_sub(1)).expect("few") <= room,
                "{room}: {widths:?}"
            );
            assert!([0, 1, 10, 16].contains(&widths[0]), "{room}: {widths:?}");
            // A column only appears if all columns with a lower rank appear.
            for pair in [[0, 2], [2, 1], [1, 3]] {
                assert!(
                    widths[pair[1]] == 0 || widths[pair[0]] > 0,
                    "{room}: {widths:?}"
                );
            }
        }
        assert_eq!(fit(18, &wishes), [1, 6, 9, 0]);
        assert_eq!(fit(300, &wishes), [16, 60, 9, 60]);
    }

    #[test]
    fn levels_fill_their_cells() {
        let theme = Theme::new(false, false);
        let shown = |part| {
            level(&theme, 4, part, theme.plain)
                .map(|span| span.content.into_owned())
                .concat()
        };
        assert_eq!(
            [0.0, 0.001, 0.5, 1.0].map(shown),
            ["····", "▏···", "██··", "████"]
        );
    }
}
