//! Operations that every kind of change implements: confirmation question, preview, sending and
//! outcome.

use loudou_api::{BanAnswer, EditAnswer, ResetAnswer};

use crate::{Client, ClientError};
use loudou_words::text::escape;

/// A kind of change.
pub trait Verb {
    /// Returns the name of the affected rule. Empty if the change affects several rules.
    fn rule(&self) -> &str;

    /// Returns the affected key. `None` if the change affects all keys.
    fn key(&self) -> Option<&str>;

    /// Returns the question to ask before sending the change.
    fn question(&self) -> Question;

    /// Returns an equivalent command line. `None` if the command would need a file.
    fn command(&self, url: Option<&str>) -> Option<String>;

    /// Returns the rule before and after the change, or `None` if this kind of change cannot be
    /// previewed.
    fn preview(&self, _client: &Client) -> Result<Option<EditAnswer>, ClientError> {
        Ok(None)
    }

    /// Sends the change once. Only edits and overrides support dry runs.
    fn send(&self, client: &Client, dry_run: bool) -> Result<Answer, ClientError>;

    /// Describes the outcome of the change.
    fn outcome(&self, answer: &Answer) -> OutcomeText;
}

/// A confirmation question: one line for the command line, and a title with details for the
/// terminal app.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// The question for the command line, escaped.
    pub line: String,
    /// The question for the terminal app.
    pub title: String,
    /// Details shown below the title, one per line.
    pub detail: Vec<String>,
}

/// The server's response to a change.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Response to an edit of a rule or an override.
    Edit(Box<EditAnswer>),
    /// Response to a ban or unban.
    Ban(Box<BanAnswer>),
    /// Results of a ban or unban in several rules, one per rule.
    BanAll(Vec<Result<BanAnswer, ClientError>>),
    /// Response to a reset.
    Reset(Box<ResetAnswer>),
}

impl Answer {
    /// Returns the errors from a change that succeeded in only some of the rules.
    pub fn failures(&self) -> impl Iterator<Item = &ClientError> {
        let results = match self {
            Self::BanAll(results) => results.as_slice(),
            Self::Edit(_) | Self::Ban(_) | Self::Reset(_) => &[],
        };
        results.iter().filter_map(|result| result.as_ref().err())
    }
}

/// Description of an outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutcomeText {
    /// The outcome for the command line, escaped, including the rule and key.
    pub line: String,
    /// The outcome for the terminal app.
    pub toast: String,
}

/// Describes a key, escaped, for example `alice of per-user`.
pub(super) fn key_of_rule(rule: &str, key: &str) -> String {
    format!("{} of {}", escape(key), escape(rule))
}

/// Returns the details shown first in every question about a key.
pub(super) fn details(rule: &str, reason: &str) -> Vec<String> {
    std::iter::once(format!("rule {rule}"))
        .chain(reason_line(reason))
        .collect()
}

/// Returns the reason as a detail line, or `None` if the reason is empty.
pub(super) fn reason_line(reason: &str) -> Option<String> {
    (!reason.is_empty()).then(|| format!("reason: {reason}"))
}

/// Summarises the effect of an edit in one line.
pub(super) fn difference(change: &str) -> &str {
    if change.is_empty() {
        "no difference"
    } else {
        change
    }
}

/// Returns the reason to record for an undo.
pub(super) fn undo_reason(change: &str) -> String {
    format!("undo of: {change}").chars().take(120).collect()
}
