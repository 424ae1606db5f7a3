//! The key-value store below the buckets, with exactly the semantics of Envoy's shared data.

use alloc::vec::Vec;

/// A version of a value; every successful write gives a new one. Never 0.
pub type Cas = u32;

/// Overwrites any value.
pub const CAS_OVERWRITE: Cas = 0;

/// Creates a key that is absent. The host ignores the expected version of a missing key and
/// compares it otherwise, so a version that no live value has means put-if-absent. With
/// [`CAS_OVERWRITE`] instead, two workers that both find the key missing would both succeed, and the
/// first one's write would be lost.
pub const CAS_ABSENT: Cas = u32::MAX;

/// The store could not be read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreFailed;

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// The value was written.
    Done,
    /// The value has another version; nothing was written.
    Conflict,
}

/// A key-value store with versions, shared by all workers. The semantics are those of Envoy's shared
/// data, traps included:
///
/// - a write with [`CAS_OVERWRITE`] always succeeds;
/// - a write to a missing key always succeeds, whatever the expected version;
/// - any other write succeeds only if the expected version is the current one;
/// - a write does not return its new version.
pub trait SharedData {
    /// Reads `key` into `value`, replacing what it held. `None` when the key is missing.
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<Option<Cas>, StoreFailed>;

    /// Writes `key` if `expected` allows it.
    fn set(&mut self, key: &[u8], value: &[u8], expected: Cas) -> Result<Written, StoreFailed>;
}

/// The maximum number of retries of a change of a bucket or of an upstream's counts after conflicts. Every
/// failed try means that another worker succeeded in the microseconds between our read and our write, so only
/// a page that many workers change without a pause reaches this limit.
pub const MAX_RETRIES: u32 = 64;
