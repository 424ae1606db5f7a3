//! Models a bucket of Envoy's `local_ratelimit`, as implemented by `AtomicTokenBucketImpl` in
//! `source/common/common/token_bucket_impl.cc`.

use loudou_limiter::Nanos;
use loudou_words::num::float;

use super::{Ask, Said};

/// Envoy's `token_bucket`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LocalBucket {
    /// `max_tokens`.
    pub max: f64,
    /// Tokens per second.
    pub rate: f64,
    /// True for the default bucket, which limits all requests and which Envoy checks after the
    /// descriptors' buckets.
    pub is_default: bool,
}

impl LocalBucket {
    /// Returns a bucket with the given `max_tokens`, `tokens_per_fill` and `fill_interval`.
    pub fn new(max: u64, fill: u64, interval: Nanos) -> Self {
        // Envoy refills a bucket with at least one token per year.
        let slowest = 1.0 / (365.0 * 24.0 * 60.0 * 60.0);
        Self {
            max: float(max),
            rate: (float(fill) / seconds(interval)).max(slowest),
            is_default: false,
        }
    }

    /// Decides whether a request passes, and returns the answer and the bucket's next state.
    pub fn ask(&self, filled: Option<Filled>, ask: &Ask) -> (Said, Filled) {
        let cost = float(ask.cost);
        // A new bucket is full. Its tokens are not computed from a time, because rounding could
        // make a full bucket one token short.
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

/// State of a token bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Filled {
    /// Time of the bucket's first request.
    origin: Nanos,
    /// Time from which the tokens accumulate, in seconds after `origin`. Envoy measures time from
    /// the start of the machine. Seconds since the Unix epoch would be about a thousand times less
    /// precise.
    since: f64,
}

fn seconds(time: Nanos) -> f64 {
    float(time.get()) / 1e9
}
