//! A problem in a rule file, with its path, the offending value, the allowed values, and a
//! suggestion.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A step of a path in a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A field of an object.
    Field(String),
    /// An element of a list.
    Index(usize),
}

/// A path in a document, starting at its root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path(Vec<Step>);

impl Path {
    /// Returns the path of the document itself.
    pub const fn root() -> Self {
        Self(Vec::new())
    }

    /// Returns the path of the field `name` in the object at this path.
    #[must_use]
    pub fn field(&self, name: &str) -> Self {
        self.join(Step::Field(name.to_string()))
    }

    /// Returns the path of element `index` in the list at this path.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        self.join(Step::Index(index))
    }

    fn join(&self, step: Step) -> Self {
        let mut steps = self.0.clone();
        steps.push(step);
        Self(steps)
    }

    /// Returns the steps of the path, starting at the root.
    pub fn steps(&self) -> &[Step] {
        &self.0
    }
}

impl From<Vec<Step>> for Path {
    fn from(steps: Vec<Step>) -> Self {
        Self(steps)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("(the whole file)");
        }
        for (i, step) in self.0.iter().enumerate() {
            match step {
                Step::Field(name) if i == 0 => f.write_str(&escape(name))?,
                Step::Field(name) => write!(f, ".{}", escape(name))?,
                Step::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

/// Severity of a problem.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The file cannot be used.
    #[default]
    Error,
    /// The file is valid, but the value is probably a mistake.
    Warning,
}

/// A problem in a rule file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Severity: error or warning.
    pub severity: Severity,
    /// Path of the value.
    pub path: Path,
    /// True if the problem lies in the field's name rather than its value.
    pub at_name: bool,
    /// The value as JSON, truncated if long. Empty if there is no value, as with a missing field.
    pub value: String,
    /// Description of the problem.
    pub message: String,
    /// The allowed values, if they are short enough to list.
    pub allowed: Option<String>,
    /// A suggested correction.
    pub suggestion: Option<String>,
}

impl Problem {
    /// Creates an error at `path`.
    pub fn error(path: Path, value: &Value, message: impl Into<String>) -> Self {
        let value = if value.is_null() {
            String::new()
        } else {
            shorten(&serde_json::to_string(value).unwrap_or_default())
        };
        Self {
            severity: Severity::Error,
            path,
            at_name: false,
            value,
            message: message.into(),
            allowed: None,
            suggestion: None,
        }
    }

    /// Turns the problem into a warning.
    #[must_use]
    pub fn warning(self) -> Self {
        Self {
            severity: Severity::Warning,
            ..self
        }
    }

    /// Sets the allowed values.
    #[must_use]
    pub fn allowed(self, allowed: impl Into<String>) -> Self {
        Self {
            allowed: Some(allowed.into()),
            ..self
        }
    }

    /// Sets the suggestion.
    #[must_use]
    pub fn suggest(self, suggestion: Option<&str>) -> Self {
        Self {
            suggestion: suggestion.map(ToString::to_string),
            ..self
        }
    }
}

impl fmt::Display for Problem {
    /// Formats the problem on one line, without its line and column: `rules[0].limits[0].rate:
    /// "0/s": …`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path)?;
        if !self.value.is_empty() && !self.at_name {
            write!(f, "{}: ", escape(&self.value))?;
        }
        f.write_str(&escape(&self.message))?;
        if let Some(allowed) = &self.allowed {
            write!(f, "; allowed: {}", escape(allowed))?;
        }
        if let Some(suggestion) = &self.suggestion {
            write!(f, "; did you mean `{}`?", escape(suggestion))?;
        }
        Ok(())
    }
}

/// Escapes control characters, because problems appear on terminals and in logs.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

fn shorten(text: &str) -> String {
    const MAX_SHOWN: usize = 60;
    if text.chars().count() <= MAX_SHOWN {
        return text.to_string();
    }
    text.chars()
        .take(MAX_SHOWN.saturating_sub(1))
        .chain(['…'])
        .collect()
}
