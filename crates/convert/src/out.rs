//! Collects the rules and warnings of a conversion.

use std::collections::BTreeSet;
use std::fmt;
use std::rc::Rc;

use loudou_check::document::Position;
use loudou_rules::config::{self, MAX_RULES, Severity};
use loudou_words::text::{escape, shortened};
use serde_json::{Map, Value, json};

use crate::model::Model;
use crate::prove::{Counted, Counting};
use crate::{Converted, SOURCES, write};

/// Maximum number of warnings. Beyond this number, warnings usually share a cause.
const MAX_WARNINGS: usize = 1_000;
/// Maximum length of a source text that a message quotes, in characters.
const MAX_QUOTED: usize = 120;
/// Maximum length of a rule's name.
const MAX_NAME: usize = 63;

/// A place in a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Name of the source, as the user gave it.
    pub file: Rc<str>,
    /// Position in the source.
    pub position: Position,
}

impl Place {
    pub(crate) fn new(file: &Rc<str>, position: Position) -> Self {
        Self {
            file: Rc::clone(file),
            position,
        }
    }
}

impl fmt::Display for Place {
    /// Writes `FILE:LINE`, or only `FILE` if the place is the whole file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&escape(&self.file))?;
        match self.position.line {
            0 => Ok(()),
            line => write!(f, ":{line}"),
        }
    }
}

/// An error or a warning from a conversion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Place of the problem in the source.
    pub place: Place,
    /// An error means that no rule file is written. A warning describes a difference or a setting
    /// that was not converted.
    pub severity: Severity,
    /// The message, escaped for terminals.
    pub message: String,
}

impl Problem {
    pub(crate) fn error(place: Place, message: &str) -> Self {
        Self::new(place, Severity::Error, message)
    }

    fn new(place: Place, severity: Severity, message: &str) -> Self {
        let message = escape(message).into_owned();
        Self {
            place,
            severity,
            message,
        }
    }
}

/// Shortens and escapes a source text for use in a message.
pub(crate) fn quoted(text: &str) -> String {
    escape(&shortened(text.trim(), MAX_QUOTED)).into_owned()
}

/// A rule to be written.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    /// Text from which the rule's name is derived.
    pub(crate) name: String,
    pub(crate) place: Place,
    /// Source texts from which the rule was converted, with their places.
    pub(crate) originals: Vec<(Place, String)>,
    /// Remarks that do not describe a difference.
    pub(crate) remarks: Vec<String>,
    /// Differences between the source and the rule.
    pub(crate) differences: Vec<String>,
    pub(crate) fields: Map<String, Value>,
    pub(crate) counted: Counted,
}

impl Rule {
    pub(crate) fn new(name: &str, place: &Place, original: &str) -> Self {
        Self {
            name: name.to_owned(),
            place: place.clone(),
            originals: vec![(place.clone(), quoted(original))],
            remarks: Vec::new(),
            differences: Vec::new(),
            fields: Map::new(),
            counted: Counted::default(),
        }
    }

    /// Records a limit of the source, so that a proof can compare it with the rule. Rules with the
    /// same `counter` share counters.
    pub(crate) fn counts(&mut self, counter: impl Into<String>, model: Model) {
        // nginx checks `limit_conn` after `limit_req`.
        let step = u32::from(matches!(model, Model::LimitConn(_)));
        self.counted.limits.push(Counting {
            counter: counter.into(),
            model,
            step,
        });
    }

    /// Sets the position of the rule's limits in the order in which the source checks its limits.
    pub(crate) fn in_step(&mut self, step: u32) {
        let overrides = self.counted.overrides.iter_mut();
        let all = overrides.map(|(_, counting)| counting);
        for counting in all.chain(&mut self.counted.limits) {
            counting.step = step;
        }
    }

    pub(crate) fn set(&mut self, field: &str, value: Value) {
        self.fields.insert(field.to_owned(), value);
    }

    /// Returns the rule's source texts on one line.
    pub(crate) fn original(&self) -> String {
        let texts: Vec<&str> = self
            .originals
            .iter()
            .map(|(_, text)| text.as_str())
            .collect();
        texts.join("; ")
    }

    pub(crate) fn remark(&mut self, text: impl Into<String>) {
        self.remarks.push(text.into());
    }

    pub(crate) fn differs(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.differences.contains(&text) {
            self.differences.push(text);
        }
    }

    /// Sets the status code of refusals, unless it is Loudou's default of 429.
    pub(crate) fn status(&mut self, status: u64) {
        if status != 429 {
            self.set("refuse", json!({ "status": status }));
        }
    }
}

