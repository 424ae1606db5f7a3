//! The parts that every kind of change has: question, preview, sending and outcome.

use loudou_api::{BanAnswer, EditAnswer, ResetAnswer};

use crate::{Client, ClientError};
use loudou_words::text::escape;

/// A kind of change.
pub trait Verb {
    /// The rule that it changes; empty if it changes several.
    fn rule(&self) -> &str;

    /// The key that it applies to; `None` for all keys.
    fn key(&self) -> Option<&str>;

    /// The question before sending.
    fn question(&self) -> Question;

    /// The command line that does the same; `None` if it would need a file.
    fn command(&self, url: Option<&str>) -> Option<String>;

    /// Before and after, if that is known without a change.
    fn preview(&self, _client: &Client) -> Result<Option<EditAnswer>, ClientError> {
        Ok(None)
    }

    /// Sends it once. Only edits and overrides can be a dry run.
    fn send(&self, client: &Client, dry_run: bool) -> Result<Answer, ClientError>;

    /// The outcome in words.
    fn outcome(&self, answer: &Answer) -> OutcomeText;
}

/// A question: on one line, and separate from its details.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// For a command line; escaped.
    pub line: String,
    /// For a screen.
    pub title: String,
    /// For a screen, below the title: one line each.
    pub detail: Vec<String>,
}

/// The answer to a change.
#[derive(Clone, Debug)]
pub enum Answer {
    /// To an edit of a rule or an override.
    Edit(Box<EditAnswer>),
    /// To a ban or its end.
    Ban(Box<BanAnswer>),
    /// To a ban in several rules or its end: the result of each rule.
    BanAll(Vec<Result<BanAnswer, ClientError>>),
    /// To a reset.
    Reset(Box<ResetAnswer>),
}

impl Answer {
    /// The errors of a change of which the rest was made.
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
    /// For a command line, with rule and key; escaped.
    pub line: String,
    /// For a screen.
    pub toast: String,
}

/// `alice of per-user`, escaped.
pub(super) fn key_of_rule(rule: &str, key: &str) -> String {
    format!("{} of {}", escape(key), escape(rule))
}

/// The first details of every question about a key.
pub(super) fn details(rule: &str, reason: &str) -> Vec<String> {
    std::iter::once(format!("rule {rule}"))
        .chain(reason_line(reason))
        .collect()
}

/// The reason as a detail, if there is one.
pub(super) fn reason_line(reason: &str) -> Option<String> {
    (!reason.is_empty()).then(|| format!("reason: {reason}"))
}

/// The difference that an edit made, in one line.
pub(super) fn difference(change: &str) -> &str {
    if change.is_empty() {
        "no difference"
    } else {
        change
    }
}

/// The reason of an undo.
pub(super) fn undo_reason(change: &str) -> String {
    format!("undo of: {change}").chars().take(120).collect()
}
