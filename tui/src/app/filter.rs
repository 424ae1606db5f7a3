//! The filter language: `alice`, `!alice`, `refused > 5 and rule = replies`.
//!
//! Terms joined by `and`; each is a text that the rule or key contains, or `field op value`; a leading
//! `!` negates a term. Numbers may have the unit they are shown with: `level >= 80%`, `retry > 2s`.

use loudou_limiter::Nanos;

use super::rows::Row;
use crate::num::float;

/// A field of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Rule,
    Key,
    State,
    Level,
    Remaining,
    Capacity,
    Admitted,
    Refused,
    Retry,
    Seen,
}

const FIELDS: [(&str, Field); 10] = [
    ("rule", Field::Rule),
    ("key", Field::Key),
    ("state", Field::State),
    ("level", Field::Level),
    ("remaining", Field::Remaining),
    ("capacity", Field::Capacity),
    ("admitted", Field::Admitted),
    ("refused", Field::Refused),
    ("retry", Field::Retry),
    ("seen", Field::Seen),
];

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    AtLeast,
    AtMost,
    Not,
    Is,
    Above,
    Below,
}

/// The spellings of comparisons, longer ones first, so that `>=` is not read as `>`.
const OPS: [(&str, Op); 7] = [
    (">=", Op::AtLeast),
    ("<=", Op::AtMost),
    ("!=", Op::Not),
    ("==", Op::Is),
    ("=", Op::Is),
    (">", Op::Above),
    ("<", Op::Below),
];

#[derive(Clone, Debug, PartialEq)]
enum Test {
    Contains(String),
    Text(Field, bool, String),
    Number(Field, Op, f64),
}

#[derive(Clone, Debug, PartialEq)]
struct Term {
    negated: bool,
    test: Test,
}

/// A parsed filter. The empty filter shows everything.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Filter {
    terms: Vec<Term>,
    /// The text as typed, if the filter is a single text: a part of keys.
    part: Option<String>,
}

impl Filter {
    /// Parses a filter, or returns the problem.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let read: Result<Vec<_>, _> = text
            .split(" and ")
            .map(str::trim)
            .filter(|term| !term.is_empty())
            .map(read_term)
            .collect();
        let terms = read?;
        let part = match terms.as_slice() {
            [
                Term {
                    negated: false,
                    test: Test::Contains(_),
                },
            ] => Some(text.trim().to_owned()),
            _ => None,
        };
        Ok(Self { terms, part })
    }

    /// Whether a row passes.
    pub(crate) fn shows(&self, row: &Row) -> bool {
        self.terms
            .iter()
            .all(|term| term.test.passes(row) != term.negated)
    }

    /// The part that keys must contain, if the filter is only that.
    pub(crate) fn part(&self) -> Option<&str> {
        self.part.as_deref()
    }

    /// Whether every row passes.
    pub(crate) fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }
}

fn read_term(text: &str) -> Result<Term, String> {
    let (negated, text) = match text.strip_prefix('!') {
        Some(rest) => (true, rest.trim_start()),
        None => (false, text),
    };
    let comparison = comparison(text)?;
    Ok(Term {
        negated,
        test: comparison.unwrap_or_else(|| Test::Contains(text.to_lowercase())),
    })
}

