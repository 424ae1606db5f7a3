//! `limit_req` and `limit_conn` of nginx.
//!
//! The first is `ngx_http_limit_req_lookup` and `ngx_http_limit_req_account` in
//! `src/http/modules/ngx_http_limit_req_module.c`, the second `ngx_http_limit_conn_handler` in
//! `src/http/modules/ngx_http_limit_conn_module.c`.

use loudou_limiter::Nanos;

use super::{Ask, Said};

/// Nanoseconds of a millisecond.
const MILLI: u64 = 1_000_000;

/// Use of a zone by a `limit_req`. All numbers are in thousandths of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitReq {
    /// `rate`, per second.
    pub rate: i64,
    /// `burst`.
    pub burst: i64,
    /// `delay`. With `nodelay`, it is at least `burst`.
    pub delay: i64,
}

/// The fields of nginx's `ngx_http_limit_req_node_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Excess {
    /// Thousandths of a request beyond the rate.
    pub excess: i64,
    /// Time of the last change, in milliseconds.
    pub last: i64,
}

impl LimitReq {
    /// Returns the use of a zone with this rate, for whole numbers of requests.
    pub fn new(rate: u64, burst: u64, delay: u64) -> Self {
        let thousandths = |number: u64| signed(number.saturating_mul(1_000));
        Self {
            rate: signed(rate),
            burst: thousandths(burst),
            delay: thousandths(delay),
        }
    }

    /// Answers a request.
    pub fn ask(&self, counter: Option<Excess>, ask: &Ask) -> (Said, Excess) {
        let now = signed(ask.now.get().div_euclid(MILLI));
        let excess = match counter {
            None => 0,
            Some(Excess { excess, last }) => {
                // nginx takes a step back of more than a minute for an overflow of its clock.
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

/// Use of a zone by a `limit_conn`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitConn {
    /// Maximum number of requests that run at once.
    pub most: u64,
}

impl LimitConn {
    /// Answers a request. A request without a known end ends at once.
    pub fn ask(&self, running: &[Nanos], ask: &Ask) -> (Said, Vec<Nanos>) {
        let still = running.iter().copied().filter(|end| *end > ask.now);
        let mut running: Vec<Nanos> = still.collect();
        if u64::try_from(running.len()).unwrap_or(u64::MAX) >= self.most {
            return (Said::Refuse, running);
        }
        running.extend(ask.end);
        (Said::Pass, running)
    }
}
