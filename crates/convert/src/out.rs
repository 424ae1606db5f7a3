//! The rules and warnings that a conversion collects.

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

/// Maximum number of warnings. More warnings usually have one cause.
const MAX_WARNINGS: usize = 1_000;
/// Maximum length of a text from a source in a message, in characters.
const MAX_QUOTED: usize = 120;
/// Maximum length of a rule's name.
const MAX_NAME: usize = 63;

/// A place in a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The source, as the user named it.
    pub file: Rc<str>,
    /// The position in it.
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
    /// Returns `FILE:LINE`, or `FILE` for a text as a whole.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&escape(&self.file))?;
        match self.position.line {
            0 => Ok(()),
            line => write!(f, ":{line}"),
        }
    }
}

/// A problem of a conversion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Its place.
    pub place: Place,
    /// An error prevents a rule file. A warning is a difference.
    pub severity: Severity,
    /// The problem, escaped for terminals.
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

/// Shortens a text from a source for a message.
pub(crate) fn quoted(text: &str) -> String {
    escape(&shortened(text.trim(), MAX_QUOTED)).into_owned()
}

/// A rule to write.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    /// Text from which its name is made.
    pub(crate) name: String,
    pub(crate) place: Place,
    /// The source's own words, with their places.
    pub(crate) originals: Vec<(Place, String)>,
    /// Remarks that are no differences.
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

    /// Adds the source's own limit. Rules with the same text for the counter share its counters.
    pub(crate) fn counts(&mut self, counter: impl Into<String>, model: Model) {
        // nginx asks `limit_conn` after `limit_req`.
        let step = u32::from(matches!(model, Model::LimitConn(_)));
        self.counted.limits.push(Counting {
            counter: counter.into(),
            model,
            step,
        });
    }

    /// Sets the position of the rule's limits among the limits that the source asks one after
    /// another.
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

    /// Returns the source's words in one line.
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

    /// Sets the status of refusals, unless it is Loudou's default.
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
    /// Comments at the start of the file.
    notes: Vec<(Place, String)>,
    warnings: Vec<Problem>,
    /// True if a rate limit service that fails makes Envoy refuse.
    pub(crate) denies_on_outage: bool,
}

impl Out {
    /// Adds a warning about a setting that no rule contains.
    pub(crate) fn lost(&mut self, place: &Place, message: &str) {
        self.note(place, &format!("not converted: {message}"));
    }

    /// Adds a warning about all rules.
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

    /// Adds a rule, or a warning if a rule file cannot contain it.
    pub(crate) fn add(&mut self, mut rule: Rule) {
        let stops = rule.fields.get("stop").and_then(Value::as_bool) == Some(true);
        let matched = rule.fields.get("match").map(Value::to_string);
        if stops && matched.is_some_and(|matched| matched.contains("\"regex\":")) {
            // A client with a long value must not avoid the rules behind this one.
            rule.set("on_long_value", json!("skip"));
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

    /// Returns a name for a rule that no other rule has.
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
            // The warnings say why.
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

/// Returns a text in the form of a rule's name.
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
