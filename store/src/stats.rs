//! Counters of the store: evictions, conflicts, and losses.

use crate::page::Evicted;

/// The side effects of decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Slots that were newly used.
    pub created: u64,
    /// Idle buckets that were evicted.
    pub evicted_lossless: u64,
    /// Evicted buckets with used capacity.
    pub evicted_lossy: u64,
    /// Retries after conflicts.
    pub cas_retries: u64,
    /// Decisions given up.
    pub cas_give_ups: u64,
    /// Refusals that could not be counted in their bucket.
    pub lost_counts: u64,
    /// Costs that could not be given back: they stay taken until they expire.
    pub lost_returns: u64,
    /// Responses that could not be counted for their upstream.
    pub lost_responses: u64,
}

impl StoreStats {
    /// Counts a newly used slot, and the eviction for it.
    pub(crate) const fn count_new(&mut self, evicted: Evicted) {
        let counter = match evicted {
            Evicted::Nothing => &mut self.created,
            Evicted::Lossless => &mut self.evicted_lossless,
            Evicted::Lossy => &mut self.evicted_lossy,
        };
        *counter = counter.saturating_add(1);
    }
}
