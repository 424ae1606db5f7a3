//! Reads a JSON tree field by field. The reader continues after each problem, so that it finds them
//! all.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use loudou_limiter::Decimal;
use serde::Serialize;
use serde_json::{Map, Value};

use super::grammar::{Field, Form, alias_of, decimal_form, written_as};
use super::problem::{Path, Problem, Severity, Step};
use super::suggest::nearest;
use crate::joined::joined;

/// A value, with its position in the document. The position is a chain of parent values, which is
/// converted to a [`Path`] only if the value has a problem.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a, 'c> {
    /// The value.
    pub value: &'a Value,
    within: Option<(&'c Self, Position<'a>)>,
}

/// Position of a value within its parent.
#[derive(Clone, Copy, Debug)]
enum Position<'a> {
    Field(&'a str),
    Index(usize),
}

/// Number of problems after which unknown fields are reported without suggestions.
const SUGGESTED: usize = 256;

/// Collects the problems found in a document.
#[derive(Debug, Default)]
pub struct Report {
    /// The problems, in the order in which they were found.
    pub problems: Vec<Problem>,
}

impl Report {
    /// Adds a problem.
    pub fn add(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    /// Adds problems whose paths are relative to the value at `at`.
    pub fn within(&mut self, at: &Cursor<'_, '_>, problems: Vec<Problem>) {
        let place = at.path();
        for problem in problems {
            let steps = place.steps().iter().chain(problem.path.steps());
            let path = Path::from(steps.cloned().collect::<Vec<Step>>());
            self.add(Problem { path, ..problem });
        }
    }

    /// Adds an error for the value at `at`.
    pub fn error(&mut self, at: &Cursor<'_, '_>, message: &str, allowed: &str) {
        self.add(at.wrong(message).allowed(allowed));
    }

    /// Returns the parsed value, unless an error was reported. Warnings alone do not invalidate the
    /// value.
    ///
    /// # Errors
    ///
    /// Returns all problems, including warnings.
    pub fn unless_invalid<T>(self, read: Option<T>) -> Result<T, Vec<Problem>> {
        let wrong = |problem: &Problem| problem.severity == Severity::Error;
        match read {
            Some(read) if !self.problems.iter().any(wrong) => Ok(read),
            _ => Err(self.problems),
        }
    }
}

/// An object whose field names have been checked.
#[derive(Debug)]
pub struct Fields<'a, 'c> {
    map: &'a Map<String, Value>,
    of: &'c Cursor<'a, 'c>,
}

impl<'a, 'c> Cursor<'a, 'c> {
    /// Creates a cursor for a whole document.
    pub const fn root(value: &'a Value) -> Self {
        Self {
            value,
            within: None,
        }
    }

    const fn inside(&'c self, place: Position<'a>, value: &'a Value) -> Self {
        Self {
            value,
            within: Some((self, place)),
        }
    }

    /// Returns a cursor for a different value at the same position.
    #[must_use]
    pub const fn with(&self, value: &'a Value) -> Self {
        Self { value, ..*self }
    }

    /// Returns the path of the value in the document.
    pub fn path(&self) -> Path {
        let mut steps = Vec::new();
        let mut at = self;
        while let Some((parent, place)) = at.within {
            steps.push(match place {
                Position::Field(name) => Step::Field(name.to_string()),
                Position::Index(index) => Step::Index(index),
            });
            at = parent;
        }
        steps.reverse();
        Path::from(steps)
    }

    /// Returns an error about the value.
    pub fn wrong(&self, message: &str) -> Problem {
        Problem::error(self.path(), self.value, message)
    }

    /// Returns an error about the name of the field.
    pub(crate) fn wrong_name(&self, message: &str) -> Problem {
        Problem {
            at_name: true,
            ..self.with(&Value::Null).wrong(message)
        }
    }

    /// Reports a value of the wrong type.
    fn misplaced(&self, what: &str, allowed: &str, report: &mut Report) {
        let message = format!("{} instead of {what}", kind(self.value));
        report.error(self, &message, allowed);
    }

    /// Returns the fields of an object, and reports each field that is not in `allowed`.
    pub fn object(&'c self, allowed: &[&str], report: &mut Report) -> Option<Fields<'a, 'c>> {
        let Some(map) = self.value.as_object() else {
            let allowed = format!("an object with {}", joined(allowed, ", "));
            self.misplaced("an object", &allowed, report);
            return None;
        };
        for (name, value) in map {
            if !allowed.contains(&name.as_str()) {
                let field = self.inside(Position::Field(name), value);
                if let Some(canonical) = written_as(name).filter(|name| allowed.contains(name)) {
                    field.check_alias(map.get(canonical), canonical, report);
                    continue;
                }
                // Finding suggestions takes time, so they are omitted once there are too many
                // problems.
                if report.problems.len() >= SUGGESTED {
                    report.add(field.wrong_name("unknown field"));
                    continue;
                }
                let problem = field.wrong("unknown field");
                let problem = problem
                    .allowed(joined(allowed, ", "))
                    .suggest(nearest(name, allowed));
                report.add(Problem {
                    at_name: true,
                    ..problem
                });
            }
        }
        Some(Fields { map, of: self })
    }

