//! Heavy hitters: the keys that were refused most, and admitted most, in recent time and bounded memory.
//!
//! [`summary`] has the counters, [`tally`] the counts of one worker and of all workers,
//! and [`recent()`] reads them.

use alloc::vec::Vec;

use loudou_limiter::Nanos;
use serde::{Deserialize, Serialize};
pub use shared::bytes as shared_bytes;
pub use summary::{Entry, Summary};
pub use tally::Tally;

use crate::shared_data::{SharedData, StoreFailed};
use crate::top::shared::Shared;

mod shared;
pub mod summary;
pub mod tally;

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

/// Recent counts.
#[derive(Clone, Debug)]
pub struct Recent {
    /// The start of the covered time, within [`crate::top::FLUSH_AFTER`].
    pub since: Nanos,
    /// The counts.
    pub counts: Summary,
}

/// The recent counts of `namespace`.
pub fn recent(
    store: &mut dyn SharedData,
    namespace: &str,
    by: By,
    now: Nanos,
) -> Result<Recent, StoreFailed> {
    let mut bytes = Vec::new();
    store.get(&shared::key(namespace), &mut bytes)?;
    let shared = Shared::read(&bytes).unwrap_or_default();
    // Another worker may have begun a half that this worker's clock has not reached yet.
    let shared = shared.at(shared::half(now));
    let before = shared.half.saturating_sub(1);
    // Room for all keys of both halves, so none is dropped.
    let mut counts = Summary::new(COUNTERS.saturating_mul(2));
    let mut halves = Vec::from([shared.half]);
    if before != shared.half {
        halves.push(before);
    }
    for half in halves {
        if let Some(part) = Summary::decode(shared.part(half, by), COUNTERS) {
            counts.merge(&part);
        }
    }
    Ok(Recent {
        since: Nanos::new(before.saturating_mul(HALF.get())),
        counts,
    })
}
