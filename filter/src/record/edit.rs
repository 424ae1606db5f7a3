//! The stored representation of edits. An edit changes a rule's fields, and edited overrides for
//! individual keys are applied on top.

use loudou_limiter::{Carry, Nanos};
use loudou_rules::config::RuleEdit;
use loudou_rules::rule::Override;
use serde::Serialize;

/// Maximum number of edited overrides per rule. Rules that need more overrides must define them in
/// the configuration.
pub(crate) const MAX_EDITED: usize = 256;

/// An edit to a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Edit {
    pub(crate) change: RuleEdit,
    /// How bucket levels are carried over when the edit takes effect and when it expires.
    pub(super) carry: Carry,
    pub(crate) who: Origin,
}

/// An edited override of a key or key pattern.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct OverrideEdit {
    pub(super) gives: Override,
    pub(crate) who: Origin,
}

/// A change from another Envoy: a rule's new edit, or a pattern's new edited override. `None`
/// removes the edit or override.
#[derive(Debug)]
pub(crate) enum EditTo<'a> {
    Rule(Option<Edit>),
    Override(&'a str, Option<OverrideEdit>),
}

impl EditTo<'_> {
    /// Returns true if the change removes an edit or override.
    pub(crate) const fn is_end(&self) -> bool {
        matches!(self, Self::Rule(None) | Self::Override(_, None))
    }
}

/// Author, reason, time and expiry time of an edit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Origin {
    /// Name of the author's token.
    pub(crate) by: String,
    /// Reason given by the author.
    pub(crate) reason: String,
    pub(crate) at_ns: u64,
    pub(crate) at_unix_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expires_at_ns: Option<u64>,
}

/// Author, reason, time and lifetime of a new edit.
#[derive(Clone, Debug)]
pub(crate) struct Author {
    pub(crate) by: String,
    pub(crate) reason: String,
    pub(crate) carry: Carry,
    pub(crate) at: Nanos,
    pub(crate) at_unix_ms: u64,
    pub(crate) expires_after: Option<Nanos>,
}

/// A rule's edits that have ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) rule: String,
    /// True if the rule's edit has ended.
    pub(crate) edit: bool,
    /// Key patterns whose edited overrides have ended.
    pub(crate) keys: Vec<String>,
}

impl Edit {
    /// Sets the local arrival and expiry times of an edit from another Envoy. An expiry time of
    /// [`Nanos::MAX`] means never.
    pub(crate) fn at(mut self, times: (Nanos, Nanos)) -> Self {
        self.who.set_times(times);
        self
    }

    /// Returns true if `other` is the same edit, apart from local times.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.change == other.change && self.carry == other.carry && self.who.is_same(&other.who)
    }
}

impl OverrideEdit {
    /// Sets the local arrival and expiry times of an edit from another Envoy. An expiry time of
    /// [`Nanos::MAX`] means never.
    pub(crate) fn at(mut self, times: (Nanos, Nanos)) -> Self {
        self.who.set_times(times);
        self
    }

    /// Returns true if `other` is the same edit, apart from local times.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.gives == other.gives && self.who.is_same(&other.who)
    }
}

impl Author {
    /// Returns the time at which the edit expires.
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
    /// Returns the expiry time of the edit. [`Nanos::MAX`] means never.
    pub(crate) fn until(&self) -> Nanos {
        self.expires_at_ns.map_or(Nanos::MAX, Nanos::new)
    }

    fn set_times(&mut self, (at, until): (Nanos, Nanos)) {
        self.at_ns = at.get();
        self.expires_at_ns = (until < Nanos::MAX).then_some(until.get());
    }

    /// Returns true if both origins belong to the same edit. Local times are not compared, because
    /// they differ between Envoys.
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
    /// Returns true if no edit has ended.
    pub(super) const fn is_empty(&self) -> bool {
        !self.edit && self.keys.is_empty()
    }
}
