//! Propagates edits, overrides and bans through the fleet, so that a change an operator makes on
//! one Envoy takes effect on every Envoy.
//!
//! A single shared data value contains the changes ([`Changes`]): local changes that have not been reported to the
//! engine yet, and the engine's current changes. The worker that sends the heartbeat reports local changes and receives
//! changes from the engine ([`adopt_response`](Changes::adopt_response)). If this Envoy has the same version of the
//! rule, a change from another Envoy is applied like a local change. If this Envoy has a different version, the change
//! must wait.
//!
//! If two changes have the same name, the engine decides which one takes effect (see
//! [`loudou_api::Change`]). Changes to different versions of a rule can have separate names
//! ([`base_of`]).

use loudou_api::{ChangeName, MAX_ALL_CHANGES_BYTES, MAX_CHANGES, SHOWN_CHANGE_NAME, Spread};
use loudou_limiter::Nanos;
use loudou_store::swap::{Swapped, swap};
use serde::Serialize;
use serde_json::Value;

use super::Heartbeat;
use crate::formats;
use crate::formats::CHANGES;
use crate::host::{Host, HostStore};
use crate::json::{number, text};
use crate::record::RuleRecord;

pub(crate) use changes::Change;
pub(crate) use changes::Changes;
pub(crate) use changes::Head;
pub(crate) use changes::LocalState;
pub(crate) use changes::Sent;

mod changes;

// Changes in a relay response.

/// The part of a relay response that deals with changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChangesAnswer {
    /// Identifies the engine's data set; it changes if the engine loses its data. Empty if the
    /// response says nothing about changes.
    pub(crate) epoch: String,
    pub(crate) generation: u64,
    pub(crate) received: Vec<ReceivedChange>,
    /// Reported changes that the engine refused, as pairs of the possibly truncated name and the
    /// reason.
    pub(crate) refused: Vec<(String, String)>,
    /// True if the engine has more changes than the response contains.
    pub(crate) more: bool,
}

/// A change in a relay response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReceivedChange {
    pub(crate) name: String,
    /// JSON of the change. Empty if the change removes an earlier change.
    pub(crate) value: Vec<u8>,
    /// Time since the change was made.
    pub(crate) age: Nanos,
    /// Time until the change expires. `None` for never.
    pub(crate) ends_in: Option<Nanos>,
    pub(crate) by: String,
    pub(crate) generation: u64,
}

impl ChangesAnswer {
    /// Returns the reason the engine refused the change with this name. `None` if the change was
    /// not refused.
    pub(crate) fn refusal(&self, name: &str) -> Option<&str> {
        let mut refused = self.refused.iter();
        let is_cut = |cut: &str| cut.chars().count() >= SHOWN_CHANGE_NAME;
        let found =
            refused.find(|(cut, _)| name == cut || (is_cut(cut) && name.starts_with(cut.as_str())));
        found.map(|(_, why)| why.as_str())
    }
}

impl Changes {
    /// Updates the changes from a call's response. `reported` contains the names and versions of
    /// the changes that the call reported. Returns false if the response says nothing about
    /// changes.
    pub(crate) fn adopt_response(
        &mut self,
        reported: &[(String, u64)],
        response: &ChangesAnswer,
        now: Nanos,
    ) -> bool {
        if response.epoch.is_empty() {
            return false;
        }
        let is_other = self.head.epoch != response.epoch;
        if is_other {
            // The engine has been replaced or has lost its data, so all changes must be reported
            // again.
            for change in &mut self.all {
                change.generation = 0;
                if change.sent == Sent::Known {
                    change.sent = Sent::Unsent;
                }
            }
            self.head.generation = 0;
        }
        let first_time = self.head.epoch.is_empty();
        self.head.epoch.clone_from(&response.epoch);
        self.head.generation = self.head.generation.max(response.generation);
        for (name, version) in reported {
            let mut all = self.all.iter_mut();
            let found = all.find(|change| change.version == *version && change.name == *name);
            if let Some(change) = found {
                change.sent = match response.refusal(name) {
                    Some(_) => Sent::Refused,
                    None => Sent::Known,
                };
            }
        }
        for change in &response.received {
            if self.has_room() || self.find(&change.name).is_some() {
                self.receive(change, first_time, now);
            }
        }
        true
    }

    /// Returns true if there is room for another change. The limits are twice the engine's, because
    /// this Envoy may have as many unreported changes as the engine has changes.
    fn has_room(&self) -> bool {
        let (most, most_bytes) = (MAX_CHANGES * 2, MAX_ALL_CHANGES_BYTES * 2);
        self.all.len() < most && self.bytes_of_all() < most_bytes
    }

