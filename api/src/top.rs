//! `GET /v1/top?rule=&by=refused|admitted&limit=`: the keys that were refused or admitted most, lately.

use serde::{Deserialize, Serialize};

use crate::TopBy;

/// Heavy hitters of recent time. What a worker counted in the last quarter of a second may be missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Top {
    /// The server's clock.
    pub now_ns: u64,
    /// The generation of the rules.
    pub generation: u64,
    /// What is counted.
    pub by: TopBy,
    /// Counts are of so much time up to now.
    pub window_ns: u64,
    /// The most counted ones, most first.
    pub top: Vec<TopEntry>,
    /// How many keys have a count, those that `limit` left out included.
    pub keys: u64,
    /// How often a key that has no count was counted at most; with 0 all keys have one, and all counts
    /// are exact.
    pub missing_at_most: u64,
}

/// One key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopEntry {
    /// The name of its rule.
    pub rule: String,
    /// The key, as in buckets.
    pub key: String,
    /// How often it was counted, at most.
    pub count: u64,
    /// How much of `count` may be too much: it was counted at least `count - error` times.
    pub error: u64,
}
