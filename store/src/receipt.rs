//! The receipt of a bucket, with which a request gives back.

use loudou_limiter::Taken;

/// What a bucket gave out: what was taken, and of which of the buckets that were in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    pub(crate) taken: Taken,
    pub(crate) origin: u32,
}