    fn receive(&mut self, received: &ReceivedChange, first_time: bool, now: Nanos) {
        let made_at = Nanos::new(now.get().saturating_sub(received.age.get()));
        let mut here = LocalState::ToApply;
        match self.find(&received.name) {
            // A newer response was handled before this one.
            Some(before) if received.generation <= before.generation => return,
            Some(before) if before.value == received.value => {
                (before.sent, before.generation) = (Sent::Known, received.generation);
                return;
            }
            // The local change is newer and has not been reported yet. Once it is reported, the
            // engine decides which change takes effect.
            Some(before) if before.sent != Sent::Known && before.made_at >= made_at => return,
            // This Envoy has no change to remove, so nothing needs to be applied. In particular, a
            // penalty ban that was imposed later is not lifted.
            None if received.value.is_empty() && first_time => here = LocalState::InForce,
            _ => {}
        }
        self.keep_of_base(&received.name, &received.value, now);
        let until = received.ends_in.map(|span| now.saturating_add(span));
        self.put(Change {
            name: received.name.clone(),
            value: received.value.clone(),
            made_at,
            until: until.unwrap_or(Nanos::MAX),
            earlier_until: Nanos::ZERO,
            by: received.by.clone(),
            generation: received.generation,
            sent: Sent::Known,
            here,
            version: 0,
        });
    }
}

// JSON values for changes.

/// JSON value of a ban.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct BanValue {
    /// Tag of the rule. If the rule with this name has a different tag, its keys differ, so the ban
    /// does not apply.
    pub(crate) tag: u32,
    pub(crate) by: String,
    pub(crate) reason: String,
    pub(crate) at_unix_ms: u64,
}

impl BanValue {
    fn write(&self) -> Vec<u8> {
        as_read(&serde_json::to_vec(self).unwrap_or_default())
    }

    /// Parses a ban. Returns `None` if the JSON is invalid.
    pub(crate) fn read(value: &[u8]) -> Option<Self> {
        let ban: Value = serde_json::from_slice(value).ok()?;
        Some(Self {
            tag: u32::try_from(number(&ban, "tag")?).ok()?,
            by: text(&ban, "by")?,
            reason: text(&ban, "reason")?,
            at_unix_ms: number(&ban, "at_unix_ms")?,
        })
    }
}

/// Returns the JSON value of an edit or override, which consists of its content and the ID of the
/// rule version for which it was made.
fn of_edit(base: &str, gives: &impl Serialize) -> Vec<u8> {
    let gives = serde_json::to_vec(gives).unwrap_or_default();
    let head = ["{\"base\":\"", base, "\",\"gives\":"].concat();
    as_read(&[head.as_bytes(), &gives, b"}"].concat())
}

/// Normalizes JSON by parsing and serializing it. The engine returns values in this form, so they
/// can be compared with local values.
fn as_read(json: &[u8]) -> Vec<u8> {
    let value: Option<Value> = serde_json::from_slice(json).ok();
    value.map_or_else(Vec::new, |value| {
        serde_json::to_vec(&value).unwrap_or_default()
    })
}

/// Returns an edit's or override's base, which is the ID of the rule version for which it was made.
pub(crate) fn base_of(value: &Value) -> Option<&str> {
    value.get("base")?.as_str()
}

// Rule versions. During a deployment, the Envoys in a fleet have different versions of the same
// rule. Each version has its own edits and overrides.
//
// The plain name of an edit or override belongs to the change for one rule version. While the plain
// name is in use, a change for another version is given a longer name that includes its base. If a
// change for another version takes over the plain name of an Envoy's change, that Envoy reports its
// change again under the longer name. This way no change is lost, and older builds work even though
// they do not support the longer names.

/// Maximum number of rule versions for which a single edit or override can have a change. Versions
/// from past configurations are included, because a rollback may bring them back. If there are
/// more, the oldest change is removed.
const MAX_BASES: usize = 8;

impl Changes {
    /// Converts a change made on this Envoy to the changes that must be stored.
    fn to_note(&self, made: &LocalChange, now: Nanos) -> Vec<Change> {
        let change = |name: &ChangeName, value: &[u8], until: Nanos| Change {
            name: name.to_string(),
            value: value.to_vec(),
            made_at: now,
            until,
            sent: Sent::Unsent,
            ..Change::default()
        };
        let plain = change(&made.name, &made.value, made.until);
        let Some(base) = made.base.as_deref() else {
            return vec![plain];
        };
        let named = made.name.with_base(Some(base));
        if self.base_of(&plain.name).is_some_and(|of| of != base) {
            return vec![change(&named, &made.value, made.until)];
        }
        let mut all = vec![plain];
        let named = change(&named, &[], Nanos::MAX);
        if self.of(&named.name).is_some_and(|own| !own.is_end()) {
            all.push(named);
        }
        all
    }

