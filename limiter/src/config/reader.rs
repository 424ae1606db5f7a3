//! Reading a JSON tree field by field, and going on after a problem so that all are found.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde_json::{Map, Value};

use super::problem::{Path, Problem, Severity};
use super::suggest::nearest;
use crate::decimal::Decimal;

/// A value and the place where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    pub(crate) value: &'a Value,
    pub(crate) path: Path,
}

/// Collects problems.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) problems: Vec<Problem>,
}

impl Report {
    pub(crate) fn add(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    pub(crate) fn error(&mut self, at: &Cursor<'_>, message: impl Into<String>, allowed: &str) {
        self.add(Problem::error(at.path.clone(), at.value, message).allowed(allowed));
    }

    /// What was read, unless something is wrong with it. Warnings are no reason to refuse it.
    pub(crate) fn unless_wrong<T>(self, read: Option<T>) -> Result<T, Vec<Problem>> {
        let wrong = |problem: &Problem| problem.severity == Severity::Error;
        match read {
            Some(read) if !self.problems.iter().any(wrong) => Ok(read),
            _ => Err(self.problems),
        }
    }
}

/// An object whose field names are known to be allowed ones.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    map: &'a Map<String, Value>,
    path: Path,
}

impl<'a> Cursor<'a> {
    pub(crate) const fn root(value: &'a Value) -> Self {
        Self {
            value,
            path: Path::root(),
        }
    }

    /// Opens an object, and reports every field that is not one of `allowed`.
    pub(crate) fn object(&self, allowed: &[&str], report: &mut Report) -> Option<Fields<'a>> {
        let Some(map) = self.value.as_object() else {
            let message = format!("{} where an object belongs", kind(self.value));
            report.error(
                self,
                message,
                &format!("an object with {}", allowed.join(", ")),
            );
            return None;
        };
        for (name, value) in map {
            if !allowed.contains(&name.as_str()) {
                let problem = Problem::error(self.path.field(name), value, "unknown field");
                let problem = problem
                    .allowed(allowed.join(", "))
                    .suggest(nearest(name, allowed));
                report.add(Problem {
                    at_name: true,
                    ..problem
                });
            }
        }
        Some(Fields {
            map,
            path: self.path.clone(),
        })
    }

    /// The fields of an object that may have any.
    pub(crate) fn members(&self, report: &mut Report) -> Option<Vec<(&'a str, Self)>> {
        let Some(map) = self.value.as_object() else {
            let message = format!("{} where an object belongs", kind(self.value));
            report.error(self, message, "an object");
            return None;
        };
        let member = |(name, value): (&'a String, &'a Value)| {
            let path = self.path.field(name);
            (name.as_str(), Self { value, path })
        };
        Some(map.iter().map(member).collect())
    }

    /// The elements of a list.
    pub(crate) fn list(&self, report: &mut Report) -> Option<Vec<Self>> {
        let Some(list) = self.value.as_array() else {
            report.error(
                self,
                format!("{} where a list belongs", kind(self.value)),
                "a list",
            );
            return None;
        };
        let at = |(i, value)| Self {
            value,
            path: self.path.index(i),
        };
        Some(list.iter().enumerate().map(at).collect())
    }

    /// A text that is not empty and not longer than `longest` bytes.
    pub(crate) fn text(&self, longest: usize, report: &mut Report) -> Option<&'a str> {
        let allowed = format!("a text of 1 to {longest} bytes");
        match self.value.as_str() {
            Some("") => report.error(self, "empty", &allowed),
            Some(text) if text.len() > longest => report.error(self, "too long", &allowed),
            Some(text) => return Some(text),
            None => {
                report.error(
                    self,
                    format!("{} where a text belongs", kind(self.value)),
                    &allowed,
                );
            }
        }
        None
    }

    /// A whole number from `least` to `most`. Envoy hands numbers of a Struct over as doubles, so
    /// `15.0` is 15.
    pub(crate) fn integer(&self, least: u32, most: u32, report: &mut Report) -> Option<u32> {
        let number = self.value.as_u64().or_else(|| whole(self.value));
        let number = number
            .and_then(|n| u32::try_from(n).ok())
            .filter(|n| (least..=most).contains(n));
        if number.is_none() {
            report.error(
                self,
                "out of range",
                &format!("a whole number from {least} to {most}"),
            );
        }
        number
    }

    /// A number of at most three decimals, from `least` to `most`.
    pub(crate) fn decimal(
        &self,
        least: Decimal,
        most: Decimal,
        report: &mut Report,
    ) -> Option<Decimal> {
        let number = self.value.as_number().map(ToString::to_string);
        let decimal = number.as_deref().and_then(Decimal::parse);
        let fits = decimal.filter(|decimal| (least..=most).contains(decimal));
        if fits.is_none() {
            report.error(self, "out of range", &decimal_form(least, most));
        }
        fits
    }

    /// `true` or `false`.
    pub(crate) fn boolean(&self, report: &mut Report) -> Option<bool> {
        let boolean = self.value.as_bool();
        if boolean.is_none() {
            report.error(
                self,
                format!("{} where true or false belongs", kind(self.value)),
                "true, false",
            );
        }
        boolean
    }

    /// A word out of a few, and what it stands for. Envoy reads YAML's bare `off` as false.
    pub(crate) fn word<T: Copy>(&self, words: &[(&str, T)], report: &mut Report) -> Option<T> {
        let found = match self.value {
            Value::Bool(false) => Some("off"),
            value => value.as_str(),
        };
        let known = words
            .iter()
            .find(|(word, _)| found == Some(word))
            .map(|(_, meaning)| *meaning);
        if known.is_none() {
            let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            let problem = Problem::error(self.path.clone(), self.value, "unknown value");
            let suggestion = found.and_then(|found| nearest(found, &names));
            report.add(problem.allowed(names.join(", ")).suggest(suggestion));
        }
        known
    }
}

impl<'a> Fields<'a> {
    /// The field `name`, if it is there. JSON's null counts as absent.
    pub(crate) fn get(&self, name: &str) -> Option<Cursor<'a>> {
        let value = self.map.get(name).filter(|value| !value.is_null())?;
        Some(Cursor {
            value,
            path: self.path.field(name),
        })
    }

    /// The field `name`; its absence is reported.
    pub(crate) fn need(&self, name: &str, form: &str, report: &mut Report) -> Option<Cursor<'a>> {
        let field = self.get(name);
        if field.is_none() {
            report.add(self.missing(name, form));
        }
        field
    }

    fn missing(&self, name: &str, form: &str) -> Problem {
        Problem::error(
            self.path.clone(),
            &Value::Null,
            format!("`{name}` is missing"),
        )
        .allowed(form)
    }

    /// The only one of the fields `names` that is there; none or several are reported.
    pub(crate) fn one_of(
        &self,
        names: &[&'static str],
        report: &mut Report,
    ) -> Option<(&'static str, Cursor<'a>)> {
        let mut found = names
            .iter()
            .filter_map(|name| Some((*name, self.get(name)?)));
        let (first, second) = (found.next(), found.next());
        if first.is_some() && second.is_none() {
            return first;
        }
        let message = if first.is_none() {
            "nothing chosen"
        } else {
            "several chosen"
        };
        let value = Value::Null;
        let allowed = format!("exactly one of {}", names.join(", "));
        report.add(Problem::error(self.path.clone(), &value, message).allowed(allowed));
        None
    }
}

/// What is allowed where a number of at most three decimals belongs.
pub(crate) fn decimal_form(least: Decimal, most: Decimal) -> String {
    format!("a number from {least} to {most} with at most 3 decimals")
}

/// A double without a fraction, as a whole number.
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
