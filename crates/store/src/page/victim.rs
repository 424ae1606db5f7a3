//! Chooses the bucket that a full page evicts to make room for a new bucket.
//!
//! A client that can make up arbitrary keys can fill every page. Each rule therefore has a fair
//! share of a page. This share is the number of slots not pinned by an operator's ban, divided by
//! the number of rules that own these slots, including the new bucket's rule. A rule may exceed its
//! share while other rules are not using all of theirs. The victim is chosen as follows, in this
//! order:
//!
//! 1. An idle bucket of any rule, because evicting it loses no state.
//! 2. If the new bucket's rule already uses its full share or more: the bucket of this rule with
//!    the lowest worth, excluding buckets that hold permits. If all of the rule's buckets hold
//!    permits, no bucket is evicted.
//! 3. Otherwise, if some rules exceed their share: the lowest-worth bucket of the rule with the
//!    most buckets. Buckets that hold permits are chosen only if all buckets of these rules hold
//!    permits.
//! 4. If there are more rules than slots: the bucket with the lowest worth, excluding buckets that
//!    hold permits.

use core::cmp::Reverse;

use loudou_limiter::Nanos;

use super::{
    Bytes, Evicted, FLAG_PINNED, Head, Instant, SLOT_HEAD, SLOTS, Slot, UnknownPage, is_idle,
    optional_bytes,
};

/// Fields of a slot that determine the choice of the victim.
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

/// A candidate for eviction.
#[derive(Clone, Copy)]
struct Candidate {
    rule_tag: u32,
    is_held: bool,
    worth: Worth,
}

/// Worth of a bucket. The bucket with the lowest worth is evicted first.
type Worth = (u8, u64);

/// First component of an idle bucket's worth.
const IDLE: u8 = 0;

impl Standing {
    pub(super) const fn of(slot: &Slot) -> Self {
        Self {
            rule_tag: slot.rule_tag,
            last: slot.bucket.last,
            idle_at_ms: slot.idle_at_ms,
            has_refused: slot.refused > 0,
            flags: slot.flags,
            banned_until_ms: slot.ban_history.banned_until_ms,
            held_until_ms: Instant::of(slot.held_until_ms, slot.bucket.last).held_until_ms(),
        }
    }

    /// Reads the fields of the slot at the beginning of `slot`.
    pub(super) fn read(slot: &[u8]) -> Result<Self, UnknownPage> {
        let fixed = Head::of(slot)?;
        let flags = fixed.flags();
        let [given, ban_history, held, ..] = optional_bytes(flags);
        let ban_history_at = SLOT_HEAD.saturating_add(given);
        let held_at = ban_history_at.saturating_add(ban_history);
        // The first field of an encoded ban history is the time at which the ban ends.
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
            banned_until_ms: number(ban_history, ban_history_at)?,
            held_until_ms: Instant::of(number(held, held_at)?, fixed.last()).held_until_ms(),
        })
    }

    /// Returns the bucket's worth. From lowest to highest:
    ///
    /// - idle buckets.
    /// - buckets that have never refused a request, ordered by their used capacity.
    /// - buckets that have refused a request, because a flood of new keys may be intended to evict
    ///   them. Among them, the least recently touched bucket comes first.
    /// - banned buckets. Among them, the bucket whose ban ends first comes first.
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

    /// Returns the bucket as a candidate, or `None` if it is pinned by an operator's ban.
    fn candidate(self, now_ms: u64) -> Option<Candidate> {
        let is_pinned = self.flags & FLAG_PINNED != 0 && now_ms < self.banned_until_ms;
        (!is_pinned).then(|| Candidate {
            rule_tag: self.rule_tag,
            // Once a bucket with permits is evicted, new requests could take permits that in-flight
            // requests still hold.
            is_held: now_ms < self.held_until_ms,
            worth: self.worth(now_ms),
        })
    }
}

/// Candidates, indexed by their position in the page; `None` for a slot pinned by an operator's
/// ban.
type Candidates = [Option<Candidate>; SLOTS];

/// Returns the index of the slot to evict for a new bucket of the rule `newcomer`, and the kind of
/// eviction.
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

/// Number of candidates per rule in the page. The new bucket's rule comes first.
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

/// Returns the index of the bucket to evict if no bucket is idle.
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
        // A slot within its rule's share is evicted only if no rule exceeds its share, meaning that
        // there are more rules than slots.
        let is_lent = count > share;
        (is_lent || !is_held).then_some((!is_lent, is_held, Reverse(count), worth))
    };
    let places = all.iter().enumerate();
    let ordered = places.filter_map(|(place, slot)| Some((order(slot.as_ref()?)?, place)));
    ordered.min().map(|(_, place)| place)
}
