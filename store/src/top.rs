//! Heavy hitters: which keys were refused most, and admitted most, in recent time and bounded memory.
//!
//! [`summary`] holds the counters, [`tally`] is what a worker counts in and what all of them share,
//! [`recent()`] is what can be read of it.

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

/// How many keys have a counter, in each half of the time that is covered, for each [`By`].
pub const COUNTERS: usize = 256;
/// How long what a worker counted stays with it.
pub const FLUSH_AFTER: Nanos = Nanos::from_millis(250);
/// Counts cover the half that is under way and the whole one before it.
pub const HALF: Nanos = Nanos::from_secs(60);

/// What is counted of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// Requests refused; those that a rule in shadow mode would have refused, too.
    #[default]
    Refused,
    /// Requests admitted, at once or after a wait.
    Admitted,
}

impl By {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Refused, Self::Admitted];
    /// Their names in requests and answers.
    pub const NAMES: [&'static str; 2] = ["refused", "admitted"];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Admitted => "admitted",
        }
    }

    /// The one of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|by| by.name() == name)
    }
}
