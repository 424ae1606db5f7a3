//! The filter language: `alice`, `!alice`, `refused > 5 and rule = replies`.
//!
//! Terms are joined by `and`. A term is either a string, which must occur in the rule, the key or
//! the state, or a comparison `field op value`. A leading `!` negates a term. Numbers may have the
//! units that the screen shows: `level >= 80%`, `retry > 2s`.

use loudou_api::{BucketState, RuleView};
use loudou_limiter::Nanos;

use super::effects::Wanted;
use super::rows::Row;
use loudou_words::meaning::{BAN_OFF, Standing, WOULD_REFUSE};
use loudou_words::num::float;
use loudou_words::text::as_key;

/// Maximum number of rules that are searched because their names contain the filter's text.
const MAX_RULES: usize = 3;

/// Error message for a filter that uses `or`.
const NO_OR: &str = "terms are joined by `and`; there is no `or`";

/// Filter text that matches the buckets whose keys have an override.
const OVERRIDE: &str = "override";

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
    Would,
    Retry,
    Seen,
}

const FIELDS: [(&str, Field); 11] = [
    ("rule", Field::Rule),
    ("key", Field::Key),
    ("state", Field::State),
    ("level", Field::Level),
    ("remaining", Field::Remaining),
    ("capacity", Field::Capacity),
    ("admitted", Field::Admitted),
    ("refused", Field::Refused),
    ("would", Field::Would),
    ("retry", Field::Retry),
    ("seen", Field::Seen),
];

/// States for which the server is searched if the filter is just the name of the state. Few buckets
/// are in these states.
const SEARCHED: [BucketState; 3] = [
    BucketState::Banned,
    BucketState::Refusing,
    BucketState::Held,
];

/// A comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    AtLeast,
    AtMost,
    Not,
    Is,
    Above,
    Below,
}

/// Spellings of the operators. Longer spellings come first, so that `>=` is not read as `>`.
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
    /// The text in lower case, as typed and as encoded in keys.
    Contains(String, String),
    Text(Field, bool, String),
    Number(Field, Op, f64),
}

#[derive(Clone, Debug, PartialEq)]
struct Term {
    negated: bool,
    test: Test,
}

/// A parsed filter. The empty filter matches every row.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Filter {
    terms: Vec<Term>,
    /// The part of the filter that the server can search for.
    wanted: Option<Wanted>,
}

