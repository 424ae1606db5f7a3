//! Prints aligned tables, bars and CSV. All text is escaped with [`escape`] first.
//!
//! Each table specifies which columns are truncated first if the table is too wide. The crate
//! `comfy-table` does not support this. It also obeys `NO_COLOR` even if the user has set `--color
//! always`. CSV is written here as well. Escaping and protection against formulas would be needed
//! with any CSV crate, and quoting takes only one line. The colours are only four escape codes, so
//! `anstyle` would not save any lines.

use std::io::{self, Write};

use unicode_width::UnicodeWidthStr as _;

use crate::bars::bar_text;
use crate::style::Style;
use loudou_words::text::escape;

/// Width of a bar, in cells.
const BAR: u16 = 10;
/// Minimum width of a column that is truncated to fit the terminal, in cells.
const MIN_WIDTH: usize = 8;

/// Meaning of a colour. The text has the same meaning without the colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Paint {
    #[default]
    /// No colour.
    Plain,
    /// A heading, in bold.
    Heading,
    /// A refusal or an error.
    Bad,
    /// A wait or a warning.
    Warn,
    /// A detail.
    Dim,
}

impl Paint {
    const fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Heading => "\u{1b}[1m",
            Self::Bad => "\u{1b}[31m",
            Self::Warn => "\u{1b}[33m",
            Self::Dim => "\u{1b}[2m",
        }
    }

    /// Colours `text` if the style allows colours.
    pub fn on(self, text: &str, style: Style) -> String {
        if style.color && self != Self::Plain && !text.is_empty() {
            format!("{}{text}\u{1b}[0m", self.code())
        } else {
            text.to_owned()
        }
    }
}

/// A cell.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    text: String,
    paint: Paint,
}

impl Cell {
    /// Creates a cell that shows `text`, or `-` if `text` is empty.
    pub fn new(text: &str) -> Self {
        let text = if text.is_empty() { "-" } else { text };
        Self {
            text: escape(text).into_owned(),
            paint: Paint::Plain,
        }
    }

    /// Returns the text, escaped for a terminal, and the meaning of its colour.
    pub fn seen(&self) -> (&str, Paint) {
        (&self.text, self.paint)
    }

