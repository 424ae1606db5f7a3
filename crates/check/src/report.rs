//! Formats problems: `file:line:column`, the source line, and a mark below the position.
//!
//! The first line is formatted like a compiler message, so that editors can jump to the position.
//! The `annotate-snippets` crate is not used, because it prints the position on the second line or
//! omits the excerpt. Even with that crate, this module would have to mask secrets, escape control
//! characters and shorten long lines.

use std::rc::Rc;

use loudou_api::RuleProblem;
use loudou_rules::config::{Path, Problem, Severity, Step};
use serde::Serialize;
use serde_json::Value;
use unicode_width::UnicodeWidthStr as _;

use super::secret::masked;
use crate::document::configuration::{Configuration, Place};
use crate::document::{self, Document, Fault, Kind, Position, envoy, manifest};
use loudou_words::text::escape;

/// Maximum length of a quoted source line, in characters.
const SHOWN: usize = 100;
/// Maximum number of characters of a source line that are quoted before the marked position.
const BEFORE: usize = 60;

/// Function that colours a message by severity.
pub type Paint<'a> = &'a dyn Fn(Severity, &str) -> String;

/// Problems of one file, or of one configuration in an Envoy or Kubernetes file.
#[derive(Debug, Default)]
pub struct Report {
    file: String,
    /// Names of the filters with this configuration. `None` for a rule file.
    filter: Option<String>,
    /// The Envoy or Kubernetes file, and the location of the configuration in it.
    context: Option<(Rc<Document>, Place)>,
    source: Rc<[String]>,
    findings: Vec<Finding>,
    /// Parsed configuration, if parsing succeeded.
    pub document: Option<Document>,
    /// True if an earlier filter answers or refuses CORS preflights, so that they never reach
    /// Loudou.
    pub is_without_preflights: bool,
    /// True if the report is about a manifest file without a Loudou configuration.
    pub is_unrelated: bool,
}

#[derive(Clone, Debug)]
struct Finding {
    /// Position of the problem, or `None` if there is no parsed document.
    position: Option<Position>,
    line: String,
    problem: RuleProblem,
}

/// A problem with the name of its file, as printed in JSON.
#[derive(Clone, Debug, Serialize)]
pub struct FileProblem {
    /// File name as given by the user.
    pub file: String,
    /// Object, listener, filter and role, if the file is for Envoy or Kubernetes.
    pub filter: Option<String>,
    /// Problem with its position in the file.
    #[serde(flatten)]
    pub problem: RuleProblem,
}

impl Report {
    /// Parses a file and records the parser's faults.
    pub fn of_text(file: &str, bytes: &[u8]) -> Self {
        let mut report = Self {
            file: file.to_owned(),
            ..Self::default()
        };
        match document::read(bytes) {
            Ok(document) => {
                report.findings = document.faults.iter().map(Finding::fault).collect();
                report.document = Some(document);
            }
            Err(fault) => report.findings.push(Finding::fault(&fault)),
        }
        let text = String::from_utf8_lossy(bytes);
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        report.source = text.split('\n').map(str::to_owned).collect();
        report
    }

    /// Splits a report on an Envoy or Kubernetes file into one report for each Loudou
    /// configuration. A report on a rule file is returned unchanged.
    pub fn configurations(mut self) -> Vec<Self> {
        let Some(file) = self.document.take_if(|it| it.kind != Kind::Loudou) else {
            return vec![self];
        };
        let file = Rc::new(file);
        let part = |found: Configuration| {
            let (document, faults) = match found.document {
                Ok(document) => {
                    let faults = document.faults.iter().map(Finding::fault).collect();
                    (Some(document), faults)
                }
                Err(fault) => (None, vec![Finding::fault(&fault)]),
            };
            Self {
                file: self.file.clone(),
                filter: Some(found.title),
                context: Some((Rc::clone(&file), found.place)),
                source: Rc::clone(&self.source),
                findings: faults,
                document,
                is_without_preflights: found.is_without_preflights,
                is_unrelated: false,
            }
        };
        let found = match file.kind {
            Kind::Kubernetes => manifest::configurations(&file),
            Kind::Loudou | Kind::Envoy => envoy::configurations(&file),
        };
        match found {
            Ok(found) => found.into_iter().map(part).collect(),
            Err(fault) => {
                self.findings = vec![Finding::fault(&fault)];
                self.is_unrelated = file.kind == Kind::Kubernetes;
                vec![self]
            }
        }
    }

