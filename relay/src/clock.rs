//! The relay's only wall clock: times in logs. Limits go by the clock of the engine.

use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since the Unix epoch.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the clock module of the crate"
)]
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}
