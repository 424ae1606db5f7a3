//! Changing the numbers under live buckets.
//!
//! A bucket remembers which version of its rule's limits wrote it. When it is next touched, it is
//! brought forward through every version since, each at the instant of that edit, so a late touch
//! gives the same level as an immediate conversion would have.

use alloc::vec::Vec;

use serde::Serialize;

use crate::algorithm::Used;
use crate::ask::Ask;
use crate::limit::{Bucket, Limit, Limits};
use crate::rate::Rate;
use crate::time::Nanos;

/// What happens to the level of a live bucket when its numbers change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Carry {
    /// The same absolute level: 5 used stays 5 used.
    Keep,
    /// The same fraction: half full stays half full.
    #[default]
    Proportional,
    /// As new.
    Reset,
}

impl Carry {
    /// The names in requests.
    pub const NAMES: [&'static str; 3] = ["keep", "proportional", "reset"];

    /// The carry of that name.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "keep" => Some(Self::Keep),
            "proportional" => Some(Self::Proportional),
            "reset" => Some(Self::Reset),
            _ => None,
        }
    }
}

/// How many replaced versions of a rule's limits are remembered. A bucket untouched through more
/// edits than this keeps only its reset time.
pub const MAX_PAST: usize = 8;

/// Limits that were replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Past {
    /// The limits as they were.
    pub limits: Limits,
    /// What the edit that replaced them does to levels.
    pub carry: Carry,
    /// When they were replaced.
    pub until: Nanos,
}

/// The limits of a rule through time: the current ones and those live buckets may still be in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versions {
    current: Limits,
    tag: u32,
    past: Vec<(u32, Past)>,
}

impl Versions {
    /// Versions with `past` in order of time, oldest first.
    pub fn new(current: Limits, past: Vec<Past>) -> Self {
        let tag = current.tag();
        let past = past
            .into_iter()
            .map(|past| (past.limits.tag(), past))
            .collect();
        Self { current, tag, past }
    }

    /// Other limits for some of the buckets that were in these. What such a bucket has used is carried over
    /// in proportion, from the instant at which it was last touched. One that is in them already stays as
    /// it is, though the rule may have had the same limits and replaced them.
    pub(crate) fn under(&self, limits: Limits) -> Self {
        let mut own = self.clone();
        own.replace(limits, Carry::Proportional, Nanos::ZERO);
        own.past.retain(|(tag, _)| *tag != own.tag);
        own
    }

    /// Replaces the limits in force at the instant `at`; the same limits again are no change.
    pub fn replace(&mut self, limits: Limits, carry: Carry, at: Nanos) {
        if limits == self.current {
            return;
        }
        let tag = core::mem::replace(&mut self.tag, limits.tag());
        let past = Past {
            limits: core::mem::replace(&mut self.current, limits),
            carry,
            until: at,
        };
        self.past.push((tag, past));
        let surplus = self.past.len().saturating_sub(MAX_PAST);
        self.past.drain(..surplus);
    }

    /// The limits in force.
    pub const fn current(&self) -> &Limits {
        &self.current
    }

    /// The tag of the limits in force, stored with each bucket.
    pub const fn tag(&self) -> u32 {
        self.tag
    }

    /// Whether a bucket written under the limits `tag` is in the current ones already.
    pub fn is_current(&self, tag: u32, last: Nanos) -> bool {
        tag == self.tag && self.written_under(tag, last).is_none()
    }

    /// Brings a bucket written under the limits `tag` to the current ones.
    ///
    /// Limits nobody remembers keep only their reset time: the bucket becomes as full as it can be
    /// without being as good as new any later than before, `idle_at`.
    pub fn bring_forward(&self, bucket: &Bucket, tag: u32, idle_at: Nanos, now: Nanos) -> Bucket {
        let first = match self.written_under(tag, bucket.last) {
            Some(first) => first,
            None if tag == self.tag => return bucket.clone(),
            None => return self.keep_reset_time(bucket, idle_at, now),
        };
        let mut versions = self
            .past
            .iter()
            .skip(first)
            .map(|(_, past)| past)
            .peekable();
        let mut bucket = bucket.clone();
        while let Some(past) = versions.next() {
            let next = versions.peek().map_or(&self.current, |next| &next.limits);
            bucket = convert(&past.limits, next, past.carry, &bucket, past.until);
        }
        bucket
    }

