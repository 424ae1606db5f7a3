//! Errors: `application/problem+json` (RFC 9457).

use loudou_rules::config::{Problem, Severity};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::rule::RuleView;

/// The body of every answer with a status of 400 or above, refused requests included. The rule in it is
/// an `R`, and the edit of it an `E`, as in [`RuleView`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProblemAnswer<R = Value, E = Value> {
    /// A URI for the kind of problem, or `about:blank`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The kind in words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// This problem in words, with a remedy.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// On a refused request: the policies it violated, as named in `RateLimit-Policy`.
    #[serde(
        default,
        rename = "violated-policies",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub violated_policies: Vec<String>,
    /// On a bad body: its problems.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<RuleProblem>,
    /// The number of further problems, which would make the answer too long.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub problems_left_out: usize,
    /// On 429 of the admin API: how long to wait before the next call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ns: Option<u64>,
    /// On 412 and 428: the current rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<RuleView<R, E>>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
const fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl<R, E> Default for ProblemAnswer<R, E> {
    fn default() -> Self {
        Self {
            kind: String::new(),
            title: String::new(),
            status: 0,
            detail: String::new(),
            violated_policies: Vec::new(),
            problems: Vec::new(),
            problems_left_out: 0,
            retry_after_ns: None,
            current: None,
        }
    }
}

/// One problem of rules or of an edit of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RuleProblem {
    /// Error or warning.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(schema_with = "crate::schema::severity"))]
    pub severity: Severity,
    /// Its path: `limits[0].rate`.
    pub path: String,
    /// The value that was found, as JSON.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// The problem in words.
    pub message: String,
    /// The allowed values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<String>,
    /// The value that was probably meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
    /// The line in the text, from 1, if there is a text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// The column, in characters from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<usize>,
}

impl From<&Problem> for RuleProblem {
    fn from(problem: &Problem) -> Self {
        Self {
            severity: problem.severity,
            path: problem.path.to_string(),
            value: if problem.at_name {
                String::new()
            } else {
                problem.value.clone()
            },
            message: problem.message.clone(),
            allowed: problem.allowed.clone(),
            suggestion: problem.suggestion.clone(),
            line: None,
            column: None,
        }
    }
}
