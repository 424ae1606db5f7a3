//! The receipt of a bucket, with which a request gives its cost back.

use loudou_limiter::{Ask, Taken};

use crate::page::Slot;
use crate::table::BucketId;

/// The receipt of a bucket: its address, the amount taken, and the origin of the bucket in its slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    pub(crate) id: BucketId,
    pub(crate) taken: Taken,
    pub(crate) origin: u32,
    /// Whether the lease covered the cost, and the limits here did not take it.
    pub(crate) is_leased: bool,
}

impl Receipt {
    /// The receipt for `ask`, which is about to take from the bucket in a slot.
    pub(crate) fn new(id: BucketId, slot: &Slot, ask: &Ask) -> Self {
        Self::of(id, Taken::new(&slot.bucket, ask), slot.origin)
    }

    /// The receipt for what was taken from the bucket with this origin.
    pub(crate) const fn of(id: BucketId, taken: Taken, origin: u32) -> Self {
        Self {
            id,
            taken,
            origin,
            is_leased: false,
        }
    }

    /// The address of the bucket.
    pub const fn id(&self) -> BucketId {
        self.id
    }
}
