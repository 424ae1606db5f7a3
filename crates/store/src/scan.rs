//! Reading page after page in search of buckets, at a fraction of the cost of decoding them.
//!
//! A search has to look at every page, and most pages have no bucket that it wants. So the fields that rule a
//! bucket out are read from the stored bytes, in place; a bucket is decoded only where it is wanted, and
//! the names of a page are read only where they matter.

use alloc::vec::Vec;

use crate::names;
use crate::page::{PageBytes, Slot, SlotHead};
use crate::shared_data::SharedData;
use crate::table::Table;

/// A reader of the pages of a table, one after the other.
#[derive(Clone, Debug)]
pub struct Scan<'a> {
    table: &'a Table,
    page: PageBytes,
    names: Vec<u8>,
}

impl<'a> Scan<'a> {
    /// A reader that has read no page yet.
    pub fn new(table: &'a Table) -> Self {
        Self {
            table,
            page: PageBytes::default(),
            names: Vec::new(),
        }
    }

    /// Reads the buckets of a page. `false` if it was never written, or if this code cannot read it.
    pub fn read_page(&mut self, store: &mut dyn SharedData, index: u32) -> bool {
        let key = self.table.page_key(index);
        self.page.read(store, &key).is_ok() && !self.page.is_empty()
    }

    /// Reads the names of a page. `false` if there are none.
    pub fn read_names(&mut self, store: &mut dyn SharedData, index: u32) -> bool {
        let key = self.table.key(names::KIND, index);
        if !matches!(store.get(&key, &mut self.names), Ok(Some(_))) {
            self.names.clear();
        }
        !self.names.is_empty()
    }

    /// The beginnings of the buckets of the page that was read last, in no particular order.
    pub fn heads(&self) -> impl Iterator<Item = SlotHead> + '_ {
        self.page.heads()
    }

    /// One of its buckets.
    pub fn slot(&self, fingerprint: u64) -> Option<Slot> {
        self.page.find(fingerprint).map(|(_, slot)| slot)
    }

    /// The name of a bucket, from the names that were read last.
    pub fn name(&self, fingerprint: u64) -> Option<&str> {
        let mut names = names::entries(&self.names);
        let found = names.find(|(own, _)| *own == fingerprint);
        found.map(|(_, name)| name)
    }

    /// Whether some of these names may contain a text: never `false` if one does.
    pub fn may_have(&self, text: &Needle<'_>) -> bool {
        text.is_in(&self.names)
    }
}

/// The longest jump.
const FAR: u8 = u8::MAX;

/// A text to search for.
#[derive(Clone, Debug)]
pub struct Needle<'a> {
    text: &'a [u8],
    /// By the byte under the end of the text: how far it can move without skipping a match.
    jumps: [u8; 256],
}

impl<'a> Needle<'a> {
    /// A text; the empty one is in every value.
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

    /// Whether the text is in `value`.
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
