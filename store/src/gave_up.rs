//! The reasons for which the store gives no decision.

use crate::shared_data::StoreFailed;

/// Why there is no decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GaveUp {
    /// Too many conflicts.
    Conflicts,
    /// The host failed.
    Failed,
    /// The page is of a version this code does not know.
    UnknownPage,
    /// Every bucket of the page that could make room is banned by an operator or holds permits.
    PageFull,
    /// The bucket is of a version of its rule that is newer than the one at hand.
    Outdated,
}

impl From<StoreFailed> for GaveUp {
    fn from(_: StoreFailed) -> Self {
        Self::Failed
    }
}
