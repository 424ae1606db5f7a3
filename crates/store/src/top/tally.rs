//! The counts of one worker, until it adds them to those of all workers.
//!
//! Counting only touches the worker's own memory. Its counts are flushed into the shared value when they
//! are [`FLUSH_AFTER`] old, so they are never older than that, and are added to the half in which
//! the oldest of them was counted.

use alloc::vec::Vec;

use loudou_limiter::Nanos;

use super::shared::{self, Shared};
use super::{By, COUNTERS, FLUSH_AFTER, Summary};
use crate::shared_data::SharedData;
use crate::swap::{Swapped, swap};

/// The counts of a worker.
#[derive(Clone, Debug)]
pub struct Tally {
    /// The key of the shared value.
    key: Vec<u8>,
    /// By [`By`].
    refused: Summary,
    admitted: Summary,
    /// The half that the counts belong to.
    half: u64,
    /// The time of the next flush, if there are counts.
    due: Option<Nanos>,
}

impl Tally {
    /// An empty tally for `namespace`.
    pub fn new(namespace: &str) -> Self {
        Self {
            key: shared::key(namespace),
            refused: Summary::new(COUNTERS),
            admitted: Summary::new(COUNTERS),
            half: 0,
            due: None,
        }
    }

    /// Counts a request of a key, whose hash in the table of buckets is `fingerprint`.
    pub fn count(&mut self, by: By, rule_tag: u32, fingerprint: u64, key: &str, now: Nanos) {
        if self.due.is_none() {
            self.start(now);
        }
        let summary = match by {
            By::Refused => &mut self.refused,
            By::Admitted => &mut self.admitted,
        };
        summary.add(rule_tag, fingerprint, key, 1);
    }

    fn start(&mut self, now: Nanos) {
        self.half = shared::half(now);
        self.due = Some(now.saturating_add(FLUSH_AFTER));
    }

    /// When it has to be flushed, if there is anything to flush.
    pub const fn due(&self) -> Option<Nanos> {
        self.due
    }

    /// Adds the counts to the shared value if that is due. Counts that cannot be written are kept, and
    /// retried as if they had been counted now.
    pub fn flush(&mut self, store: &mut dyn SharedData, now: Nanos) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        let flushed = swap(store, &self.key, &mut |bytes| {
            Some(self.added_to(bytes.unwrap_or_default()))
        });
        if flushed == Ok(Swapped::Done) {
            self.refused.clear();
            self.admitted.clear();
            self.due = None;
        } else {
            self.start(now);
        }
    }

    /// The shared value with this worker's counts added.
    fn added_to(&self, bytes: &[u8]) -> Vec<u8> {
        let mut shared = Shared::read(bytes).unwrap_or_default().at(self.half);
        let part =
            |by, own: &Summary| (!own.is_empty()).then(|| merged(shared.part(self.half, by), own));
        let refused = part(By::Refused, &self.refused);
        let admitted = part(By::Admitted, &self.admitted);
        shared.put(self.half, [refused.as_deref(), admitted.as_deref()]);
        let mut out = Vec::new();
        shared.write(&mut out);
        out
    }
}

/// A part with `own` added.
fn merged(part: &[u8], own: &Summary) -> Vec<u8> {
    let found = Summary::decode(part, COUNTERS);
    let mut all = found.unwrap_or_else(|| Summary::new(COUNTERS));
    all.merge(own);
    let mut out = Vec::new();
    all.encode(&mut out);
    out
}
