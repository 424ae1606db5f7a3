//! What is kept of an edit: of the parts of a rule, or on top of that of the override of a single key.

use loudou_limiter::{Carry, Nanos};
use loudou_rules::config::RuleEdit;
use loudou_rules::rule::Override;
use serde::Serialize;

/// The most edited overrides of one rule. More belong into the configuration.
pub(crate) const MAX_EDITED: usize = 256;

/// An edit that is in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Edit {
    pub(crate) change: RuleEdit,
    /// How levels are carried over when it starts and when it expires.
    pub(super) carry: Carry,
    pub(crate) who: Origin,
}

/// The edited override of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct OverrideEdit {
    pub(super) gives: Override,
    pub(crate) who: Origin,
}

/// The author of an edit, its reason, time and end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Origin {
    /// The name of the token.
    pub(crate) by: String,
    /// The reason that was given.
    pub(crate) reason: String,
    pub(crate) at_ns: u64,
    pub(crate) at_unix_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expires_at_ns: Option<u64>,
}

/// The author of a new edit, with its reason, time and lifetime.
#[derive(Clone, Debug)]
pub(crate) struct Author {
    pub(crate) by: String,
    pub(crate) reason: String,
    pub(crate) carry: Carry,
    pub(crate) at: Nanos,
    pub(crate) at_unix_ms: u64,
    pub(crate) expires_after: Option<Nanos>,
}

/// Edits of a rule that are over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) rule: String,
    /// Whether the edit of the rule is over.
    pub(crate) edit: bool,
    /// The keys whose edited override is over.
    pub(crate) keys: Vec<String>,
}

impl Author {
    /// When the edit expires.
    pub(crate) fn until(&self) -> Option<Nanos> {
        self.expires_after.map(|span| self.at.saturating_add(span))
    }

    pub(super) fn origin(&self) -> Origin {
        Origin {
            by: self.by.clone(),
            reason: self.reason.clone(),
            at_ns: self.at.get(),
            at_unix_ms: self.at_unix_ms,
            expires_at_ns: self.until().map(Nanos::get),
        }
    }
}

impl Origin {
    pub(super) fn expired(&self, now: Nanos) -> Option<Nanos> {
        let at = self.expires_at_ns.filter(|at| *at <= now.get())?;
        Some(Nanos::new(at))
    }
}

impl Ended {
    /// Whether no edit is over.
    pub(super) const fn is_empty(&self) -> bool {
        !self.edit && self.keys.is_empty()
    }
}