    /// Returns the Envoy or Kubernetes file that contains the configuration, and the location of
    /// the configuration in it.
    pub fn context(&self) -> Option<(&Document, &Place)> {
        let (file, place) = self.context.as_ref()?;
        Some((file, place))
    }

    /// Returns true if the configuration is in a Kubernetes manifest.
    pub fn is_manifest(&self) -> bool {
        let context = self.context.as_ref();
        context.is_some_and(|(file, _)| file.kind == Kind::Kubernetes)
    }

    /// Returns the file name as given by the user.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Returns the names of the filters with this configuration, or `None` for a rule file.
    pub fn filter(&self) -> Option<&str> {
        self.filter.as_deref()
    }

    /// Returns the name for messages: the file name and, if any, the names of the filters.
    pub fn name(&self) -> String {
        match &self.filter {
            Some(filter) => format!("{}: {filter}", self.file),
            None => self.file.clone(),
        }
    }

    /// Returns true if any problem is an error, so that the file cannot be used.
    pub fn has_errors(&self) -> bool {
        let mut findings = self.findings.iter();
        findings.any(|finding| finding.problem.severity == Severity::Error)
    }

    /// Adds problems in the configuration, and sorts all problems by position.
    pub fn add(&mut self, problems: &[Problem]) {
        for problem in problems {
            let document = self.document.as_ref();
            let position = document.map(|document| locate(document, problem));
            let path = self.path_in_object(&problem.path);
            self.findings.push(Finding::new(position, problem, path));
        }
        self.findings.sort_by_key(|finding| finding.position);
    }

    /// Adds problems in the Envoy or Kubernetes configuration around the rules. The paths of these
    /// problems are relative to the whole file.
    pub fn add_around(&mut self, problems: &[Problem]) {
        let Some((file, place)) = &self.context else {
            return;
        };
        let object = place.object.as_ref().map(|object| &object.path);
        for problem in problems {
            let position = Some(file.locate(&problem.path, problem.at_name));
            let path = without(&problem.path, object.unwrap_or(&Path::root()));
            self.findings.push(Finding::new(position, problem, path));
        }
        self.findings.sort_by_key(|finding| finding.position);
    }

    /// Calls `suggest` with the path and value of each problem that has no suggestion, and adds the
    /// suggestion that it returns.
    pub fn suggest(&mut self, suggest: &dyn Fn(&str, &str) -> Option<String>) {
        for Finding { line, problem, .. } in &mut self.findings {
            if problem.suggestion.is_none()
                && let Some(text) = suggest(&problem.path, &problem.value)
            {
                line.extend(["; did you mean `", &text, "`?"]);
                problem.suggestion = Some(text);
            }
        }
    }

    /// Converts a path relative to the configuration to a path relative to the Kubernetes object
    /// that contains the configuration.
    fn path_in_object(&self, path: &Path) -> Path {
        let place = self.context.as_ref().map(|(_, place)| place);
        let Some((place, object)) = place.and_then(|place| Some((place, place.object.as_ref()?)))
        else {
            return path.clone();
        };
        let context = without(&place.content, &object.path);
        Path::from([context.steps(), path.steps()].concat())
    }

    /// Returns all problems, each with the file name.
    pub fn problems(&self) -> impl Iterator<Item = FileProblem> {
        self.findings.iter().map(|finding| FileProblem {
            file: self.file.clone(),
            filter: self.filter.clone(),
            problem: finding.problem.clone(),
        })
    }

    /// Formats all problems as text, each with its source line. `paint` colours the severity and
    /// the mark, or returns them unchanged.
    pub fn lines(&self, paint: Paint<'_>) -> String {
        self.findings
            .iter()
            .map(|finding| self.finding(finding, paint))
            .collect()
    }

