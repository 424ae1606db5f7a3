//! What the app wants done outside: descriptions only, carried out by the runtime's threads.

use loudou_api::RuleView;
use loudou_limiter::{Carry, Nanos};
use serde_json::Value;

use super::of_key::KeyChange;
use super::rows::BucketName;
use crate::live::Item;

/// One wish.
#[derive(Clone, Debug)]
pub(crate) enum Effect {
    /// Read everything.
    Poll(PollRequest),
    /// Read one rule.
    ReadRule(String),
    /// Edit a rule, or drop its edit.
    Edit(Box<Edit>),
    /// Make a bucket as good as new.
    Reset(BucketName),
    /// Ban a key, let it free, or give it other limits.
    OfKey(Box<KeyChange>),
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
            Self::Edit(edit) => Goal::Edit(edit.clone()),
            Self::ReadRule(_)
            | Self::Reset(_)
            | Self::OfKey(_)
            | Self::Again(_)
            | Self::Suspend
            | Self::Resume => Goal::Other,
        }
    }
}

/// What an effect is for.
#[derive(Clone, Debug)]
pub(crate) enum Goal {
    Poll,
    Edit(Box<Edit>),
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

/// A change of one rule.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Edit {
    pub(crate) rule: String,
    pub(crate) change: Change,
    /// The rule as it was when the change was decided on; its generation goes with the request.
    pub(crate) seen: RuleView,
    pub(crate) carry: Carry,
    pub(crate) reason: String,
    /// Whether this takes an own edit back.
    pub(crate) is_undo: bool,
    /// How often it was sent again because only the generation had moved.
    pub(crate) retries: u8,
}

/// What is to change.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    /// Other limits or another mode.
    Put {
        body: Value,
        expires_after: Option<Nanos>,
    },
    /// Back to the configuration.
    Drop,
}
