//! Models a descriptor of Envoy's rate limit service, as implemented by `DoLimit` in
//! `src/redis/fixed_cache_impl.go` and `GetResponseDescriptorStatus` in
//! `src/limiter/base_limiter.go` of `envoyproxy/ratelimit`.

use super::{Ask, Said};

/// The `rate_limit` of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// `requests_per_unit`.
    pub requests: u64,
    /// Length of the unit, in seconds.
    pub unit: u64,
}

/// State of a Redis key, whose name ends with the start of the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    start: u64,
    hits: u64,
}

impl Window {
    /// Returns the window for a unit, which is given in nanoseconds.
    pub const fn new(requests: u64, unit: u64) -> Self {
        Self {
            requests,
            unit: unit.div_euclid(1_000_000_000),
        }
    }

    /// Decides whether a request passes, and returns the answer and the next state. The service
    /// increments the counter before it decides, so it also counts refused requests.
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