    /// If a received change takes over the plain name for another version of the rule, keeps the
    /// change in force here under a name that includes its base.
    fn keep_of_base(&mut self, name: &str, value: &[u8], now: Nanos) {
        let Some(before) = self
            .of(name)
            .filter(|change| change.here != LocalState::Waiting)
        else {
            return;
        };
        let bases = (before.base(), base_in(value));
        let (Some(base), Some(other)) = bases else {
            return;
        };
        let about = before.about().filter(|about| about.base().is_none());
        let Some(about) = about.filter(|_| base != other) else {
            return;
        };
        let kept = Change {
            name: about.with_base(Some(&base)).to_string(),
            generation: 0,
            earlier_until: Nanos::ZERO,
            sent: Sent::Unsent,
            ..before.clone()
        };
        let known = self.of(&kept.name);
        let is_known = known.is_some_and(|known| !known.is_end() && known.made_at >= kept.made_at);
        if !is_known && (known.is_some() || self.has_room()) {
            self.put(kept);
            self.end_too_many(&about, now);
        }
    }

    /// Removes the oldest changes if too many versions of a rule have a change of the kind
    /// described by `about`.
    fn end_too_many(&mut self, about: &ChangeName, now: Nanos) {
        let about = about.with_base(None);
        let is_one = |change: &&Change| {
            let of = change.about().filter(|_| !change.is_end());
            of.is_some_and(|of| of.with_base(None) == about)
        };
        while self.all.iter().filter(is_one).count() > MAX_BASES {
            let first = self.all.iter().filter(is_one).min_by_key(|c| c.made_at);
            let Some(first) = first.map(|change| change.name.clone()) else {
                return;
            };
            self.put(Change {
                name: first,
                made_at: now,
                until: Nanos::MAX,
                sent: Sent::Unsent,
                ..Change::default()
            });
        }
    }

    /// Returns the changes whose names include a base.
    pub(crate) fn with_bases(&self) -> Vec<&Change> {
        let all = self.all.iter();
        // In a name, `@` occurs only as the separator before the base, because it is escaped
        // elsewhere.
        all.filter(|change| change.name.contains('@')).collect()
    }

    /// Returns the new local state of a change that must not be applied because it is for another
    /// version of the rule or because another change takes precedence. Returns `None` if the change
    /// may need to be applied.
    pub(crate) fn precluded_state(
        &self,
        with_bases: &[&Change],
        (change, about): (&Change, &ChangeName),
        base: &str,
    ) -> Option<LocalState> {
        let is_end = change.is_end();
        let is_passed = match about.base() {
            Some(of) if of != base => true,
            Some(_) => {
                let plain = self.of(&about.with_base(None).to_string());
                let plain = plain.filter(|plain| plain.base().as_deref() == Some(base));
                plain.is_some_and(|plain| is_end || plain.made_at >= change.made_at)
            }
            None => {
                let name = about.with_base(Some(base)).to_string();
                let mut named = with_bases.iter().filter(|named| !named.is_end());
                // A removal under the plain name may belong to another version of the rule.
                named.any(|named| named.name == name && (is_end || named.made_at > change.made_at))
            }
        };
        is_passed.then_some(if is_end {
            LocalState::InForce
        } else {
            LocalState::Waiting
        })
    }

    fn of(&self, name: &str) -> Option<&Change> {
        self.all.iter().find(|change| change.name == name)
    }

    /// Returns the base of the change with this name. `None` for a removal.
    fn base_of(&self, name: &str) -> Option<String> {
        self.of(name)?.base()
    }
}

impl Change {
    /// Returns true if this change removes an earlier change with the same name.
    pub(crate) const fn is_end(&self) -> bool {
        self.value.is_empty()
    }

    /// Returns the ID of the rule version for which the change was made, from the JSON of the
    /// change.
    fn base(&self) -> Option<String> {
        base_in(&self.value)
    }
}

fn base_in(value: &[u8]) -> Option<String> {
    let value: Value = serde_json::from_slice(value).ok()?;
    base_of(&value).map(str::to_owned)
}

#[cfg(test)]
mod tests;

/// A change made by an operator on this Envoy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LocalChange {
    pub(crate) name: ChangeName,
    /// ID of the rule version for which an edit or override was made. `None` for a ban.
    base: Option<String>,
    /// JSON of the change. Empty for a removal.
    pub(crate) value: Vec<u8>,
    /// Expiry time, or [`Nanos::MAX`] for never.
    pub(crate) until: Nanos,
}

