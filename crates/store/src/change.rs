//! The change of one page, step by step: read it, change a slot, write it back unless another worker was faster, and
//! read again if one was.
//!
//! Whatever changes a bucket goes through [`PageChange`]: a request, its return, a ban, a lease, a reset, and the
//! sweep. The steps are separate so that the model of the store can let other workers in between.

use loudou_limiter::{Clock, Limits};

use crate::attempt::{GaveUp, StoreStats};
use crate::page::{Evicted, PageBytes, Slot};
use crate::shared_data::{Cas, MAX_RETRIES, SharedData, Written};
use crate::table::{Age, LiveRule};
use crate::table::{BucketId, StoreKey, Table};

/// A change of a page in progress: reads and writes in turn until one write succeeds.
#[derive(Debug)]
pub(crate) struct PageChange<'a> {
    table: &'a Table,
    pub(crate) id: BucketId,
    /// The key of the bucket, for its name if it is new.
    key: &'a str,
    page_key: StoreKey,
    /// The page as read, then as it is to be written.
    pub(crate) page: PageBytes,
    expected: Cas,
    /// What a new bucket has evicted; `None` if no bucket is new.
    created: Option<Evicted>,
    tries: u32,
}

impl<'a> PageChange<'a> {
    /// A change before its first step.
    pub(crate) fn new(table: &'a Table, id: BucketId, key: &'a str) -> Self {
        Self {
            table,
            id,
            key,
            page_key: table.page_key(id.page),
            page: PageBytes::default(),
            expected: 0,
            created: None,
            tries: 0,
        }
    }

    /// Reads the page.
    pub(crate) fn read(&mut self, store: &mut dyn SharedData) -> Result<(), GaveUp> {
        self.created = None;
        self.expected = self.page.read(store, &self.page_key)?;
        Ok(())
    }

    /// The slot of the bucket in the version of the rule in force, and its place; a missing one begins, and has no place
    /// yet.
    pub(crate) fn slot(
        &mut self,
        rule: &dyn LiveRule,
        limits: &Limits,
        clock: Clock,
    ) -> Result<(Option<usize>, Slot), GaveUp> {
        let Some((index, mut slot)) = self.page.find(self.id.fingerprint) else {
            return Ok((None, self.begin(rule, limits, clock)?));
        };
        match rule.age(slot.version) {
            Age::Current => {}
            Age::Newer => return Err(GaveUp::Outdated),
            Age::Older => {
                let origin = self.page.origins().wrapping_add(1);
                if slot.bring_forward(rule, (self.key, limits), origin, clock) {
                    self.page.set_origins(origin);
                }
            }
        }
        Ok((Some(index), slot))
    }

    /// Makes room for a new bucket, and begins it.
    pub(crate) fn begin(
        &mut self,
        rule: &dyn LiveRule,
        limits: &Limits,
        clock: Clock,
    ) -> Result<Slot, GaveUp> {
        let room = self.page.make_room(self.id.rule_tag, clock.now);
        self.created = Some(room.map_err(|_full| GaveUp::PageFull)?);
        let origin = self.page.new_origin();
        Ok(Slot::new((rule, limits), self.id, origin, clock))
    }

    /// Puts a slot in its place; a new one after all others.
    pub(crate) fn put(&mut self, index: Option<usize>, slot: &Slot) {
        match index {
            Some(index) => self.page.replace(index, slot),
            None => self.page.push(slot),
        }
    }

    /// Writes the page. After a conflict, because another worker was faster, read again.
    pub(crate) fn write(
        &mut self,
        store: &mut dyn SharedData,
        stats: &mut StoreStats,
    ) -> Result<Written, GaveUp> {
        let written = store.set(&self.page_key, self.page.bytes(), self.expected)?;
        match written {
            Written::Done => {
                if let Some(evicted) = self.created.take() {
                    stats.count_new(evicted);
                    self.table
                        .add_name(store, self.id, self.key, self.page.bytes());
                }
            }
            Written::Conflict => {
                self.tries = self.tries.saturating_add(1);
                if self.tries > MAX_RETRIES {
                    return Err(GaveUp::Conflicts);
                }
                stats.cas_retries = stats.cas_retries.saturating_add(1);
            }
        }
        Ok(written)
    }
}
