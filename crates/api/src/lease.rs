//! `POST /v1/leases` of the relay: tokens of fleet-wide limits, taken from the central bucket beforehand.
//!
//! One call carries every key that asks for something, the changes that one Envoy made and the others must
//! know, and the fact that this Envoy lives; a call without keys is only that. Readers ignore unknown
//! fields, and refuse numbers beyond their bounds.
//!
//! ```
//! use loudou_api::{LeaseKey, LeaseLimit, LeaseRequest};
//!
//! let limit = LeaseLimit::Leak { capacity: 15, amount: 30, period_ns: 60_000_000_000 };
//! let key = LeaseKey { want: 7, need: 2, ..LeaseKey::new("daily-quota", "nina", vec![limit]) };
//! let request = LeaseRequest { keys: vec![key], ..LeaseRequest::new("loudou", "0f1e2d3c4b5a6978") };
//! let sent = serde_json::to_vec(&request)?;
//! assert_eq!(LeaseRequest::read(&sent), Ok(request));
//! # Ok::<(), serde_json::Error>(())
//! ```

use serde::{Deserialize, Serialize};

use crate::change::{Change, RejectedChange};

mod limit;
mod read;

pub use limit::LeaseLimit;
pub use read::BadLease;

/// The path of a call.
pub const LEASE_PATH: &str = "/v1/leases";
/// The header, with the relay's version, of every response of a relay: without it an answer comes from
/// something in between.
pub const RELAY_HEADER: &str = "x-loudou-relay";
/// The most keys in a call.
pub const MAX_LEASE_KEYS: usize = 512;
/// The most limits of a key.
pub const MAX_LEASE_LIMITS: usize = 8;
/// The longest body of a call, in bytes.
pub const MAX_LEASE_BODY: usize = 512 * 1024;
/// The longest namespace, rule and epoch, in bytes.
pub const MAX_LEASE_NAME: usize = 256;
/// The longest key, in bytes.
pub const MAX_LEASE_KEY: usize = 8_192;
/// The most units that a key wants, needs or owes.
pub const MAX_LEASE_UNITS: u64 = 1_000_000_000;
/// The digits of an instance, which are hexadecimal.
pub const INSTANCE_DIGITS: usize = 16;

/// A call of a relay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRequest {
    /// The namespace of the store: fleets with different ones share nothing.
    pub namespace: String,
    /// The caller: [`INSTANCE_DIGITS`] hexadecimal digits, random in each process. Empty in a call that is
    /// only about keys: the caller is not counted, and changes are neither written nor read.
    pub instance: String,
    /// The epoch of the changes that the caller knows; empty if it knows none.
    #[serde(default)]
    pub epoch: String,
    /// The generation of the changes that the caller knows, in that epoch.
    #[serde(default)]
    pub generation: u64,
    /// The keys that ask; a key is there at most once per rule.
    #[serde(default)]
    pub keys: Vec<LeaseKey>,
    /// The changes that were made at the caller and are to be known by all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
}

impl LeaseRequest {
    /// A call that asks for nothing.
    pub fn new(namespace: &str, instance: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            instance: instance.to_owned(),
            ..Self::default()
        }
    }
}

/// The demand of one key. Each limit of the rule grants the units, or none does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseKey {
    /// The name of the rule.
    pub rule: String,
    /// The key.
    pub key: String,
    /// The limits that apply to it.
    pub limits: Vec<LeaseLimit>,
    /// The units that are wanted; fewer may be granted.
    #[serde(default)]
    pub want: u64,
    /// The least number of units that is of use: the cost of the cheapest request that is held, or 0. Fewer
    /// are not granted, because they would be lost; the wait in the answer is for so many.
    #[serde(default)]
    pub need: u64,
    /// The units that have passed without a lease. They are charged even above the limit.
    #[serde(default)]
    pub debt: u64,
}

impl LeaseKey {
    /// A key that asks for nothing, and gets to know what is left.
    pub fn new(rule: &str, key: &str, limits: Vec<LeaseLimit>) -> Self {
        Self {
            rule: rule.to_owned(),
            key: key.to_owned(),
            limits,
            ..Self::default()
        }
    }
}

/// The answer of a relay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseAnswer {
    /// The instances that called in the last ten seconds, the caller included; 0 if the engine did not
    /// give it.
    #[serde(default)]
    pub envoys: u64,
    /// The epoch of the changes: another one where the engine lost them. Empty if the engine did not give
    /// it: what the caller knows stays as it is.
    #[serde(default)]
    pub epoch: String,
    /// The generation of the last change in this answer, or the newest there is if there is none in it:
    /// what the caller knows now.
    #[serde(default)]
    pub generation: u64,
    /// One for each key of the call, in its order.
    #[serde(default)]
    pub keys: Vec<KeyAnswer>,
    /// The changes that the caller does not know, oldest first; all of them if its epoch is another.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
    /// Whether there are more changes, for the next call.
    #[serde(default, skip_serializing_if = "is_false")]
    pub more: bool,
    /// The changes of the call that were not written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rejected: Vec<RejectedChange>,
}

/// The answer for a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub enum KeyAnswer {
    /// The central bucket answered.
    Lease(Lease),
    /// It did not, and whether the units were taken is unknown.
    Failed(LeaseError),
}

/// Units of one key, and the state of its central bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    /// The units that the caller may use; at most those that it wanted.
    pub granted: u64,
    /// The units of its debt that were charged: all of them.
    pub charged: u64,
    /// If less was granted than wanted: the time until as many units are there as are needed, at least one.
    /// Also given where debts are above the limit. Otherwise 0.
    pub wait_us: u64,
    /// The units that are left in the central bucket at each limit, in the order of the call's limits.
    pub left: Vec<u64>,
    /// The time until the first of the fixed windows ends, and this lease with it; 0 without such a limit.
    pub ends_us: u64,
}

/// The reason why the central bucket did not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeaseError {
    /// Not in time.
    Timeout,
    /// There is no connection.
    Unreachable,
    /// The engine answered with an error.
    Refused,
    /// A reason that a newer relay knows.
    #[default]
    #[serde(other)]
    Unknown,
}

/// A [`KeyAnswer`] as written.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Written {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<LeaseError>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    granted: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    charged: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wait_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    left: Option<Vec<u64>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ends_us: Option<u64>,
}

impl TryFrom<Written> for KeyAnswer {
    type Error = &'static str;

    fn try_from(written: Written) -> Result<Self, Self::Error> {
        if let Some(error) = written.error {
            return Ok(Self::Failed(error));
        }
        let (Some(granted), Some(charged)) = (written.granted, written.charged) else {
            return Err("a key's answer has neither `granted` and `charged` nor `error`");
        };
        Ok(Self::Lease(Lease {
            granted,
            charged,
            wait_us: written.wait_us.unwrap_or(0),
            left: written.left.unwrap_or_default(),
            ends_us: written.ends_us.unwrap_or(0),
        }))
    }
}

impl From<KeyAnswer> for Written {
    fn from(answer: KeyAnswer) -> Self {
        match answer {
            KeyAnswer::Failed(error) => Self {
                error: Some(error),
                ..Self::default()
            },
            KeyAnswer::Lease(lease) => Self {
                error: None,
                granted: Some(lease.granted),
                charged: Some(lease.charged),
                wait_us: Some(lease.wait_us),
                left: Some(lease.left),
                ends_us: Some(lease.ends_us),
            },
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}