impl LocalChange {
    /// Creates a change that removes the earlier change with this name.
    fn end(name: ChangeName, base: Option<&str>) -> Self {
        Self {
            name,
            base: base.map(str::to_owned),
            value: Vec::new(),
            until: Nanos::MAX,
        }
    }

    /// Creates a change that bans a key.
    pub(crate) fn ban(rule: &str, key: &str, ban: &BanValue, until: Option<Nanos>) -> Self {
        Self {
            name: ban_of(rule, key),
            base: None,
            value: ban.write(),
            until: until.unwrap_or(Nanos::MAX),
        }
    }

    /// Creates a change that lifts a key's ban.
    pub(crate) fn unban(rule: &str, key: &str) -> Self {
        Self::end(ban_of(rule, key), None)
    }

    /// Returns the changes made to a rule's edit and overrides between two states of its record.
    pub(crate) fn of_rule(before: &RuleRecord, after: &RuleRecord) -> Vec<Self> {
        let rule = &after.base.name;
        let base = after.base_id();
        let end = |name| Self::end(name, Some(&base));
        let edit = |name, value, until| Self {
            name,
            base: Some(base.clone()),
            value,
            until,
        };
        let mut all = Vec::new();
        if before.edit != after.edit {
            let name = ChangeName::Edit {
                rule: rule.clone(),
                base: None,
            };
            all.push(match after.edit.as_ref() {
                None => end(name),
                Some(to) => edit(name, of_edit(&base, to), to.who.until()),
            });
        }
        if before.own == after.own {
            return all;
        }
        let name = |pattern: &str| ChangeName::Override {
            rule: rule.clone(),
            base: None,
            pattern: pattern.to_owned(),
        };
        for (pattern, own) in after.own.iter() {
            if before.own.of_pattern(&pattern) != Some(own) {
                let value = of_edit(&base, own);
                all.push(edit(name(&pattern), value, own.who.until()));
            }
        }
        let gone = before.own.iter().map(|(pattern, _)| pattern);
        let gone = gone.filter(|pattern| after.own.of_pattern(pattern).is_none());
        all.extend(gone.map(|pattern| end(name(&pattern))));
        all
    }
}

fn ban_of(rule: &str, key: &str) -> ChangeName {
    ChangeName::Ban {
        rule: rule.to_owned(),
        key: key.to_owned(),
    }
}

/// Stores changes that have just been made on this Envoy, so that the next heartbeat reports them.
/// Returns `None` if no fleet is configured or there are no changes.
pub(crate) fn note(
    host: &dyn Host,
    share: &str,
    made: &[LocalChange],
    now: Nanos,
) -> Option<Spread> {
    if made.is_empty() {
        return None;
    }
    Heartbeat::find(host, share).filter(|heartbeat| heartbeat.is_alive(now))?;
    let mut fits = false;
    let noted = change(host, share, now, &mut |changes| {
        fits = changes.make(made, now);
        true
    });
    Some(if noted && fits {
        Spread::Sending
    } else {
        Spread::HereOnly
    })
}

fn key(share: &str) -> Vec<u8> {
    [share.as_bytes(), b":changes"].concat()
}

/// Reads the current changes. Empty if no fleet is configured.
pub(crate) fn find(host: &dyn Host, share: &str) -> Changes {
    let mut bytes = Vec::new();
    let found = host.shared_get(&key(share), &mut bytes);
    let found = found.ok().flatten().and_then(|_| Changes::read(&bytes));
    found.unwrap_or_default()
}

/// Reads only the head of the changes, which is sufficient for most checks.
pub(crate) fn head(host: &dyn Host, share: &str) -> Head {
    let mut bytes = Vec::new();
    let found = host.shared_get(&key(share), &mut bytes);
    let found = found.ok().flatten().and_then(|_| Head::read(&bytes));
    found.unwrap_or_default()
}

/// Calls `change` with the current changes, and stores them if `change` returns true. Returns true
/// if they were stored.
pub(crate) fn change(
    host: &dyn Host,
    share: &str,
    now: Nanos,
    change: &mut dyn FnMut(&mut Changes) -> bool,
) -> bool {
    let swapped = swap(&mut HostStore(host), &key(share), &mut |found| {
        if found.is_some_and(|found| formats::is_other(found, CHANGES)) {
            return None;
        }
        let mut changes = found.and_then(Changes::read).unwrap_or_default();
        changes.drop_over(now);
        change(&mut changes).then(|| changes.bytes())
    });
    swapped == Ok(Swapped::Done)
}
