//! Shared data for previews: reads return the underlying store's values, and writes go to separate
//! memory.
//!
//! Each value is read from the underlying store only once. To the user of an overlay, a value
//! therefore never changes and never causes conflicts, even while other workers write to the
//! underlying store.

use alloc::vec::Vec;

use crate::shared_data::{CAS_OVERWRITE, Cas, SharedData, StoreFailed, Written};

/// Version of a value that the overlay has read but not written.
const FIRST: Cas = 1;

/// Shared data layered on top of other shared data, to which it never writes.
pub struct Overlay<'a> {
    below: &'a mut dyn SharedData,
    /// Entries, sorted by key.
    entries: Vec<Entry>,
    last_cas: Cas,
}

struct Entry {
    key: Vec<u8>,
    /// Value in the underlying store; `None` if the key is missing there.
    read: Option<Vec<u8>>,
    /// Value written to the overlay, and its version.
    written: Option<(Vec<u8>, Cas)>,
}

impl core::fmt::Debug for Overlay<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Overlay")
            .field("entries", &self.entries.len())
            .finish_non_exhaustive()
    }
}

impl<'a> Overlay<'a> {
    /// Creates an empty overlay on top of `below`.
    pub fn new(below: &'a mut dyn SharedData) -> Self {
        Self {
            below,
            entries: Vec::new(),
            last_cas: FIRST,
        }
    }

    /// Discards the writes, but keeps the values that have been read.
    pub fn undo(&mut self) {
        for entry in &mut self.entries {
            entry.written = None;
        }
    }

    /// Returns the entry of a key. On first access, the value is read from the underlying store.
    fn entry(&mut self, key: &[u8]) -> Result<&mut Entry, StoreFailed> {
        let found = self
            .entries
            .binary_search_by(|entry| entry.key.as_slice().cmp(key));
        let at = match found {
            Ok(at) => at,
            Err(at) => {
                let mut value = Vec::new();
                let read = self.below.get(key, &mut value)?.map(|_cas| value);
                let entry = Entry {
                    key: key.to_vec(),
                    read,
                    written: None,
                };
                self.entries.insert(at, entry);
                at
            }
        };
        self.entries.get_mut(at).ok_or(StoreFailed)
    }
}

impl Entry {
    fn value(&self) -> Option<(&[u8], Cas)> {
        match &self.written {
            Some((value, cas)) => Some((value, *cas)),
            None => self.read.as_ref().map(|value| (value.as_slice(), FIRST)),
        }
    }
}

impl SharedData for Overlay<'_> {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<Option<Cas>, StoreFailed> {
        value.clear();
        Ok(self.entry(key)?.value().map(|(bytes, cas)| {
            value.extend_from_slice(bytes);
            cas
        }))
    }

    fn set(&mut self, key: &[u8], value: &[u8], expected: Cas) -> Result<Written, StoreFailed> {
        let next = self.last_cas.wrapping_add(1).max(FIRST);
        let entry = self.entry(key)?;
        let current = entry.value().map(|(_, cas)| cas);
        if current.is_some_and(|current| expected != CAS_OVERWRITE && expected != current) {
            return Ok(Written::Conflict);
        }
        entry.written = Some((value.to_vec(), next));
        self.last_cas = next;
        Ok(Written::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryStore;
    use crate::shared_data::CAS_ABSENT;

    fn value(store: &mut dyn SharedData, key: &[u8]) -> Option<Vec<u8>> {
        let mut value = Vec::new();
        let cas = store.get(key, &mut value).expect("reads");
        cas.map(|_cas| value)
    }

    /// Checks that writes to an overlay have the same pitfalls as writes to the underlying store;
    /// see `memory`.
    #[test]
    fn writes_are_as_in_shared_data_and_stay_above() {
        let mut below = MemoryStore::new();
        below.set(b"k", b"0", CAS_ABSENT).expect("writes");
        let mut over = Overlay::new(&mut below);
        let mut bytes = Vec::new();
        assert_eq!(over.set(b"k", b"1", CAS_ABSENT), Ok(Written::Conflict));
        let first = over.get(b"k", &mut bytes).expect("reads").expect("there");
        assert_eq!(over.set(b"k", b"2", first), Ok(Written::Done));
        assert_eq!(over.set(b"k", b"3", first), Ok(Written::Conflict), "stale");
        assert_eq!(value(&mut over, b"k"), Some(b"2".to_vec()));
        assert_eq!(over.set(b"k", b"4", CAS_OVERWRITE), Ok(Written::Done));
        assert_eq!(over.set(b"new", b"5", 77), Ok(Written::Done));
        assert_eq!(over.set(b"new", b"6", CAS_ABSENT), Ok(Written::Conflict));
        assert_eq!(value(&mut over, b"k"), Some(b"4".to_vec()));
        over.undo();
        assert_eq!(value(&mut over, b"k"), Some(b"0".to_vec()));
        assert_eq!(value(&mut over, b"new"), None);
        assert_eq!(value(&mut below, b"k"), Some(b"0".to_vec()));
        assert_eq!(value(&mut below, b"new"), None);
    }

    /// A store that returns a different value on each read.
    struct ChangingStore(u8);

    impl SharedData for ChangingStore {
        fn get(&mut self, _: &[u8], value: &mut Vec<u8>) -> Result<Option<Cas>, StoreFailed> {
            self.0 = self.0.saturating_add(1);
            value.clear();
            value.push(self.0);
            Ok(Some(self.0.into()))
        }

        fn set(&mut self, _: &[u8], _: &[u8], _: Cas) -> Result<Written, StoreFailed> {
            panic!("never written")
        }
    }

    #[test]
    fn what_was_read_once_stays() {
        let mut below = ChangingStore(0);
        let mut over = Overlay::new(&mut below);
        assert_eq!(value(&mut over, b"a"), Some(b"\x01".to_vec()));
        assert_eq!(value(&mut over, b"b"), Some(b"\x02".to_vec()));
        assert_eq!(value(&mut over, b"a"), Some(b"\x01".to_vec()));
        over.set(b"a", b"x", FIRST).expect("no conflict");
        over.undo();
        assert_eq!(value(&mut over, b"a"), Some(b"\x01".to_vec()));
    }
}
