//! A part of the record: a value, and the hash of its encoding.
//!
//! Parts with equal hashes have equal encodings. This allows workers that read the record to decode
//! only the parts that have changed, and workers that write it to copy the encodings of unchanged
//! parts. A changed part has no hash until it is written.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use loudou_limiter::hash::StableHasher;

/// Number of parts per rule.
pub(super) const PARTS: usize = 4;

/// Hash and length of an encoded part. Parts with equal IDs have equal encodings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Id {
    pub(super) hash: u128,
    pub(super) bytes: u32,
}

impl Id {
    /// Returns the ID of an encoded part. An empty encoding has the default ID.
    pub(super) fn of(text: &[u8]) -> Self {
        if text.is_empty() {
            return Self::default();
        }
        let mut hasher = StableHasher::default();
        hasher.write(text);
        Self {
            hash: hasher.finish(),
            bytes: u32::try_from(text.len()).unwrap_or(u32::MAX),
        }
    }
}

/// A value that can be encoded as a record part.
pub(crate) trait Text: Sized {
    /// Encodes the value. The default edit and overrides, which most rules have, are encoded as
    /// empty strings.
    fn write(&self) -> Vec<u8>;
    /// Decodes a value. Returns `None` if the encoding is invalid.
    fn read(text: &[u8]) -> Option<Self>;
}

/// A part of the record. Clones share their value until one of them is modified.
#[derive(Debug)]
pub(crate) struct Part<T> {
    value: Arc<T>,
    id: Option<Id>,
}

impl<T> Part<T> {
    pub(super) fn new(value: T) -> Self {
        Self {
            value: Arc::new(value),
            id: None,
        }
    }

    /// Returns the part's ID. `None` if the value has not been encoded since it was created or
    /// changed.
    pub(super) const fn id(&self) -> Option<Id> {
        self.id
    }

    /// Sets the ID of a part that has just been encoded.
    pub(super) const fn identify(&mut self, id: Id) {
        self.id = Some(id);
    }

    /// Returns true if both parts share one value or have the same ID. Values are not compared, so
    /// the result may be false even if they are equal.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.value, &other.value) || (self.id.is_some() && self.id == other.id)
    }

    /// Returns a reference to the shared value.
    pub(super) const fn shared(&self) -> &Arc<T> {
        &self.value
    }
}

impl<T: Text> Part<T> {
    /// Creates a part and computes its ID. Another worker has probably already written the same
    /// value to the record, and thanks to the ID, this worker does not have to decode it.
    pub(super) fn identified(value: T) -> Self {
        let id = Id::of(&value.write());
        Self {
            value: Arc::new(value),
            id: Some(id),
        }
    }

    /// Decodes a part. Returns `None` if the encoding is invalid or does not have this ID.
    pub(super) fn read(id: Id, text: &[u8]) -> Option<Self> {
        if Id::of(text) != id {
            return None;
        }
        #[cfg(test)]
        super::work::read(text.len());
        Some(Self {
            value: Arc::new(T::read(text)?),
            id: Some(id),
        })
    }
}

impl<T> Clone for Part<T> {
    fn clone(&self) -> Self {
        Self {
            value: Arc::clone(&self.value),
            id: self.id,
        }
    }
}

impl<T> Deref for Part<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Clone> DerefMut for Part<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.id = None;
        Arc::make_mut(&mut self.value)
    }
}

impl<T: PartialEq> PartialEq for Part<T> {
    fn eq(&self, other: &Self) -> bool {
        self.is_same(other) || self.value == other.value
    }
}

impl<T: Eq> Eq for Part<T> {}
