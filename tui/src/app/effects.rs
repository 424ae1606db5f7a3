//! The effects that the app requests. An effect only describes an action. The runtime's threads
//! perform the action.

use loudou_api::{BanView, BucketState};
use serde_json::Value;

use super::rows::BucketName;
use loudou_client::change::{Change, Undo};
use loudou_client::live::Item;

/// An effect.
#[derive(Clone, Debug)]
pub(crate) enum Effect {
    /// Poll Envoy for the data that the app shows.
    Poll(PollRequest),
    /// Read one rule.
    ReadRule(String),
    /// Send a change.
    Change(Box<Sending>),
    /// Send a change to all watched Envoys.
    ChangeAll(Box<Sending>),
    /// Apply changes that are missing at an Envoy.
    Again(Vec<Item>),
    /// Ask Envoy how it would decide on this request.
    Explain(Box<Value>),
    /// Copy a string to the terminal's clipboard.
    Copy(String),
    /// Release the terminal until the shell continues the process.
    Suspend,
    /// Acquire the terminal again and redraw, because another program may have used it.
    Resume,
}

impl Effect {
    /// Returns the goal of the effect, which is reported if the effect cannot start.
    pub(crate) fn goal(&self) -> Goal {
        match self {
            Self::Poll(_) => Goal::Poll,
            Self::Change(sending) | Self::ChangeAll(sending) => Goal::Change(sending.clone()),
            Self::ReadRule(_)
            | Self::Again(_)
            | Self::Explain(_)
            | Self::Copy(_)
            | Self::Suspend
            | Self::Resume => Goal::Other,
        }
    }
}

/// Goal of an effect.
#[derive(Clone, Debug)]
pub(crate) enum Goal {
    Poll,
    Change(Box<Sending>),
    Other,
}

/// Request for a poll. Besides the data to read, the request lists the data that the app already
/// has, which the poll need not read again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PollRequest {
    /// Instance ID of the process from which the app's data come. Empty before the first poll.
    pub(crate) instance: String,
    /// Generation of the rules that the app already has.
    pub(crate) generation: Option<u64>,
    /// Sequence number of the newest event that the app already has.
    pub(crate) after_seq: u64,
    /// The buckets on screen. Every poll reads them.
    pub(crate) shown: Vec<BucketName>,
    /// Buckets that are not on screen. The poll reads as many of them as its limit allows.
    pub(crate) others: Vec<BucketName>,
    /// True if the screen lists buckets. The poll then searches for buckets to list.
    pub(crate) lists: bool,
    /// Searches for the buckets that match the filter.
    pub(crate) wanted: Vec<Wanted>,
    /// True if the other searches must restart at once, because a change may have created buckets
    /// that they have already passed over.
    pub(crate) anew: bool,
}

/// A bucket search, with the filters that the server supports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Only buckets of this rule.
    pub(crate) rule: Option<String>,
    /// Only keys that contain this text.
    pub(crate) key: Option<String>,
    /// Only buckets in this state.
    pub(crate) state: Option<BucketState>,
}

/// A change that is being sent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sending {
    pub(crate) change: Change,
    /// True if this change undoes an earlier change by the user.
    pub(crate) is_undo: bool,
    /// Number of the broadcast that this change undoes, if any.
    pub(crate) undoes: Option<u64>,
    /// Number of the broadcast that this change is part of, if any.
    pub(crate) broadcast: Option<u64>,
}

impl Sending {
    /// Creates a change that is neither an undo nor part of a broadcast.
    pub(crate) const fn new(change: Change) -> Self {
        Self {
            change,
            is_undo: false,
            undoes: None,
            broadcast: None,
        }
    }

    /// Returns true if the change can be sent to all Envoys. An undo can be sent to all Envoys only
    /// if the change that it undoes was, too.
    pub(crate) const fn suits_all(&self) -> bool {
        !self.is_undo || self.undoes.is_some()
    }
}

/// A change that the user made or tried to make, kept for the undo key.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Undoable {
    pub(crate) tried: ChangeOutcome,
    /// Number of the broadcast that the change is part of.
    pub(crate) broadcast: Option<u64>,
}

/// Outcome of an attempted change.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ChangeOutcome {
    Made(Undo),
    /// The change was sent, but has not been answered yet. Includes the bans that the affected
    /// buckets had before.
    Sent(Box<Change>, Vec<(BucketName, BanView)>),
    InDoubt(Box<InDoubt>),
    /// The change was not made at this Envoy, for the given reason.
    NotMade(Box<Change>, String),
}

/// A change that may have been made, although no answer arrived.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct InDoubt {
    pub(crate) change: Change,
    /// The ban that the key had before.
    pub(crate) before: Option<BanView>,
    /// The server's clock in the last poll before the request failed. A later poll shows if the
    /// change is in effect.
    pub(crate) since_ns: u64,
    /// The undo that the user was asked to confirm.
    pub(crate) asked: Option<Undo>,
}

impl Undoable {
    /// Returns the rule that the change affects, and the key if it affects a single key.
    pub(crate) fn of(&self) -> (&str, Option<&str>) {
        let change = match &self.tried {
            ChangeOutcome::Made(undo) => return undo.of(),
            ChangeOutcome::Sent(change, _) | ChangeOutcome::NotMade(change, _) => change,
            ChangeOutcome::InDoubt(doubt) => &doubt.change,
        };
        (change.verb().rule(), change.verb().key())
    }

    /// Returns the undo of the change, if it is known.
    pub(crate) fn undo(&self) -> Option<&Undo> {
        match &self.tried {
            ChangeOutcome::Made(undo) => Some(undo),
            ChangeOutcome::InDoubt(doubt) => doubt.asked.as_ref(),
            ChangeOutcome::Sent(..) | ChangeOutcome::NotMade(..) => None,
        }
    }
}
