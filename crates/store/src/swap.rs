//! Changes a shared value using compare-and-swap: reads the value, computes the new value, and
//! writes it. If another worker wrote the value in the meantime, the change starts over.

use alloc::vec::Vec;

use crate::shared_data::{CAS_ABSENT, SharedData, StoreFailed, Written};

/// Maximum number of attempts per change. Each failed attempt means that another worker wrote the
/// value between the read and the write. The limit is therefore reached only if all workers keep
/// changing the same value without a pause. The limit is lower than
/// [`MAX_RETRIES`](crate::MAX_RETRIES), because no decision is lost if a change to these values is
/// abandoned.
pub const MAX_TRIES: u32 = 16;

/// Result of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swapped {
    /// The new value was written.
    Done,
    /// `change` returned `None`, so the value is unchanged.
    Unchanged,
    /// Another worker wrote the value first in all [`MAX_TRIES`] attempts.
    Contended,
}

/// A function that computes the new value. Its argument is the current value, or `None` if the key
/// is missing. It returns `None` to leave the value unchanged.
pub type Change<'a> = dyn FnMut(Option<&[u8]>) -> Option<Vec<u8>> + 'a;

/// Changes the value of `key`. If another worker writes the value first, `change` is called again
/// with the value written by that worker.
pub fn swap(
    store: &mut dyn SharedData,
    key: &[u8],
    change: &mut Change<'_>,
) -> Result<Swapped, StoreFailed> {
    let mut bytes = Vec::new();
    for _ in 0..MAX_TRIES {
        let cas = store.get(key, &mut bytes)?;
        let Some(new) = change(cas.map(|_| bytes.as_slice())) else {
            return Ok(Swapped::Unchanged);
        };
        if store.set(key, &new, cas.unwrap_or(CAS_ABSENT))? == Written::Done {
            return Ok(Swapped::Done);
        }
    }
    Ok(Swapped::Contended)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryStore;
    use crate::shared_data::{CAS_OVERWRITE, Cas};

    const KEY: &[u8] = b"k";

    /// Runs [`swap`] while another worker wins the race in each of the first `rivals` attempts.
    /// Returns the result of `swap` and the value that the store contains afterwards.
    fn against(rivals: u32) -> (Swapped, Vec<u8>) {
        struct ConflictingStore(MemoryStore, u32);
        impl SharedData for ConflictingStore {
            fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<Option<Cas>, StoreFailed> {
                let cas = self.0.get(key, value);
                if let Some(left) = self.1.checked_sub(1) {
                    self.1 = left;
                    let _written = self.0.set(key, b"rival", CAS_OVERWRITE);
                }
                cas
            }
            fn set(
                &mut self,
                key: &[u8],
                value: &[u8],
                expected: Cas,
            ) -> Result<Written, StoreFailed> {
                self.0.set(key, value, expected)
            }
        }
        let mut store = ConflictingStore(MemoryStore::new(), rivals);
        let mut again = false;
        let swapped = swap(&mut store, KEY, &mut |found| {
            assert_eq!(found, again.then_some(&b"rival"[..]));
            again = true;
            Some(Vec::from(*b"ours"))
        });
        let mut value = Vec::new();
        store.0.get(KEY, &mut value).expect("a value");
        (swapped.expect("a store that works"), value)
    }

    #[test]
    fn conflicts_are_tried_again_up_to_the_limit() {
        let ours = |swapped| (swapped, Vec::from(*b"ours"));
        assert_eq!(against(0), ours(Swapped::Done));
        assert_eq!(against(MAX_TRIES - 1), ours(Swapped::Done));
        assert_eq!(
            against(MAX_TRIES),
            (Swapped::Contended, Vec::from(*b"rival"))
        );
    }

    #[test]
    fn nothing_is_written_where_nothing_changes() {
        let mut store = MemoryStore::new();
        let swapped = swap(&mut store, KEY, &mut |found| {
            assert_eq!(found, None);
            None
        });
        assert_eq!(swapped, Ok(Swapped::Unchanged));
        assert_eq!(store.get(KEY, &mut Vec::new()), Ok(None));
    }
}
