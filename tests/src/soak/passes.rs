//! Records when requests arrived at Envoy and passed, for rules whose requests wait.
//!
//! Envoy writes its own time into such a request when it forwards the request to the upstream. So a
//! thread of the soak that has to wait for its processor does not make two passes look closer to
//! each other than they were.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

use super::timeline::At;
use crate::clock;
use crate::wire::Message;

/// Header with the number of a request.
pub const NUMBER: &str = "x-request-number";
/// Header with Envoy's times.
const STAMPS: &str = "x-stamps";

/// Returns a header for the route, into which Envoy writes when a request arrived and when it is
/// forwarded, in microseconds.
pub fn stamps() -> Value {
    let value = "%START_TIME(%s%6f)% %EMIT_TIME(%s%6f)%";
    json!([{ "header": { "key": STAMPS, "value": value } }])
}

/// A request that passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passed {
    /// Time at which the request arrived at Envoy.
    pub came: At,
    /// Time at which Envoy forwarded the request.
    pub went: At,
    /// Time at which the upstream had read the request.
    pub arrived: At,
}

/// Requests that passed, by their numbers.
#[derive(Debug)]
pub struct Passes {
    /// Start of the soak.
    pub start: Instant,
    numbers: AtomicU64,
    passed: Mutex<BTreeMap<u64, Passed>>,
}

impl Default for Passes {
    fn default() -> Self {
        Self {
            start: clock::now(),
            numbers: AtomicU64::new(0),
            passed: Mutex::default(),
        }
    }
}

impl Passes {
    /// Returns a new number for a request.
    pub fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Records a request that has just arrived at the upstream, if it has a number.
    pub(crate) fn see(&self, request: &Message) {
        let (mono, wall) = clock::both();
        let text = |name| std::str::from_utf8(request.header(name)?).ok();
        let number = text(NUMBER).and_then(|number| number.parse().ok());
        let stamps = text(STAMPS).and_then(|stamps| stamps.split_once(' '));
        let (Some(number), Some((came, went))) = (number, stamps) else {
            return;
        };
        let arrived = mono.saturating_duration_since(self.start);
        let passed = Passed {
            came: at(arrived, wall, came),
            went: at(arrived, wall, went),
            arrived: nanos(arrived),
        };
        self.lock().insert(number, passed);
    }

    /// Returns the times of a request if it has passed. Returns them only once.
    pub fn take(&self, number: u64) -> Option<Passed> {
        self.lock().remove(&number)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Passed>> {
        self.passed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the instant of a stamp. `now` and `wall` are one instant: the time since the soak began,
/// and the clock of the stamp.
fn at(now: Duration, wall: SystemTime, stamp: &str) -> At {
    let stamp = Duration::from_micros(stamp.parse().unwrap_or(u64::MAX));
    let age = SystemTime::UNIX_EPOCH.checked_add(stamp);
    let age = age.and_then(|stamped| wall.duration_since(stamped).ok());
    nanos(now.saturating_sub(age.unwrap_or_default()))
}

fn nanos(time: Duration) -> At {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_as_old_as_its_clock_says() {
        let now = Duration::from_secs(10);
        let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
        let at = |stamp: &str| at(now, wall, stamp);
        assert_eq!(at("999750000"), 9_750_000_000);
        assert_eq!(at("1000000001"), 10_000_000_000, "not after its arrival");
        assert_eq!(at("100000000"), 0, "not before the soak");
        assert_eq!(at("-"), 10_000_000_000);
    }
}
