//! Lays out a question as a box of text. The layout is the same for all terminal sizes. The text
//! wraps and scrolls, and the answers stay visible below the text. If there are too few rows, gaps
//! are removed before the text scrolls.

use super::layout::body_height;
use super::press::Press;
use crate::draw::words::{width, wrap};
use loudou_words::num::cells;

/// Number of cells in each row of a box that contain no text: the border and one free cell on each
/// side. The scroll bar uses the free cell on the right.
const BESIDE: u16 = 4;
/// Number of cells between two answers.
pub(crate) const BETWEEN: u16 = 3;

/// Style of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Strong,
    Plain,
    Changed,
    Warn,
    Dim,
}

/// A part of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Text(Tone, String),
    /// The column headings.
    Heads([&'static str; 4]),
    Row([String; 4]),
    Gap,
}

impl Part {
    /// Creates a line of text.
    pub(crate) fn text(tone: Tone, text: impl Into<String>) -> Self {
        Self::Text(tone, text.into())
    }
}

/// An answer: its key, the key's name, and its effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) press: Press,
    pub(crate) key: &'static str,
    pub(crate) word: String,
}

impl Answer {
    pub(crate) fn width(&self) -> u16 {
        let word = width(&self.word);
        width(self.key).saturating_add(1).saturating_add(word)
    }
}

/// Content of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) title: String,
    pub(crate) parts: Vec<Part>,
    /// Empty while a change is being sent.
    pub(crate) answers: Vec<Answer>,
    /// Minimum and maximum width of the box, in cells.
    pub(crate) widths: (u16, u16),
    /// Index of the line to which the user has scrolled.
    pub(crate) top: usize,
}

/// The layout of a box.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sheet {
    pub(crate) title: String,
    pub(crate) width: u16,
    /// All lines of the text, no wider than the box.
    pub(crate) lines: Vec<Part>,
    /// Number of visible lines. `top` is the index of the first one.
    pub(crate) shown: usize,
    pub(crate) top: usize,
    /// True if there is an empty line above the answers.
    pub(crate) has_gap: bool,
    /// The answers, arranged in rows.
    pub(crate) answers: Vec<Vec<Answer>>,
}

impl Sheet {
    /// Lays out the content for a terminal of this size.
    pub(crate) fn new(content: Content, size: (u16, u16)) -> Self {
        let (least, most) = content.widths;
        let room = size.0.saturating_sub(2).min(most);
        let inside = room.saturating_sub(BESIDE);
        let mut lines = wrapped(content.parts, inside);
        let answers = in_rows(content.answers, inside);
        // The border is drawn outside of the body.
        let rows = usize::from(body_height(size));
        let foot = answers.len().max(1);
        let has_gap = lines.len().saturating_add(foot) < rows;
        if !has_gap {
            lines.retain(|line| *line != Part::Gap);
        }
        let foot = foot.saturating_add(usize::from(has_gap));
        let shown = rows.saturating_sub(foot).min(lines.len());
        let texts = lines.iter().map(widest);
        let widest = texts.chain(answers.iter().map(|row| row_width(row))).max();
        let widest = widest.unwrap_or(0);
        Self {
            title: content.title,
            width: widest.saturating_add(BESIDE).max(least).min(room),
            top: content.top.min(lines.len().saturating_sub(shown)),
            shown,
            lines,
            has_gap,
            answers,
        }
    }

    /// Returns the height of the box.
    pub(crate) fn height(&self) -> u16 {
        let foot = self.answers.len().max(1);
        let inside = self.shown.saturating_add(foot);
        let gap = u16::from(self.has_gap);
        cells(inside).saturating_add(gap).saturating_add(2)
    }

    /// Returns the number of lines that can be scrolled to the top.
    pub(crate) fn places(&self) -> usize {
        self.lines
            .len()
            .saturating_sub(self.shown)
            .saturating_add(1)
    }
}

fn widest(line: &Part) -> u16 {
    match line {
        Part::Text(_, text) => width(text),
        Part::Heads(_) | Part::Row(_) | Part::Gap => 0,
    }
}

/// Wraps the parts into lines of at most `inside` cells. Continuation lines keep the indentation.
fn wrapped(parts: Vec<Part>, inside: u16) -> Vec<Part> {
    let mut lines = Vec::new();
    for part in parts {
        let Part::Text(tone, text) = part else {
            lines.push(part);
            continue;
        };
        let words = text.trim_start_matches(' ');
        let indent = text.len().saturating_sub(words.len());
        // On an ASCII terminal, an arrow takes two cells.
        let arrows = text.chars().filter(|c| *c == '→').count();
        let room = inside.saturating_sub(cells(indent.saturating_add(arrows)));
        let indent = " ".repeat(indent);
        let texts = wrap(words, room).into_iter();
        lines.extend(texts.map(|text| Part::Text(tone, format!("{indent}{text}"))));
    }
    lines
}

fn row_width(row: &[Answer]) -> u16 {
    let gaps = BETWEEN.saturating_mul(cells(row.len().saturating_sub(1)));
    row.iter()
        .map(Answer::width)
        .fold(gaps, u16::saturating_add)
}

/// Arranges the answers in as few rows as possible.
fn in_rows(answers: Vec<Answer>, inside: u16) -> Vec<Vec<Answer>> {
    let mut rows: Vec<Vec<Answer>> = Vec::new();
    let mut end = 0_u16;
    for answer in answers {
        let next = end.saturating_add(BETWEEN).saturating_add(answer.width());
        if let Some(row) = rows.last_mut().filter(|_| next <= inside) {
            end = next;
            row.push(answer);
        } else {
            end = answer.width();
            rows.push(vec![answer]);
        }
    }
    rows
}
