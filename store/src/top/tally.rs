//! What one worker counts, until it adds it to what all have counted.
//!
//! Counting touches the worker's own memory alone. What it counted is flushed into the shared value when
//! it is [`FLUSH_AFTER`] old, so counts are never older than that, and are put to the half in which
//! the oldest of them was counted.

use alloc::vec::Vec;

use loudou_limiter::Nanos;

use super::shared::{self, Shared};
use super::{By, COUNTERS, FLUSH_AFTER, Summary};
use crate::shared_data::{CAS_ABSENT, SharedData, StoreFailed, Written};

/// How often a flush is tried again at once.
const MAX_RETRIES: u32 = 8;

/// What a worker has counted.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Where the shared value is.
    key: Vec<u8>,
    /// By [`By`].
    refused: Summary,
    admitted: Summary,
    /// The half it belongs to.
    half: u64,
    /// When it has to be flushed, if there is anything.
    due: Option<Nanos>,
}

impl Tally {
    /// Nothing counted for `share`.
    pub fn new(share: &str) -> Self {
        Self {
            key: shared::key(share),
            refused: Summary::new(COUNTERS),
            admitted: Summary::new(COUNTERS),
            half: 0,
            due: None,
        }
    }

    /// Counts a request of a key, whose number in the table of buckets is `fingerprint`.
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

    /// Adds what was counted to the shared value if that is due. What cannot be written is kept, and
    /// tried again as if it had been counted now.
    pub fn flush(&mut self, store: &mut dyn SharedData, now: Nanos) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        for _ in 0..=MAX_RETRIES {
            match self.try_flush(store) {
                Ok(Written::Done) => {
                    self.refused.clear();
                    self.admitted.clear();
                    self.due = None;
                    return;
                }
                Ok(Written::Conflict) => {}
                Err(StoreFailed) => break,
            }
        }
        self.start(now);
    }

    fn try_flush(&self, store: &mut dyn SharedData) -> Result<Written, StoreFailed> {
        let mut bytes = Vec::new();
        let cas = store.get(&self.key, &mut bytes)?;
        let mut shared = Shared::read(&bytes).unwrap_or_default().at(self.half);
        let part =
            |by, own: &Summary| (!own.is_empty()).then(|| merged(shared.part(self.half, by), own));
        let refused = part(By::Refused, &self.refused);
        let admitted = part(By::Admitted, &self.admitted);
        shared.put(self.half, [refused.as_deref(), admitted.as_deref()]);
        let mut out = Vec::new();
        shared.write(&mut out);
        store.set(&self.key, &out, cas.unwrap_or(CAS_ABSENT))
    }
}

/// What stands in a part, with `own` added.
fn merged(part: &[u8], own: &Summary) -> Vec<u8> {
    let found = Summary::decode(part, COUNTERS);
    let mut all = found.unwrap_or_else(|| Summary::new(COUNTERS));
    all.merge(own);
    let mut out = Vec::new();
    all.encode(&mut out);
    out
}
