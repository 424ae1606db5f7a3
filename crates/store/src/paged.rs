//! In-memory shared data for a single table used by a single thread, as in a replay.
//!
//! Pages are looked up by number instead of by store key. Names are not stored, because a replay
//! computes the keys itself. Otherwise, the semantics are the same as in [`MemoryStore`].

use alloc::vec::Vec;

use crate::memory::MemoryStore;
use crate::page::{KIND, SLOTS};
use crate::shared_data::{CAS_OVERWRITE, Cas, SharedData, StoreFailed, Written};

/// A store for the table of one namespace.
#[derive(Clone, Debug)]
pub struct PagedStore {
    namespace: Vec<u8>,
    /// Pages by number. Version 0 means that the page has never been written.
    pages: Vec<(Vec<u8>, Cas)>,
    last_cas: Cas,
    /// Values that are neither pages nor names.
    others: MemoryStore,
}

/// Kinds of store keys.
enum KeyKind {
    Page(usize),
    Names,
    Other,
}

impl PagedStore {
    /// Creates an empty store for a table of `namespace` with room for `buckets`.
    pub fn new(namespace: &str, buckets: u32) -> Self {
        let pages = usize::try_from(buckets).unwrap_or(0).div_ceil(SLOTS).max(1);
        let mut empty = Vec::new();
        empty.resize_with(pages, Default::default);
        Self {
            namespace: namespace.as_bytes().to_vec(),
            pages: empty,
            last_cas: 0,
            others: MemoryStore::new(),
        }
    }

    fn kind(&self, key: &[u8]) -> KeyKind {
        let rest = key.strip_prefix(self.namespace.as_slice());
        match rest.and_then(|rest| <&[u8; 6]>::try_from(rest).ok()) {
            Some([b':', b'n', ..]) => KeyKind::Names,
            Some([b':', KIND, index @ ..]) => usize::try_from(u32::from_le_bytes(*index))
                .ok()
                .filter(|index| *index < self.pages.len())
                .map_or(KeyKind::Other, KeyKind::Page),
            _ => KeyKind::Other,
        }
    }
}

impl SharedData for PagedStore {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<Option<Cas>, StoreFailed> {
        let index = match self.kind(key) {
            KeyKind::Other => return self.others.get(key, value),
            KeyKind::Names => None,
            KeyKind::Page(index) => Some(index),
        };
        value.clear();
        let page = index.and_then(|index| self.pages.get(index));
        Ok(page.filter(|(_, cas)| *cas != 0).map(|(bytes, cas)| {
            value.extend_from_slice(bytes);
            *cas
        }))
    }

    fn set(&mut self, key: &[u8], value: &[u8], expected: Cas) -> Result<Written, StoreFailed> {
        let index = match self.kind(key) {
            KeyKind::Other => return self.others.set(key, value, expected),
            KeyKind::Names => return Ok(Written::Done),
            KeyKind::Page(index) => index,
        };
        let Some((bytes, cas)) = self.pages.get_mut(index) else {
            return Err(StoreFailed);
        };
        if *cas != 0 && expected != CAS_OVERWRITE && expected != *cas {
            return Ok(Written::Conflict);
        }
        self.last_cas = self.last_cas.wrapping_add(1).max(1);
        *cas = self.last_cas;
        bytes.clear();
        bytes.extend_from_slice(value);
        Ok(Written::Done)
    }
}
