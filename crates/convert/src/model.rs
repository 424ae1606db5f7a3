//! The rate limiting algorithms of the sources, reimplemented from the sources' code.
//!
//! The models do not use Loudou's limit algorithms, so that the two can be compared. A model is a
//! function that maps a counter and a request to an answer and the next counter. The caller decides
//! whether to keep the next counter, because the sources differ: after a refused request, nginx
//! keeps the old counter, and a rate limit service keeps the new one.

use std::cmp::Ordering;

use loudou_limiter::Nanos;

pub mod envoy;
pub mod kong;
pub mod nginx;
pub mod redis_cell;
pub mod service;
pub mod spring;

/// A request, as input for a model.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// Arrival time of the request, since the Unix epoch or since the start of a trace.
    pub now: Nanos,
    /// Number of requests or tokens that the request takes.
    pub cost: u64,
    /// End time of the request, if it is known.
    pub end: Option<Nanos>,
}

/// Answer of a source to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// The request passes immediately.
    Pass,
    /// The request passes after this delay.
    Delay(Nanos),
    /// The request is refused.
    Refuse,
    /// The answer is unknown, because the log lacks the durations of requests.
    Unknown,
}

/// One limit of a source, with its parameters.
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
    /// Kong's plugin `rate-limiting`.
    Plugin(kong::Plugin),
}

/// A source's counter for one key.
#[derive(Clone, Debug)]
pub enum Counter {
    /// Excess of nginx's `limit_req`.
    Excess(nginx::Excess),
    /// The requests in flight, for nginx's `limit_conn`.
    Running(nginx::Running),
    /// State of an Envoy token bucket.
    Filled(envoy::Filled),
    /// A fixed window of a rate limit service, with its hits.
    Hits(service::Hits),
    /// Theoretical arrival time in redis-cell, in nanoseconds.
    Arrival(i64),
    /// State of a token bucket in Spring's script.
    Tokens(spring::Tokens),
    /// Kong's counters for all periods.
    Usage(kong::Usage),
}

/// Effect of a request on a counter, which applies if the source keeps it.
#[derive(Clone, Debug)]
pub enum Next {
    /// The new counter replaces the old one.
    Counter(Counter),
    /// The request is in flight until this time. `None` if the end time is unknown.
    Runs(Option<Nanos>),
}

impl Next {
    /// Returns the counter with this effect applied.
    pub fn keep(self, counter: Option<Counter>) -> Counter {
        match (self, counter) {
            (Self::Counter(next), _) => next,
            (Self::Runs(end), Some(Counter::Running(mut running))) => {
                running.add(end);
                Counter::Running(running)
            }
            (Self::Runs(end), _) => {
                let mut running = nginx::Running::default();
                running.add(end);
                Counter::Running(running)
            }
        }
    }
}

impl Model {
    /// Decides whether a request passes, and returns the answer and the effect on the counter.
    /// `counter` is `None` for a new key. For a [`nginx::Running`] counter, the caller must first
    /// forget the requests that have ended.
    pub fn ask(&self, counter: Option<&Counter>, ask: &Ask) -> (Said, Next) {
        let (said, next) = match self {
            Self::LimitReq(limit) => {
                let known = match counter {
                    Some(Counter::Excess(excess)) => Some(*excess),
                    _ => None,
                };
                let (said, next) = limit.ask(known, ask);
                (said, Counter::Excess(next))
            }
            Self::LimitConn(limit) => {
                let known = match counter {
                    Some(Counter::Running(running)) => Some(running),
                    _ => None,
                };
                return (limit.ask(known), Next::Runs(ask.end));
            }
            Self::LocalBucket(bucket) => {
                let known = match counter {
                    Some(Counter::Filled(filled)) => Some(*filled),
                    _ => None,
                };
                let (said, next) = bucket.ask(known, ask);
                (said, Counter::Filled(next))
            }
            Self::Window(window) => {
                let known = match counter {
                    Some(Counter::Hits(hits)) => *hits,
                    _ => service::Hits::default(),
                };
                let (said, next) = window.ask(known, ask);
                (said, Counter::Hits(next))
            }
            Self::Throttle(throttle) => {
                let known = match counter {
                    Some(Counter::Arrival(arrival)) => Some(*arrival),
                    _ => None,
                };
                let (said, next) = throttle.ask(known, ask);
                (said, Counter::Arrival(next))
            }
            Self::Limiter(limiter) => {
                let known = match counter {
                    Some(Counter::Tokens(tokens)) => Some(*tokens),
                    _ => None,
                };
                let (said, next) = limiter.ask(known, ask);
                (said, Counter::Tokens(next))
            }
            Self::Plugin(plugin) => {
                let known = match counter {
                    Some(Counter::Usage(usage)) => Some(usage),
                    _ => None,
                };
                let (said, next) = plugin.ask(known, ask);
                (said, Counter::Usage(next))
            }
        };
        (said, Next::Counter(next))
    }

    /// Compares two limits by the order in which Envoy checks its buckets.
    pub(crate) fn order(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::LocalBucket(one), Self::LocalBucket(other)) => {
                let is_default = one.is_default.cmp(&other.is_default);
                is_default.then(one.rate.total_cmp(&other.rate))
            }
            _ => Ordering::Equal,
        }
    }

    /// Returns a sentence that explains how the arithmetic of this source differs from Loudou's.
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
            Self::Plugin(plugin) if plugin.counts_refused && plugin.limits.len() > 1 => {
                "Kong counts a request that one period refuses in the other periods, and the rule takes nothing for a refused request"
            }
            Self::Plugin(_) => {
                "Kong forgets the count of a month after 30 days, and the count of a year after 365 days"
            }
        }
    }
}
