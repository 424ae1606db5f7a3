//! A part of the record: a value, and the hash of the text in which the record stores it.
//!
//! Parts with equal hashes have equal texts. So a worker reads a part's text again only if that
//! part has changed, and a writer copies the texts of unchanged parts. A changed part has no hash
//! until it is written.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use loudou_limiter::hash::StableHasher;

/// Number of parts of a rule.
pub(super) const PARTS: usize = 4;

/// Hash and length of a part's text. Parts with equal IDs have equal texts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Id {
    pub(super) hash: u128,
    pub(super) bytes: u32,
}

impl Id {
    /// Returns the ID of a part's text. The ID of an empty text is the default.
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

/// A value that is stored as text.
pub(crate) trait Text: Sized {
    /// Returns the text of the value. It is empty for the default value, which most rules have.
    fn write(&self) -> Vec<u8>;
    /// Parses the text of a value. Returns `None` if the text is damaged.
    fn read(text: &[u8]) -> Option<Self>;
}

/// A record part. Clones share the value until a clone changes.
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

    /// Returns the ID of the part's text. `None` if the text has not been computed since the value
    /// was created or changed.
    pub(super) const fn id(&self) -> Option<Id> {
        self.id
    }

    /// Sets the ID of the part's text, which was just written to the record.
    pub(super) const fn identify(&mut self, id: Id) {
        self.id = Some(id);
    }

    /// Returns true if the parts share their value or their texts have the same ID. Does not
    /// compare the values, so equal values may count as different.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.value, &other.value) || (self.id.is_some() && self.id == other.id)
    }

    /// Returns the shared value.
    pub(super) const fn shared(&self) -> &Arc<T> {
        &self.value
    }
}

impl<T: Text> Part<T> {
    /// Creates a part and computes the ID of its text. Another worker has probably written the same
    /// value already. If the IDs are equal, this worker does not have to read that text.
    pub(super) fn identified(value: T) -> Self {
        let id = Id::of(&value.write());
        Self {
            value: Arc::new(value),
            id: Some(id),
        }
    }

    /// Parses a part's text. Returns `None` if the text is damaged or does not have this ID.
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
