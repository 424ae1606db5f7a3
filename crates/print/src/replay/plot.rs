//! Plots counts over time with block characters or in ASCII.

use std::io::{self, Write};

use crate::bars::{filled, in_cell, rising};
use crate::style::Style;
use loudou_words::num::count;

/// Height of a plot in lines.
const LINES: u16 = 5;
/// Width of the labels on the left in cells, including the axis.
const MARGIN: usize = 10;

/// Labels below a plot, at its left and right ends.
pub(super) struct Axis {
    pub(super) from: String,
    pub(super) to: String,
}

/// Returns the number of values to add up in each column, so that the plot fits into `width` cells.
pub(super) fn each(values: &[u64], width: usize) -> u64 {
    let room = width.saturating_sub(MARGIN).max(1);
    count(values.len().div_ceil(room).max(1))
}

/// Prints a plot of `values`. The scale ends at the tallest column, or at `highest` if `highest` is
/// larger.
pub(super) fn print(
    values: &[u64],
    highest: Option<u64>,
    axis: &Axis,
    width: usize,
    out: &mut dyn Write,
    style: Style,
) -> io::Result<()> {
    let each = usize::try_from(each(values, width)).unwrap_or(1);
    let columns: Vec<u64> = values
        .chunks(each)
        .map(|chunk| chunk.iter().sum())
        .collect();
    let most = columns
        .iter()
        .copied()
        .chain(highest)
        .max()
        .unwrap_or(0)
        .max(1);
    let (bar, corner, line) = if style.ascii {
        ("|", "+", "-")
    } else {
        ("┤", "└", "─")
    };
    for row in (0..LINES).rev() {
        let label = if row + 1 == LINES {
            most.to_string()
        } else {
            String::new()
        };
        let cells: String = columns.iter().map(|n| cell(*n, most, row, style)).collect();
        writeln!(out, "{label:>8} {bar}{}", cells.trim_end())?;
    }
    writeln!(out, "{:>8} {corner}{}", 0, line.repeat(columns.len()))?;
    let Axis { from, to } = axis;
    let gap = columns.len().saturating_sub(from.len() + to.len()).max(2);
    writeln!(out, "{:>10}{from}{}{to}", "", " ".repeat(gap))
}

/// Returns the character in line `row`, counted from the bottom, of a column with value `n` on a
/// scale that ends at `most`.
fn cell(n: u64, most: u64, row: u16, style: Style) -> char {
    let eighths = filled(n, most, LINES, style.ascii);
    rising(in_cell(eighths, row), style.ascii)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(values: &[u64], width: usize, ascii: bool) -> String {
        let mut out = Vec::new();
        let axis = Axis {
            from: "0s".to_owned(),
            to: "9s".to_owned(),
        };
        let style = Style {
            ascii,
            ..Style::default()
        };
        print(values, None, &axis, width, &mut out, style).expect("writes");
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn blocks() {
        let expected = "      40 ┤    █
         ┤    █
         ┤   ▄█
         ┤   ██
         ┤ ▁▃██▁
       0 └──────
          0s  9s
";
        assert_eq!(plot(&[0, 1, 3, 20, 40, 1], 60, false), expected);
    }

    #[test]
    fn ascii_and_no_more_columns_than_there_are() {
        let expected = "       3 | #
         | #
         | #
         |##
         |##
       0 +---
          0s  9s
";
        assert_eq!(plot(&[1, 0, 2, 1, 0, 0], 13, true), expected);
    }

    #[test]
    fn nothing_and_the_most() {
        assert!(plot(&[], 0, false).contains("0 └\n"));
        assert!(plot(&[u64::MAX], 0, false).contains('█'));
    }
}
