//! A descriptor of Envoy's rate limit service: `DoLimit` in `src/redis/fixed_cache_impl.go` and
//! `GetResponseDescriptorStatus` in `src/limiter/base_limiter.go` of `envoyproxy/ratelimit`.

use super::{Ask, Said};

/// A `rate_limit` of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// `requests_per_unit`.
    pub requests: u64,
    /// Length of the unit, in seconds.
    pub unit: u64,
}

/// A key of Redis, whose name ends with the start of its window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    start: u64,
    hits: u64,
}

impl Window {
    /// Returns the window for a unit in nanoseconds.
    pub const fn new(requests: u64, unit: u64) -> Self {
        Self {
            requests,
            unit: unit.div_euclid(1_000_000_000),
        }
    }

    /// Answers a request. The service increases the counter first, also if it refuses.
    pub fn ask(&self, before: Hits, ask: &Ask) -> (Said, Hits) {
        let now = ask.now.get().div_euclid(1_000_000_000);
        let start = now.saturating_sub(now.checked_rem(self.unit).unwrap_or(0));
        let hits = if before.start == start {
            before.hits
        } else {
            0
        };
        let hits = hits.saturating_add(ask.cost);
        let said = if hits > self.requests {
            Said::Refuse
        } else {
            Said::Pass
        };
        (said, Hits { start, hits })
    }
}
