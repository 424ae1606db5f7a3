//! Sends edits, overrides and bans through the fleet: a change that an operator makes at one Envoy
//! takes effect at every Envoy.
//!
//! One value in shared data holds the changes ([`Changes`]): the local changes that the engine does
//! not have yet, and the current changes of the engine. The worker that sends the heartbeat reports
//! the local changes and receives the engine's ([`adopt_response`](Changes::adopt_response)). A change from another
//! Envoy is applied with the same operations as a local change if the rule is the same here.
//! Otherwise the change waits.
//!
//! If two changes have the same name, the engine decides which of them takes effect (see
//! [`loudou_api::Change`]). Changes of different versions of a rule can have separate names
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

// The part of an engine response that is about changes.

/// The part of a response that is about changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChangesAnswer {
    /// Identifies the engine's state. Empty if the response is not about changes.
    pub(crate) epoch: String,
    pub(crate) generation: u64,
    pub(crate) received: Vec<ReceivedChange>,
    /// Changes of the call that the engine refused: names, possibly cut, and reasons.
    pub(crate) refused: Vec<(String, String)>,
    /// True if more changes follow.
    pub(crate) more: bool,
}

/// A change in a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReceivedChange {
    pub(crate) name: String,
    /// JSON of the change. Empty if it is an end.
    pub(crate) value: Vec<u8>,
    /// Age of the change.
    pub(crate) age: Nanos,
    /// Time until it expires. `None` for never.
    pub(crate) ends_in: Option<Nanos>,
    pub(crate) by: String,
    pub(crate) generation: u64,
}

impl ChangesAnswer {
    /// Returns the engine's reason for refusing a change with this name.
    pub(crate) fn refusal(&self, name: &str) -> Option<&str> {
        let mut refused = self.refused.iter();
        let is_cut = |cut: &str| cut.chars().count() >= SHOWN_CHANGE_NAME;
        let found =
            refused.find(|(cut, _)| name == cut || (is_cut(cut) && name.starts_with(cut.as_str())));
        found.map(|(_, why)| why.as_str())
    }
}

impl Changes {
    /// Adopts the response to a call that reported these changes, by name and version. Returns
    /// false if the response is not about changes.
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
            // The engine was replaced or has lost its state, so all changes are reported again.
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

    /// Returns true if there is space for another change. The limit is twice the engine's own
    /// limit, because this Envoy may have as many changes that the engine does not have yet.
    fn has_room(&self) -> bool {
        let (most, most_bytes) = (MAX_CHANGES * 2, MAX_ALL_CHANGES_BYTES * 2);
        self.all.len() < most && self.bytes_of_all() < most_bytes
    }

