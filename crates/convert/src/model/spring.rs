//! Models Spring Cloud Gateway's `RequestRateLimiter`, as implemented by its script
//! `request_rate_limiter.lua`.

use super::{Ask, Said};

/// Nanoseconds per second.
const SECOND: u64 = 1_000_000_000;

/// Arguments of the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limiter {
    /// `replenishRate`, in tokens per second.
    pub rate: u64,
    /// `burstCapacity`.
    pub capacity: u64,
    /// Number of filters that take tokens from the bucket, one after another, for equal shares of
    /// the cost.
    pub filters: u64,
}

/// Values of the two Redis keys that the script sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tokens {
    left: u64,
    /// Time of the last run of the script, in seconds.
    refreshed: u64,
    /// Time at which Redis deletes the keys, in nanoseconds.
    expires: u64,
}

impl Limiter {
    /// Returns the lifetime of the Redis keys, in seconds.
    const fn lifetime(&self) -> u64 {
        match self.capacity.saturating_mul(2).checked_div(self.rate) {
            Some(lifetime) => lifetime,
            None => u64::MAX,
        }
    }

    /// Returns true if the script does not set its keys, because their lifetime is less than a
    /// second.
    pub const fn forgets(&self) -> bool {
        self.lifetime() == 0
    }

    /// Decides whether a request passes, and returns the answer and the next state of the keys.
    /// After a refusal, Spring skips the remaining filters, and the tokens that earlier filters
    /// took are lost.
    pub fn ask(&self, kept: Option<Tokens>, ask: &Ask) -> (Said, Tokens) {
        let filters = self.filters.max(1);
        let part = Ask {
            cost: ask.cost.div_euclid(filters),
            ..*ask
        };
        let (mut said, mut next) = self.filter(kept, &part);
        for _ in 1..filters {
            if said == Said::Refuse {
                break;
            }
            (said, next) = self.filter(Some(next), &part);
        }
        (said, next)
    }

    /// Decides whether a request passes one filter.
    fn filter(&self, kept: Option<Tokens>, ask: &Ask) -> (Said, Tokens) {
        let now = ask.now.get().div_euclid(SECOND);
        let kept = kept.filter(|kept| ask.now.get() < kept.expires);
        let (tokens, refreshed) =
            kept.map_or((self.capacity, 0), |kept| (kept.left, kept.refreshed));
        let filled = now.saturating_sub(refreshed).saturating_mul(self.rate);
        let filled = tokens.saturating_add(filled).min(self.capacity);
        let left = filled.checked_sub(ask.cost);
        let said = if left.is_some() {
            Said::Pass
        } else {
            Said::Refuse
        };
        let lifetime = self.lifetime().saturating_mul(SECOND);
        let next = Tokens {
            left: left.unwrap_or(filled),
            refreshed: now,
            expires: ask.now.get().saturating_add(lifetime),
        };
        (said, next)
    }
}
