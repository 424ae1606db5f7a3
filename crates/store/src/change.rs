//! Changes a page in separate steps: reads it, changes a slot, and writes it back. If another
//! worker wrote the page in the meantime, the steps are repeated.
//!
//! Every operation that changes a bucket uses [`PageChange`]: decisions on requests, returned
//! costs, bans, leases, resets and the sweep. Each step is a function of its own, so that a test
//! model can run other workers between the steps.

use loudou_limiter::{Clock, Limits};

use crate::attempt::{GaveUp, StoreStats};
use crate::page::{Evicted, PageBytes, Slot};
use crate::shared_data::{Cas, MAX_RETRIES, SharedData, Written};
use crate::table::{Age, LiveRule};
use crate::table::{BucketId, StoreKey, Table};

/// A page change in progress. Call [`read`](Self::read) and [`write`](Self::write) alternately
/// until a write succeeds.
#[derive(Debug)]
pub(crate) struct PageChange<'a> {
    table: &'a Table,
    pub(crate) id: BucketId,
    /// The bucket's key. If the bucket is new, this key is stored as its name.
    key: &'a str,
    pub(crate) page_key: StoreKey,
    /// The page as read from the store. After a change, this is the page to write.
    pub(crate) page: PageBytes,
    expected: Cas,
    /// Outcome of the eviction for a new bucket. `None` if the change does not create a bucket.
    created: Option<Evicted>,
    tries: u32,
}

impl<'a> PageChange<'a> {
    /// Creates a change, without reading the page yet.
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

    /// Returns the bucket's slot, converted to the current version of the rule, and its index. If
    /// the bucket is missing, returns a new slot without an index.
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
            Age::Current if limits.numbers().is_empty() => {}
            Age::Newer => return Err(GaveUp::Outdated),
            Age::Current | Age::Older => {
                let origin = self.page.origins().wrapping_add(1);
                if slot.bring_forward(rule, (self.key, limits), origin, clock) {
                    self.page.set_origins(origin);
                }
            }
        }
        Ok((Some(index), slot))
    }

    /// Makes room for a new bucket and returns its initial slot.
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

    /// Writes the slot at `index`, or appends it if there is no index.
    pub(crate) fn put(&mut self, index: Option<usize>, slot: &Slot) {
        match index {
            Some(index) => self.page.replace(index, slot),
            None => self.page.push(slot),
        }
    }

    /// Writes the page. [`Written::Conflict`] means that another worker wrote the page first. In
    /// that case, the caller must call [`read`](Self::read) again.
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
