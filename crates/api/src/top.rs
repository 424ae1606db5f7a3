//! `GET /v1/top?rule=&by=refused|admitted&limit=`: the keys with the highest recent refusal or admission counts.

use serde::{Deserialize, Serialize};

use crate::TopBy;

/// Recent heavy hitters. Requests counted by a worker in the last quarter of a second may be missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Top {
    /// Current time on the server's monotonic clock.
    pub now_ns: u64,
    /// Generation number of the rules.
    pub generation: u64,
    /// Outcome being counted.
    #[cfg_attr(feature = "schema", schemars(schema_with = "crate::schema::top_by"))]
    pub by: TopBy,
    /// Length of the counting window, which ends at `now_ns`.
    pub window_ns: u64,
    /// Keys with the highest counts, in descending order.
    pub top: Vec<TopEntry>,
    /// Sum of all counts, including the counts of keys beyond `limit`.
    #[serde(default)]
    pub total: u64,
    /// Number of keys that were counted, including keys beyond `limit`.
    pub keys: u64,
    /// Upper bound on the count of any key that has no counter. If this bound is 0, every key has a counter and all
    /// counts are exact.
    pub missing_at_most: u64,
}

/// A key with its count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TopEntry {
    /// Name of the rule.
    pub rule: String,
    /// Key, in the same notation as in bucket lists.
    pub key: String,
    /// Upper bound on the true count.
    pub count: u64,
    /// Maximum error of `count`. The true count is at least `count - error`.
    pub error: u64,
    /// True if the rule is in shadow mode or off. In that case, requests counted as refused were actually let through.
    #[serde(default, skip_serializing_if = "is_false")]
    pub shadow: bool,
    /// The bucket's `refused_since_ns`. Also absent if the bucket no longer exists, or if reading the buckets of a long
    /// list took too long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_since_ns: Option<u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
const fn is_false(is: &bool) -> bool {
    !*is
}
