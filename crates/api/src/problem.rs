//! Error responses: `application/problem+json` (RFC 9457). `R` and `E` are the type parameters of [`RuleView`].

use loudou_rules::config::{Problem, Severity};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::rule::RuleView;

/// Body of every response with a status of 400 or above, including the responses to refused
/// requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProblemAnswer<R = Value, E = Value> {
    /// URI that identifies the kind of problem, or `about:blank`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Short description of the kind of problem.
    pub title: String,
    /// HTTP status.
    pub status: u16,
    /// Description of this problem, with a remedy.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// For a refused request, the violated policies, named as in `RateLimit-Policy`.
    #[serde(
        default,
        rename = "violated-policies",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub violated_policies: Vec<String>,
    /// For an invalid request body, the problems found in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<RuleProblem>,
    /// Number of further problems, omitted to limit the length of the response.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub problems_left_out: usize,
    /// For status 429 from the admin API, how long to wait before the next call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ns: Option<u64>,
    /// For statuses 412 and 428, the current rule.
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

/// A problem in rules or in an edit of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RuleProblem {
    /// Error or warning.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(schema_with = "crate::schema::severity"))]
    pub severity: Severity,
    /// Path to the value, such as `limits[0].rate`.
    pub path: String,
    /// Invalid value, as JSON.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// Description of the problem.
    pub message: String,
    /// Allowed values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<String>,
    /// Similar valid value that the author probably meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
    /// Line number in the rule text, starting at 1. Absent if the rules were not parsed from text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// Column in that line, in characters, starting at 1.
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