    /// Reports a field that is present under both its canonical name and its alias.
    fn check_alias(&self, canonical: Option<&Value>, name: &str, report: &mut Report) {
        if !self.value.is_null() && canonical.is_some_and(|value| !value.is_null()) {
            let message = format!("alias of `{name}`, which is also given");
            report.add(
                self.wrong_name(&message)
                    .allowed("only one of the two names"),
            );
        }
    }

    /// Returns the fields of an object with arbitrary field names. `form` describes the expected
    /// object, for error messages.
    pub(crate) fn members(&'c self, form: &str, report: &mut Report) -> Vec<(&'a str, Self)> {
        let Some(map) = self.value.as_object() else {
            self.misplaced("an object", form, report);
            return Vec::new();
        };
        let member = |(name, value): (&'a String, &'a Value)| {
            let place = Position::Field(name);
            (name.as_str(), self.inside(place, value))
        };
        map.iter().map(member).collect()
    }

    /// Returns the elements of a list.
    pub fn list(&'c self, report: &mut Report) -> Option<Vec<Self>> {
        let Some(list) = self.value.as_array() else {
            self.misplaced("a list", "a list", report);
            return None;
        };
        let at = |(index, value)| self.inside(Position::Index(index), value);
        Some(list.iter().enumerate().map(at).collect())
    }

    /// Reads a non-empty string of at most `longest` bytes.
    pub(crate) fn text(&self, longest: usize, report: &mut Report) -> Option<&'a str> {
        let allowed = format!("a text of 1 to {longest} bytes");
        match self.value.as_str() {
            Some("") => report.error(self, "empty", &allowed),
            Some(text) if text.len() > longest => report.error(self, "too long", &allowed),
            Some(text) => return Some(text),
            None => self.misplaced("a text", &allowed, report),
        }
        None
    }

    /// Reads a string of any length, including an empty one.
    pub fn string(&self, report: &mut Report) -> Option<&'a str> {
        let text = self.value.as_str();
        if text.is_none() {
            self.misplaced("a text", "a text", report);
        }
        text
    }

    /// Reads a whole number from `least` to `most`. Envoy passes the numbers in a `Struct` as
    /// doubles, so `15.0` is accepted as 15.
    pub(crate) fn integer(&self, least: u32, most: u32, report: &mut Report) -> Option<u32> {
        let number = self.value.as_u64().or_else(|| whole(self.value));
        let number = number
            .and_then(|n| u32::try_from(n).ok())
            .filter(|n| (least..=most).contains(n));
        if number.is_none() {
            report.error(
                self,
                self.no_number(),
                &format!("a whole number from {least} to {most}"),
            );
        }
        number
    }

    /// Returns the error message for a value that is out of range or not a number.
    fn no_number(&self) -> &'static str {
        if self.value.is_number() {
            "out of range"
        } else {
            "not a number"
        }
    }

    /// Reads a number with at most three decimals from `least` to `most`. Envoy parses a YAML
    /// number with a fraction as a string, so strings containing such numbers are also accepted.
    pub(crate) fn decimal(
        &self,
        least: Decimal,
        most: Decimal,
        report: &mut Report,
    ) -> Option<Decimal> {
        let number = match self.value {
            Value::String(text) => Some(text.clone()),
            value => value.as_number().map(ToString::to_string),
        };
        let decimal = number.as_deref().and_then(Decimal::parse);
        let fits = decimal.filter(|decimal| (least..=most).contains(decimal));
        if fits.is_none() {
            let message = match decimal {
                Some(_) => "out of range",
                None => self.no_number(),
            };
            report.error(self, message, &decimal_form(least, most));
        }
        fits
    }

    /// Reads a whole number within a field's bounds.
    #[expect(
        clippy::inline_always,
        reason = "only the field's bounds remain in the code"
    )]
    #[inline(always)]
    pub(crate) fn integer_of(&self, field: Field, report: &mut Report) -> Option<u32> {
        match field.form {
            Form::Integer(least, most) => self.integer(least, most, report),
            _ => None,
        }
    }

    /// Reads a number within a field's bounds.
    #[expect(
        clippy::inline_always,
        reason = "only the field's bounds remain in the code"
    )]
    #[inline(always)]
    pub(crate) fn decimal_of(&self, field: Field, report: &mut Report) -> Option<Decimal> {
        match field.form {
            Form::Decimal(least, most) => self.decimal(least, most, report),
            _ => None,
        }
    }

    /// Reads `true` or `false`.
    pub(crate) fn boolean(&self, report: &mut Report) -> Option<bool> {
        let boolean = self.value.as_bool();
        if boolean.is_none() {
            self.misplaced("true or false", "true, false", report);
        }
        boolean
    }

    /// Reads one of these words and returns its meaning.
    pub(crate) fn word<T: Copy>(&self, words: &[(&str, T)], report: &mut Report) -> Option<T> {
        let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let place = self.which(&names, report)?;
        words.get(place).map(|(_, meaning)| *meaning)
    }

    /// Reads one of these words and returns its index. Envoy parses an unquoted `off` in YAML as
    /// `false`, so `false` counts as `off`.
    pub(crate) fn which(&self, names: &[&str], report: &mut Report) -> Option<usize> {
        let found = match self.value {
            Value::Bool(false) => Some("off"),
            value => value.as_str(),
        };
        let place = names.iter().position(|name| found == Some(name));
        if place.is_none() {
            let problem = self.wrong("unknown value").allowed(joined(names, ", "));
            report.add(problem.suggest(found.and_then(|found| nearest(found, names))));
        }
        place
    }
}

