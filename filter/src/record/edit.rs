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

/// The new edit of a rule, or the new edited override of a pattern; `None` for none.
#[derive(Debug)]
pub(crate) enum EditTo<'a> {
    Rule(Option<Edit>),
    Override(&'a str, Option<OverrideEdit>),
}

impl EditTo<'_> {
    /// Whether there is to be none.
    pub(crate) const fn is_end(&self) -> bool {
        matches!(self, Self::Rule(None) | Self::Override(_, None))
    }
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

impl Edit {
    /// The same edit, with these times here: when it came, and when it expires; [`Nanos::MAX`] for never.
    pub(crate) fn at(mut self, times: (Nanos, Nanos)) -> Self {
        self.who.set_times(times);
        self
    }

    /// Whether it is the same edit, whenever it came here.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.change == other.change && self.carry == other.carry && self.who.is_same(&other.who)
    }
}

impl OverrideEdit {
    /// The same edit, with these times here: when it came, and when it expires; [`Nanos::MAX`] for never.
    pub(crate) fn at(mut self, times: (Nanos, Nanos)) -> Self {
        self.who.set_times(times);
        self
    }

    /// Whether it is the same edit, whenever it came here.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.gives == other.gives && self.who.is_same(&other.who)
    }
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
    /// When it expires; [`Nanos::MAX`] for never.
    pub(crate) fn until(&self) -> Nanos {
        self.expires_at_ns.map_or(Nanos::MAX, Nanos::new)
    }

    fn set_times(&mut self, (at, until): (Nanos, Nanos)) {
        self.at_ns = at.get();
        self.expires_at_ns = (until < Nanos::MAX).then_some(until.get());
    }

    /// Whether both are of the same edit. Its times here depend on when it came here.
    fn is_same(&self, other: &Self) -> bool {
        let of = |who: &Self| (who.at_unix_ms, who.expires_at_ns.is_some());
        self.by == other.by && self.reason == other.reason && of(self) == of(other)
    }

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
