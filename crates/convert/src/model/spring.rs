//! `RequestRateLimiter` of Spring Cloud Gateway: its script `request_rate_limiter.lua`.

use super::{Ask, Said};

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

/// The arguments of the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limiter {
    /// `replenishRate`, in tokens per second.
    pub rate: u64,
    /// `burstCapacity`.
    pub capacity: u64,
    /// Number of filters that ask the bucket, one after another, for equal parts of the cost.
    pub filters: u64,
}

/// The two keys that the script sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tokens {
    left: u64,
    /// Time of the script's last run, in seconds.
    refreshed: u64,
    /// Time at which Redis forgets the keys, in nanoseconds.
    expires: u64,
}

impl Limiter {
    /// Returns the lifetime of the keys, in seconds.
    const fn lifetime(&self) -> u64 {
        match self.capacity.saturating_mul(2).checked_div(self.rate) {
            Some(lifetime) => lifetime,
            None => u64::MAX,
        }
    }

    /// Returns true if the script does not set its keys, because their lifetime is below a second.
    pub const fn forgets(&self) -> bool {
        self.lifetime() == 0
    }

    /// Answers a request. After a refusal, Spring does not ask the next filter, and the earlier
    /// filters have taken their tokens.
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

    /// Answers one filter.
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