    /// Returns the number of errors and warnings, such as `rules.yaml: 3 errors, 1 warning`.
    pub fn count(&self) -> String {
        let count = |severity: Severity| {
            let findings = self.findings.iter();
            let n = findings
                .filter(|finding| finding.problem.severity == severity)
                .count();
            let plural = if n == 1 { "" } else { "s" };
            (n > 0).then(|| format!("{n} {}{plural}", self::severity(severity)))
        };
        let counts: Vec<String> = [count(Severity::Error), count(Severity::Warning)]
            .into_iter()
            .flatten()
            .collect();
        format!("{}: {}", escape(&self.name()), counts.join(", "))
    }

    fn finding(&self, finding: &Finding, paint: Paint<'_>) -> String {
        let severity = finding.problem.severity;
        let word = paint(severity, &format!("{}:", self::severity(severity)));
        let object = self.context.as_ref();
        let object = object.and_then(|(_, place)| place.object.as_ref());
        let object = object.map(|object| format!("{object}: "));
        let line = format!("{}{}", object.unwrap_or_default(), finding.line);
        let line = escape(&line);
        if self.file.is_empty() {
            return format!("{word} {line}\n");
        }
        let file = escape(&self.file);
        let Some(at) = finding.position.filter(|position| position.line > 0) else {
            return format!("{file}: {word} {line}\n");
        };
        let excerpt = self.excerpt(at, &paint(severity, "^"));
        format!("{file}:{}:{}: {word} {line}\n{excerpt}", at.line, at.column)
    }

    /// Returns the source line at a position, with a mark below the position.
    fn excerpt(&self, at: Position, mark: &str) -> String {
        let Some(line) = self.source.get(at.line.saturating_sub(1)) else {
            return String::new();
        };
        let document = self.document.as_ref();
        let line = masked(line, document.map(|document| &document.value));
        if line.trim().is_empty() {
            return String::new();
        }
        let column = at.column.saturating_sub(1);
        let start = column.saturating_sub(BEFORE);
        let clean = |text: String| escape(&text.replace('\t', " ")).into_owned();
        let before: String = line.chars().skip(start).take(column - start).collect();
        let rest = SHOWN.saturating_sub(before.chars().count());
        let after: String = line.chars().skip(column).take(rest).collect();
        let (before, after) = (clean(before), clean(after));
        let number = at.line.to_string();
        let margin = " ".repeat(number.len());
        let indent = " ".repeat(before.width());
        format!("  {number} | {before}{after}\n  {margin} | {indent}{mark}\n")
    }
}

impl Finding {
    fn new(position: Option<Position>, problem: &Problem, path: Path) -> Self {
        let problem = Problem {
            path,
            ..problem.clone()
        };
        Self {
            position,
            line: problem.to_string(),
            problem: RuleProblem {
                line: position.map(|position| position.line),
                column: position.map(|position| position.column),
                ..RuleProblem::from(&problem)
            },
        }
    }

    fn fault(fault: &Fault) -> Self {
        let known = fault.position.line > 0;
        Self {
            position: Some(fault.position),
            line: fault.message.clone(),
            problem: RuleProblem {
                severity: fault.severity,
                message: fault.message.clone(),
                line: known.then_some(fault.position.line),
                column: known.then_some(fault.position.column),
                ..RuleProblem::default()
            },
        }
    }
}

/// Returns the name of a severity.
pub const fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    }
}

/// Returns `path` relative to `outer`, or unchanged if it does not start with `outer`.
fn without(path: &Path, outer: &Path) -> Path {
    let steps = path.steps().strip_prefix(outer.steps());
    Path::from(steps.unwrap_or_else(|| path.steps()).to_vec())
}

/// Returns the position of a problem. A file that is only a list contains the `limits` of an edit,
/// so the first step of the path is skipped.
fn locate(document: &Document, problem: &Problem) -> Position {
    let steps = problem.path.steps();
    let (Value::Array(_), Some((Step::Field(_), steps))) = (&document.value, steps.split_first())
    else {
        return document.locate(&problem.path, problem.at_name);
    };
    let path = steps.iter().fold(Path::root(), |path, step| match step {
        Step::Field(name) => path.field(name),
        Step::Index(index) => path.index(*index),
    });
    document.locate(&path, problem.at_name)
}
