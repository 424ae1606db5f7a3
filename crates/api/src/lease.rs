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

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::change::{Change, RejectedChange};

pub use limit::LeaseLimit;

mod limit;

/// The path of a call.
pub const LEASE_PATH: &str = "/v1/leases";
/// The header, with the relay's version, of every response of a relay: without it an answer comes from
/// something in between.
pub const RELAY_HEADER: &str = "x-loudou-relay";
/// Maximum number of keys in a call.
pub const MAX_LEASE_KEYS: usize = 512;
/// Maximum number of limits of a key.
pub const MAX_LEASE_LIMITS: usize = 8;
/// Maximum length of a call's body, in bytes.
pub const MAX_LEASE_BODY: usize = 512 * 1024;
/// Maximum length of a namespace, a rule name and an epoch, in bytes.
pub const MAX_LEASE_NAME: usize = 256;
/// Maximum length of a key, in bytes.
pub const MAX_LEASE_KEY: usize = 8_192;
/// Maximum number of units that a key wants, needs or owes.
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
    /// are not granted, because they would be lost; the wait in the answer is for this many.
    #[serde(default)]
    pub need: u64,
    /// The units that have passed without a lease. They are charged even above the limit.
    #[serde(default)]
    pub debt: u64,
}

impl LeaseKey {
    /// Returns a key that asks for no units and only learns the balance.
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
    /// True if there are more changes, for the next call.
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

// Reading calls and answers from bytes. A value beyond a bound is an error that names its place.

/// A call or an answer that is none: a sentence with the place, the value and the allowed values. Of
/// texts it names only the length: they may be secrets of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLease(String);

impl fmt::Display for BadLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for BadLease {}

impl BadLease {
    fn new(place: &str, value: impl fmt::Display, allowed: impl fmt::Display) -> Self {
        Self(format!("{place}: {value}; allowed: {allowed}"))
    }

    /// The message of the reader quotes values of a wrong kind; only its place is kept.
    fn json(error: &serde_json::Error) -> Self {
        let (line, column) = (error.line(), error.column());
        let kind = match error.classify() {
            serde_json::error::Category::Data => {
                "a field is missing, or its value has another form"
            }
            serde_json::error::Category::Eof => "the text ends too early",
            _ => "no JSON",
        };
        Self(format!("line {line}, column {column}: {kind}"))
    }
}

/// A text of `least` to `most` bytes.
fn length(place: &str, text: &str, least: usize, most: usize) -> Result<(), BadLease> {
    if text.len() < least || text.len() > most {
        let value = format!("{} bytes", text.len());
        return Err(BadLease::new(place, value, format!("{least} to {most}")));
    }
    Ok(())
}

/// The bound on a number of elements.
fn count(place: &str, found: usize, least: usize, most: usize) -> Result<(), BadLease> {
    if found < least || found > most {
        return Err(BadLease::new(place, found, format!("{least} to {most}")));
    }
    Ok(())
}

impl LeaseRequest {
    /// Reads the body of a call.
    pub fn read(body: &[u8]) -> Result<Self, BadLease> {
        count("body bytes", body.len(), 0, MAX_LEASE_BODY)?;
        let request: Self = serde_json::from_slice(body).map_err(|error| BadLease::json(&error))?;
        request.check()?;
        Ok(request)
    }

    fn check(&self) -> Result<(), BadLease> {
        length("namespace", &self.namespace, 1, MAX_LEASE_NAME)?;
        length("epoch", &self.epoch, 0, MAX_LEASE_NAME)?;
        let digits = self.instance.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !matches!(self.instance.len(), 0 | INSTANCE_DIGITS) || !digits {
            let allowed = format!("{INSTANCE_DIGITS} hexadecimal digits, or none");
            let value = format!("{} bytes", self.instance.len());
            return Err(BadLease::new("instance", value, allowed));
        }
        count("keys", self.keys.len(), 0, MAX_LEASE_KEYS)?;
        for (at, key) in self.keys.iter().enumerate() {
            key.check(&format!("keys[{at}]"))?;
        }
        Ok(())
    }
}

impl LeaseKey {
    fn check(&self, place: &str) -> Result<(), BadLease> {
        let at = |field: &str| format!("{place}.{field}");
        length(&at("rule"), &self.rule, 1, MAX_LEASE_NAME)?;
        length(&at("key"), &self.key, 0, MAX_LEASE_KEY)?;
        count(&at("limits"), self.limits.len(), 1, MAX_LEASE_LIMITS)?;
        for (index, limit) in self.limits.iter().enumerate() {
            if let Some((field, value, allowed)) = limit.beyond() {
                let place = format!("{place}.limits[{index}].{field}");
                return Err(BadLease::new(&place, value, allowed));
            }
        }
        let numbers = [
            ("want", self.want, MAX_LEASE_UNITS),
            ("need", self.need, self.want),
            ("debt", self.debt, MAX_LEASE_UNITS),
        ];
        for (field, value, most) in numbers {
            if value > most {
                return Err(BadLease::new(&at(field), value, format!("0 to {most}")));
            }
        }
        Ok(())
    }
}

impl LeaseAnswer {
    /// Reads the body of the answer to a call with these keys.
    ///
    /// ```
    /// use loudou_api::{LeaseAnswer, LeaseKey, LeaseLimit};
    ///
    /// let limit = LeaseLimit::Window { capacity: 3, window_ns: 60_000_000_000 };
    /// let asked = [LeaseKey { want: 2, ..LeaseKey::new("per-user", "nina", vec![limit]) }];
    /// let read = |granted| {
    ///     let key = format!(r#"{{"granted":{granted},"charged":0,"wait_us":0,"left":[1],"ends_us":0}}"#);
    ///     LeaseAnswer::read(format!(r#"{{"envoys":1,"keys":[{key}]}}"#).as_bytes(), &asked)
    /// };
    /// assert!(read(2).is_ok());
    /// assert_eq!(read(3).unwrap_err().to_string(), "keys[0].granted: 3; allowed: 0 to 2");
    /// ```
    pub fn read(body: &[u8], asked: &[LeaseKey]) -> Result<Self, BadLease> {
        let answer: Self = serde_json::from_slice(body).map_err(|error| BadLease::json(&error))?;
        answer.check(asked)?;
        Ok(answer)
    }

    fn check(&self, asked: &[LeaseKey]) -> Result<(), BadLease> {
        count("keys", self.keys.len(), asked.len(), asked.len())?;
        for (at, (key, asked)) in self.keys.iter().zip(asked).enumerate() {
            let KeyAnswer::Lease(lease) = key else {
                continue;
            };
            let numbers = [
                ("granted", lease.granted, asked.want),
                ("charged", lease.charged, asked.debt),
            ];
            for (field, value, most) in numbers {
                if value > most {
                    let place = format!("keys[{at}].{field}");
                    return Err(BadLease::new(&place, value, format!("0 to {most}")));
                }
            }
            let (left, limits) = (lease.left.len(), asked.limits.len());
            count(&format!("keys[{at}].left"), left, limits, limits)?;
        }
        Ok(())
    }
}
