//! The messages that the app receives: input, answers, signals and ticks.

use loudou_api::{BucketView, Event, ExplainAnswer, ProblemAnswer, RuleView, Rules, Status};

use loudou_limiter::Nanos;

use super::effects::{Goal, Sending};
use super::press::{Mouse, Press};
use super::rows::BucketName;
use loudou_client::ClientError;
use loudou_client::change::verb::Answer;
use loudou_client::live::Item;
use loudou_client::live::apply::Done;

/// A message.
#[derive(Clone, Debug)]
pub(crate) enum Msg {
    /// A key was pressed.
    Press(Press),
    /// Text was pasted.
    Paste(String),
    /// The mouse was clicked, or its wheel turned.
    Mouse(Mouse),
    /// The terminal has a new size.
    Resize(u16, u16),
    /// Time passed.
    Tick,
    /// A poll ended.
    Polled(Result<Box<Snapshot>, Failure>),
    /// A rule was read for an edit form that is open or about to open.
    RuleRead(String, Result<Box<RuleView>, Failure>),
    /// A change was answered, or its request failed.
    Changed(Box<Sending>, Result<Answer, Failure>),
    /// The results of applying missing changes.
    Again(Result<Vec<(Item, Done)>, Failure>),
    /// Envoy answered an Explain request, or the request failed.
    Explained(Result<Box<ExplainAnswer>, Failure>),
    /// An effect could not start because too many are in progress.
    Busy(Goal),
    /// A signal asked the app to quit.
    Quit,
    /// A signal asked the app to suspend.
    Suspend,
    /// The process was continued after it had been suspended.
    Resumed,
    /// A thread panicked. The app cannot continue.
    Fatal(String),
}

/// The data that one poll read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) status: Status,
    /// Duration of the status call, or 0 if unknown.
    pub(crate) took: Nanos,
    /// Age of the status when the last call of the poll was answered, or 0 if unknown.
    pub(crate) status_age: Nanos,
    /// The buckets that were read, each with the server's clock at that time.
    pub(crate) buckets: Vec<(u64, BucketView)>,
    /// True if there may be more buckets than were read.
    pub(crate) truncated: bool,
    /// Buckets that were looked up by name and do not exist.
    pub(crate) gone: Vec<BucketName>,
    /// Percentage of the store that the searches for the filter text have covered, or `None` if
    /// they have finished.
    pub(crate) searching: Option<u64>,
    /// The rules, if their generation changed.
    pub(crate) rules: Option<Rules>,
    /// The events since the last poll.
    pub(crate) events: Vec<Event>,
    pub(crate) last_seq: u64,
    /// Number of events that were dropped before the app could read them.
    pub(crate) events_lost: u64,
}

/// Failure of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Failure {
    /// Error text.
    pub(crate) text: String,
    /// Problem that the server reported.
    pub(crate) problem: Option<Box<ProblemAnswer>>,
    /// True if the request may have been carried out anyway.
    pub(crate) in_doubt: bool,
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let text = error.to_string();
        let in_doubt = error.is_in_doubt();
        let problem = match error {
            ClientError::Problem { problem, .. } => Some(problem),
            _ => None,
        };
        Self {
            text,
            problem,
            in_doubt,
        }
    }
}
