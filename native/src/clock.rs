//! Reads the system's clocks.
#![expect(
    clippy::disallowed_methods,
    reason = "this is the clock module of the crate"
)]

use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use loudou_limiter::Nanos;
use rustix::time::{ClockId, clock_gettime};

/// Returns the system's monotonic time. All processes on the machine share this clock, so they can
/// compare its times.
pub(crate) fn now() -> Nanos {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
    Nanos::new(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

/// Returns the wall-clock time since the Unix epoch.
pub(crate) fn unix() -> Nanos {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let nanos = since.map_or(0, |since| since.as_nanos());
    Nanos::new(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Returns the monotonic time as an [`Instant`], which the standard library's timed waits are based
/// on.
pub(crate) fn instant() -> Instant {
    Instant::now()
}

/// Suspends the current thread.
pub(crate) fn sleep(time: Duration) {
    thread::sleep(time);
}
