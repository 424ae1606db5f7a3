//! The only clock of the terminal app. It measures the monotonic time since the app started. Only
//! `check` reads the wall clock, for the dates of calendar windows.
//!
//! The monotonic clock paces polls and drawing, and measures the age of data. Levels and waits are
//! computed with the server's clock: the `now_ns` of the last answer plus the age of that answer.

use std::sync::mpsc::channel;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use loudou_limiter::Nanos;

/// A clock that starts at zero when it is created.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

/// Blocks the thread for this duration.
pub fn pause(time: Nanos) {
    if time > Nanos::ZERO {
        let (_sender, nothing) = channel::<()>();
        let _timeout = nothing.recv_timeout(Duration::from_nanos(time.get()));
    }
}

/// Returns the time of the wall clock, since the Unix epoch. Returns zero if the clock is set to a
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

    /// Creates a clock that always reads zero, because its start is far in the future.
    #[cfg(any(test, feature = "fake"))]
    pub fn standing() -> Self {
        let Self { origin } = Self::start();
        Self {
            origin: origin + Duration::from_secs(1_000_000),
        }
    }

    /// Returns the time since the start.
    pub fn now(&self) -> Nanos {
        Nanos::new(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}
