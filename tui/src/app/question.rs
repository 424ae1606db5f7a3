//! A question over the screen, and the action of "yes".

use loudou_limiter::Nanos;

use super::effects::Sending;
use loudou_client::change::Change;
use loudou_client::change::verb::Question;
use loudou_client::live::Item;

/// For so long a question that opened by itself takes no "yes": the key was meant for the screen under it.
const UNSEEN: Nanos = Nanos::from_millis(700);

/// A question and its action.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pending {
    pub(crate) question: String,
    pub(crate) detail: Vec<String>,
    pub(crate) action: Action,
    /// When it opened, if it did so by itself.
    pub(crate) opened: Option<Nanos>,
    /// The first line shown.
    pub(crate) top: usize,
}

/// The action of "yes".
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    Change(Box<Sending>),
    /// Apply again the changes lost in a restart.
    Again(Vec<Item>),
}

impl Pending {
    /// The question before a change.
    pub(crate) fn change(change: Change) -> Self {
        let question = change.verb().question();
        Self::new(question, Sending::new(change))
    }

    /// The question before `change`, which undoes one of the user's changes, perhaps the one for all Envoys of this
    /// number.
    pub(crate) fn undo(question: Question, change: Change, undoes: Option<u64>) -> Self {
        let sending = Sending {
            is_undo: true,
            undoes,
            ..Sending::new(change)
        };
        Self::new(question, sending)
    }

    /// The command line that does the same, with this address.
    pub(crate) fn command(&self, url: Option<&str>) -> Option<String> {
        match &self.action {
            Action::Change(sending) => sending.change.verb().command(url),
            Action::Again(_) => None,
        }
    }

    /// Why its answer is for one Envoy alone; `None` if it can be for all.
    pub(crate) fn of_one(&self) -> Option<&'static str> {
        match &self.action {
            Action::Change(sending) if sending.suits_all() => None,
            Action::Change(_) => Some("what one Envoy had is put back there"),
            Action::Again(_) => Some("each Envoy lost changes of its own"),
        }
    }

    /// Whether nobody can have read it yet.
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
