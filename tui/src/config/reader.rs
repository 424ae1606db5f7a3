//! Reads the values of a TOML file with their positions, and collects the problems found in them.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use loudou_limiter::{DURATION_FORM, Nanos};
use loudou_rules::config::{Path, Problem, nearest};
use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use loudou_words::text::{escape, shortened};

/// Maximum number of characters of a value that a problem shows.
const MAX_SHOWN: usize = 60;
/// Error message for a value that is not a string.
const TEXT: &str = "expected a text in quotes";

/// A problem with its line and column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Located {
    line: usize,
    column: usize,
    problem: Problem,
}

impl fmt::Display for Located {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The message contains names and values from the file, so it is escaped.
        let problem = self.problem.to_string();
        write!(f, "{}:{}: {}", self.line, self.column, escape(&problem))
    }
}

/// Parses the text of a TOML file, or returns the syntax error.
pub(super) fn parse(text: &str) -> Result<Spanned<DeTable<'_>>, Box<Located>> {
    DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let mut problem = Problem::error(Path::root(), &Value::Null, error.message());
        if error.message() == "duplicate key" {
            let key = error.span().and_then(|span| text.get(span));
            problem.value = shortened(key.unwrap_or_default(), MAX_SHOWN).into_owned();
        }
        Box::new(locate(text, at, problem))
    })
}

fn locate(text: &str, at: usize, problem: Problem) -> Located {
    let before = text.get(..at).unwrap_or(text);
    Located {
        line: before.matches('\n').count().saturating_add(1),
        column: column(text, at),
        problem,
    }
}

/// Returns the 1-based column of the byte offset `at`.
fn column(text: &str, at: usize) -> usize {
    let before = text.get(..at).unwrap_or(text);
    let line = before.rsplit('\n').next().unwrap_or_default();
    line.chars().count().saturating_add(1)
}

/// A value with its position.
#[derive(Clone, Debug)]
pub(super) struct Node<'a> {
    path: Path,
    span: Range<usize>,
    value: Content<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Content<'a> {
    Table(&'a DeTable<'a>),
    Other(&'a DeValue<'a>),
}

impl<'a> Node<'a> {
    pub(super) fn root(root: &'a Spanned<DeTable<'a>>) -> Self {
        Self {
            path: Path::root(),
            span: root.span(),
            value: Content::Table(root.get_ref()),
        }
    }

    fn of(path: Path, value: &'a Spanned<DeValue<'a>>) -> Self {
        let span = value.span();
        let value = match value.get_ref() {
            DeValue::Table(table) => Content::Table(table),
            other => Content::Other(other),
        };
        Self { path, span, value }
    }

    /// Returns true if the value is an empty list.
    pub(super) fn is_empty_list(&self) -> bool {
        matches!(self.value, Content::Other(DeValue::Array(items)) if items.is_empty())
    }

    fn text(&self) -> Option<&'a str> {
        match self.value {
            Content::Other(value) => value.as_str(),
            Content::Table(_) => None,
        }
    }
}

/// Reads values and collects problems.
pub(super) struct Reader<'t> {
    text: &'t str,
    problems: Vec<(usize, Problem)>,
}

impl<'t> Reader<'t> {
    pub(super) const fn new(text: &'t str) -> Self {
        Self {
            text,
            problems: Vec::new(),
        }
    }

    /// Returns the problems, sorted by their position in the text.
    pub(super) fn finish(mut self) -> Result<(), Vec<Located>> {
        if self.problems.is_empty() {
            return Ok(());
        }
        self.problems.sort_by_key(|(at, _)| *at);
        let (text, mut line, mut from) = (self.text, 1_usize, 0);
        let all = self.problems.into_iter().map(|(at, problem)| {
            // Lines are counted from the previous problem. Counting from the start each time would
            // take quadratic time, because there may be as many problems as lines.
            let between = text.get(from..at).unwrap_or_default();
            line = line.saturating_add(between.matches('\n').count());
            from = at;
            Located {
                line,
                column: column(text, at),
                problem,
            }
        });
        Err(all.collect())
    }

