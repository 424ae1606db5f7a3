//! The key-value store that holds the buckets, with exactly the semantics of Envoy's shared data.

use alloc::vec::Vec;
use core::ops::Range;

/// Version of a value. Every successful write assigns a new version, which is never 0.
pub type Cas = u32;

/// Expected version that makes a write overwrite any existing value.
pub const CAS_OVERWRITE: Cas = 0;

/// Expected version that makes a write succeed only if the key is missing. The host ignores the expected version if the
/// key is missing, and compares the versions otherwise. A version that no value ever has therefore means put-if-absent.
/// If two workers both found the key missing and used [`CAS_OVERWRITE`] instead, both writes would succeed, and the
/// first one would be lost.
pub const CAS_ABSENT: Cas = u32::MAX;

/// Error for a store that could not be read or written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreFailed;

/// Result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// The value was written.
    Done,
    /// The value has a different version, so nothing was written.
    Conflict,
}

/// Maximum size of a [`Patch`], in bytes. Larger slots are not changed in place.
pub const MAX_PATCH: usize = 128;

/// New bytes for part of a value. The value keeps its length.
#[derive(Clone, Copy, Debug)]
pub struct Patch {
    at: usize,
    length: usize,
    bytes: [u8; MAX_PATCH],
}

impl Patch {
    /// Copies the part of `value` within `range`, so that [`Self::bytes_mut`] can modify the copy. Returns `None` if
    /// `range` is outside the value or longer than [`MAX_PATCH`].
    pub fn of(value: &[u8], range: Range<usize>) -> Option<Self> {
        let part = value.get(range.clone())?;
        let mut bytes = [0; MAX_PATCH];
        bytes.get_mut(..part.len())?.copy_from_slice(part);
        Some(Self {
            at: range.start,
            length: part.len(),
            bytes,
        })
    }

    /// Offset of the patch in the value.
    pub const fn at(&self) -> usize {
        self.at
    }

    /// The bytes to write.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    /// The bytes to write, as a mutable slice.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes.get_mut(..self.length).unwrap_or_default()
    }
}

/// A function that plans an in-place change of a value. It returns `None` to leave the value unchanged.
pub type PlanPatch<'a> = dyn FnMut(&[u8]) -> Option<Patch> + 'a;

/// A versioned key-value store, shared by all workers. The semantics are the same as in Envoy's shared data, including
/// its pitfalls:
///
/// - A write with [`CAS_OVERWRITE`] always succeeds.
/// - A write to a missing key always succeeds, with any expected version.
/// - Any other write succeeds only if the expected version is the current version.
/// - A write does not return the new version.
pub trait SharedData {
    /// Reads `key` into `value`, replacing its contents. Returns `None` if the key is missing.
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<Option<Cas>, StoreFailed>;

    /// Writes `key` if its version matches `expected`.
    fn set(&mut self, key: &[u8], value: &[u8], expected: Cas) -> Result<Written, StoreFailed>;

    /// Calls `plan` with the value of `key` and atomically writes the returned patch, before any other change to the
    /// value. The value is assigned a new version. Returns false, and changes nothing, if the store does not support
    /// in-place changes, if the key is missing, or if `plan` returns `None`. In that case, the caller uses
    /// [`Self::get`] and [`Self::set`] instead.
    fn patch(&mut self, _key: &[u8], _plan: &mut PlanPatch<'_>) -> bool {
        false
    }
}

/// Maximum number of retries after conflicts when changing a bucket or an upstream's counts. Each conflict means that
/// another worker wrote the value in the microseconds between the read and the write. The limit is therefore reached
/// only if many workers keep changing the same page without a pause.
pub const MAX_RETRIES: u32 = 64;
