//! The terminal app's only clock. It measures monotonic time since the app started. Only `check`
//! reads the wall clock, to determine the dates of calendar windows.
//!
//! The monotonic clock is used to pace polling and drawing, and to measure the age of data. Levels
//! and waiting times are computed using the server's clock: the `now_ns` of the last response plus
//! the age of that response.

use std::sync::mpsc::channel;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use loudou_limiter::Nanos;

/// A clock that starts at zero when it is created.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

/// Blocks the current thread for the given duration.
pub fn pause(time: Nanos) {
    if time > Nanos::ZERO {
        let (_sender, nothing) = channel::<()>();
        let _timeout = nothing.recv_timeout(Duration::from_nanos(time.get()));
    }
}

/// Returns the wall-clock time since the Unix epoch. Returns zero if the system clock is set to a
/// date before 1970.
#[expect(clippy::disallowed_methods, reason = "this is the one clock module")]
pub fn wall() -> Nanos {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let since = since.unwrap_or_default().as_nanos();
    Nanos::new(u64::try_from(since).unwrap_or(u64::MAX))
}

impl Clock {
    /// Starts a clock.
    #[expect(clippy::disallowed_methods, reason = "this is the one clock module")]
    pub fn start() -> Self {
        Self {
            origin: Instant::now(),
        }
    }

    /// Creates a clock that always reads zero, because its start time is far in the future.
    #[cfg(any(test, feature = "fake"))]
    pub fn standing() -> Self {
        let Self { origin } = Self::start();
        Self {
            origin: origin + Duration::from_secs(1_000_000),
        }
    }

    /// Returns the time elapsed since the clock was started.
    pub fn now(&self) -> Nanos {
        Nanos::new(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}
