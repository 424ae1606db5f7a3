//! Versions of one rule, as the Envoys of a fleet have them during a deployment. Each version has edits and overrides
//! of its own.
//!
//! The plain name of an edit has that of one version, as peers of all builds understand it. Only while another version
//! has that place, a version takes a name with its base. An Envoy whose change in force loses the plain name to another
//! version tells it again under such a name: so none is lost, whoever was first, and older builds need not know of it.

use loudou_api::ChangeName;
use loudou_limiter::Nanos;
use serde_json::Value;

use super::value::base_of;
use super::{Change, Changes, Here, Made, Sent};

/// The most versions of a rule that have a change of one kind. Configurations of the past count, because they may come
/// back; where there are more, the change that was made first ends.
const MAX_BASES: usize = 8;

impl Changes {
    /// The changes to note of one that was made here.
    pub(super) fn to_note(&self, made: &Made, now: Nanos) -> Vec<Change> {
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
    pub(super) fn keep_of_base(&mut self, name: &str, value: &[u8], now: Nanos) {
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
    pub(super) fn end_too_many(&mut self, about: &ChangeName, now: Nanos) {
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