impl<'a, 'c> Fields<'a, 'c> {
    /// Returns the field `name` if it is present under this name or its alias. A JSON null counts
    /// as absent.
    pub fn get(&self, name: &str) -> Option<Cursor<'a, 'c>> {
        self.named(name).or_else(|| self.named(alias_of(name)?))
    }

    fn named(&self, name: &str) -> Option<Cursor<'a, 'c>> {
        let (name, value) = self.map.get_key_value(name)?;
        let field = self.of.inside(Position::Field(name), value);
        (!value.is_null()).then_some(field)
    }

    /// Returns the field `name`, or reports that it is missing.
    pub fn need(&self, name: &str, form: &str, report: &mut Report) -> Option<Cursor<'a, 'c>> {
        let field = self.get(name);
        if field.is_none() {
            report.add(self.missing(name, form));
        }
        field
    }

    fn missing(&self, name: &str, form: &str) -> Problem {
        let message = format!("`{name}` is missing");
        self.of.with(&Value::Null).wrong(&message).allowed(form)
    }

    /// Returns whichever of the fields `names` is present. Reports a problem unless exactly one of
    /// them is present.
    pub(crate) fn one_of(
        &self,
        names: &[&'static str],
        report: &mut Report,
    ) -> Option<(&'static str, Cursor<'a, 'c>)> {
        let mut found = names
            .iter()
            .filter_map(|name| Some((*name, self.get(name)?)));
        let (first, second) = (found.next(), found.next());
        if first.is_some() && second.is_none() {
            return first;
        }
        let message = if first.is_none() {
            "none of the fields is given"
        } else {
            "more than one of the fields is given"
        };
        let allowed = format!("exactly one of {}", joined(names, ", "));
        report.error(&self.of.with(&Value::Null), message, &allowed);
        None
    }
}

/// Reads a list of at most `most` elements.
pub(super) fn several<T>(
    cursor: &Cursor<'_, '_>,
    most: usize,
    report: &mut Report,
    read: impl Fn(&Cursor<'_, '_>, &mut Report) -> Option<T>,
) -> Vec<T> {
    let mut read_ones = Vec::new();
    each(cursor, most, report, &mut |cursor, report| {
        read_ones.extend(read(cursor, report));
    });
    read_ones
}

/// The part of [`several`] that does not depend on the element type. It is a separate function so
/// that it is compiled only once for all types.
fn each(
    cursor: &Cursor<'_, '_>,
    most: usize,
    report: &mut Report,
    read: &mut dyn FnMut(&Cursor<'_, '_>, &mut Report),
) {
    let Some(cursors) = cursor.list(report) else {
        return;
    };
    if cursors.len() > most {
        report.error(cursor, "the list is too long", &format!("at most {most}"));
        return;
    }
    for cursor in &cursors {
        read(cursor, report);
    }
}

/// Converts a double without a fractional part to a whole number.
fn whole(value: &Value) -> Option<u64> {
    let text = format!("{}", value.as_number()?);
    text.strip_suffix(".0")?.parse().ok()
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Returns all fields of an object, such as a limit, with their names and values in rule file
/// format.
pub fn written(object: &impl Serialize) -> Map<String, Value> {
    // Goes through JSON text, because a second serializer would increase the size of the filter's
    // module.
    let text = serde_json::to_vec(object).unwrap_or_default();
    match serde_json::from_slice(&text) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}
