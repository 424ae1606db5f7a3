//! Giving back what a request took when it has ended, step by step as in [`attempt`](super::attempt):
//! read the page and take it off, write it back if nobody was faster.
//!
//! A bucket that is no longer there has nothing to take off, and none is created.

use alloc::vec::Vec;

use super::attempt::{MAX_RETRIES, gain_flag};
use super::page::{FLAG_KEEPS_GAIN, Page};
use super::table::{BucketId, GaveUp, StoreStats, Table};
use super::{Cas, SharedData, StoreFailed, Written};
use crate::carry::Versions;
use crate::time::Nanos;

/// The end of a request that the bucket `key` of a rule let pass.
#[derive(Clone, Copy, Debug)]
pub struct Give<'a> {
    /// The rule's limits through time.
    pub versions: &'a Versions,
    /// The tag of the rule.
    pub rule_tag: u32,
    /// The key.
    pub key: &'a str,
    /// What it took.
    pub cost: u64,
    /// When: [`BucketDecision::at`](crate::BucketDecision::at).
    pub taken_at: Nanos,
    /// The instant of its end.
    pub now: Nanos,
}

/// A [`Give`] in progress: reads and writes in turn until one write succeeds.
#[derive(Debug)]
pub struct Giving<'a> {
    give: Give<'a>,
    id: BucketId,
    page_key: Vec<u8>,
    bytes: Vec<u8>,
    expected: Cas,
    planned: Option<Page>,
    tries: u32,
}

impl<'a> Giving<'a> {
    /// Nothing done yet.
    pub fn new(table: &Table, give: Give<'a>) -> Self {
        let id = table.id(give.rule_tag, give.key);
        Self {
            give,
            id,
            page_key: table.key(b'p', id.page),
            bytes: Vec::new(),
            expected: 0,
            planned: None,
            tries: 0,
        }
    }

    /// Reads the page and takes the cost off.
    pub fn read(
        &mut self,
        store: &mut dyn SharedData,
        stats: &mut StoreStats,
    ) -> Result<(), GaveUp> {
        let read = Table::read_page(store, &self.page_key, &mut self.bytes);
        let (cas, page) = read.inspect_err(|_lost| count(&mut stats.lost_returns))?;
        self.expected = cas;
        self.planned = self.plan(page);
        Ok(())
    }

    /// The page as it should become; `None` when nothing changes.
    fn plan(&self, mut page: Page) -> Option<Page> {
        let give = &self.give;
        let limits = give.versions.current();
        let slot = page.find(self.id.fingerprint)?;
        let idle_at = Nanos::from_millis(slot.idle_at_ms);
        let before = &slot.bucket;
        let mut bucket = give
            .versions
            .bring_forward(before, slot.limits_tag, idle_at, give.now);
        limits.release(&mut bucket, give.cost, give.taken_at, give.now);
        if bucket.words() == before.words() {
            return None;
        }
        let left = limits.peek(&bucket, 0, give.now);
        slot.idle_at_ms = left.at().saturating_add(left.reset_after()).millis_ceil();
        slot.limits_tag = give.versions.tag();
        slot.flags = slot.flags & !FLAG_KEEPS_GAIN | gain_flag(limits);
        slot.bucket = bucket;
        Some(page)
    }

    /// Writes what is left. `None` when another worker was faster: read again.
    pub fn write(
        &mut self,
        store: &mut dyn SharedData,
        stats: &mut StoreStats,
    ) -> Option<Result<(), GaveUp>> {
        let Some(page) = self.planned.take() else {
            return Some(Ok(()));
        };
        page.encode(&mut self.bytes);
        let gave_up = match store.set(&self.page_key, &self.bytes, self.expected) {
            Ok(Written::Done) => return Some(Ok(())),
            Err(StoreFailed) => GaveUp::Failed,
            Ok(Written::Conflict) => {
                self.tries = self.tries.saturating_add(1);
                if self.tries <= MAX_RETRIES {
                    count(&mut stats.cas_retries);
                    return None;
                }
                GaveUp::Conflicts
            }
        };
        count(&mut stats.lost_returns);
        Some(Err(gave_up))
    }
}

fn count(counter: &mut u64) {
    *counter = counter.saturating_add(1);
}