    /// The past version that wrote a bucket last touched at `last`. The same limits may have been in
    /// force more than once, so the tag alone does not tell; and a worker that has not heard of an
    /// edit yet still writes with the old tag after it.
    fn written_under(&self, tag: u32, last: Nanos) -> Option<usize> {
        let same = |(past, _): &(u32, Past)| *past == tag;
        let in_force = |entry: &(u32, Past)| same(entry) && last < entry.1.until;
        self.past.iter().position(in_force).or_else(|| {
            let late = tag != self.tag;
            self.past.iter().rposition(same).filter(|_| late)
        })
    }

    fn keep_reset_time(&self, old: &Bucket, idle_at: Nanos, now: Nanos) -> Bucket {
        let now = now.max(old.last);
        let mut bucket = Bucket {
            last: now,
            ..self.current.start(now)
        };
        let reset_after = idle_at.since(now);
        self.current.each(&mut bucket, &mut |_, meter, words| {
            meter.resume(words, meter.full(), reset_after, now);
        });
        bucket
    }
}

/// `bucket`, written under `old`, as it is under `new` from the instant `at` on. Whatever the carry,
/// no limit is fuller than its capacity nor as good as new later than it was under `old`. What waits
/// already passes when it was told to, so new requests wait for it as long as they did before, too.
pub fn convert(old: &Limits, new: &Limits, carry: Carry, bucket: &Bucket, at: Nanos) -> Bucket {
    let at = at.max(bucket.last);
    let levels = levels(old, bucket, at);
    // It was last touched by the edit: an earlier `now` must not move its clock back.
    let mut converted = new.start(at);
    if carry == Carry::Reset {
        return converted;
    }
    let mut limits = new.iter();
    new.each(&mut converted, &mut |index, meter, words| {
        let Some(limit) = limits.next() else { return };
        let Some(level) = counterpart(&levels, limit, index, new) else {
            return;
        };
        if meter.adopt(words, level.limit.algorithm(), &level.words, carry, at) {
            return;
        }
        let taken = level.used.min(level.full);
        let target = match carry {
            Carry::Proportional => scale(taken, level.full, meter.full()),
            Carry::Keep | Carry::Reset => taken.min(meter.full()),
        };
        let target = target.saturating_add(level.owed(meter.rate()));
        meter.resume(words, target, level.reset_after, at);
    });
    converted
}

/// How full one limit is.
struct Level<'a> {
    limit: &'a Limit,
    words: Vec<u64>,
    used: Used,
    full: Used,
    reset_after: Nanos,
}

impl Level<'_> {
    /// The debt in units of a limit with that rate, so that it lasts as long as before.
    fn owed(&self, rate: Option<Rate>) -> Used {
        let (Some(old), Some(new)) = (self.limit.algorithm().rate(), rate) else {
            return 0;
        };
        // Of a rate of `a` per `p` at most `a · 10 years / p` units: all products are below 2^121.
        let debt = self.used.saturating_sub(self.full);
        let lasts = debt
            .saturating_mul(old.period().get().into())
            .div_ceil(old.amount().into());
        lasts
            .saturating_mul(new.amount().into())
            .div_ceil(new.period().get().into())
    }
}

fn levels<'a>(limits: &'a Limits, bucket: &Bucket, at: Nanos) -> Vec<Level<'a>> {
    let mut levels = Vec::with_capacity(limits.iter().len());
    let mut scratch = bucket.clone();
    let mut names = limits.iter();
    limits.each(&mut scratch, &mut |_, meter, words| {
        if let Some(limit) = names.next() {
            levels.push(Level {
                limit,
                words: words.to_vec(),
                used: meter.used(words, at),
                full: meter.full(),
                reset_after: meter.decide(words, &Ask::new(0, at)).reset_after,
            });
        }
    });
    levels
}

/// The old level that a new limit goes on from: of the same name, else in the same place if that
/// one's name is gone (a renamed limit must not be a fresh one).
fn counterpart<'a, 'b>(
    levels: &'b [Level<'a>],
    limit: &Limit,
    index: usize,
    new: &Limits,
) -> Option<&'b Level<'a>> {
    levels
        .iter()
        .find(|level| level.limit.name() == limit.name())
        .or_else(|| {
            levels
                .get(index)
                .filter(|level| new.iter().all(|limit| limit.name() != level.limit.name()))
        })
}

fn scale(used: Used, old_full: Used, new_full: Used) -> Used {
    used.saturating_mul(new_full).div_ceil(old_full.max(1))
}
