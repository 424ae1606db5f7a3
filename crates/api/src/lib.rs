//! Types of all `/v1` requests and responses exchanged between the filter and its clients, and between the filter and
//! the relay.
//!
//! Times in requests are duration strings (`30m`). Times in responses are integers, in nanoseconds on the server's
//! monotonic clock, and their field names end with the unit. A response also contains `now_ns`, the current time on
//! this clock. New releases only add fields to `/v1`, so readers ignore unknown fields.
#![forbid(unsafe_code)]

mod bucket;
mod change;
mod event;
mod explain;
mod lease;
mod percent;
mod problem;
mod rule;
#[cfg(feature = "schema")]
mod schema;
mod status;
mod top;

pub use bucket::{
    BanBy, BanView, BroughtView, BucketNames, BucketState, BucketView, BucketsHead, BucketsPage,
    KeyOverrideView, LeaseView, LimitView, OutageView, OverrideKind, REFUSING_FOR,
};
pub use change::{BanAnswer, ResetAnswer};
pub use change::{
    Change, ChangeName, MAX_ALL_CHANGES_BYTES, MAX_ANSWER_CHANGES, MAX_ANSWER_CHANGES_BYTES,
    MAX_CHANGE_BYTES, MAX_CHANGE_NAME, MAX_CHANGES, RejectedChange, SHOWN_CHANGE_NAME, Spread,
    TOMBSTONE_S,
};
pub use event::{Event, EventKind, EventSource, Events};
pub use explain::{
    ExplainAnswer, ExplainedBan, ExplainedLimit, ExplainedNumber, ExplainedRule, NumberOrigin,
    Says, UnmetPart,
};
pub use lease::{
    BadLease, INSTANCE_DIGITS, KeyAnswer, LEASE_PATH, Lease, LeaseAnswer, LeaseError, LeaseKey,
    LeaseLimit, LeaseRequest, MAX_LEASE_BODY, MAX_LEASE_KEY, MAX_LEASE_KEYS, MAX_LEASE_LIMITS,
    MAX_LEASE_NAME, MAX_LEASE_UNITS, RELAY_HEADER,
};
pub use loudou_rules::config::Access;
pub use loudou_store::top::By as TopBy;
pub use percent::percent_decoded;
pub use problem::{ProblemAnswer, RuleProblem};
pub use rule::{EditAnswer, EditView, OverrideView, RuleView, Rules};
pub use status::{FleetChanges, FleetStatus, RuleTotals, Status, StoreStatus, UpstreamView};
pub use top::{Top, TopEntry};

/// API version, as it appears in paths.
pub const API_VERSION: &str = "v1";
/// Maximum number of buckets per page.
pub const MAX_PAGE: usize = 500;
/// Maximum number of buckets that one call reads by name.
pub const MAX_READ: usize = 64;
/// Number of buckets per page if the request has no `limit`.
pub const DEFAULT_PAGE: usize = 100;
/// Maximum number of keys in a list of heavy hitters.
pub const MAX_TOP: usize = loudou_store::top::COUNTERS;
/// Number of keys in a list of heavy hitters if the request has no `limit`.
pub const DEFAULT_TOP: usize = 20;
/// Maximum length of an edit's reason, in bytes.
pub const MAX_REASON: usize = 200;
/// Header that can carry the JSON of a call, in ASCII, instead of the body. In a response, this header contains the
/// [`BodyWays`] of the listener.
pub const BODY_HEADER: &str = "loudou-body";
/// Maximum length of the JSON in [`BODY_HEADER`], in bytes. By default, Envoy limits a request's headers to 60 KiB in
/// total.
pub const MAX_BODY_HEADER: usize = 32 * 1024;

/// Where a listener accepts the JSON of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyWays {
    /// In the body, or in [`BODY_HEADER`].
    Any,
    /// Only in [`BODY_HEADER`].
    Header,
}

impl BodyWays {
    /// Returns the name used in the response header.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Header => "header",
        }
    }

    /// Parses a name from the response header.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Any, Self::Header]
            .into_iter()
            .find(|ways| ways.name() == name)
    }
}
