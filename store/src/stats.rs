//! Counters of the store: evictions, conflicts, and what was lost.

use crate::page::Evicted;

/// What happened besides the decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Slots that came into use.
    pub created: u64,
    /// Idle buckets that made room.
    pub evicted_lossless: u64,
    /// Buckets that made room with something taken.
    pub evicted_lossy: u64,
    /// Conflicts that were tried again.
    pub cas_retries: u64,
    /// Decisions given up.
    pub cas_give_ups: u64,
    /// Refusals that were not counted in their bucket.
    pub lost_counts: u64,
    /// Costs that could not be given back: they stay taken until they expire.
    pub lost_returns: u64,
    /// Responses that were not counted for their upstream.
    pub lost_responses: u64,
}

impl StoreStats {
    /// A slot came into use, by making that room.
    pub(crate) const fn count_new(&mut self, evicted: Evicted) {
        let counter = match evicted {
            Evicted::Nothing => &mut self.created,
            Evicted::Lossless => &mut self.evicted_lossless,
            Evicted::Lossy => &mut self.evicted_lossy,
        };
        *counter = counter.saturating_add(1);
    }
}
