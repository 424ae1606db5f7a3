//! A question as a box of text, laid out by one rule at all sizes: the text wraps and scrolls, the answers stay below
//! it, and where rows are short the gaps go first.

use super::layout::body_height;
use super::press::Press;
use crate::draw::words::{width, wrap};
use loudou_words::num::cells;

/// The cells of a box beside its text: the border, and a cell at each side. The right one has the scroll bar.
const BESIDE: u16 = 4;
/// The cells between two answers.
pub(crate) const BETWEEN: u16 = 3;

/// The manner of a line.
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
    /// The heads of the columns.
    Heads([&'static str; 4]),
    Row([String; 4]),
    Gap,
}

impl Part {
    /// A line of text.
    pub(crate) fn text(tone: Tone, text: impl Into<String>) -> Self {
        Self::Text(tone, text.into())
    }
}

/// An answer: the key, its name, and what it does.
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

/// What a question consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) title: String,
    pub(crate) parts: Vec<Part>,
    /// None while a change is being sent.
    pub(crate) answers: Vec<Answer>,
    /// The least and the most cells of the box.
    pub(crate) widths: (u16, u16),
    /// The first line that the user wants to see.
    pub(crate) top: usize,
}

/// The laid out box.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sheet {
    pub(crate) title: String,
    pub(crate) width: u16,
    /// All lines of the text, no wider than the box.
    pub(crate) lines: Vec<Part>,
    /// How many of them are shown, and from which on.
    pub(crate) shown: usize,
    pub(crate) top: usize,
    /// Whether there is an empty line above the answers.
    pub(crate) has_gap: bool,
    /// The answers, in rows.
    pub(crate) answers: Vec<Vec<Answer>>,
}

impl Sheet {
    /// The layout on a terminal of this size.
    pub(crate) fn new(content: Content, size: (u16, u16)) -> Self {
        let (least, most) = content.widths;
        let room = size.0.saturating_sub(2).min(most);
        let inside = room.saturating_sub(BESIDE);
        let mut lines = wrapped(content.parts, inside);
        let answers = in_rows(content.answers, inside);
        // The border is drawn beyond the body.
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

    /// The rows of the box.
    pub(crate) fn height(&self) -> u16 {
        let foot = self.answers.len().max(1);
        let inside = self.shown.saturating_add(foot);
        let gap = u16::from(self.has_gap);
        cells(inside).saturating_add(gap).saturating_add(2)
    }

    /// The number of lines that can be the first one shown.
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

/// The parts in lines of at most `inside` cells. Continued lines keep the indent.
fn wrapped(parts: Vec<Part>, inside: u16) -> Vec<Part> {
    let mut lines = Vec::new();
    for part in parts {
        let Part::Text(tone, text) = part else {
            lines.push(part);
            continue;
        };
        let words = text.trim_start_matches(' ');
        let indent = text.len().saturating_sub(words.len());
        // An arrow takes two cells where only ASCII is drawn.
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

/// The answers in as few rows as they need.
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
