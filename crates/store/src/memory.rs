//! In-memory shared data with the same semantics as Envoy's, for tests, models and replays.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::shared_data::{CAS_OVERWRITE, Cas, PlanPatch, SharedData, StoreFailed, Written};

/// A store with a single version counter for all keys, as in Envoy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryStore {
    values: BTreeMap<Vec<u8>, (Vec<u8>, Cas)>,
    last_cas: Cas,
}

impl MemoryStore {
    /// Creates an empty store.
    pub const fn new() -> Self {
        Self {
            values: BTreeMap::new(),
            last_cas: 0,
        }
    }

    /// Number of keys, which are never removed.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Returns true if nothing has ever been written.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Iterates over all keys and their values in key order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let values = self.values.iter();
        values.map(|(key, (value, _))| (key.as_slice(), value.as_slice()))
    }

    fn next_cas(&mut self) -> Cas {
        self.last_cas = self.last_cas.wrapping_add(1).max(1);
        self.last_cas
    }
}

impl SharedData for MemoryStore {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<Option<Cas>, StoreFailed> {
        value.clear();
        let found = self.values.get(key);
        Ok(found.map(|(bytes, cas)| {
            value.extend_from_slice(bytes);
            *cas
        }))
    }

    fn set(&mut self, key: &[u8], value: &[u8], expected: Cas) -> Result<Written, StoreFailed> {
        if let Some((_, current)) = self.values.get(key)
            && expected != CAS_OVERWRITE
            && expected != *current
        {
            return Ok(Written::Conflict);
        }
        let cas = self.next_cas();
        self.values.insert(key.to_vec(), (value.to_vec(), cas));
        Ok(Written::Done)
    }

    fn patch(&mut self, key: &[u8], plan: &mut PlanPatch<'_>) -> bool {
        let next = self.last_cas.wrapping_add(1).max(1);
        let Some((value, cas)) = self.values.get_mut(key) else {
            return false;
        };
        let Some(patch) = plan(value) else {
            return false;
        };
        let end = patch.at().saturating_add(patch.bytes().len());
        let Some(part) = value.get_mut(patch.at()..end) else {
            return false;
        };
        part.copy_from_slice(patch.bytes());
        (*cas, self.last_cas) = (next, next);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared_data::CAS_ABSENT;

    #[test]
    fn has_the_traps_of_envoys_shared_data() {
        let mut store = MemoryStore::new();
        let mut value = Vec::new();
        assert_eq!(store.get(b"k", &mut value), Ok(None));
        // A write to a missing key ignores the expected version.
        assert_eq!(store.set(b"k", b"1", CAS_ABSENT), Ok(Written::Done));
        assert_eq!(store.set(b"k", b"2", CAS_ABSENT), Ok(Written::Conflict));
        let cas = store.get(b"k", &mut value).expect("get").expect("present");
        assert_eq!(store.set(b"k", b"3", cas), Ok(Written::Done));
        assert_eq!(
            store.set(b"k", b"4", cas),
            Ok(Written::Conflict),
            "a stale version"
        );
        // An expected version of 0 overwrites the value unconditionally.
        assert_eq!(store.set(b"k", b"5", CAS_OVERWRITE), Ok(Written::Done));
        store.get(b"k", &mut value).expect("get");
        assert_eq!(value, b"5");
    }
}
