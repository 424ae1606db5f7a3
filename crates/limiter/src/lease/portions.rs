//! The available tokens of a lease, in two portions with separate expiry times.
//!
//! A later answer never extends the expiry of earlier tokens, because the upper bound of a lease
//! requires each token to be used within one lease after its grant. If a third portion is added,
//! the two portions whose expiry times are closest are merged, and the merged portion takes on the
//! earlier expiry time.

use crate::time::Nanos;

/// Tokens with one expiry time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Portion {
    pub(super) tokens: u32,
    /// Expiry time of the tokens.
    pub(super) end: Nanos,
}

impl Portion {
    const NONE: Self = Self {
        tokens: 0,
        end: Nanos::ZERO,
    };

    /// Returns the portion, or an empty one if it has expired by `now`.
    fn at(self, now: Nanos) -> Self {
        if now < self.end && self.tokens > 0 {
            return self;
        }
        Self::NONE
    }

    /// Merges two portions. The result has the earlier expiry time.
    fn joined(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_add(other.tokens),
            end: self.end.min(other.end),
        }
    }
}

/// All tokens of a lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Portions {
    /// The portion that expires first. Its tokens are used first.
    pub(super) early: Portion,
    pub(super) late: Portion,
}

impl Portions {
    fn of(one: Portion, other: Portion) -> Self {
        let (early, late) = if other.end < one.end {
            (other, one)
        } else {
            (one, other)
        };
        Self { early, late }
    }

    fn at(self, now: Nanos) -> Self {
        Self {
            early: self.early.at(now),
            late: self.late.at(now),
        }
    }

    /// Returns the number of unexpired tokens at `now`.
    pub(super) fn tokens(self, now: Nanos) -> u64 {
        let Self { early, late } = self.at(now);
        u64::from(early.tokens).saturating_add(late.tokens.into())
    }

    /// Returns the time at which all tokens will have expired.
    pub(super) fn end(self) -> Nanos {
        let end = |portion: Portion| match portion.tokens {
            0 => Nanos::ZERO,
            _ => portion.end,
        };
        end(self.early).max(end(self.late))
    }

    /// Returns the expiry time of the tokens that are used next, or zero if there are none.
    pub(super) fn first_end(self, now: Nanos) -> Nanos {
        let Self { early, late } = self.at(now);
        if early.tokens > 0 {
            early.end
        } else {
            late.end
        }
    }

    /// Takes `cost` tokens and returns true, or takes none and returns false if fewer are
    /// available.
    pub(super) fn take(&mut self, cost: u64, now: Nanos) -> bool {
        if self.tokens(now) < cost {
            return false;
        }
        *self = self.at(now);
        let mut rest = cost;
        for portion in [&mut self.early, &mut self.late] {
            let taken = u32::try_from(rest).unwrap_or(u32::MAX).min(portion.tokens);
            portion.tokens = portion.tokens.saturating_sub(taken);
            rest = rest.saturating_sub(taken.into());
        }
        true
    }

    /// Restores tokens. It is unknown from which portion they were taken, so they are given the
    /// earlier expiry time.
    pub(super) fn give_back(&mut self, tokens: u64, now: Nanos) {
        // A portion whose tokens are all used still has an expiry time.
        let ends = [self.early.end, self.late.end].into_iter();
        if let Some(end) = ends.filter(|end| now < *end).min() {
            let tokens = u32::try_from(tokens).unwrap_or(0);
            self.add(Portion { tokens, end }, now);
        }
    }

    /// Adds tokens, unless they have expired.
    pub(super) fn add(&mut self, new: Portion, now: Nanos) {
        let (Self { early, late }, new) = (self.at(now), new.at(now));
        let two = match (early.tokens, late.tokens, new.tokens) {
            (0, _, _) => Some((late, new)),
            (_, 0, _) => Some((early, new)),
            (_, _, 0) => Some((early, late)),
            _ => None,
        };
        if let Some((one, other)) = two {
            *self = Self::of(one, other);
            return;
        }
        let (first, second, third) = if new.end < early.end {
            (new, early, late)
        } else if new.end < late.end {
            (early, new, late)
        } else {
            (early, late, new)
        };
        *self = if second.end.since(first.end) <= third.end.since(second.end) {
            Self {
                early: first.joined(second),
                late: third,
            }
        } else {
            Self {
                early: first,
                late: second.joined(third),
            }
        };
    }
}
