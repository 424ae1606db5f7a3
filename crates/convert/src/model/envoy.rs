//! A bucket of Envoy's `local_ratelimit`: `AtomicTokenBucketImpl` in
//! `source/common/common/token_bucket_impl.cc`.

use loudou_limiter::Nanos;
use loudou_words::num::float;

use super::{Ask, Said};

/// A `token_bucket`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LocalBucket {
    /// `max_tokens`.
    pub max: f64,
    /// Tokens per second.
    pub rate: f64,
    /// True for the bucket of all requests, which Envoy asks after the descriptors.
    pub is_default: bool,
}

impl LocalBucket {
    /// Returns a bucket with `max_tokens`, `tokens_per_fill` and `fill_interval`.
    pub fn new(max: u64, fill: u64, interval: Nanos) -> Self {
        // Envoy does not fill slower than a token per year.
        let slowest = 1.0 / (365.0 * 24.0 * 60.0 * 60.0);
        Self {
            max: float(max),
            rate: (float(fill) / seconds(interval)).max(slowest),
            is_default: false,
        }
    }

    /// Answers a request.
    pub fn ask(&self, filled: Option<Filled>, ask: &Ask) -> (Said, Filled) {
        let cost = float(ask.cost);
        // The bucket begins full. Computed from a time, a full bucket could have a token less.
        let Filled { origin, since } = filled.unwrap_or(Filled {
            origin: ask.now,
            since: 0.0 - self.max / self.rate,
        });
        let now = seconds(ask.now.since(origin));
        let total = match filled {
            Some(_) => self.max.min((now - since) * self.rate).max(0.0),
            None => self.max,
        };
        if total.floor() < cost {
            return (Said::Refuse, Filled { origin, since });
        }
        let since = now - (total - cost) / self.rate;
        (Said::Pass, Filled { origin, since })
    }
}

/// Tokens of a bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Filled {
    /// Time of the first request.
    origin: Nanos,
    /// Seconds after `origin` from which the tokens are counted. Envoy counts from the start of the
    /// machine. Seconds since the Unix epoch would be a thousand times less precise.
    since: f64,
}

fn seconds(time: Nanos) -> f64 {
    float(time.get()) / 1e9
}
