//! Whether a rule applies to a request, also if a value is too long for a regular expression.

use serde::Serialize;

use super::Rule;
use super::matcher::Fit;
use crate::request::Request;

/// The decision for requests whose match stays open, because a value is longer than a regular expression
/// tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnLongValue {
    /// The rule applies. Otherwise a client would escape a limit by making a value longer.
    #[default]
    Apply,
    /// The rule does not apply.
    Skip,
    /// The request is refused.
    Refuse,
}

impl OnLongValue {
    /// Whether this is the default, which serialised rules leave out.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Whether a rule applies to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// It applies.
    Yes,
    /// It does not.
    No,
    /// It applies, and refuses the request because a value is too long.
    Refuse,
}

impl Rule {
    /// Whether the rule's match applies to a request, by its `on_long_value`.
    pub fn reach(&self, request: &mut dyn Request) -> Reach {
        match (self.matches.fit(request), self.on_long_value) {
            (Fit::Yes, _) | (Fit::TooLong(_), OnLongValue::Apply) => Reach::Yes,
            (Fit::No(_), _) | (Fit::TooLong(_), OnLongValue::Skip) => Reach::No,
            (Fit::TooLong(_), OnLongValue::Refuse) => Reach::Refuse,
        }
    }
}
