//! The choice of the bucket of a full page that is evicted for a new one.
//!
//! A client that can make up keys can fill every page. So each rule has a fair share of a page: the
//! number of slots that no operator's ban pins, divided by the number of rules that have one of them,
//! including the rule of the new bucket. Unused slots of a share are lent to the other rules. The
//! victim is, in this order:
//!
//! 1. an idle bucket of any rule, because nothing is lost;
//! 2. if the rule of the new bucket has its share or more: the bucket of that rule with the least worth
//!    that holds no permits. If all hold permits, there is no victim;
//! 3. otherwise, among the rules above their share: the bucket with the least worth of the rule with the
//!    most buckets. Buckets that hold permits come last;
//! 4. if there are more rules than slots: the bucket with the least worth that holds no permits.

use core::cmp::Reverse;

use loudou_limiter::Nanos;

use super::{
    Bytes, Evicted, FLAG_PINNED, Head, Instant, SLOT_HEAD, SLOTS, Slot, UnknownPage, is_idle,
    optional_bytes,
};

/// The fields that the choice depends on. Only these are read of each slot.
#[derive(Clone, Copy)]
pub(super) struct Standing {
    rule_tag: u32,
    last: Nanos,
    idle_at_ms: u64,
    has_refused: bool,
    flags: u8,
    banned_until_ms: u64,
    held_until_ms: u64,
}

/// A bucket that may be evicted.
#[derive(Clone, Copy)]
struct Candidate {
    rule_tag: u32,
    is_held: bool,
    worth: Worth,
}

/// The worth of a bucket; the one with the least is evicted first.
type Worth = (u8, u64);

/// The first part of the worth of an idle bucket.
const IDLE: u8 = 0;

impl Standing {
    pub(super) const fn of(slot: &Slot) -> Self {
        Self {
            rule_tag: slot.rule_tag,
            last: slot.bucket.last,
            idle_at_ms: slot.idle_at_ms,
            has_refused: slot.refused > 0,
            flags: slot.flags,
            banned_until_ms: slot.conduct.banned_until_ms,
            held_until_ms: Instant::of(slot.held_until_ms, slot.bucket.last).held_until_ms(),
        }
    }

    /// The fields of the slot that begins with these bytes.
    pub(super) fn read(slot: &[u8]) -> Result<Self, UnknownPage> {
        let fixed = Head::of(slot)?;
        let flags = fixed.flags();
        let [given, conduct, held, ..] = optional_bytes(flags);
        let conduct_at = SLOT_HEAD.saturating_add(given);
        let held_at = conduct_at.saturating_add(conduct);
        // A conduct begins with the end of its ban.
        let number = |size: usize, at: usize| match slot.get(at..) {
            Some(bytes) if size > 0 => Bytes(bytes).u40(),
            Some(_) => Ok(0),
            None => Err(UnknownPage),
        };
        Ok(Self {
            rule_tag: fixed.rule_tag(),
            last: fixed.last(),
            idle_at_ms: fixed.idle_at_ms(),
            has_refused: fixed.refused() > 0,
            flags,
            banned_until_ms: number(conduct, conduct_at)?,
            held_until_ms: Instant::of(number(held, held_at)?, fixed.last()).held_until_ms(),
        })
    }

    /// Idle buckets have no worth. A bucket that never refused is worth its used capacity. A flood of new
    /// keys may aim at evicting a bucket that refused, so it comes after those; among them the one that was
    /// untouched longest comes first. Banned buckets come last; those whose ban ends soonest come first.
    const fn worth(&self, now_ms: u64) -> Worth {
        if is_idle(self.idle_at_ms, self.flags, now_ms) {
            (IDLE, self.idle_at_ms)
        } else if now_ms < self.banned_until_ms {
            (3, self.banned_until_ms)
        } else if self.has_refused {
            (2, self.last.as_millis())
        } else {
            (1, self.idle_at_ms)
        }
    }

    /// The bucket as a candidate, unless an operator's ban pins it.
    fn candidate(self, now_ms: u64) -> Option<Candidate> {
        let is_pinned = self.flags & FLAG_PINNED != 0 && now_ms < self.banned_until_ms;
        (!is_pinned).then(|| Candidate {
            rule_tag: self.rule_tag,
            // Other requests would get the permits of requests in flight again.
            is_held: now_ms < self.held_until_ms,
            worth: self.worth(now_ms),
        })
    }
}

/// By position in the page; `None` for a slot that an operator's ban pins.
type Candidates = [Option<Candidate>; SLOTS];

/// The slot that is evicted for a bucket of the rule, and the loss.
pub(super) fn victim(
    slots: impl Iterator<Item = Standing>,
    newcomer: u32,
    now: Nanos,
) -> Option<(usize, Evicted)> {
    let now_ms = now.as_millis();
    let mut all: Candidates = [None; SLOTS];
    let mut least: Option<(Worth, usize)> = None;
    for ((place, candidate), slot) in all.iter_mut().enumerate().zip(slots) {
        *candidate = slot.candidate(now_ms);
        let Some(Candidate { worth, .. }) = *candidate else {
            continue;
        };
        if least.is_none_or(|(other, _)| worth < other) {
            least = Some((worth, place));
        }
    }
    match least? {
        ((IDLE, _), place) => Some((place, Evicted::Lossless)),
        _ => Some((least_by_share(&all, newcomer)?, Evicted::Lossy)),
    }
}

/// The rules of a page and the number of their candidates, the rule of the new bucket first.
struct Rules {
    counts: [(u32, usize); SLOTS + 1],
    len: usize,
}

impl Rules {
    fn count(&mut self, rule: u32) {
        let mut known = self.counts.iter_mut().take(self.len);
        if let Some((_, count)) = known.find(|(tag, _)| *tag == rule) {
            *count = count.saturating_add(1);
        } else if let Some(next) = self.counts.get_mut(self.len) {
            *next = (rule, 1);
            self.len = self.len.saturating_add(1);
        }
    }

    fn of(&self, rule: u32) -> usize {
        let mut known = self.counts.iter().take(self.len);
        let found = known.find(|(tag, _)| *tag == rule);
        found.map_or(0, |(_, count)| *count)
    }
}

/// The candidate that is evicted if none is idle.
fn least_by_share(all: &Candidates, newcomer: u32) -> Option<usize> {
    let mut rules = Rules {
        counts: [(newcomer, 0); SLOTS + 1],
        len: 1,
    };
    let mut shared = 0_usize;
    for candidate in all.iter().flatten() {
        rules.count(candidate.rule_tag);
        shared = shared.saturating_add(1);
    }
    let share = shared.div_euclid(rules.len).max(1);
    let own = rules.of(newcomer);
    let order = |candidate: &Candidate| {
        let Candidate {
            rule_tag,
            is_held,
            worth,
        } = *candidate;
        if own >= share {
            let may_go = rule_tag == newcomer && !is_held;
            return may_go.then_some((false, false, Reverse(own), worth));
        }
        let count = rules.of(rule_tag);
        // A slot that is not lent is taken only if no slot is lent: then there are more rules than slots.
        let is_lent = count > share;
        (is_lent || !is_held).then_some((!is_lent, is_held, Reverse(count), worth))
    };
    let places = all.iter().enumerate();
    let ordered = places.filter_map(|(place, slot)| Some((order(slot.as_ref()?)?, place)));
    ordered.min().map(|(_, place)| place)
}