impl Filter {
    /// Parses a filter, or returns the error message.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let is_or = |word: &str| matches!(word, "or" | "OR" | "|" | "||");
        if text.split_whitespace().skip(1).any(is_or) {
            return Err(NO_OR.to_owned());
        }
        let terms: Vec<Term> = pieces(text).map(read_term).collect::<Result<_, _>>()?;
        let wanted = wanted(&terms, text);
        Ok(Self { terms, wanted })
    }

    /// Like [`Filter::parse`], but returns an error if the filter names a rule that is not in
    /// `rules`. If `rules` is empty, the rules are not known yet, so any rule name is accepted.
    pub(crate) fn of_rules(text: &str, rules: &[RuleView]) -> Result<Self, String> {
        let filter = Self::parse(text)?;
        let is_known = |wanted: &str| rules.iter().any(|rule| rule.name.to_lowercase() == wanted);
        for term in &filter.terms {
            if let Test::Text(Field::Rule, _, wanted) = &term.test
                && !rules.is_empty()
                && !is_known(wanted)
            {
                let names: Vec<&str> = rules.iter().map(|rule| rule.name.as_str()).collect();
                return Err(format!("no rule `{wanted}`; rules: {}", names.join(", ")));
            }
        }
        Ok(filter)
    }

    /// Returns a hint for a filter that finds nothing and seems to be written in another filter
    /// language. Such a filter is not an error, because keys may contain the same characters.
    pub(crate) fn advice(text: &str) -> Option<&'static str> {
        text.contains('|').then_some(NO_OR)
    }

    /// Returns true if the row passes the filter.
    pub(crate) fn shows(&self, row: &Row) -> bool {
        self.terms
            .iter()
            .all(|term| term.test.passes(row) != term.negated)
    }

    /// Returns the bucket searches that the server must run to find rows that pass the filter: by
    /// part of the key, by rule, or by state. `rules` are the names of all rules.
    pub(crate) fn searches<'a>(&self, rules: impl Iterator<Item = &'a str> + Clone) -> Vec<Wanted> {
        let mut searches = self.searches_by_state(rules);
        if self
            .terms
            .iter()
            .any(|term| !term.negated && term.test.is_refusing())
        {
            let refusing = |search: &&Wanted| search.state == Some(BucketState::Refusing);
            let banned = searches.iter().filter(refusing).map(|search| Wanted {
                state: Some(BucketState::Banned),
                ..search.clone()
            });
            searches.extend(banned.collect::<Vec<_>>());
        }
        searches
    }

    /// Like [`Filter::searches`], but a filter for refused keys does not also search for banned
    /// keys.
    fn searches_by_state<'a>(&self, rules: impl Iterator<Item = &'a str> + Clone) -> Vec<Wanted> {
        let Some(wanted) = &self.wanted else {
            return Vec::new();
        };
        let of = |rule: &str| Wanted {
            rule: Some(rule.to_owned()),
            ..wanted.clone()
        };
        if let Some(rule) = &wanted.rule {
            // The server can only search a rule that exists.
            let mut rules = rules.filter(|name| name.to_lowercase() == *rule);
            return rules.next().map(of).into_iter().collect();
        }
        let mut searches = vec![wanted.clone()];
        // If the filter is a single text, the text may also be part of a rule's name, or the name
        // of a state.
        if let [
            Term {
                test: Test::Contains(part, _),
                ..
            },
        ] = self.terms.as_slice()
        {
            let named = rules.filter(|name| name.to_lowercase().contains(part));
            searches.extend(named.take(MAX_RULES).map(|rule| Wanted {
                key: None,
                ..of(rule)
            }));
            let states = SEARCHED.into_iter().filter(|state| state.name() == part);
            searches.extend(states.map(|state| Wanted {
                state: Some(state),
                ..Wanted::default()
            }));
        }
        searches
    }

    /// Returns the name of the rule that the filter selects, in lower case, if any.
    pub(crate) fn rule(&self) -> Option<&str> {
        self.wanted.as_ref()?.rule.as_deref()
    }

    /// Returns true if the filter makes the server search for a part of the key. That search is
    /// case-sensitive.
    pub(crate) fn searches_keys(&self) -> bool {
        self.wanted
            .as_ref()
            .is_some_and(|wanted| wanted.key.is_some())
    }

    /// Returns true if the filter has no terms, so that every row passes.
    pub(crate) fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }
}

/// Returns the terms as typed.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let pieces = text.split(" and ").map(str::trim);
    pieces.filter(|term| !term.is_empty())
}

/// Returns the part of the filter that the server can search for, or `None` if it cannot narrow the
/// search.
fn wanted(terms: &[Term], text: &str) -> Option<Wanted> {
    let mut wanted = Wanted::default();
    for (term, typed) in terms.iter().zip(pieces(text)) {
        if term.negated {
            continue;
        }
        // The text to find in keys keeps its case, because the server's search is case-sensitive.
        let value = typed.split_once('=').map_or(typed, |(_, value)| value);
        let value = value.trim_start_matches('=').trim();
        match &term.test {
            Test::Contains(..) => wanted.key = Some(as_key(typed).into_owned()),
            Test::Text(Field::Rule, true, rule) => wanted.rule = Some(rule.clone()),
            Test::Text(Field::Key, true, _) => wanted.key = Some(as_key(value).into_owned()),
            Test::Text(Field::State, true, state) => {
                let mut all = BucketState::ALL.into_iter();
                wanted.state = match state.as_str() {
                    WOULD_REFUSE | "would have refused" | "refused" => Some(BucketState::Refusing),
                    "ok" => Some(BucketState::Idle),
                    "full" => Some(BucketState::Busy),
                    BAN_OFF => Some(BucketState::Banned),
                    state => all.find(|other| other.name() == state),
                };
            }
            _ => {}
        }
    }
    (wanted != Wanted::default()).then_some(wanted)
}

