//! A part of the record: its value, and the hash of its text.
//!
//! Parts of the same hash have the same text, so a worker reads the text of each part once, whatever else
//! changes in the record, and a writer copies the texts of parts that it did not change. A changed part has
//! no hash until it is written.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use loudou_limiter::hash::StableHasher;

/// The parts of a rule.
pub(super) const PARTS: usize = 4;

/// The identity of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Id {
    pub(super) hash: u128,
    pub(super) bytes: u32,
}

impl Id {
    /// The identity of a text. An empty text has the default one.
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

/// A value with a text.
pub(crate) trait Text: Sized {
    /// The text; empty for the value that most rules have.
    fn write(&self) -> Vec<u8>;
    /// The value of a text, unless it is damaged.
    fn read(text: &[u8]) -> Option<Self>;
}

/// A part of the record. Clones share the value until one of them changes.
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

    /// The identity of its text, if it is known.
    pub(super) const fn id(&self) -> Option<Id> {
        self.id
    }

    /// Sets the identity of its text, which was just written.
    pub(super) const fn identify(&mut self, id: Id) {
        self.id = Some(id);
    }

    /// Whether both have the same value, without looking at it.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.value, &other.value) || (self.id.is_some() && self.id == other.id)
    }

    /// The value, to keep it.
    pub(super) const fn shared(&self) -> &Arc<T> {
        &self.value
    }
}

impl<T: Text> Part<T> {
    /// A value that other workers are likely to have written.
    pub(super) fn identified(value: T) -> Self {
        let id = Id::of(&value.write());
        Self {
            value: Arc::new(value),
            id: Some(id),
        }
    }

    /// The part of this text, unless it is damaged.
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
