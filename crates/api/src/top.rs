//! `GET /v1/top?rule=&by=refused|admitted&limit=`: the keys with the most recent refusals or admissions.

use serde::{Deserialize, Serialize};

use crate::TopBy;

/// Recent heavy hitters. Counts that a worker made in the last quarter of a second may be missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Top {
    /// The server's clock.
    pub now_ns: u64,
    /// The generation of the rules.
    pub generation: u64,
    /// The counted outcome.
    #[cfg_attr(feature = "schema", schemars(schema_with = "crate::schema::top_by"))]
    pub by: TopBy,
    /// The length of the counted time, up to now.
    pub window_ns: u64,
    /// The keys with the highest counts, highest first.
    pub top: Vec<TopEntry>,
    /// The sum of all counts, including the counts of keys that `limit` left out.
    #[serde(default)]
    pub total: u64,
    /// The number of keys with a count, including those that `limit` left out.
    pub keys: u64,
    /// The highest possible count of a key that has no count here; with 0 all keys have one, and all
    /// counts are exact.
    pub missing_at_most: u64,
}

/// One key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TopEntry {
    /// The name of its rule.
    pub rule: String,
    /// The key, as in buckets.
    pub key: String,
    /// Its count, at most.
    pub count: u64,
    /// The largest error of `count`: it was counted at least `count - error` times.
    pub error: u64,
    /// True if its rule is in shadow mode or off, so that what is counted as refused passed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub shadow: bool,
    /// `refused_since_ns` of its bucket. Absent, too, if the bucket is gone, or far down in a long list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_since_ns: Option<u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
const fn is_false(is: &bool) -> bool {
    !*is
}
