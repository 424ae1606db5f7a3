//! The only clock of the terminal app: the time since it started, monotonic.
//!
//! It paces polls and drawing and says how old data are. Levels and waits are the server's business:
//! they come with the server's own `now_ns`, to which this clock only ever adds an age.

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use loudou_limiter::Nanos;

/// A clock that stands at zero when it is made.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

/// Waits for this time.
pub fn pause(time: Nanos) {
    if time > Nanos::ZERO {
        let (_sender, nothing) = channel::<()>();
        let _timeout = nothing.recv_timeout(Duration::from_nanos(time.get()));
    }
}

impl Clock {
    /// Starts a clock.
    #[expect(clippy::disallowed_methods, reason = "this is the one clock module")]
    pub fn start() -> Self {
        Self {
            origin: Instant::now(),
        }
    }

    /// A clock that stays at zero: its start is far ahead.
    #[cfg(any(test, feature = "fake"))]
    pub fn standing() -> Self {
        let Self { origin } = Self::start();
        Self {
            origin: origin + Duration::from_secs(1_000_000),
        }
    }

    /// The time since the start.
    pub fn now(&self) -> Nanos {
        Nanos::new(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}
