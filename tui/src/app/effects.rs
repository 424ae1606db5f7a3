//! What the app wants done outside: descriptions only, carried out by the runtime's threads.

use crate::change::Change;
use crate::live::Item;

/// One wish.
#[derive(Clone, Debug)]
pub(crate) enum Effect {
    /// Read everything.
    Poll(PollRequest),
    /// Read one rule.
    ReadRule(String),
    /// Send a change.
    Change(Box<Sending>),
    /// Apply again what a restart took.
    Again(Vec<Item>),
    /// Give the terminal back until the shell says otherwise.
    Suspend,
    /// Take the terminal anew: somebody else may have had it.
    Resume,
}

impl Effect {
    /// What it is for, to be told when it cannot start.
    pub(crate) fn goal(&self) -> Goal {
        match self {
            Self::Poll(_) => Goal::Poll,
            Self::Change(sending) => Goal::Change(sending.clone()),
            Self::ReadRule(_) | Self::Again(_) | Self::Suspend | Self::Resume => Goal::Other,
        }
    }
}

/// What an effect is for.
#[derive(Clone, Debug)]
pub(crate) enum Goal {
    Poll,
    Change(Box<Sending>),
    Other,
}

/// What a poll needs to know to read no more than it must.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PollRequest {
    /// The process that what is at hand was read in; empty before there is anything.
    pub(crate) instance: String,
    /// The generation of the rules at hand.
    pub(crate) generation: Option<u64>,
    /// The newest event at hand.
    pub(crate) after_seq: u64,
    /// A part of the keys that must not be missing where there are too many.
    pub(crate) key: Option<String>,
}

/// A change on its way.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sending {
    pub(crate) change: Change,
    /// Whether this takes an own change back.
    pub(crate) is_undo: bool,
}
