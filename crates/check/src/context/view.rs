//! Gives the checks access to the configuration around the rules, and collects the problems that
//! the checks find.

use std::rc::Rc;

use loudou_rules::config::{self, Path, Problem, Step};
use serde_json::Value;

use super::discovery::Discovered;
use crate::document::Document;
use crate::document::configuration::Place;
use crate::document::proto;

/// One rule file or admin configuration, with the configuration around it.
pub(super) struct View<'a> {
    pub(super) file: &'a Document,
    pub(super) place: &'a Place,
    /// Rule file or admin configuration, if it could be parsed.
    pub(super) content: Option<&'a Value>,
    /// Filters in the file that have `config_discovery`.
    pub(super) discovered: Rc<[Discovered]>,
    /// Problems in the configuration around the rules, with paths relative to the file.
    pub(super) problems: Vec<Problem>,
    /// Problems in the rule file or admin configuration itself, with paths relative to that
    /// configuration.
    pub(super) inside: Vec<Problem>,
}

impl<'a> View<'a> {
    pub(super) const fn new(
        file: &'a Document,
        place: &'a Place,
        content: Option<&'a Value>,
        discovered: Rc<[Discovered]>,
    ) -> Self {
        Self {
            file,
            place,
            content,
            discovered,
            problems: Vec::new(),
            inside: Vec::new(),
        }
    }

    pub(super) fn is_admin(&self) -> bool {
        self.content.is_some_and(config::is_admin)
    }

    /// Returns the value at `path`, or `None` if the value is missing or `null`.
    pub(super) fn at(&self, path: &Path) -> Option<&'a Value> {
        self.file.value_at(path).filter(|value| !value.is_null())
    }

    pub(super) fn text(&self, path: &Path) -> Option<&'a str> {
        self.at(path)?.as_str()
    }

    /// Returns the path of a nested field in an Envoy message. Each field name can be spelled in
    /// snake case or in camel case. A missing field gets the snake-case spelling.
    pub(super) fn envoy(&self, path: &Path, names: &[&str]) -> Path {
        names.iter().fold(path.clone(), |path, name| {
            let fields = self.at(&path).and_then(Value::as_object);
            let spelled = fields.and_then(|fields| proto::get(fields, name));
            path.field(spelled.map_or(*name, |(spelled, _)| spelled))
        })
    }

    /// Returns the number of elements in the list at `path`, or 0 if there is no list.
    pub(super) fn len(&self, path: &Path) -> usize {
        self.at(path).and_then(Value::as_array).map_or(0, Vec::len)
    }

    /// Reports an error at `path`. If `path` has no value, the error is reported at the object that
    /// should contain the field. `suggestion` is a value for the field.
    pub(super) fn error(
        &mut self,
        path: &Path,
        message: &str,
        allowed: &str,
        suggestion: Option<&str>,
    ) {
        let (problem, suggestion) = match (self.at(path), path.steps().split_last()) {
            (None, Some((Step::Field(name), outer))) => {
                let message = format!("`{name}` is missing: {message}");
                let outer = Path::from(outer.to_vec());
                let suggestion = suggestion.map(|value| format!("{name}: {value}"));
                (Problem::error(outer, &Value::Null, message), suggestion)
            }
            (value, _) => {
                let value = value.unwrap_or(&Value::Null);
                let suggestion = suggestion.map(str::to_owned);
                (Problem::error(path.clone(), value, message), suggestion)
            }
        };
        let problem = if allowed.is_empty() {
            problem
        } else {
            problem.allowed(allowed)
        };
        self.problems.push(problem.suggest(suggestion.as_deref()));
    }

    pub(super) fn warning(
        &mut self,
        path: &Path,
        message: &str,
        allowed: &str,
        suggestion: Option<&str>,
    ) {
        self.error(path, message, allowed, suggestion);
        if let Some(problem) = self.problems.pop() {
            self.problems.push(problem.warning());
        }
    }

    /// Returns an error at `path` in the rule file or admin configuration.
    pub(super) fn of_content(&self, path: Path, message: &str, allowed: &str) -> Problem {
        let mut steps = path.steps().iter();
        let value = self.content.and_then(|content| {
            steps.try_fold(content, |value, step| match step {
                Step::Field(name) => value.get(name),
                Step::Index(index) => value.get(*index),
            })
        });
        Problem::error(path, value.unwrap_or(&Value::Null), message).allowed(allowed)
    }

    /// Reports an admin role that would receive requests meant for a service.
    pub(super) fn misplaced_admin(&mut self, allowed: &str) {
        let message = "the admin role would answer every request here instead of the service";
        let path = Path::root().field("admin");
        self.inside.push(self.of_content(path, message, allowed));
    }

    /// Returns the string at `path` if it is one of the `allowed` words. Any other value is
    /// reported as an error.
    pub(super) fn word(&mut self, path: &Path, allowed: &[&'static str]) -> Option<&'static str> {
        let value = self.at(path)?;
        let word = value.as_str().unwrap_or_default();
        let known = allowed.iter().find(|other| **other == word).copied();
        if known.is_none() {
            let upper = word.to_uppercase();
            let exact = allowed.iter().find(|other| other.to_uppercase() == upper);
            let near = exact.copied().or_else(|| config::nearest(word, allowed));
            self.error(path, "unknown word", &allowed.join(", "), near);
        }
        known
    }

    /// Checks the format of the checksum at `path`. Returns true if a checksum is present.
    pub(super) fn checksum(&mut self, path: &Path, other_word: &str) -> bool {
        let allowed = "64 hexadecimal digits in lower case, in quotes";
        match self.at(path) {
            None => return false,
            Some(Value::String(sum)) if sum.is_empty() => return false,
            Some(Value::String(sum)) if !other_word.is_empty() && sum == other_word => {}
            Some(Value::String(sum)) => {
                let bare = sum.strip_prefix("sha256:").unwrap_or(sum);
                let bare = bare.to_ascii_lowercase();
                let is_hash = bare.len() == 64 && bare.bytes().all(|b| b.is_ascii_hexdigit());
                if !is_hash || bare != *sum {
                    let near = is_hash.then_some(bare.as_str());
                    self.error(path, "not a SHA-256", allowed, near);
                }
            }
            Some(_) => self.error(path, "a number, because it has no quotes", allowed, None),
        }
        true
    }
}
