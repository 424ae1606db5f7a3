//! Searches pages for buckets at a fraction of the cost of decoding every page.
//!
//! A search must look at every page, and most pages contain no matching bucket. The scan therefore
//! reads each bucket's fields from the stored bytes, and decodes a bucket only if it may match. A
//! page's names are read only when they are needed.

use alloc::vec::Vec;

use crate::names;
use crate::page::{PageBytes, Slot, SlotHead};
use crate::shared_data::SharedData;
use crate::table::Table;

/// A reader of a table's pages.
#[derive(Clone, Debug)]
pub struct Scan<'a> {
    table: &'a Table,
    page: PageBytes,
    names: Vec<u8>,
}

impl<'a> Scan<'a> {
    /// Creates a reader that has not read any pages yet.
    pub fn new(table: &'a Table) -> Self {
        Self {
            table,
            page: PageBytes::default(),
            names: Vec::new(),
        }
    }

    /// Reads a page's buckets. Returns false if the page has no buckets or if this code cannot read
    /// it.
    pub fn read_page(&mut self, store: &mut dyn SharedData, index: u32) -> bool {
        let key = self.table.page_key(index);
        self.page.read(store, &key).is_ok() && !self.page.is_empty()
    }

    /// Reads a page's names. Returns false if the page has no names.
    pub fn read_names(&mut self, store: &mut dyn SharedData, index: u32) -> bool {
        let key = self.table.key(names::KIND, index);
        if !matches!(store.get(&key, &mut self.names), Ok(Some(_))) {
            self.names.clear();
        }
        !self.names.is_empty()
    }

    /// Iterates over the bucket heads in the page that was read last, in no particular order.
    pub fn heads(&self) -> impl Iterator<Item = SlotHead> + '_ {
        self.page.heads()
    }

    /// Returns a bucket from the page that was read last.
    pub fn slot(&self, fingerprint: u64) -> Option<Slot> {
        self.page.find(fingerprint).map(|(_, slot)| slot)
    }

    /// Returns a bucket's name if it is among the names that were read last.
    pub fn name(&self, fingerprint: u64) -> Option<&str> {
        let mut names = names::entries(&self.names);
        let found = names.find(|(own, _)| *own == fingerprint);
        found.map(|(_, name)| name)
    }

    /// Returns true if the names that were read last may contain the search string. False positives
    /// are possible, because the search covers all stored bytes.
    pub fn may_have(&self, text: &Needle<'_>) -> bool {
        text.is_in(&self.names)
    }
}

/// Maximum distance that a search advances in one step.
const FAR: u8 = u8::MAX;

/// A prepared search for a string.
#[derive(Clone, Debug)]
pub struct Needle<'a> {
    text: &'a [u8],
    /// Distances that a search can advance without skipping a match (Boyer–Moore–Horspool), indexed
    /// by the byte that is aligned with the last byte of the search string.
    jumps: [u8; 256],
}

impl<'a> Needle<'a> {
    /// Prepares a search for `text`. Every value contains the empty string.
    pub fn new(text: &'a str) -> Self {
        let text = text.as_bytes();
        let jump = |distance: usize| u8::try_from(distance).unwrap_or(FAR);
        let mut jumps = [jump(text.len()).max(1); 256];
        let (_, before_last) = text.split_last().unwrap_or((&0, &[]));
        for (place, byte) in before_last.iter().enumerate() {
            if let Some(entry) = jumps.get_mut(usize::from(*byte)) {
                *entry = jump(before_last.len().saturating_sub(place));
            }
        }
        Self { text, jumps }
    }

    /// Returns true if `value` contains the search string.
    pub fn is_in(&self, value: &[u8]) -> bool {
        let mut end = self.text.len();
        let Some(last) = self.text.last() else {
            return true;
        };
        while let Some(byte) = value.get(end.saturating_sub(1)) {
            if byte == last && value.get(..end).is_some_and(|v| v.ends_with(self.text)) {
                return true;
            }
            let jump = self.jumps.get(usize::from(*byte)).copied().unwrap_or(1);
            end = end.saturating_add(jump.into());
        }
        false
    }
}
