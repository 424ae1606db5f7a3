//! Edits, overrides and bans that travel: what operators change at one Envoy holds at all of its fleet.
//!
//! One value of shared data has the changes ([`Changes`]): those that were made here and that the engine does
//! not have yet, and those that it has and that last. The worker that calls for its Envoy sends the first, and
//! learns of the second ([`heard`](Changes::heard)). A change from another Envoy is put in force by the same
//! operations as a change that was made here, if the rule here is the same; otherwise the change waits.
//!
//! Which of two changes of one name holds is the engine's decision; see [`loudou_api::Change`]. Versions of a rule
//! have names of their own where they need them ([`base_of`]).

use loudou_api::{ChangeName, MAX_ALL_CHANGES_BYTES, MAX_CHANGES, SHOWN_CHANGE_NAME, Spread};
use loudou_limiter::Nanos;
use loudou_store::swap::{Swapped, swap};
use serde::Serialize;
use serde_json::Value;

use super::Pulse;
use crate::formats;
use crate::formats::CHANGES;
use crate::host::{Host, HostStore};
use crate::json::{number, text};
use crate::record::RuleRecord;

pub(crate) use changes::Change;
pub(crate) use changes::Changes;
pub(crate) use changes::Head;
pub(crate) use changes::Here;
pub(crate) use changes::Sent;

mod changes;

// An answer of the engine, as far as it is about changes.

/// The part of an answer that is about changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Heard {
    /// Empty if the engine said nothing about changes.
    pub(crate) epoch: String,
    pub(crate) generation: u64,
    pub(crate) told: Vec<Told>,
    /// The changes of the call that the engine refused: names that may be cut, and the reasons.
    pub(crate) refused: Vec<(String, String)>,
    /// Whether there is more to hear.
    pub(crate) more: bool,
}

/// A change in an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) name: String,
    /// Its JSON; empty if it is an end.
    pub(crate) value: Vec<u8>,
    /// The time since it was made.
    pub(crate) age: Nanos,
    /// The time until it ends by itself; `None` for never.
    pub(crate) ends_in: Option<Nanos>,
    pub(crate) by: String,
    pub(crate) generation: u64,
}

impl Heard {
    /// The reason for which the engine refused a change of this name.
    pub(crate) fn refusal(&self, name: &str) -> Option<&str> {
        let mut refused = self.refused.iter();
        let is_cut = |cut: &str| cut.chars().count() >= SHOWN_CHANGE_NAME;
        let found =
            refused.find(|(cut, _)| name == cut || (is_cut(cut) && name.starts_with(cut.as_str())));
        found.map(|(_, why)| why.as_str())
    }
}

impl Changes {
    /// Takes over an answer to a call that told these changes: names and versions. False if it says nothing.
    pub(crate) fn heard(&mut self, told: &[(String, u64)], heard: &Heard, now: Nanos) -> bool {
        if heard.epoch.is_empty() {
            return false;
        }
        let is_other = self.head.epoch != heard.epoch;
        if is_other {
            // The engine has lost what it knew, or is new: it is told all again.
            for change in &mut self.all {
                change.generation = 0;
                if change.sent == Sent::Known {
                    change.sent = Sent::Unsent;
                }
            }
            self.head.generation = 0;
        }
        let first_time = self.head.epoch.is_empty();
        self.head.epoch.clone_from(&heard.epoch);
        self.head.generation = self.head.generation.max(heard.generation);
        for (name, version) in told {
            let mut all = self.all.iter_mut();
            let found = all.find(|change| change.version == *version && change.name == *name);
            if let Some(change) = found {
                change.sent = match heard.refusal(name) {
                    Some(_) => Sent::Refused,
                    None => Sent::Known,
                };
            }
        }
        for told in &heard.told {
            if self.has_room() || self.find(&told.name).is_some() {
                self.hear(told, first_time, now);
            }
        }
        true
    }

    /// Whether there are no more than an engine keeps beside as many of this Envoy that it does not have yet.
    fn has_room(&self) -> bool {
        let (most, most_bytes) = (MAX_CHANGES * 2, MAX_ALL_CHANGES_BYTES * 2);
        self.all.len() < most && self.bytes_of_all() < most_bytes
    }

    fn hear(&mut self, told: &Told, first_time: bool, now: Nanos) {
        let made_at = Nanos::new(now.get().saturating_sub(told.age.get()));
        let mut here = Here::ToApply;
        match self.find(&told.name) {
            // An answer that was overtaken.
            Some(before) if told.generation <= before.generation => return,
            Some(before) if before.value == told.value => {
                (before.sent, before.generation) = (Sent::Known, told.generation);
                return;
            }
            // The engine is told of this one, and it decides.
            Some(before) if before.sent != Sent::Known && before.made_at >= made_at => return,
            // Bans of penalties that came after it stay.
            None if told.value.is_empty() && first_time => here = Here::InForce,
            _ => {}
        }
        self.keep_of_base(&told.name, &told.value, now);
        let until = told.ends_in.map(|span| now.saturating_add(span));
        self.put(Change {
            name: told.name.clone(),
            value: told.value.clone(),
            made_at,
            until: until.unwrap_or(Nanos::MAX),
            earlier_until: Nanos::ZERO,
            by: told.by.clone(),
            generation: told.generation,
            sent: Sent::Known,
            here,
            version: 0,
        });
    }
}

// The JSON of a change that travels.

/// The value of a ban.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct BanValue {
    /// The rule's tag: a rule with other keys has no such bucket.
    pub(crate) tag: u32,
    pub(crate) by: String,
    pub(crate) reason: String,
    pub(crate) at_unix_ms: u64,
}

