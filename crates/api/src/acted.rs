//! `POST /v1/buckets/{rule}/{key}/reset`, `…/ban` and `…/unban`.

use serde::{Deserialize, Serialize};

use crate::bucket::{BanView, BucketView};
use crate::change::Spread;

/// The answer to `POST /v1/buckets/{rule}/{key}/reset`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ResetAnswer {
    /// Whether there was a bucket; a key without one is idle.
    pub existed: bool,
    /// The bucket before the reset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<BucketView>,
}

/// The answer to `POST /v1/buckets/{rule}/{key}/ban` and `…/unban`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BanAnswer {
    /// The server's clock.
    pub now_ns: u64,
    /// The ban that was in force before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<BanView>,
    /// The bucket after the call; absent if the key has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<BucketView>,
    /// Whether anything changed. An earlier ban that ends later stays, unless the call has `replace`.
    #[serde(default = "yes")]
    pub changed: bool,
    /// Where else it will hold; absent without a fleet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<Spread>,
}

/// The default, since every ban replaced the one before until the field existed.
const fn yes() -> bool {
    true
}
