//! Units that a request took from a bucket, and that are given back, or resolved, later.

use loudou_store::Receipt;

/// Units that a request took from a bucket, and that may have to be given back: when the request ends, or
/// if it never passes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Loan {
    pub(crate) key: String,
    pub(crate) receipt: Receipt,
    /// Whether the bucket made the request wait: it counts on being notified when the request passes.
    pub(crate) waits: bool,
    /// Whether some of the units are only taken until the request ends.
    pub(crate) until_end: bool,
}