    fn receive(&mut self, received: &ReceivedChange, first_time: bool, now: Nanos) {
        let made_at = Nanos::new(now.get().saturating_sub(received.age.get()));
        let mut here = LocalState::ToApply;
        match self.find(&received.name) {
            // A later response has been handled before this one.
            Some(before) if received.generation <= before.generation => return,
            Some(before) if before.value == received.value => {
                (before.sent, before.generation) = (Sent::Known, received.generation);
                return;
            }
            // The local change is newer and not reported yet. The engine decides between the two.
            Some(before) if before.sent != Sent::Known && before.made_at >= made_at => return,
            // There was no change to end, so nothing is done. A penalty ban that came later stays
            // in effect.
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

// The JSON of changes.

/// JSON value of a ban.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct BanValue {
    /// Rule tag. A rule with other keys has no such bucket.
    pub(crate) tag: u32,
    pub(crate) by: String,
    pub(crate) reason: String,
    pub(crate) at_unix_ms: u64,
}

impl BanValue {
    fn write(&self) -> Vec<u8> {
        as_read(&serde_json::to_vec(self).unwrap_or_default())
    }

    /// Parses a ban. Returns `None` if it is damaged.
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

/// Returns the JSON value of an edit or override: its content, and the identity of the rule for
/// which it was made.
fn of_edit(base: &str, gives: &impl Serialize) -> Vec<u8> {
    let gives = serde_json::to_vec(gives).unwrap_or_default();
    let head = ["{\"base\":\"", base, "\",\"gives\":"].concat();
    as_read(&[head.as_bytes(), &gives, b"}"].concat())
}

/// Returns the JSON as it looks after reading and writing it again. The engine returns it in this
/// form, so it can be compared.
fn as_read(json: &[u8]) -> Vec<u8> {
    let value: Option<Value> = serde_json::from_slice(json).ok();
    value.map_or_else(Vec::new, |value| {
        serde_json::to_vec(&value).unwrap_or_default()
    })
}

/// Returns the identity of the rule for which an edit or override was made.
pub(crate) fn base_of(value: &Value) -> Option<&str> {
    value.get("base")?.as_str()
}

// Versions of one rule, which the Envoys of a fleet have during a deployment. Each version has its
// own edits and overrides.
//
// Envoys of all builds use the plain name of an edit for one version. A change of another version
// gets a name that includes its base, but only while the plain name is taken. If another version
// takes the plain name from an Envoy's change, the Envoy reports the change again under the longer
// name. So no change is lost, and older builds need no knowledge of the longer names.

/// Maximum number of rule versions with a change of one kind. Past configurations count, because
/// they may come back. If there are more, the oldest change ends.
const MAX_BASES: usize = 8;

impl Changes {
    /// Returns the changes to note for a change that was made here.
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

    /// If another version of the rule takes the plain name, keeps the change that is in force here
    /// under a name with its base.
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

    /// Ends the oldest changes if too many versions of a rule have one.
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
        // `@` only separates the base. Everywhere else in a name it is escaped.
        all.filter(|change| change.name.contains('@')).collect()
    }

    /// Returns the local state of a change that must not be applied here, because it is for another
    /// version of the rule, or because another change takes precedence. Returns `None` if the
    /// change may have to be applied.
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
                // An end under the plain name may belong to another version.
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

    /// Returns the base of the change with this name, unless it is an end.
    fn base_of(&self, name: &str) -> Option<String> {
        self.of(name)?.base()
    }
}

impl Change {
    /// Returns true if this ends an earlier change of its name.
    pub(crate) const fn is_end(&self) -> bool {
        self.value.is_empty()
    }

    /// Returns the identity of the rule for which the change was made, from its value.
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

/// A change that an operator made here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LocalChange {
    pub(crate) name: ChangeName,
    /// Version of the rule to which an edit or override belongs. `None` for a ban.
    base: Option<String>,
    /// JSON of the change. Empty for an end.
    pub(crate) value: Vec<u8>,
    /// Expiry time. [`Nanos::MAX`] for never.
    pub(crate) until: Nanos,
}

impl LocalChange {
    /// Creates the end of an earlier change with this name.
    fn end(name: ChangeName, base: Option<&str>) -> Self {
        Self {
            name,
            base: base.map(str::to_owned),
            value: Vec::new(),
            until: Nanos::MAX,
        }
    }

    /// Creates the ban of a key.
    pub(crate) fn ban(rule: &str, key: &str, ban: &BanValue, until: Option<Nanos>) -> Self {
        Self {
            name: ban_of(rule, key),
            base: None,
            value: ban.write(),
            until: until.unwrap_or(Nanos::MAX),
        }
    }

    /// Creates the end of a ban.
    pub(crate) fn unban(rule: &str, key: &str) -> Self {
        Self::end(ban_of(rule, key), None)
    }

    /// Returns the differences between a rule's edits before and after.
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

/// Stores changes that were just made here, for the next heartbeat. Returns `None` if no worker is
/// configured with a fleet, or if there are no changes.
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

/// Returns the current changes. Empty without a fleet.
pub(crate) fn find(host: &dyn Host, share: &str) -> Changes {
    let mut bytes = Vec::new();
    let found = host.shared_get(&key(share), &mut bytes);
    let found = found.ok().flatten().and_then(|_| Changes::read(&bytes));
    found.unwrap_or_default()
}

/// Returns only the head of the changes, which suffices for most checks.
pub(crate) fn head(host: &dyn Host, share: &str) -> Head {
    let mut bytes = Vec::new();
    let found = host.shared_get(&key(share), &mut bytes);
    let found = found.ok().flatten().and_then(|_| Head::read(&bytes));
    found.unwrap_or_default()
}

/// Changes the shared value, unless `change` returns false. Returns true if the value was written.
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
