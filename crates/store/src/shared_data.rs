//! The key-value store that holds the buckets, with exactly the semantics of Envoy's shared data.

use alloc::vec::Vec;

/// Version of a value. Every successful write assigns a new version, which is never 0.
pub type Cas = u32;

/// Expected version of a write that overwrites any value.
pub const CAS_OVERWRITE: Cas = 0;

/// Expected version of a write that creates a missing key. The host ignores the expected version if
/// the key is missing and compares it otherwise. A version that no live value has therefore means
/// put-if-absent. If two workers both found the key missing and wrote with [`CAS_OVERWRITE`]
/// instead, both would succeed, and the first write would be lost.
pub const CAS_ABSENT: Cas = u32::MAX;

/// The error for a store that could not be read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreFailed;

/// Result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// The value was written.
    Done,
    /// The value has another version, so nothing was written.
    Conflict,
}

/// A key-value store with versions, shared by all workers. The semantics are the same as in Envoy's
/// shared data, traps included:
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
}

/// Maximum number of retries after conflicts when changing a bucket or an upstream's counts. Each
/// conflict means that another worker succeeded in the microseconds between the read and the write.
/// The limit is therefore reached only by a page that many workers change without a pause.
pub const MAX_RETRIES: u32 = 64;
