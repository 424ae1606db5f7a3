//! The store's view of a rule: the limits of its keys, through time.

use core::fmt;

use loudou_limiter::{Bucket, Clock, Limits, Penalty, Taken};

use crate::page::Slot;

/// A rule in force, as its buckets see it.
pub trait LiveRule {
    /// A number that distinguishes the rule's buckets from those of other rules.
    fn tag(&self) -> u32;

    /// The version in force; each written bucket gets it.
    fn version(&self) -> u32;

    /// How a bucket's version is related to the one in force.
    fn age(&self, version: u32) -> Age;

    /// The limits of a key's bucket.
    fn limits_of(&self, key: &str) -> &Limits;

    /// Converts the bucket of `key` from its version to the one in force, in which it has `limits`; `None` if
    /// nothing changes.
    fn bring_forward(
        &self,
        of: (&str, &Limits),
        bucket: (&Bucket, u32),
        clock: Clock,
    ) -> Option<Bucket>;

    /// Converts what a waiting request took from the bucket of `key` as [`LiveRule::bring_forward`] converts
    /// the bucket; `None` if nothing changes, or if the version is not known any more.
    fn bring_taken_forward(
        &self,
        of: (&str, &Limits),
        taken: (&Taken, u32),
        clock: Clock,
    ) -> Option<Taken>;

    /// The penalty for keys that are refused too often.
    fn penalty(&self) -> Option<&Penalty>;

    /// The bucket of a key in a slot, as it is under the version in force.
    fn bucket_of(&self, key: &str, slot: &Slot, clock: Clock) -> Bucket {
        let limits = self.limits_of(key);
        self.bring_forward((key, limits), (&slot.bucket, slot.version), clock)
            .unwrap_or_else(|| slot.bucket.clone())
    }
}

// Not a supertrait: it would link the text of every part of a rule into the filter.
impl fmt::Debug for dyn LiveRule + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule {:08x} version {}", self.tag(), self.version())
    }
}

/// How the version of a bucket is related to the one in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// The bucket has the version in force.
    Current,
    /// The bucket has to be converted.
    Older,
    /// The bucket has a newer version: this worker's rule is out of date.
    Newer,
}
