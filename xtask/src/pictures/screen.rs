//! Draws pictures of the terminal app's screens from styled snapshots.
//!
//! A snapshot has one line for each run of cells with the same style: `ROW:COLUMN FOREGROUND on
//! BACKGROUND MODIFIERS TEXT`. Block and line characters are drawn as shapes, so that adjacent
//! characters join in any font.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context as _, Result, bail};
use loudou_tests::paths::workspace_root;
use unicode_width::UnicodeWidthChar as _;

/// Screens to draw: the name of the snapshot and the title of the picture.
pub(super) const SCREENS: [(&str, &str); 3] = [
    ("buckets", "loudou: the buckets"),
    ("bucket", "loudou: one bucket"),
    ("rules", "loudou: the rules, with charts"),
];

/// Width and height of a cell, and margin around the screen, in pixels.
const CELL: (u32, u32) = (9, 19);
const MARGIN: u32 = 12;
const INK: &str = "#d0d0d0";
const PAPER: &str = "#16181d";

/// A run of cells with the same style.
#[derive(Debug, PartialEq, Eq)]
struct Run<'a> {
    row: u32,
    column: u32,
    ink: &'a str,
    paper: &'a str,
    modifiers: &'a str,
    text: &'a str,
}

/// Draws the picture of a screen as SVG.
pub(super) fn picture(name: &str, title: &str) -> Result<String> {
    let path = format!("tui/src/ui/snapshots/loudou__ui__tests__picture_{name}.snap");
    let text = fs::read_to_string(workspace_root().join(&path)).with_context(|| path.clone())?;
    draw(&text, title).with_context(|| path)
}

fn draw(snapshot: &str, title: &str) -> Result<String> {
    let (_head, body) = snapshot.split_once("\n---\n").context("no snapshot")?;
    let lines = body.lines().filter(|line| !line.is_empty());
    let runs = lines.map(run).collect::<Result<Vec<_>>>()?;
    let rows = runs.iter().map(|run| run.row.saturating_add(1)).max();
    let columns = runs
        .iter()
        .map(|run| run.column.saturating_add(width(run.text)));
    let (columns, rows) = (columns.max().unwrap_or(0), rows.unwrap_or(0));
    let across = pixels(columns, CELL.0).saturating_add(MARGIN);
    let down = pixels(rows, CELL.1).saturating_add(MARGIN);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" xml:space=\"preserve\" viewBox=\"0 0 {across} {down}\" role=\"img\">\n\
         <title>{}</title>\n\
         <style>text{{font:15px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre}}</style>\n\
         <rect width=\"{across}\" height=\"{down}\" rx=\"8\" fill=\"{PAPER}\"/>\n",
        super::svg::escaped(title)
    );
    for run in &runs {
        out.push_str(&drawn(run)?);
    }
    out.push_str("</svg>\n");
    Ok(out)
}

/// Parses a line of a snapshot.
fn run(line: &str) -> Result<Run<'_>> {
    let parts = || {
        let (place, rest) = line.split_once(' ')?;
        let (row, column) = place.split_once(':')?;
        let (ink, rest) = rest.split_once(" on ")?;
        // Trailing spaces are missing from the last run of a snapshot.
        let (paper, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        let (modifiers, text) = rest.split_once(' ').unwrap_or((rest, ""));
        Some(Run {
            row: row.parse().ok()?,
            column: column.parse().ok()?,
            ink,
            paper,
            modifiers,
            text,
        })
    };
    parts().with_context(|| format!("not a run of cells: {line}"))
}

fn drawn(run: &Run<'_>) -> Result<String> {
    let reversed = run.modifiers.contains("REVERSED");
    let (mut ink, mut paper) = (color(run.ink, INK)?, color(run.paper, PAPER)?);
    if reversed {
        (ink, paper) = (paper, ink);
    }
    let (x, y) = (pixels(run.column, CELL.0), pixels(run.row, CELL.1));
    let across = width(run.text).saturating_mul(CELL.0);
    let mut out = String::new();
    if paper != PAPER {
        let down = CELL.1;
        let _written = writeln!(
            out,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{across}\" height=\"{down}\" fill=\"{paper}\"/>"
        );
    }
    let mut shapes = String::new();
    let mut letters = String::new();
    let mut at = run.column;
    for glyph in run.text.chars() {
        match shape(glyph, pixels(at, CELL.0), y) {
            Some(path) => {
                shapes.push_str(&path);
                letters.push(' ');
            }
            None => letters.push(glyph),
        }
        at = at.saturating_add(cells(glyph));
    }
    if !shapes.is_empty() {
        let _written = writeln!(
            out,
            "<path d=\"{shapes}\" fill=\"{ink}\" stroke=\"{ink}\" stroke-width=\".3\"/>"
        );
    }
    let word = letters.trim_end();
    let spaces = word.len().saturating_sub(word.trim_start().len());
    let word = word.trim_start();
    if !word.is_empty() {
        let x = x.saturating_add(u32::try_from(spaces)?.saturating_mul(CELL.0));
        let across = width(word).saturating_mul(CELL.0);
        let base = y.saturating_add(14);
        let bold = if run.modifiers.contains("BOLD") {
            " font-weight=\"700\""
        } else {
            ""
        };
        let line = if run.modifiers.contains("UNDERLINED") {
            " text-decoration=\"underline\""
        } else {
            ""
        };
        let word = super::svg::escaped(word);
        let _written = writeln!(
            out,
            "<text x=\"{x}\" y=\"{base}\" textLength=\"{across}\" lengthAdjust=\"spacingAndGlyphs\" \
             fill=\"{ink}\"{bold}{line}>{word}</text>"
        );
    }
    Ok(out)
}

