//! Models nginx's `limit_req` and `limit_conn`.
//!
//! `limit_req` follows `ngx_http_limit_req_lookup` and `ngx_http_limit_req_account` in
//! `src/http/modules/ngx_http_limit_req_module.c`. `limit_conn` follows
//! `ngx_http_limit_conn_handler` in `src/http/modules/ngx_http_limit_conn_module.c`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use loudou_limiter::Nanos;

use super::{Ask, Said};

/// Nanoseconds per millisecond.
const MILLI: u64 = 1_000_000;

/// A `limit_req` directive, which uses a zone. All numbers are in thousandths of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitReq {
    /// `rate` of the zone, per second.
    pub rate: i64,
    /// `burst`.
    pub burst: i64,
    /// `delay`, which is at least `burst` with `nodelay`.
    pub delay: i64,
}

/// The fields of nginx's `ngx_http_limit_req_node_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Excess {
    /// Excess over the rate, in thousandths of a request.
    pub excess: i64,
    /// Time of the last update, in milliseconds.
    pub last: i64,
}

impl LimitReq {
    /// Returns a limit with `rate` in thousandths of a request per second, and `burst` and `delay`
    /// in requests.
    pub fn new(rate: u64, burst: u64, delay: u64) -> Self {
        let thousandths = |number: u64| signed(number.saturating_mul(1_000));
        Self {
            rate: signed(rate),
            burst: thousandths(burst),
            delay: thousandths(delay),
        }
    }

    /// Decides whether a request passes.
    pub fn ask(&self, counter: Option<Excess>, ask: &Ask) -> (Said, Excess) {
        let now = signed(ask.now.get().div_euclid(MILLI));
        let excess = match counter {
            None => 0,
            Some(Excess { excess, last }) => {
                // If the time goes back by more than a minute, nginx assumes that its clock has
                // overflowed.
                let ms = match now.saturating_sub(last) {
                    ms if ms < -60_000 => 1,
                    ms => ms.max(0),
                };
                let passed = self.rate.saturating_mul(ms).div_euclid(1_000);
                let excess = excess.saturating_sub(passed).saturating_add(1_000);
                excess.max(0)
            }
        };
        let next = Excess { excess, last: now };
        if excess > self.burst {
            return (Said::Refuse, next);
        }
        let beyond = excess.saturating_sub(self.delay).max(0);
        let wait = beyond.saturating_mul(1_000).checked_div(self.rate);
        let wait = u64::try_from(wait.unwrap_or(0)).unwrap_or(0);
        if wait == 0 {
            return (Said::Pass, next);
        }
        let wait = Nanos::new(wait.saturating_mul(MILLI));
        (Said::Delay(wait), next)
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A `limit_conn` directive, which uses a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitConn {
    /// Maximum number of concurrent requests.
    pub most: u64,
}

impl LimitConn {
    /// Decides whether a request passes.
    pub fn ask(&self, running: Option<&Running>) -> Said {
        let (known, unknown) = running.map_or((0, 0), |running| {
            (number(running.ends.len()), running.unknown)
        });
        if known >= self.most {
            Said::Refuse
        } else if known.saturating_add(unknown) >= self.most {
            // Some of the requests without a known end may already have ended.
            Said::Unknown
        } else {
            Said::Pass
        }
    }
}

/// Requests of a key that are in flight.
#[derive(Clone, Debug, Default)]
pub struct Running {
    /// Known end times, earliest first.
    ends: BinaryHeap<Reverse<Nanos>>,
    /// Number of requests without a known end time.
    unknown: u64,
}

impl Running {
    /// Removes the requests that have ended by `now`, and returns their number.
    pub fn forget(&mut self, now: Nanos) -> usize {
        let before = self.ends.len();
        while self.ends.peek().is_some_and(|Reverse(end)| *end <= now) {
            self.ends.pop();
        }
        before.saturating_sub(self.ends.len())
    }

    /// Adds a request that runs until `end`.
    pub(super) fn add(&mut self, end: Option<Nanos>) {
        match end {
            Some(end) => self.ends.push(Reverse(end)),
            None => self.unknown = self.unknown.saturating_add(1),
        }
    }
}

fn number(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
