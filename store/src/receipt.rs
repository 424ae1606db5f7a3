//! The receipt of a bucket, with which a request gives back.

use loudou_limiter::{Ask, Taken};

use crate::page::Slot;
use crate::table::BucketId;

/// What a bucket gave out: its address, what was taken, and of which of the buckets that were in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    pub(crate) id: BucketId,
    pub(crate) taken: Taken,
    pub(crate) origin: u32,
}

impl Receipt {
    /// For what `ask` is about to take from the bucket in a slot.
    pub(crate) fn new(id: BucketId, slot: &Slot, ask: &Ask) -> Self {
        Self {
            id,
            taken: Taken::new(&slot.bucket, ask),
            origin: slot.origin,
        }
    }

    /// The address of the bucket.
    pub const fn id(&self) -> BucketId {
        self.id
    }
}