    /// Reports an invalid value. `more` adds details to the problem, such as the allowed values.
    pub(super) fn wrong(
        &mut self,
        node: &Node<'_>,
        message: impl Into<String>,
        more: impl FnOnce(Problem) -> Problem,
    ) {
        let value = self.text.get(node.span.clone()).unwrap_or_default();
        let problem = Problem::error(node.path.clone(), &Value::Null, message);
        let mut problem = more(problem);
        // A table is not shown, because it may be long, and its position is sufficient to find it.
        if !matches!(node.value, Content::Table(_)) {
            problem.value = shortened(value, MAX_SHOWN).into_owned();
        }
        self.problems.push((node.span.start, problem));
    }

    /// Like [`Self::wrong`], but without the value, which must not be shown.
    pub(super) fn wrong_secret(&mut self, node: &Node<'_>, message: &str) {
        let problem = Problem::error(node.path.clone(), &Value::Null, message);
        self.problems.push((node.span.start, problem));
    }

    /// Reports a value that is not one of the allowed words.
    pub(super) fn none_of(&mut self, node: &Node<'_>, message: &str, allowed: &[&str]) {
        let near = node.text().and_then(|text| nearest(text, allowed));
        let list = allowed.join(", ");
        self.wrong(node, message, |problem| problem.allowed(list).suggest(near));
    }

    /// Returns the values of a table by name. Names that are not allowed are reported.
    pub(super) fn fields<'a>(
        &mut self,
        node: &Node<'a>,
        allowed: &[&'static str],
    ) -> BTreeMap<&'static str, Node<'a>> {
        let mut found = BTreeMap::new();
        for (name, at, value) in self.entries(node) {
            if let Some(known) = allowed.iter().find(|known| **known == name) {
                found.insert(*known, value);
            } else {
                let problem = Problem {
                    at_name: true,
                    ..Problem::error(value.path, &Value::Null, "unknown field")
                };
                let problem = problem.allowed(allowed.join(", "));
                let problem = problem.suggest(nearest(&name, allowed));
                self.problems.push((at, problem));
            }
        }
        found
    }

    /// Returns all values of a table with their names and the positions of the names.
    pub(super) fn entries<'a>(&mut self, node: &Node<'a>) -> Vec<(String, usize, Node<'a>)> {
        let Content::Table(table) = node.value else {
            self.wrong(node, "expected a table", |problem| problem);
            return Vec::new();
        };
        let all = table.iter().map(|(name, value)| {
            let path = node.path.field(name.get_ref());
            let at = name.span().start;
            (name.get_ref().to_string(), at, Node::of(path, value))
        });
        all.collect()
    }

    pub(super) fn text<'a>(&mut self, node: &Node<'a>) -> Option<&'a str> {
        let text = node.text();
        if text.is_none() {
            self.wrong(node, TEXT, |problem| problem);
        }
        text
    }

    /// Reads a string that must not appear in any message.
    pub(super) fn secret(&mut self, node: &Node<'_>) -> Option<String> {
        let text = node.text();
        if text.is_none() {
            self.wrong_secret(node, TEXT);
        }
        text.map(str::to_owned)
    }

    /// Reads a duration above zero.
    pub(super) fn span(&mut self, node: &Node<'_>) -> Option<Nanos> {
        let span = Nanos::parse(self.text(node)?).filter(|span| *span > Nanos::ZERO);
        if span.is_none() {
            self.wrong(node, "invalid duration", |problem| {
                problem.allowed(DURATION_FORM)
            });
        }
        span
    }

    pub(super) fn boolean(&mut self, node: &Node<'_>) -> Option<bool> {
        let found = match node.value {
            Content::Other(value) => value.as_bool(),
            Content::Table(_) => None,
        };
        if found.is_none() {
            self.wrong(node, "expected a boolean", |problem| {
                problem.allowed("true, false")
            });
        }
        found
    }

    /// Reads the strings in a list, with their positions. A single string counts as a list with one
    /// item.
    pub(super) fn texts<'a>(&mut self, node: &Node<'a>) -> Vec<(&'a str, Node<'a>)> {
        let Content::Other(DeValue::Array(list)) = node.value else {
            let one = self.text(node).map(|text| (text, node.clone()));
            return one.into_iter().collect();
        };
        let mut texts = Vec::new();
        for (index, value) in list.iter().enumerate() {
            let value = Node::of(node.path.index(index), value);
            texts.extend(self.text(&value).map(|text| (text, value)));
        }
        texts
    }
}
