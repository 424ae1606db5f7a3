//! A question that the user confirms, and the action that "yes" performs.

use loudou_limiter::Nanos;

use super::effects::Sending;
use loudou_client::change::Change;
use loudou_client::change::verb::Question;
use loudou_client::live::Item;

/// A question that opened automatically ignores "yes" for this long, because the user may have
/// meant the key for the screen under the question.
const UNSEEN: Nanos = Nanos::from_millis(700);

/// A question and its action.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pending {
    pub(crate) question: String,
    pub(crate) detail: Vec<String>,
    pub(crate) action: Action,
    /// When the question opened, if it opened automatically.
    pub(crate) opened: Option<Nanos>,
    /// Index of the first visible line.
    pub(crate) top: usize,
}

/// The action that "yes" performs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    Change(Box<Sending>),
    /// Apply changes that are missing at an Envoy.
    Again(Vec<Item>),
}

impl Pending {
    /// Creates the question that asks the user to confirm a change.
    pub(crate) fn change(change: Change) -> Self {
        let question = change.verb().question();
        Self::new(question, Sending::new(change))
    }

    /// Creates the question that asks the user to confirm `change`, which undoes an earlier change.
    /// If the earlier change was sent to all Envoys, `undoes` is the number of its broadcast.
    pub(crate) fn undo(question: Question, change: Change, undoes: Option<u64>) -> Self {
        let sending = Sending {
            is_undo: true,
            undoes,
            ..Sending::new(change)
        };
        Self::new(question, sending)
    }

    /// Returns the equivalent command line, if there is one. `url` is the address that the command
    /// line must name, if any.
    pub(crate) fn command(&self, url: Option<&str>) -> Option<String> {
        match &self.action {
            Action::Change(sending) => sending.change.verb().command(url),
            Action::Again(_) => None,
        }
    }

    /// Returns why the action concerns only one Envoy, or `None` if the change can be sent to all
    /// Envoys.
    pub(crate) fn of_one(&self) -> Option<&'static str> {
        match &self.action {
            Action::Change(sending) if sending.suits_all() => None,
            Action::Change(_) => Some("an undo restores the previous state of this Envoy only"),
            Action::Again(_) => Some("each Envoy lost changes of its own"),
        }
    }

    /// Returns true if the question opened automatically, and too recently for the user to have
    /// read it.
    pub(crate) fn is_unseen(&self, now: Nanos) -> bool {
        self.opened.is_some_and(|opened| now.since(opened) < UNSEEN)
    }

    fn new(question: Question, sending: Sending) -> Self {
        Self {
            question: question.title,
            detail: question.detail,
            action: Action::Change(Box::new(sending)),
            opened: None,
            top: 0,
        }
    }
}
