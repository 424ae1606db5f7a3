//! An answer of the engine, as far as it is about changes.

use loudou_api::{MAX_ALL_CHANGES_BYTES, MAX_CHANGES, SHOWN_CHANGE_NAME};
use loudou_limiter::Nanos;

use super::changes::{Change, Changes, Here, Sent};

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
    pub(super) fn has_room(&self) -> bool {
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
