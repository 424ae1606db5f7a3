//! Effects that the app requests: descriptions only, carried out by the runtime's threads.

use loudou_api::{BanView, BucketState};
use serde_json::Value;

use super::rows::BucketName;
use loudou_client::change::{Change, Undo};
use loudou_client::live::Item;

/// One effect.
#[derive(Clone, Debug)]
pub(crate) enum Effect {
    /// Read everything.
    Poll(PollRequest),
    /// Read one rule.
    ReadRule(String),
    /// Send a change.
    Change(Box<Sending>),
    /// Send a change to all Envoys that are watched.
    ChangeAll(Box<Sending>),
    /// Apply again the changes lost in a restart.
    Again(Vec<Item>),
    /// Ask for the decision on this request.
    Explain(Box<Value>),
    /// Copy a text to the terminal's clipboard.
    Copy(String),
    /// Give the terminal back until the shell continues the process.
    Suspend,
    /// Take the terminal again: another program may have used it.
    Resume,
}

impl Effect {
    /// Its goal, for the message if it cannot start.
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

/// The goal of an effect.
#[derive(Clone, Debug)]
pub(crate) enum Goal {
    Poll,
    Change(Box<Sending>),
    Other,
}

/// The data at hand, so that a poll reads no more than necessary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PollRequest {
    /// The instance of the data at hand; empty before the first poll.
    pub(crate) instance: String,
    /// The generation of the rules at hand.
    pub(crate) generation: Option<u64>,
    /// The newest event at hand.
    pub(crate) after_seq: u64,
    /// The buckets on screen, which every poll reads.
    pub(crate) shown: Vec<BucketName>,
    /// Other rows, to read if there is room.
    pub(crate) others: Vec<BucketName>,
    /// Whether buckets are listed on screen: then the poll looks for some to list.
    pub(crate) lists: bool,
    /// The searches of the filter.
    pub(crate) wanted: Vec<Wanted>,
    /// Whether the other searches begin again at once: a change may have made buckets that they have not seen.
    pub(crate) anew: bool,
}

/// A search for buckets, with the filters that the server has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Only buckets of this rule.
    pub(crate) rule: Option<String>,
    /// Only keys that contain this text.
    pub(crate) key: Option<String>,
    /// Only buckets in this state.
    pub(crate) state: Option<BucketState>,
}

/// A change on its way.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sending {
    pub(crate) change: Change,
    /// Whether this undoes one of the user's changes.
    pub(crate) is_undo: bool,
    /// The number of the change for all Envoys that it undoes, if it undoes one.
    pub(crate) undoes: Option<u64>,
    /// The number of the broadcast that it is part of, if it is for all Envoys.
    pub(crate) broadcast: Option<u64>,
}

impl Sending {
    /// A change that undoes nothing.
    pub(crate) const fn new(change: Change) -> Self {
        Self {
            change,
            is_undo: false,
            undoes: None,
            broadcast: None,
        }
    }

    /// Whether it can be for all Envoys: an undo only if what it undoes was.
    pub(crate) const fn suits_all(&self) -> bool {
        !self.is_undo || self.undoes.is_some()
    }
}

/// A change that the user made or tried to make here, for the key of the undo.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Undoable {
    pub(crate) tried: Tried,
    /// The number of the change for all Envoys that it is part of.
    pub(crate) broadcast: Option<u64>,
}

/// The outcome of a change that was tried.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Tried {
    Made(Undo),
    /// It is not answered yet. With the bans that its buckets had before.
    Sent(Box<Change>, Vec<(BucketName, BanView)>),
    InDoubt(Box<InDoubt>),
    /// It was not made here, and why.
    NotMade(Box<Change>, String),
}

/// A change of which no answer says whether it was made.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct InDoubt {
    pub(crate) change: Change,
    /// The ban that its key had before.
    pub(crate) before: Option<BanView>,
    /// The server's clock in the last poll before it was given up: a later one shows whether it is in force.
    pub(crate) since_ns: u64,
    /// The undo that the user was asked about.
    pub(crate) asked: Option<Undo>,
}

impl Undoable {
    /// The rule of the change, and its key if it is for one.
    pub(crate) fn of(&self) -> (&str, Option<&str>) {
        let change = match &self.tried {
            Tried::Made(undo) => return undo.of(),
            Tried::Sent(change, _) | Tried::NotMade(change, _) => change,
            Tried::InDoubt(doubt) => &doubt.change,
        };
        (change.verb().rule(), change.verb().key())
    }

    /// The undo of the change, if that is known.
    pub(crate) fn undo(&self) -> Option<&Undo> {
        match &self.tried {
            Tried::Made(undo) => Some(undo),
            Tried::InDoubt(doubt) => doubt.asked.as_ref(),
            Tried::Sent(..) | Tried::NotMade(..) => None,
        }
    }
}
