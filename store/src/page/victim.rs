//! Which bucket of a full page makes room for a new one.
//!
//! A client that can make up keys can fill every page. So each rule has a fair share of a page: the
//! slots that no operator's ban keeps, divided by the number of rules that have one of them, the
//! newcomer's rule included. The rest of a share that its rule does not use is lent to the others. The
//! victim is, in this order:
//!
//! 1. an idle bucket of any rule, because nothing is lost;
//! 2. if the newcomer's rule has its share, or more: the bucket of that rule that is worth the least, but
//!    none that holds permits. If it has no other, there is no victim;
//! 3. otherwise, of the rules above their share: a bucket of the one that has the most, the one that is
//!    worth the least. Buckets that hold permits go after all others;
//! 4. if there are more rules than slots: the bucket that is worth the least and holds no permits.

use core::cmp::Reverse;

use loudou_limiter::Nanos;

use super::{
    Bytes, Evicted, FLAG_CONDUCT, FLAG_HELD, FLAG_PINNED, SLOTS, Slot, UnknownPage, is_idle,
};

/// What the choice depends on. Only this much of each slot is read.
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

/// A bucket that may go.
#[derive(Clone, Copy)]
struct Candidate {
    rule_tag: u32,
    is_held: bool,
    worth: Worth,
}

/// What it would cost to forget a bucket; the least goes first.
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
            held_until_ms: slot.held_until_ms,
        }
    }

    /// The same of the slot that begins with these bytes.
    pub(super) fn read(slot: &[u8]) -> Result<Self, UnknownPage> {
        let mut bytes = Bytes(slot);
        let _fingerprint: [u8; 8] = bytes.take()?;
        let (rule_tag, _version) = (bytes.u32()?, bytes.u32()?);
        let last = Nanos::new(bytes.u64()?);
        let (idle_at_ms, _admitted) = (bytes.u40()?, bytes.u40()?);
        let has_refused = bytes.take()? != [0; 5];
        let [flags] = bytes.take()?;
        let _state: [u8; 11] = bytes.take()?;
        let (mut banned_until_ms, mut held_until_ms) = (0, 0);
        if flags & FLAG_CONDUCT != 0 {
            banned_until_ms = bytes.u40()?;
            let _others: [u8; 13] = bytes.take()?;
        }
        if flags & FLAG_HELD != 0 {
            held_until_ms = bytes.u40()?;
        }
        Ok(Self {
            rule_tag,
            last,
            idle_at_ms,
            has_refused,
            flags,
            banned_until_ms,
            held_until_ms,
        })
    }

    /// Idle ones cost nothing. A bucket that never refused costs what is taken from it. One that
    /// refused is what a flood of new keys may want to be rid of, so it goes after those, and the
    /// longer it was left alone the sooner. Banned ones go last, those that are free soonest first.
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

    /// As a candidate, unless an operator's ban keeps it.
    fn candidate(self, now_ms: u64) -> Option<Candidate> {
        let is_pinned = self.flags & FLAG_PINNED != 0 && now_ms < self.banned_until_ms;
        (!is_pinned).then(|| Candidate {
            rule_tag: self.rule_tag,
            // Others would get the permits of requests in flight again.
            is_held: now_ms < self.held_until_ms,
            worth: self.worth(now_ms),
        })
    }
}

/// By position in the page; `None` for a slot that an operator's ban keeps.
type Candidates = [Option<Candidate>; SLOTS];

/// The slot that makes room for a bucket of the rule, and what is lost by it.
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

/// The rules of a page and the number of their candidates, the newcomer's rule first.
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

/// The candidate that goes when none is idle.
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
        // What is not lent goes only where nothing is: then there are more rules than slots.
        let is_lent = count > share;
        (is_lent || !is_held).then_some((!is_lent, is_held, Reverse(count), worth))
    };
    let places = all.iter().enumerate();
    let ordered = places.filter_map(|(place, slot)| Some((order(slot.as_ref()?)?, place)));
    ordered.min().map(|(_, place)| place)
}