/// `field op value`; `None` when the text does not have that form.
fn comparison(text: &str) -> Result<Option<Test>, String> {
    let end = text
        .find(|c: char| !c.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let Some((word, rest)) = text.split_at_checked(end) else {
        return Ok(None);
    };
    let rest = rest.trim_start();
    let op = OPS
        .iter()
        .find_map(|(sign, op)| Some((*op, rest.strip_prefix(sign)?)));
    let (false, Some((op, value))) = (word.is_empty(), op) else {
        return Ok(None);
    };
    let value = value.trim();
    let Some((_, field)) = FIELDS.iter().find(|(name, _)| *name == word) else {
        let names: Vec<&str> = FIELDS.iter().map(|(name, _)| *name).collect();
        return Err(format!(
            "unknown field `{word}`; fields: {}",
            names.join(", ")
        ));
    };
    if matches!(field, Field::Rule | Field::Key | Field::State) {
        return match op {
            Op::Is => Ok(Some(Test::Text(*field, true, value.to_lowercase()))),
            Op::Not => Ok(Some(Test::Text(*field, false, value.to_lowercase()))),
            _ => Err(format!("{word} is text: use = or !=")),
        };
    }
    match number(*field, value) {
        Some(number) => Ok(Some(Test::Number(*field, op, number))),
        None => Err(format!("{word} needs a number, not `{value}`")),
    }
}

fn number(field: Field, text: &str) -> Option<f64> {
    let timed = matches!(field, Field::Retry | Field::Seen);
    if let Some(span) = Nanos::parse(text).filter(|_| timed) {
        return Some(float(span.get()) / 1e9);
    }
    let bare = text.trim_end_matches('%').trim_end_matches("/s");
    bare.parse::<f64>().ok().filter(|number| number.is_finite())
}

impl Test {
    fn passes(&self, row: &Row) -> bool {
        match self {
            Self::Contains(part) => {
                row.id.rule.to_lowercase().contains(part)
                    || row.id.key.to_lowercase().contains(part)
            }
            Self::Text(field, equal, wanted) => {
                let found = match field {
                    Field::Rule => row.id.rule.to_lowercase(),
                    Field::Key => row.id.key.to_lowercase(),
                    _ => row.view.state.name().to_owned(),
                };
                (found == *wanted) == *equal
            }
            Self::Number(field, op, wanted) => {
                value(*field, row).is_some_and(|found| compare(found, *op, *wanted))
            }
        }
    }
}

fn value(field: Field, row: &Row) -> Option<f64> {
    let seconds = |ns: u64| float(ns) / 1e9;
    Some(match field {
        Field::Level => row.level(Nanos::ZERO) * 100.0,
        Field::Remaining => float(row.limit()?.remaining),
        Field::Capacity => float(row.limit()?.capacity),
        Field::Admitted => row.rates?.admitted,
        Field::Refused => row.rates?.refused,
        Field::Retry => seconds(row.retry_after_ns(Nanos::ZERO).unwrap_or(0)),
        Field::Seen => seconds(row.idle_ns(Nanos::ZERO)),
        Field::Rule | Field::Key | Field::State => return None,
    })
}

fn compare(found: f64, op: Op, wanted: f64) -> bool {
    // Rates are quotients, so "equal" means equal as displayed.
    let equal = (found - wanted).abs() < 0.05;
    match op {
        Op::AtLeast => found >= wanted,
        Op::AtMost => found <= wanted,
        Op::Above => found > wanted,
        Op::Below => found < wanted,
        Op::Is => equal,
        Op::Not => !equal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::history::Rates;
    use crate::app::rows::BucketName;
    use loudou_api::{BucketState, BucketView, LimitView};

    fn row() -> Row {
        let limit = LimitView {
            capacity: 15,
            remaining: 3,
            retry_after_ns: Some(2_500_000_000),
            reset_after_ns: 24,
            drain_ns: 30,
            drains: true,
            ..LimitView::default()
        };
        Row {
            id: BucketName::new("replies", "Alice:/reply"),
            view: BucketView {
                limits: vec![limit],
                state: BucketState::Refusing,
                ..BucketView::default()
            },
            as_of_ns: 10_000_000_000,
            rates: Some(Rates {
                admitted: 1.0,
                refused: 7.5,
            }),
        }
    }

    #[test]
    fn rows_pass_or_not() {
        for (text, shown) in [
            ("", true),
            ("alice", true),
            ("REPL", true),
            ("bob", false),
            ("!bob", true),
            ("!alice", false),
            ("refused > 5", true),
            ("refused>7.5", false),
            ("refused >= 7.5", true),
            ("level >= 80%", true),
            ("level < 80", false),
            ("rule = replies", true),
            ("rule = repl", false),
            ("rule != replies", false),
            ("key = alice:/reply", true),
            ("state = refusing and retry > 2s", true),
            ("state = refusing and retry > 3", false),
            ("!state = refusing", false),
            ("remaining = 3 and capacity = 15", true),
            ("seen > 5s", true),
            ("admitted != 1", false),
            ("a and b", false),
        ] {
            let filter = Filter::parse(text).expect(text);
            assert_eq!(filter.shows(&row()), shown, "{text}");
        }
    }

    #[test]
    fn a_text_alone_is_a_part_of_keys() {
        for (text, part) in [
            ("", None),
            (" Ali ce ", Some("Ali ce")),
            ("!alice", None),
            ("alice and bob", None),
            ("key = alice", None),
        ] {
            let filter = Filter::parse(text).expect(text);
            assert_eq!(filter.part(), part, "{text}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (text, wrong) in [
            ("refsed > 5", "unknown field `refsed`"),
            ("refused > many", "needs a number"),
            ("rule > x", "use = or !="),
            ("level = ", "needs a number"),
            ("level > NaN", "needs a number"),
        ] {
            let error = Filter::parse(text).expect_err(text);
            assert!(error.contains(wrong), "{text}: {error}");
        }
    }
}
