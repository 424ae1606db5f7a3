//! A question over the screen, and the action of its "yes".

use loudou_limiter::Nanos;

use super::effects::Sending;
use loudou_client::change::Change;
use loudou_client::change::verb::Question;
use loudou_client::live::Item;

/// A question that opened automatically ignores "yes" for this long, because the user may have
/// pressed the key for the screen under it.
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

/// The action of "yes".
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    Change(Box<Sending>),
    /// Apply changes that were lost in a restart.
    Again(Vec<Item>),
}

impl Pending {
    /// Returns the question that the user confirms before a change.
    pub(crate) fn change(change: Change) -> Self {
        let question = change.verb().question();
        Self::new(question, Sending::new(change))
    }

    /// Returns the question that the user confirms before the undo `change`. If the undone change
    /// was sent to all Envoys, `undoes` is its number.
    pub(crate) fn undo(question: Question, change: Change, undoes: Option<u64>) -> Self {
        let sending = Sending {
            is_undo: true,
            undoes,
            ..Sending::new(change)
        };
        Self::new(question, sending)
    }

    /// Returns the equivalent command line with this address.
    pub(crate) fn command(&self, url: Option<&str>) -> Option<String> {
        match &self.action {
            Action::Change(sending) => sending.change.verb().command(url),
            Action::Again(_) => None,
        }
    }

    /// Returns why the answer concerns one Envoy only, or `None` if it can be sent to all.
    pub(crate) fn of_one(&self) -> Option<&'static str> {
        match &self.action {
            Action::Change(sending) if sending.suits_all() => None,
            Action::Change(_) => Some("an undo restores the previous state of this Envoy only"),
            Action::Again(_) => Some("each Envoy lost changes of its own"),
        }
    }

    /// Returns true if the question opened too recently to have been read.
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
