//! The algorithms of the sources, written from the sources' own code.
//!
//! A model takes nothing from Loudou's limits, so that both can be compared. It is a function from a
//! counter and a request to an answer and the next counter. The caller decides whether the next
//! counter is kept, because the sources differ in it: nginx keeps nothing of a refused request, and
//! a rate limit service keeps everything.

use std::cmp::Ordering;

use loudou_limiter::Nanos;

pub mod envoy;
pub mod kong;
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
    /// The log lacks durations, without which the answer is not known.
    Unknown,
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
    /// Kong's plugin `rate-limiting`.
    Plugin(kong::Plugin),
}

/// The counter of a key in a source.
#[derive(Clone, Debug)]
pub enum Counter {
    /// nginx's excess.
    Excess(nginx::Excess),
    /// The running requests.
    Running(nginx::Running),
    /// Tokens of Envoy.
    Filled(envoy::Filled),
    /// A window with its hits.
    Hits(service::Hits),
    /// Theoretical arrival time of redis-cell, in nanoseconds.
    Arrival(i64),
    /// Tokens of Spring's script.
    Tokens(spring::Tokens),
    /// Kong's counters of all periods.
    Usage(kong::Usage),
}

/// Effect of a request on a counter, if the source keeps it.
#[derive(Clone, Debug)]
pub enum Next {
    /// This counter replaces the counter.
    Counter(Counter),
    /// The request runs until this time. `None` if its end is not known.
    Runs(Option<Nanos>),
}

impl Next {
    /// Returns the counter after this effect.
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
    /// Answers a request, and returns its effect on the counter. A key without a counter is new. A
    /// [`nginx::Running`] has to forget the requests that ended before.
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
            Self::Plugin(plugin) if plugin.counts_refused && plugin.limits.len() > 1 => {
                "Kong counts a request that one period refuses in the other periods, and the rule takes nothing for a refused request"
            }
            Self::Plugin(_) => {
                "Kong forgets the count of a month after 30 days, and the count of a year after 365 days"
            }
        }
    }
}
