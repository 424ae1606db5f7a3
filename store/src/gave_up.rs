//! The reasons for which the store makes no decision.

use crate::shared_data::StoreFailed;

/// The reason for a missing decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GaveUp {
    /// Too many conflicts.
    Conflicts,
    /// The host failed.
    Failed,
    /// The page has a version that this code does not know.
    UnknownPage,
    /// Every bucket of the page that could be evicted is banned by an operator or holds permits.
    PageFull,
    /// The bucket has a newer version of its rule than this worker.
    Outdated,
}

impl From<StoreFailed> for GaveUp {
    fn from(_: StoreFailed) -> Self {
        Self::Failed
    }
}
