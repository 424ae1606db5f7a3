//! Reads and changes the rule record in shared data and caches the decoded record.
//!
//! All plugins in a VM share the cache, because the data role and the admin role need nearly the
//! same contents.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use loudou_limiter::Nanos;
use loudou_store::swap::{Swapped, swap};
use loudou_store::{CAS_ABSENT, Written};

use super::layout::{self, Layout};
use super::{Bases, MAX_RECORD, Record, RecordError};
use crate::host::{Host, HostStore};

/// Maximum age of a cached record if no change has been announced. If a VM dies after making a
/// change but before announcing it, the other VMs only notice the change when they read the record
/// again.
const REREAD_INTERVAL: Nanos = Nanos::from_secs(1);

/// Handle to a namespace's rule record.
#[derive(Clone, Debug)]
pub(crate) struct Records {
    share: String,
    /// Rules from this plugin's configuration. They are probably equal to the bases in the record,
    /// which then do not have to be decoded.
    bases: Rc<Bases>,
    cache: Rc<RecordCache>,
}

/// Cache for the most recently read or written record.
#[derive(Debug, Default)]
struct RecordCache(RefCell<Kept>);

#[derive(Debug, Default)]
struct Kept {
    record: Option<Rc<Record>>,
    /// Rules of the most recently configured plugin. Used by plugins without rules.
    bases: Weak<Bases>,
    /// Number of changes that had been announced before the record was read, and the time of the
    /// read.
    seen: Option<(u64, Nanos)>,
    /// Generation of the cached record that was last marked as announced.
    announced: u64,
}

/// Caches shared by the plugins in a VM, by namespace.
#[derive(Debug, Default)]
pub struct RecordCaches(Vec<(String, Weak<RecordCache>)>);

impl Records {
    /// Creates a handle to a namespace's record for a plugin with these rules.
    pub(crate) fn new(share: &str, bases: Bases) -> Self {
        Self {
            share: share.to_owned(),
            bases: Rc::new(bases),
            cache: Rc::default(),
        }
    }

    /// Shares the cache with the other plugins in the VM.
    pub(crate) fn sharing(&mut self, caches: &mut RecordCaches) {
        caches.0.retain(|(_, cache)| cache.strong_count() > 0);
        let found = caches.0.iter().find(|(share, _)| *share == self.share);
        if let Some(shared) = found.and_then(|(_, cache)| cache.upgrade()) {
            self.cache = shared;
        } else {
            let own = (self.share.clone(), Rc::downgrade(&self.cache));
            caches.0.push(own);
        }
        if !self.bases.rules.is_empty() {
            self.cache.0.borrow_mut().bases = Rc::downgrade(&self.bases);
        }
    }

    /// Returns the namespace.
    pub(crate) fn share(&self) -> &str {
        &self.share
    }

    /// Returns the rules from this plugin's configuration.
    pub(crate) fn bases(&self) -> &Bases {
        &self.bases
    }

    fn key(&self) -> Vec<u8> {
        [self.share.as_bytes(), b":rules"].concat()
    }

    /// Creates the record if it does not exist yet. Returns true if this call created it.
    pub(crate) fn create(&self, host: &dyn Host, record: &Record) -> Result<bool, RecordError> {
        let bytes = layout::write(record, None);
        Ok(host.shared_set(&self.key(), &bytes, CAS_ABSENT)? == Written::Done)
    }

    /// Reads the record from shared data.
    pub(crate) fn read(&self, host: &dyn Host) -> Result<Rc<Record>, RecordError> {
        let mut bytes = Vec::new();
        let found = host.shared_get(&self.key(), &mut bytes)?;
        found.ok_or(RecordError::Missing)?;
        self.read_layout(Layout::read(&bytes))
    }

    /// Returns the cached record if it is recent and no change has been announced since it was
    /// read. `changes` is the current number of announced changes.
    pub(crate) fn kept(&self, changes: u64, now: Nanos) -> Option<Rc<Record>> {
        let kept = self.cache.0.borrow();
        let (seen, at) = kept.seen?;
        // If `changes` is 0, the gauge is missing, so changes cannot be detected.
        let is_fresh = changes > 0 && seen == changes && now < at.saturating_add(REREAD_INTERVAL);
        let record = kept.record.as_ref().filter(|_| is_fresh)?;
        (now < record.next_expiry()).then(|| Rc::clone(record))
    }

    /// Marks the cached record as current at time `now`, after `changes` announced changes. No-op
    /// if `record` is not the cached record.
    pub(crate) fn keep(&self, record: &Rc<Record>, changes: u64, now: Nanos) {
        let mut kept = self.cache.0.borrow_mut();
        let is_kept = kept.record.as_ref();
        if is_kept.is_some_and(|kept| Rc::ptr_eq(kept, record)) {
            kept.seen = Some((changes, now));
        }
    }

