//! The algorithms of the sources, written from the sources' own code.
//!
//! A model takes nothing from Loudou's limits, so that both can be compared. It is a function from a
//! counter and a request to an answer and the next counter. The caller decides whether the next
//! counter is kept, because the sources differ in it: nginx keeps nothing of a refused request, and
//! a rate limit service keeps everything.

use std::cmp::Ordering;

use loudou_limiter::Nanos;

pub mod envoy;
pub mod nginx;
pub mod redis_cell;
pub mod service;
pub mod spring;

/// A request, as the models read it.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// Its time since the Unix epoch, or since the start of a trace.
    pub now: Nanos,
    /// Number of requests or tokens that it takes.
    pub cost: u64,
    /// Its end, if it is known.
    pub end: Option<Nanos>,
}

/// An answer of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// The request passes at once.
    Pass,
    /// The request passes after this time.
    Delay(Nanos),
    /// The request is refused.
    Refuse,
}

/// One limit of a source, with its numbers.
#[derive(Clone, Debug, PartialEq)]
pub enum Model {
    /// nginx's `limit_req`.
    LimitReq(nginx::LimitReq),
    /// nginx's `limit_conn`.
    LimitConn(nginx::LimitConn),
    /// A bucket of Envoy's `local_ratelimit`.
    LocalBucket(envoy::LocalBucket),
    /// A descriptor of Envoy's rate limit service.
    Window(service::Window),
    /// `CL.THROTTLE` of redis-cell.
    Throttle(redis_cell::Throttle),
    /// `RequestRateLimiter` of Spring Cloud Gateway.
    Limiter(spring::Limiter),
}

/// The counter of a key in a source.
#[derive(Clone, Debug, PartialEq)]
pub enum Counter {
    /// nginx's excess.
    Excess(nginx::Excess),
    /// Ends of the running requests.
    Running(Vec<Nanos>),
    /// Time from which Envoy counts tokens, in seconds.
    Since(f64),
    /// A window with its hits.
    Hits(service::Hits),
    /// Theoretical arrival time of redis-cell, in nanoseconds.
    Arrival(i64),
    /// Tokens of Spring's script.
    Tokens(spring::Tokens),
}

impl Model {
    /// Answers a request, and returns the next counter. A key without a counter is new.
    pub fn ask(&self, counter: Option<&Counter>, ask: &Ask) -> (Said, Counter) {
        match (self, counter) {
            (Self::LimitReq(limit), Some(Counter::Excess(excess))) => {
                let (said, next) = limit.ask(Some(*excess), ask);
                (said, Counter::Excess(next))
            }
            (Self::LimitReq(limit), _) => {
                let (said, next) = limit.ask(None, ask);
                (said, Counter::Excess(next))
            }
            (Self::LimitConn(limit), Some(Counter::Running(running))) => {
                let (said, next) = limit.ask(running, ask);
                (said, Counter::Running(next))
            }
            (Self::LimitConn(limit), _) => {
                let (said, next) = limit.ask(&[], ask);
                (said, Counter::Running(next))
            }
            (Self::LocalBucket(bucket), Some(Counter::Since(since))) => {
                let (said, next) = bucket.ask(Some(*since), ask);
                (said, Counter::Since(next))
            }
            (Self::LocalBucket(bucket), _) => {
                let (said, next) = bucket.ask(None, ask);
                (said, Counter::Since(next))
            }
            (Self::Window(window), Some(Counter::Hits(hits))) => {
                let (said, next) = window.ask(*hits, ask);
                (said, Counter::Hits(next))
            }
            (Self::Window(window), _) => {
                let (said, next) = window.ask(service::Hits::default(), ask);
                (said, Counter::Hits(next))
            }
            (Self::Throttle(throttle), Some(Counter::Arrival(arrival))) => {
                let (said, next) = throttle.ask(Some(*arrival), ask);
                (said, Counter::Arrival(next))
            }
            (Self::Throttle(throttle), _) => {
                let (said, next) = throttle.ask(None, ask);
                (said, Counter::Arrival(next))
            }
            (Self::Limiter(limiter), Some(Counter::Tokens(tokens))) => {
                let (said, next) = limiter.ask(Some(*tokens), ask);
                (said, Counter::Tokens(next))
            }
            (Self::Limiter(limiter), _) => {
                let (said, next) = limiter.ask(None, ask);
                (said, Counter::Tokens(next))
            }
        }
    }

    /// Returns the order in which Envoy asks two of its buckets.
    pub(crate) fn order(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::LocalBucket(one), Self::LocalBucket(other)) => {
                let is_default = one.is_default.cmp(&other.is_default);
                is_default.then(one.rate.total_cmp(&other.rate))
            }
            _ => Ordering::Equal,
        }
    }

    /// Returns the difference between the numbers of this source and Loudou's, as a sentence.
    pub const fn rounding(&self) -> &'static str {
        match self {
            Self::LimitReq(_) => {
                "nginx counts in whole milliseconds and in thousandths of a request, and drops the rest"
            }
            Self::LimitConn(_) => {
                "nginx counts a request to its end, and the rule for at most its lease"
            }
            Self::LocalBucket(_) => "Envoy counts its tokens in floating-point seconds",
            Self::Window(_) => {
                "the service also counts what it refuses, and the rule takes nothing for a refused request"
            }
            Self::Throttle(_) => {
                "redis-cell rounds the time of one request down to whole nanoseconds"
            }
            Self::Limiter(limiter) if limiter.forgets() => {
                "Spring's script keeps nothing, because twice the time to fill the bucket is below a second, so it limits nothing"
            }
            Self::Limiter(_) => "Spring's script counts in whole seconds",
        }
    }
}