impl BanValue {
    fn write(&self) -> Vec<u8> {
        as_read(&serde_json::to_vec(self).unwrap_or_default())
    }

    /// The ban of a value, unless it is damaged.
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

/// The value of an edit or of an override: what it gives, and the identity of the rule that it is made for.
fn of_edit(base: &str, gives: &impl Serialize) -> Vec<u8> {
    let gives = serde_json::to_vec(gives).unwrap_or_default();
    let head = ["{\"base\":\"", base, "\",\"gives\":"].concat();
    as_read(&[head.as_bytes(), &gives, b"}"].concat())
}

/// The same JSON as it is written after it was read: so it comes back from the engine, and can be recognised.
fn as_read(json: &[u8]) -> Vec<u8> {
    let value: Option<Value> = serde_json::from_slice(json).ok();
    value.map_or_else(Vec::new, |value| {
        serde_json::to_vec(&value).unwrap_or_default()
    })
}

/// The identity of the rule for which an edit or an override was made.
pub(crate) fn base_of(value: &Value) -> Option<&str> {
    value.get("base")?.as_str()
}

// Versions of one rule, as the Envoys of a fleet have them during a deployment. Each version has edits and overrides
// of its own.
//
// The plain name of an edit has that of one version, as peers of all builds understand it. Only while another version
// has that place, a version takes a name with its base. An Envoy whose change in force loses the plain name to another
// version tells it again under such a name: so none is lost, whoever was first, and older builds need not know of it.

/// The most versions of a rule that have a change of one kind. Configurations of the past count, because they may come
/// back; where there are more, the change that was made first ends.
const MAX_BASES: usize = 8;

impl Changes {
    /// The changes to note of one that was made here.
    fn to_note(&self, made: &Made, now: Nanos) -> Vec<Change> {
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

    /// Keeps a change that is in force here under a name of its own, if the plain name is to have that of another
    /// version of the rule.
    fn keep_of_base(&mut self, name: &str, value: &[u8], now: Nanos) {
        let Some(before) = self.of(name).filter(|change| change.here != Here::Waiting) else {
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

    /// Ends the changes that were made first, if too many versions of a rule have one.
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

    /// The changes whose names have a base.
    pub(crate) fn with_bases(&self) -> Vec<&Change> {
        let all = self.all.iter();
        // In all other places of a name, it is escaped.
        all.filter(|change| change.name.contains('@')).collect()
    }

    /// What becomes of a change of a rule that has this base here, because it is for another one, or another change
    /// counts; `None` for the one to compare with the rule.
    pub(crate) fn passed_over(
        &self,
        with_bases: &[&Change],
        (change, about): (&Change, &ChangeName),
        base: &str,
    ) -> Option<Here> {
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
                // An end of the plain name may be that of another version.
                named.any(|named| named.name == name && (is_end || named.made_at > change.made_at))
            }
        };
        is_passed.then_some(if is_end { Here::InForce } else { Here::Waiting })
    }

    fn of(&self, name: &str) -> Option<&Change> {
        self.all.iter().find(|change| change.name == name)
    }

    /// The base of the change of this name, unless it is an end.
    fn base_of(&self, name: &str) -> Option<String> {
        self.of(name)?.base()
    }
}

impl Change {
    /// Whether it ends what had its name before.
    pub(crate) const fn is_end(&self) -> bool {
        self.value.is_empty()
    }

    /// The base of the rule that it was made for, as its value says.
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

/// A change that an operator has made here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Made {
    pub(crate) name: ChangeName,
    /// The version of the rule, of which an edit or an override is; none for a ban.
    base: Option<String>,
    /// The JSON that travels; empty if it is an end.
    pub(crate) value: Vec<u8>,
    /// When it ends by itself; [`Nanos::MAX`] for never.
    pub(crate) until: Nanos,
}

impl Made {
    /// The end of what had this name.
    fn end(name: ChangeName, base: Option<&str>) -> Self {
        Self {
            name,
            base: base.map(str::to_owned),
            value: Vec::new(),
            until: Nanos::MAX,
        }
    }

    /// The ban of a key.
    pub(crate) fn ban(rule: &str, key: &str, ban: &BanValue, until: Option<Nanos>) -> Self {
        Self {
            name: ban_of(rule, key),
            base: None,
            value: ban.write(),
            until: until.unwrap_or(Nanos::MAX),
        }
    }

    /// The end of a ban.
    pub(crate) fn unban(rule: &str, key: &str) -> Self {
        Self::end(ban_of(rule, key), None)
    }

    /// The differences between a rule's edits and what they were.
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

/// Notes changes that were just made here, for the next call of the engine. `None` where no worker has a
/// fleet, or nothing was made.
pub(crate) fn note(host: &dyn Host, share: &str, made: &[Made], now: Nanos) -> Option<Spread> {
    if made.is_empty() {
        return None;
    }
    Pulse::find(host, share).filter(|pulse| pulse.is_alive(now))?;
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

/// The changes now; none where there is no fleet.
pub(crate) fn find(host: &dyn Host, share: &str) -> Changes {
    let mut bytes = Vec::new();
    let found = host.shared_get(&key(share), &mut bytes);
    let found = found.ok().flatten().and_then(|_| Changes::read(&bytes));
    found.unwrap_or_default()
}

/// Their head, which is enough for most looks.
pub(crate) fn head(host: &dyn Host, share: &str) -> Head {
    let mut bytes = Vec::new();
    let found = host.shared_get(&key(share), &mut bytes);
    let found = found.ok().flatten().and_then(|_| Head::read(&bytes));
    found.unwrap_or_default()
}

/// Changes the shared value, unless `change` returns false; returns whether it was written.
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
