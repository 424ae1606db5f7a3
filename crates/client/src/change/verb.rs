//! The parts that every kind of change has: question, preview, sending and outcome.

use loudou_api::{BanAnswer, EditAnswer, ResetAnswer};

use crate::{Client, ClientError};
use loudou_words::text::escape;

/// A kind of change.
pub trait Verb {
    /// Returns the rule that it changes. Empty if it changes several rules.
    fn rule(&self) -> &str;

    /// Returns the key to which it applies. `None` for all keys.
    fn key(&self) -> Option<&str>;

    /// Returns the question before sending.
    fn question(&self) -> Question;

    /// Returns the equivalent command line. `None` if that would need a file.
    fn command(&self, url: Option<&str>) -> Option<String>;

    /// Returns the state before and after, if a preview is possible.
    fn preview(&self, _client: &Client) -> Result<Option<EditAnswer>, ClientError> {
        Ok(None)
    }

    /// Sends the change once. Only edits and overrides can be a dry run.
    fn send(&self, client: &Client, dry_run: bool) -> Result<Answer, ClientError>;

    /// Describes the outcome.
    fn outcome(&self, answer: &Answer) -> OutcomeText;
}

/// A question before a change, as one line and as a title with details.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// The question on a command line, escaped.
    pub line: String,
    /// For a screen.
    pub title: String,
    /// Details below the title, one line each.
    pub detail: Vec<String>,
}

/// The answer to a change.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Answer to an edit of a rule or an override.
    Edit(Box<EditAnswer>),
    /// Answer to a ban or unban.
    Ban(Box<BanAnswer>),
    /// Answers to a ban or unban in several rules, with the result for each rule.
    BanAll(Vec<Result<BanAnswer, ClientError>>),
    /// Answer to a reset.
    Reset(Box<ResetAnswer>),
}

impl Answer {
    /// Returns the errors of a change that was made partly.
    pub fn failures(&self) -> impl Iterator<Item = &ClientError> {
        let results = match self {
            Self::BanAll(results) => results.as_slice(),
            Self::Edit(_) | Self::Ban(_) | Self::Reset(_) => &[],
        };
        results.iter().filter_map(|result| result.as_ref().err())
    }
}

/// An outcome in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutcomeText {
    /// The outcome on a command line, escaped, with rule and key.
    pub line: String,
    /// For a screen.
    pub toast: String,
}

/// Describes a key, escaped, for example `alice of per-user`.
pub(super) fn key_of_rule(rule: &str, key: &str) -> String {
    format!("{} of {}", escape(key), escape(rule))
}

/// Returns the first details of every question about a key.
pub(super) fn details(rule: &str, reason: &str) -> Vec<String> {
    std::iter::once(format!("rule {rule}"))
        .chain(reason_line(reason))
        .collect()
}

/// Returns the reason as a detail, if there is one.
pub(super) fn reason_line(reason: &str) -> Option<String> {
    (!reason.is_empty()).then(|| format!("reason: {reason}"))
}

/// Returns the difference that an edit made, in one line.
pub(super) fn difference(change: &str) -> &str {
    if change.is_empty() {
        "no difference"
    } else {
        change
    }
}

/// Returns the reason of an undo.
pub(super) fn undo_reason(change: &str) -> String {
    format!("undo of: {change}").chars().take(120).collect()
}
