//! Encoding of a lease as the words of a slot, and the remaining units of all limits after the
//! first.

use super::portions::{Portion, Portions};
use super::recent::{Count, Recent};
use super::{Lease, RemainingUnits};
use crate::limit::MAX_LIMITS;
use crate::time::Nanos;

/// Number of words in a lease. All words are zero for a key that is not known yet.
pub const LEASE_WORDS: usize = 11;
/// Maximum number of limits whose remaining units are stored outside the words of the lease.
pub const MAX_LATER_LIMITS: usize = MAX_LIMITS - 1;

/// Joins the two halves of a word.
fn join(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

fn split(word: u64) -> (u32, u32) {
    let half = |word: u64| u32::try_from(word & u64::from(u32::MAX)).unwrap_or(u32::MAX);
    (half(word >> 32), half(word))
}

impl Lease {
    /// Encodes the lease as words. The words contain the remaining units of the first limit only.
    pub fn to_words(&self) -> [u64; LEASE_WORDS] {
        let Portions { early, late } = self.tokens;
        let Recent { start, counts } = self.recent;
        let [running, last, before] = counts;
        let small = u32::from_be_bytes([
            running.requests,
            last.requests,
            before.requests,
            self.misses,
        ]);
        [
            join(early.tokens, late.tokens),
            early.end.get(),
            late.end.get(),
            join(self.debt, self.left.split().0),
            self.denied_until.get(),
            self.refill_sent.get(),
            self.answered_at.get(),
            start.get(),
            join(running.units, last.units),
            join(before.units, small),
            join(self.denied_cost, self.edition),
        ]
    }

    /// Returns the remaining units of the limits after the first, without trailing zeros.
    pub fn later_left(&self) -> &[u32] {
        self.left.split().1
    }

    /// Decodes a lease from its words and the values of [`Self::later_left`]. Missing trailing
    /// values are zero.
    pub fn from_words(words: &[u64], later_left: &[u32]) -> Self {
        let word = |place| words.get(place).copied().unwrap_or(0);
        let at = |place| Nanos::new(word(place));
        let (early, late) = split(word(0));
        let (debt, left) = split(word(3));
        let (running, last) = split(word(8));
        let (before, small) = split(word(9));
        let (denied_cost, edition) = split(word(10));
        let [r, l, b, misses] = small.to_be_bytes();
        let count = |(units, requests)| Count { units, requests };
        let portion = |(tokens, end)| Portion { tokens, end };
        Self {
            tokens: Portions {
                early: portion((early, at(1))),
                late: portion((late, at(2))),
            },
            debt,
            left: RemainingUnits::joined(left, later_left),
            denied_until: at(4),
            denied_cost,
            refill_sent: at(5),
            answered_at: at(6),
            recent: Recent {
                start: at(7),
                counts: [(running, r), (last, l), (before, b)].map(count),
            },
            misses,
            edition,
        }
    }
}
