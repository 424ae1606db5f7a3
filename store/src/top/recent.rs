//! Recent counts: the current half and the previous one, as flushed by all workers.

use alloc::vec::Vec;

use loudou_limiter::Nanos;

use super::shared::{self, Shared};
use super::{By, COUNTERS, HALF, Summary};
use crate::shared_data::{SharedData, StoreFailed};

/// Recent counts.
#[derive(Clone, Debug)]
pub struct Recent {
    /// The start of the covered time, within [`super::FLUSH_AFTER`].
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