#[derive(Default)]
pub(crate) struct Out {
    rules: Vec<Rule>,
    names: BTreeSet<String>,
    /// Comments to be written at the start of the file.
    notes: Vec<(Place, String)>,
    warnings: Vec<Problem>,
    /// True if Envoy refuses requests while the rate limit service fails.
    pub(crate) denies_on_outage: bool,
}

impl Out {
    /// Adds a warning about a setting that was not converted.
    pub(crate) fn lost(&mut self, place: &Place, message: &str) {
        self.note(place, &format!("not converted: {message}"));
    }

    /// Adds a warning that does not belong to a rule, and the same text as a comment at the start
    /// of the file.
    pub(crate) fn note(&mut self, place: &Place, message: &str) {
        let entry = (place.clone(), message.to_owned());
        if !self.notes.contains(&entry) && self.notes.len() < MAX_WARNINGS {
            self.warn(place, message);
            self.notes.push(entry);
        }
    }

    fn warn(&mut self, place: &Place, message: &str) {
        if self.warnings.len() < MAX_WARNINGS {
            let problem = Problem::new(place.clone(), Severity::Warning, message);
            self.warnings.push(problem);
        }
    }

    /// Adds a rule, or a warning if the rule would be invalid in a rule file.
    pub(crate) fn add(&mut self, mut rule: Rule) {
        let stops = rule.fields.get("stop").and_then(Value::as_bool) == Some(true);
        let matched = rule.fields.get("match").map(Value::to_string);
        if stops && matched.is_some_and(|matched| matched.contains("\"regex\":")) {
            // A client may send a value that is too long for the regular expression. It must not escape
            // the limits of this rule, or bypass all later rules through a rule without limits.
            let limits = rule.fields.get("limits").and_then(Value::as_array);
            let has_limits = limits.is_some_and(|limits| !limits.is_empty());
            rule.set(
                "on_long_value",
                json!(if has_limits { "apply" } else { "skip" }),
            );
        }
        let name = self.unique(&rule.name);
        let mut document = rule.fields.clone();
        document.insert("name".to_owned(), json!(name));
        let problems = match config::parse_rule(&Value::Object(document)) {
            Ok(parsed) => config::unshared(&parsed),
            Err(problems) => problems,
        };
        if let Some(problem) = problems.first() {
            self.lost(&rule.place, &format!("{}: {problem}", rule.original()));
            return;
        }
        for difference in &rule.differences {
            self.warn(&rule.place, &format!("{name}: {difference}"));
        }
        self.names.insert(name.clone());
        rule.counted.rule.clone_from(&name);
        rule.name = name;
        self.rules.push(rule);
    }

    /// Derives a rule name from a text and makes it unique.
    fn unique(&self, text: &str) -> String {
        let slug = slug(text);
        let mut number = 1_usize;
        let mut name = slug.clone();
        while self.names.contains(&name) {
            number = number.saturating_add(1);
            let suffix = format!("-{number}");
            let most = MAX_NAME.saturating_sub(suffix.len());
            let start: String = slug.chars().take(most).collect();
            name = start + &suffix;
        }
        name
    }

    pub(crate) fn finish(self) -> Result<Converted, Vec<Problem>> {
        let place = Place::new(&"loudou convert".into(), Position::default());
        let failed = |message: String| {
            let mut problems = self.warnings.clone();
            problems.push(Problem::error(place, &message));
            Err(problems)
        };
        if self.rules.is_empty() {
            // The warnings explain why no limit was converted.
            return failed(if self.warnings.is_empty() {
                format!("no limit to convert; expected {SOURCES}")
            } else {
                "no limit was converted".to_owned()
            });
        }
        if self.rules.len() > MAX_RULES {
            let many = self.rules.len();
            return failed(format!(
                "{many} rules, but a rule file has at most {MAX_RULES}; convert fewer files at once"
            ));
        }
        let text = write::file(&self.rules, &self.notes, self.denies_on_outage);
        if text.len() > config::MAX_FILE_BYTES {
            return failed(
                "the rule file is larger than 1 MiB; convert fewer files at once".to_owned(),
            );
        }
        Ok(Converted {
            text,
            warnings: self.warnings,
            counted: self.rules.into_iter().map(|rule| rule.counted).collect(),
        })
    }
}

/// Converts a text to the syntax of rule names.
pub(crate) fn slug(text: &str) -> String {
    let mut slug = String::new();
    for c in text.chars() {
        if slug.len() >= MAX_NAME {
            break;
        }
        if c.is_ascii_alphanumeric() {
            slug.push(c.to_ascii_lowercase());
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    let slug = slug.trim_end_matches('-');
    if slug.is_empty() {
        "limit".to_owned()
    } else {
        slug.to_owned()
    }
}
