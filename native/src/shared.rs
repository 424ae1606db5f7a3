//! The values that all workers share, in place of Envoy's shared data.
//!
//! As in Envoy, a value has a number that changes at each write, and a write can require that the
//! number is still the one that was read. Values live as long as the process.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use loudou_store::{Cas, Written};

/// Number of locks. Workers meet at a lock only if their keys have the same hash in its lowest bits.
const SHARDS: usize = 256;

/// Values by key.
#[derive(Debug)]
pub(crate) struct Shared {
    shards: Vec<Mutex<HashMap<Vec<u8>, Value>>>,
    hasher: RandomState,
}

#[derive(Debug)]
struct Value {
    bytes: Vec<u8>,
    cas: Cas,
}

static PROCESS: LazyLock<Shared> = LazyLock::new(Shared::new);

impl Shared {
    /// Returns the values of this process.
    pub(crate) fn of_process() -> &'static Self {
        &PROCESS
    }

    /// Creates an empty store.
    pub(crate) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
        }
    }

    /// Nothing panics while a lock is held, so a poisoned lock is used as it is.
    fn shard(&self, key: &[u8]) -> Option<MutexGuard<'_, HashMap<Vec<u8>, Value>>> {
        let hash = usize::try_from(self.hasher.hash_one(key) & 0xffff).ok()?;
        let shard = self.shards.get(hash.checked_rem(SHARDS)?)?;
        Some(shard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Copies a value and returns its number. `None` if there is no value.
    pub(crate) fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Option<Cas> {
        value.clear();
        let shard = self.shard(key)?;
        let found = shard.get(key)?;
        value.extend_from_slice(&found.bytes);
        Some(found.cas)
    }

    /// Writes a value. If `expected` is not 0 and there is a value, its number must be `expected`.
    pub(crate) fn set(&self, key: &[u8], value: &[u8], expected: Cas) -> Option<Written> {
        let mut shard = self.shard(key)?;
        let Some(found) = shard.get_mut(key) else {
            let bytes = value.to_vec();
            shard.insert(key.to_vec(), Value { bytes, cas: 1 });
            return Some(Written::Done);
        };
        if expected != 0 && expected != found.cas {
            return Some(Written::Conflict);
        }
        // 0 stands for "any number".
        found.cas = found.cas.checked_add(1).unwrap_or(1);
        // A vector that grows by itself would take up to twice its size, for each of many pages.
        if value.len() > found.bytes.capacity() {
            found.bytes = value.to_vec();
        } else {
            found.bytes.clear();
            found.bytes.extend_from_slice(value);
        }
        Some(Written::Done)
    }
}

impl Default for Shared {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_requires_the_number_that_was_read() {
        let (shared, mut value) = (Shared::new(), vec![9]);
        assert_eq!(shared.get(b"k", &mut value), None);
        assert!(value.is_empty());
        assert_eq!(shared.set(b"k", b"one", 0), Some(Written::Done));
        let cas = shared.get(b"k", &mut value).expect("a value");
        assert_eq!(value, b"one");
        assert_eq!(shared.set(b"k", b"two", cas), Some(Written::Done));
        assert_eq!(shared.set(b"k", b"three", cas), Some(Written::Conflict));
        assert_eq!(shared.set(b"k", b"four", 0), Some(Written::Done));
        shared.get(b"k", &mut value);
        assert_eq!(value, b"four");
    }

    #[test]
    fn a_value_takes_no_more_than_its_size() {
        let shared = Shared::new();
        for size in 1..200 {
            assert_eq!(shared.set(b"k", &vec![1; size], 0), Some(Written::Done));
        }
        let values = shared.shard(b"k").expect("a shard");
        assert_eq!(
            values.get(&b"k"[..]).expect("a value").bytes.capacity(),
            199
        );
    }

    #[test]
    fn writers_lose_nothing() {
        let shared = Shared::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut value = Vec::new();
                    let mut added = 0;
                    while added < 1_000 {
                        let cas = shared.get(b"sum", &mut value).unwrap_or(0);
                        let sum = value
                            .first_chunk()
                            .map_or(0, |sum| u64::from_le_bytes(*sum));
                        let sum = (sum + 1).to_le_bytes();
                        let written = shared.set(b"sum", &sum, cas);
                        // The first write of two workers has no number to compare.
                        added += u64::from(written == Some(Written::Done) && cas != 0);
                        if cas == 0 {
                            assert_eq!(written, Some(Written::Done));
                        }
                    }
                });
            }
        });
        let mut value = Vec::new();
        shared.get(b"sum", &mut value);
        let sum = u64::from_le_bytes(*value.first_chunk().expect("a number"));
        assert!(sum >= 4_000, "{sum}");
    }
}