fn read_term(text: &str) -> Result<Term, String> {
    let (negated, text) = match text.strip_prefix('!') {
        Some(rest) => (true, rest.trim_start()),
        None => (false, text),
    };
    let comparison = comparison(text)?;
    Ok(Term {
        negated,
        test: comparison
            .unwrap_or_else(|| Test::Contains(text.to_lowercase(), as_key(text).to_lowercase())),
    })
}

/// Parses `field op value`, or `None` if the text does not have this form.
fn comparison(text: &str) -> Result<Option<Test>, String> {
    let end = text
        .find(|c: char| !c.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let Some((word, rest)) = text.split_at_checked(end) else {
        return Ok(None);
    };
    let field = || FIELDS.iter().any(|(name, _)| *name == word);
    if rest.starts_with([' ', '~']) && rest.trim_start().starts_with('~') && field() {
        let ops: Vec<&str> = OPS.iter().map(|(sign, _)| *sign).collect();
        return Err(format!(
            "there is no `~`; write {}; a text alone is searched in rules and keys",
            ops.join(" ")
        ));
    }
    let rest = rest.trim_start();
    let op = OPS
        .iter()
        .find_map(|(sign, op)| Some((*op, rest.strip_prefix(sign)?)));
    // `state:banned` is accepted because other search languages use this syntax. `rule:` and `key:`
    // are not accepted, because rule names and keys may contain colons.
    let of_state = || Some((Op::Is, rest.strip_prefix(':').filter(|_| word == "state")?));
    let op = op.or_else(of_state);
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
    let is_state =
        |value: &str| BucketState::NAMES.contains(&value) || Standing::words().contains(&value);
    if *field == Field::State && !is_state(&value.to_lowercase()) {
        return Err(format!(
            "unknown state `{value}`; states: {}",
            Standing::words().join(", ")
        ));
    }
    if matches!(field, Field::Rule | Field::Key | Field::State) {
        let value = match field {
            Field::Key => as_key(value),
            _ => value.into(),
        };
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
    /// Returns true if the term selects refused keys. Such a term also selects banned keys.
    fn is_refusing(&self) -> bool {
        let text = match self {
            Self::Contains(text, _) | Self::Text(Field::State, true, text) => text,
            Self::Text(..) | Self::Number(..) => return false,
        };
        text == BucketState::Refusing.name()
    }

    fn passes(&self, row: &Row) -> bool {
        match self {
            // The rule and the key are joined by a space, as in the table, so that the text may
            // span both columns.
            Self::Contains(part, of_key) => {
                let own = row.view.own.as_ref().map_or("", |_| OVERRIDE);
                let (rule, key) = (row.id.rule.to_lowercase(), row.id.key.to_lowercase());
                let texts = [&format!("{rule} {key}"), row.standing().word(), own];
                let is_refused = self.is_refusing() && row.standing() == Standing::Banned;
                is_refused || texts.iter().any(|text| text.contains(part)) || key.contains(of_key)
            }
            Self::Text(field, equal, wanted) => {
                let is_it = match field {
                    Field::Rule => row.id.rule.to_lowercase() == *wanted,
                    Field::Key => row.id.key.to_lowercase() == *wanted,
                    // The value is either the word on the screen or the API's name of the state,
                    // which the server's search uses.
                    _ => {
                        let name = Some(row.view.state.name()).filter(|_| !row.view.shadow);
                        let is_refused = wanted == BucketState::Refusing.name()
                            && row.standing() == Standing::Banned;
                        is_refused
                            || row.standing().word() == *wanted
                            || name == Some(wanted.as_str())
                    }
                };
                is_it == *equal
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
        Field::Level => row.shown_level() * 100.0,
        Field::Remaining => float(row.limit()?.remaining),
        Field::Capacity => float(row.limit()?.capacity),
        Field::Admitted => row.rates?.admitted,
        Field::Refused => row.rates?.refused,
        Field::Would => row.rates?.shadow,
        Field::Retry => seconds(row.retry_after_ns(Nanos::ZERO).unwrap_or(0)),
        Field::Seen => seconds(row.idle_ns(Nanos::ZERO)),
        Field::Rule | Field::Key | Field::State => return None,
    })
}

fn compare(found: f64, op: Op, wanted: f64) -> bool {
    // Rates are quotients, so two rates are treated as equal if they look equal on the screen.
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
mod tests;