/// Returns the SVG path of a block or line character, or `None` for other characters.
fn shape(glyph: char, x: u32, y: u32) -> Option<String> {
    let (across, down) = CELL;
    let eighths = |first: char| u32::from(glyph).saturating_sub(u32::from(first));
    let rectangle = |x: f64, y: f64, across: f64, down: f64| {
        Some(format!("M{x} {y}h{across}v{down}h-{across}z"))
    };
    let (left, top) = (f64::from(x), f64::from(y));
    let (full, high) = (f64::from(across), f64::from(down));
    match glyph {
        '█' => rectangle(left, top, full, high),
        '▉'..='▏' => {
            let part = 7_u32.saturating_sub(eighths('▉'));
            rectangle(left, top, full * f64::from(part) / 8.0, high)
        }
        '▁'..='▇' => {
            let part = eighths('▁').saturating_add(1);
            let part = high * f64::from(part) / 8.0;
            rectangle(left, top + high - part, full, part)
        }
        '│' => rectangle(left + full / 2.0, top, 1.0, high),
        '─' => rectangle(left, top + high / 2.0, full, 1.0),
        '╲' => Some(format!("M{left} {top}h1l{} {high}h-1z", full - 1.0)),
        '╱' => Some(format!(
            "M{} {top}h1l-{} {high}h-1z",
            left + full - 1.0,
            full - 1.0
        )),
        _ => None,
    }
}

/// Converts a colour in a snapshot to its hexadecimal form. `Reset` becomes the default colour
/// `plain`.
fn color(name: &str, plain: &str) -> Result<String> {
    if name == "Reset" {
        return Ok(plain.to_owned());
    }
    let index: u8 = name.parse().with_context(|| format!("colour {name}"))?;
    let [red, green, blue] = match index {
        // The 256-colour palette: a colour cube with six levels per channel, and then greys.
        16..=231 => {
            let at = index.saturating_sub(16);
            let level = |n: u8| {
                if n == 0 {
                    0
                } else {
                    n.saturating_mul(40).saturating_add(55)
                }
            };
            [level(at / 36), level(at / 6 % 6), level(at % 6)]
        }
        232.. => {
            [index
                .saturating_sub(232)
                .saturating_mul(10)
                .saturating_add(8); 3]
        }
        _ => bail!("colour {index} has no fixed look"),
    };
    Ok(format!("#{red:02x}{green:02x}{blue:02x}"))
}

const fn pixels(cells: u32, size: u32) -> u32 {
    cells.saturating_mul(size).saturating_add(MARGIN)
}

fn cells(glyph: char) -> u32 {
    glyph
        .width()
        .and_then(|width| u32::try_from(width).ok())
        .unwrap_or(0)
}

fn width(text: &str) -> u32 {
    text.chars().map(cells).fold(0, u32::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_runs() {
        let read = run("12:3 78 on 238 BOLD+UNDERLINED  a <b>").expect("a run");
        assert_eq!((read.row, read.column, read.ink), (12, 3, "78"));
        assert_eq!((read.paper, read.modifiers), ("238", "BOLD+UNDERLINED"));
        assert_eq!(read.text, " a <b>");
        assert_eq!(run("0:1 Reset on Reset").expect("a run").text, "");
        assert!(run("nothing").is_err());
    }

    #[test]
    fn colours_of_256() {
        for (index, expected) in [("16", "#000000"), ("81", "#5fd7ff"), ("238", "#444444")] {
            assert_eq!(color(index, INK).expect("a colour"), expected);
        }
        assert_eq!(color("Reset", INK).expect("a colour"), INK);
        assert!(color("3", INK).is_err());
    }

    #[test]
    fn blocks_are_shapes() {
        assert_eq!(shape('▄', 0, 0).as_deref(), Some("M0 9.5h9v9.5h-9z"));
        assert_eq!(shape('▏', 0, 0).as_deref(), Some("M0 0h1.125v19h-1.125z"));
        assert_eq!(shape('a', 0, 0), None);
    }
}