    /// Returns the generation of the cached record if it was read after exactly `changes` announced
    /// changes.
    pub(crate) fn generation_after(&self, changes: u64) -> Option<u64> {
        let kept = self.cache.0.borrow();
        let (seen, _) = kept.seen?;
        let record = kept.record.as_ref().filter(|_| seen == changes)?;
        Some(record.generation)
    }

    /// Marks the cached record as announced. Returns false if its generation has already been
    /// marked.
    pub(crate) fn mark_announced(&self) -> bool {
        let mut kept = self.cache.0.borrow_mut();
        let generation = kept.record.as_ref().map_or(0, |record| record.generation);
        let before = std::mem::replace(&mut kept.announced, generation);
        before != generation
    }

    /// Decodes a record, reusing cached parts, and caches the result.
    fn read_layout(&self, layout: Option<Layout<'_>>) -> Result<Rc<Record>, RecordError> {
        let layout = layout.ok_or(RecordError::Unreadable)?;
        let kept = self.cache.0.borrow();
        // A plugin without rules uses the rules of the most recently configured plugin.
        let others = kept.bases.upgrade().filter(|_| self.bases.rules.is_empty());
        let bases = others.as_ref().unwrap_or(&self.bases);
        let read = Record::read(layout, kept.record.as_deref(), bases);
        let read = read.ok_or(RecordError::Unreadable)?;
        if let Some(record) = kept.record.as_ref().filter(|record| record.is_same(&read)) {
            return Ok(Rc::clone(record));
        }
        drop(kept);
        let record = Rc::new(read);
        self.put(Rc::clone(&record));
        Ok(record)
    }

    /// Caches a record. [`Self::kept`] only returns it after [`Self::keep`] has been called.
    fn put(&self, record: Rc<Record>) {
        let mut kept = self.cache.0.borrow_mut();
        (kept.record, kept.seen) = (Some(record), None);
    }

    /// Changes the record and increments its generation. `change` returns `None` if it did not
    /// change anything. If another worker changes the record concurrently, `change` is called again
    /// with the new record.
    pub(crate) fn change<T>(
        &self,
        host: &dyn Host,
        mut change: impl FnMut(&mut Record) -> Option<T>,
    ) -> Result<(Rc<Record>, Option<T>), RecordError> {
        let mut outcome = None;
        let record = self.change_within(host, usize::MAX, &mut |record| {
            outcome = change(record);
            record.generation = record.generation.saturating_add(outcome.is_some().into());
            outcome.is_some()
        })?;
        Ok((record, outcome))
    }

    /// Changes internal parts of the record that are invisible to API clients, without incrementing
    /// the generation.
    pub(crate) fn change_internally(
        &self,
        host: &dyn Host,
        change: &dyn Fn(&mut Record),
    ) -> Result<Rc<Record>, RecordError> {
        self.change_within(host, usize::MAX, &mut |record| {
            change(record);
            true
        })
    }

    /// Like [`change`](Self::change), but for edits, which fail if they would make the record too
    /// large.
    pub(crate) fn edit(
        &self,
        host: &dyn Host,
        change: &mut dyn FnMut(&mut Record) -> bool,
    ) -> Result<Rc<Record>, RecordError> {
        let mut has_moved = false;
        let edited = self.change_within(host, MAX_RECORD, &mut |record| {
            has_moved = record.later.has_moved();
            let changes = !has_moved && change(record);
            record.generation = record.generation.saturating_add(changes.into());
            changes
        })?;
        if has_moved {
            return Err(RecordError::Moved);
        }
        Ok(edited)
    }

    fn change_within(
        &self,
        host: &dyn Host,
        most: usize,
        change: &mut dyn FnMut(&mut Record) -> bool,
    ) -> Result<Rc<Record>, RecordError> {
        let mut outcome = Err(RecordError::Missing);
        let swapped = swap(&mut HostStore(host), &self.key(), &mut |found| {
            let changed = self.changed(found, most, change);
            let (record, bytes) = match changed {
                Ok((record, bytes)) => (Ok(record), bytes),
                Err(error) => (Err(error), None),
            };
            outcome = record;
            bytes
        })?;
        match (swapped, &outcome) {
            (Swapped::Contended, _) => return Err(RecordError::Contended),
            (Swapped::Done, Ok(record)) => self.put(Rc::clone(record)),
            _ => {}
        }
        outcome
    }

    /// Decodes and changes a record. Returns the record and, if it was changed, its new encoding.
    fn changed(
        &self,
        found: Option<&[u8]>,
        most: usize,
        change: &mut dyn FnMut(&mut Record) -> bool,
    ) -> Result<(Rc<Record>, Option<Vec<u8>>), RecordError> {
        let found = found.ok_or(RecordError::Missing)?;
        let before = self.read_layout(Layout::read(found))?;
        let mut record = before.to_change();
        if !change(&mut record) {
            return Ok((Rc::new(record), None));
        }
        let bytes = layout::write_and_identify(&mut record, Layout::read(found).as_ref());
        if bytes.len() > most.max(found.len()) {
            return Err(RecordError::TooLarge);
        }
        Ok((Rc::new(record), Some(bytes)))
    }
}