    /// Returns the cell with this colour.
    #[must_use]
    pub fn paint(self, paint: Paint) -> Self {
        Self { paint, ..self }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::new(&text)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<u64> for Cell {
    fn from(number: u64) -> Self {
        Self::new(&number.to_string())
    }
}

impl From<Option<String>> for Cell {
    fn from(text: Option<String>) -> Self {
        Self::new(text.as_deref().unwrap_or_default())
    }
}

/// Alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    /// Left-aligned.
    Left,
    /// Right-aligned, for numbers.
    Right,
    /// Left-aligned. Truncated first if the table is too wide.
    Shrink,
}

/// A table.
#[derive(Debug)]
pub struct TextTable {
    columns: Vec<(String, Set)>,
    rows: Vec<Vec<Cell>>,
}

impl TextTable {
    /// Creates a table without rows.
    pub fn new(columns: &[(&str, Set)]) -> Self {
        let columns = columns.iter().map(|(name, set)| ((*name).to_owned(), *set));
        Self {
            columns: columns.collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row, which must have one cell per column.
    pub fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// Returns the names and alignments of the columns.
    pub fn columns(&self) -> &[(String, Set)] {
        &self.columns
    }

    /// Returns the rows, which have one cell per column.
    pub fn rows(&self) -> &[Vec<Cell>] {
        &self.rows
    }

    /// Prints the heading and the rows.
    pub fn print(&self, out: &mut dyn Write, style: Style) -> io::Result<()> {
        let heading: Vec<Cell> = self
            .columns
            .iter()
            .map(|(name, _)| Cell::new(name).paint(Paint::Heading))
            .collect();
        writeln!(out, "{}", self.line(&heading, &self.widths(style), style))?;
        self.print_rows(out, style)
    }

    /// Prints only the rows, without a heading.
    pub fn print_rows(&self, out: &mut dyn Write, style: Style) -> io::Result<()> {
        let widths = self.widths(style);
        self.rows
            .iter()
            .try_for_each(|row| writeln!(out, "{}", self.line(row, &widths, style)))
    }

    fn widths(&self, style: Style) -> Vec<usize> {
        let mut widths: Vec<usize> = self.columns.iter().map(|(name, _)| name.width()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = style.marks(&cell.text).width().max(*width);
            }
        }
        let gaps = widths.len().saturating_sub(1).saturating_mul(2);
        let total: usize = widths.iter().sum::<usize>().saturating_add(gaps);
        let mut over = total.saturating_sub(style.width.unwrap_or(usize::MAX));
        for (width, (_, set)) in widths.iter_mut().zip(&self.columns) {
            if *set == Set::Shrink && *width > MIN_WIDTH {
                let narrowed = width.saturating_sub(over).max(MIN_WIDTH);
                over = over.saturating_sub(width.saturating_sub(narrowed));
                *width = narrowed;
            }
        }
        widths
    }

    fn line(&self, row: &[Cell], widths: &[usize], style: Style) -> String {
        let mut line = String::new();
        for ((cell, width), (_, set)) in row.iter().zip(widths).zip(&self.columns) {
            let text = style.marks(&cell.text);
            let text = style.fit(&text, *width);
            let pad = " ".repeat(width.saturating_sub(text.width()));
            let text = cell.paint.on(&text, style);
            if *set == Set::Right {
                line.extend([pad.as_str(), &text, "  "]);
            } else {
                line.extend([text.as_str(), &pad, "  "]);
            }
        }
        line.trim_end().to_owned()
    }
}

/// Prints names and values, one pair per line.
pub fn named<N: AsRef<str>>(
    lines: &[(N, Cell)],
    style: Style,
    out: &mut dyn Write,
) -> io::Result<()> {
    let longest = lines.iter().map(|(name, _)| name.as_ref().len()).max();
    let width = longest.unwrap_or(0).saturating_add(1);
    for (name, value) in lines {
        let name = Paint::Heading.on(&format!("{:width$}", name.as_ref()), style);
        writeln!(out, "{name}{}", value.paint.on(&value.text, style))?;
    }
    Ok(())
}

/// Returns a bar that shows `part` of `whole`, rounded up so that even a small part is visible.
pub fn bar(part: u64, whole: u64, style: Style) -> String {
    bar_text(part, whole, BAR, style.ascii)
}

/// Prints one record according to RFC 4180. A field that a spreadsheet would interpret as a formula
/// is prefixed with `'`.
pub fn csv<'a>(out: &mut dyn Write, fields: impl IntoIterator<Item = &'a str>) -> io::Result<()> {
    let fields: Vec<String> = fields.into_iter().map(csv_field).collect();
    write!(out, "{}\r\n", fields.join(","))
}

/// Formats a field of a record.
pub fn csv_field(text: &str) -> String {
    let escaped = escape(text);
    let mark = if is_formula(text) { "'" } else { "" };
    if escaped == text && !text.contains([',', '"']) {
        return format!("{mark}{text}");
    }
    format!("\"{mark}{}\"", escaped.replace('"', "\"\""))
}

/// Returns true if a spreadsheet would interpret the text as a formula, which is a risk because
/// clients may choose the text. Leading tabs and line breaks need no check, because they are
/// escaped. The check ignores existing `'` prefixes. A text that begins with `'=` therefore gets
/// another `'` and stays distinct from a prefixed `=`.
fn is_formula(text: &str) -> bool {
    let text = text.trim_start_matches('\'');
    let is_number = text.parse::<f64>().is_ok_and(f64::is_finite);
    text.starts_with(['=', '+', '-', '@']) && text != "-" && !is_number
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ASCII: Style = Style {
        color: false,
        ascii: true,
        width: None,
    };

    fn printed(table: &TextTable, style: Style) -> String {
        let mut out = Vec::new();
        table.print(&mut out, style).expect("writes");
        String::from_utf8(out).expect("UTF-8")
    }

    fn table(key: &str) -> TextTable {
        let mut table = TextTable::new(&[("KEY", Set::Shrink), ("N", Set::Right)]);
        table.row(vec![key.into(), 7.into()]);
        table.row(vec![String::new().into(), 12345.into()]);
        table
    }

    #[test]
    fn columns_line_up_whatever_the_width_of_characters() {
        let lines = printed(&table("漏斗"), Style::default());
        assert_eq!(lines, "KEY       N\n漏斗      7\n-     12345\n");
    }

    #[test]
    fn hostile_keys_are_escaped() {
        let lines = printed(&table("a\u{1b}]0;x\u{7}\r\nb\u{202e}"), Style::default());
        assert!(
            lines.contains("a\\u{1b}]0;x\\u{7}\\r\\nb\\u{202e}"),
            "{lines}"
        );
        assert_eq!(lines.lines().count(), 3);
    }

    #[test]
    fn a_narrow_terminal_marks_what_it_cuts() {
        let style = Style {
            width: Some(20),
            ..Style::default()
        };
        let key = "a-very-long-key-that-does-not-fit";
        assert_eq!(
            printed(&table(key), style),
            "KEY                N\na-very-long-…      7\n-              12345\n"
        );
    }

    #[test]
    fn bars() {
        let plain = Style::default();
        assert_eq!(bar(0, 100, plain), "··········");
        assert_eq!(bar(1, 1_000_000, plain), "▏·········");
        assert_eq!(bar(55, 100, plain), "█████▌····");
        assert_eq!(bar(100, 100, plain), "██████████");
        assert_eq!(bar(200, 100, plain), "██████████");
        assert_eq!(bar(0, 0, plain), "··········");
        assert_eq!(bar(35, 100, ASCII), "####......");
    }

    #[test]
    fn csv_quotes_as_in_the_rfc() {
        let mut out = Vec::new();
        csv(&mut out, ["a", "b,c", "say \"x\"", "", "\u{1b}[m"]).expect("writes");
        assert_eq!(
            String::from_utf8(out).expect("UTF-8"),
            "a,\"b,c\",\"say \"\"x\"\"\",,\"\\u{1b}[m\"\r\n"
        );
    }

    /// Clients choose keys, and a spreadsheet would evaluate a key that looks like a formula.
    #[test]
    fn csv_has_no_formulas() {
        for (text, cell) in [
            ("=1+1", "'=1+1"),
            ("+1+cmd|' /C calc'!A0", "'+1+cmd|' /C calc'!A0"),
            ("-2+3", "'-2+3"),
            ("@SUM(A1,A2)", "\"'@SUM(A1,A2)\""),
            ("=\"x\"", "\"'=\"\"x\"\"\""),
            ("\t=1", "\"\\t=1\""),
            ("'=1", "''=1"),
            ("'x", "'x"),
            ("-inf", "'-inf"),
            ("-nan", "'-nan"),
            ("-5", "-5"),
            ("+1.5", "+1.5"),
            ("-", "-"),
            ("a=1", "a=1"),
        ] {
            assert_eq!(csv_field(text), cell, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_fits(text in any::<String>(), width in 1_usize..40) {
            let text = escape(&text);
            prop_assert!(ASCII.fit(&text, width).width() <= width.max(1));
        }

        #[test]
        fn bars_have_the_stated_width(part in any::<u64>(), whole in any::<u64>()) {
            for style in [ASCII, Style::default()] {
                prop_assert_eq!(bar(part, whole, style).width(), usize::from(BAR));
            }
        }
    }
}
