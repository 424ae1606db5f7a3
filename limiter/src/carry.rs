//! Changing the numbers under live buckets.
//!
//! A bucket remembers which version of its rule's limits wrote it. When it is next touched, it is
//! brought forward through every version since, each at the instant of that edit, so a late touch
//! gives the same level as an immediate conversion would have.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::algorithm::Used;
use crate::limit::{Bucket, Limit, Limits};
use crate::time::Nanos;

/// What happens to the level of a live bucket when its numbers change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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

    /// The limits in force.
    pub const fn current(&self) -> &Limits {
        &self.current
    }

    /// The tag of the limits in force, stored with each bucket.
    pub const fn tag(&self) -> u32 {
        self.tag
    }

    /// Brings a bucket written under the limits `tag` to the current ones.
    ///
    /// Limits nobody remembers keep only their reset time: the bucket becomes as full as it can be
    /// without being as good as new any later than before, `idle_at`.
    pub fn bring_forward(&self, bucket: Bucket, tag: u32, idle_at: Nanos, now: Nanos) -> Bucket {
        let first = match self.written_under(tag, bucket.last) {
            Some(first) => first,
            None if tag == self.tag => return bucket,
            None => return self.keep_reset_time(bucket, idle_at, now),
        };
        let mut versions = self
            .past
            .iter()
            .skip(first)
            .map(|(_, past)| past)
            .peekable();
        let mut bucket = bucket;
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

    fn keep_reset_time(&self, old: Bucket, idle_at: Nanos, now: Nanos) -> Bucket {
        let now = now.max(old.last);
        let mut bucket = Bucket {
            last: now,
            ..self.current.start(now)
        };
        let reset_after = idle_at.since(now);
        self.current.each(&mut bucket, |_, meter, words| {
            meter.set_reset(words, reset_after, now);
        });
        bucket
    }
}

/// `bucket`, written under `old`, as it is under `new` from the instant `at` on. Whatever the carry,
/// no limit is fuller than its capacity nor as good as new later than it was under `old`.
pub fn convert(old: &Limits, new: &Limits, carry: Carry, bucket: &Bucket, at: Nanos) -> Bucket {
    let at = at.max(bucket.last);
    let levels = levels(old, bucket, at);
    // It was last touched by the edit: an earlier `now` must not move its clock back.
    let mut converted = new.start(at);
    if carry == Carry::Reset {
        return converted;
    }
    let mut limits = new.iter();
    new.each(&mut converted, |index, meter, words| {
        let Some(limit) = limits.next() else { return };
        let Some(level) = counterpart(&levels, limit, index, new) else {
            return;
        };
        let target = match carry {
            Carry::Proportional => scale(level.used, level.capacity, limit.algorithm().capacity()),
            Carry::Keep | Carry::Reset => level.used,
        };
        meter.set_reset(words, level.reset_after, at);
        // Both are rounded up; writing the bound back would round it once more, past the reset time.
        if target < meter.used(words, at) {
            meter.set_used(words, target, at);
        }
    });
    converted
}

/// How full one limit is.
struct Level<'a> {
    name: &'a str,
    used: Used,
    capacity: u64,
    reset_after: Nanos,
}

fn levels<'a>(limits: &'a Limits, bucket: &Bucket, at: Nanos) -> Vec<Level<'a>> {
    let mut levels = Vec::with_capacity(limits.iter().len());
    let mut scratch = *bucket;
    let mut names = limits.iter();
    limits.each(&mut scratch, |_, meter, words| {
        if let Some(limit) = names.next() {
            levels.push(Level {
                name: limit.name(),
                used: meter.used(words, at),
                capacity: limit.algorithm().capacity(),
                reset_after: meter.decide(words, 0, at).reset_after,
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
        .find(|level| level.name == limit.name())
        .or_else(|| {
            levels
                .get(index)
                .filter(|level| new.iter().all(|limit| limit.name() != level.name))
        })
}

fn scale(used: Used, old_capacity: u64, new_capacity: u64) -> Used {
    used.saturating_mul(u128::from(new_capacity))
        .div_ceil(u128::from(old_capacity).max(1))
}
