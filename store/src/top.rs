//! Heavy hitters: the keys that were refused most, and admitted most, in recent time and bounded memory.
//!
//! [`summary`] has the counters, [`tally`] the counts of one worker and of all workers,
//! and [`recent()`] reads them.

use loudou_limiter::Nanos;
use serde::{Deserialize, Serialize};

pub mod recent;
mod shared;
pub mod summary;
pub mod tally;

pub use recent::{Recent, recent};
pub use shared::bytes as shared_bytes;
pub use summary::{Entry, Summary};
pub use tally::Tally;

/// The number of keys with a counter, in each half of the covered time, for each [`By`].
pub const COUNTERS: usize = 256;
/// The maximum time for which counts stay in a worker.
pub const FLUSH_AFTER: Nanos = Nanos::from_millis(250);
/// The length of a half. Counts cover the current half and the whole previous one.
pub const HALF: Nanos = Nanos::from_secs(60);

/// The kinds of counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// Refused requests, including those that a rule in shadow mode would have refused.
    #[default]
    Refused,
    /// Admitted requests, at once or after a wait.
    Admitted,
}

impl By {
    /// All kinds.
    pub const ALL: [Self; 2] = [Self::Refused, Self::Admitted];
    /// The names in requests and responses.
    pub const NAMES: [&'static str; 2] = ["refused", "admitted"];

    /// The name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Admitted => "admitted",
        }
    }

    /// The kind of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|by| by.name() == name)
    }
}
