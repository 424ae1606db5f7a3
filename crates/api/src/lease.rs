//! `POST /v1/leases` of the relay, which leases tokens from the central buckets of fleet-wide limits.
//!
//! One call contains all of an Envoy's keys that need tokens, and the changes made on this Envoy. The call also serves
//! as the Envoy's heartbeat, so even a call without keys is useful. Readers ignore unknown fields and reject numbers
//! that are out of range.
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

/// Path of a lease call.
pub const LEASE_PATH: &str = "/v1/leases";
/// Header that contains the relay's version. A relay sets this header in every response. A response without this header
/// was sent by a proxy in between.
pub const RELAY_HEADER: &str = "x-loudou-relay";
/// Maximum number of keys in a call.
pub const MAX_LEASE_KEYS: usize = 512;
/// Maximum number of limits per key.
pub const MAX_LEASE_LIMITS: usize = 8;
/// Maximum length of a call body, in bytes.
pub const MAX_LEASE_BODY: usize = 512 * 1024;
/// Maximum length of a namespace, a rule name or an epoch, in bytes.
pub const MAX_LEASE_NAME: usize = 256;
/// Maximum length of a key, in bytes.
pub const MAX_LEASE_KEY: usize = 8_192;
/// Maximum value of `want`, `need` and `debt` for a key, in units.
pub const MAX_LEASE_UNITS: u64 = 1_000_000_000;
/// Number of hexadecimal digits in an instance ID.
pub const INSTANCE_DIGITS: usize = 16;

/// Body of a lease call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRequest {
    /// Namespace of the store. Fleets in different namespaces share no state.
    pub namespace: String,
    /// Instance ID of the caller: [`INSTANCE_DIGITS`] hexadecimal digits, chosen at random for each process. If the ID
    /// is empty, the relay grants leases but neither counts the caller nor stores or returns changes.
    pub instance: String,
    /// Epoch of the changes that the caller has received, or empty if it has received none.
    #[serde(default)]
    pub epoch: String,
    /// Generation, within `epoch`, up to which the caller has received changes.
    #[serde(default)]
    pub generation: u64,
    /// Keys that need tokens. A key may appear at most once per rule.
    #[serde(default)]
    pub keys: Vec<LeaseKey>,
    /// Changes made by the caller that the relay must distribute.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
}

impl LeaseRequest {
    /// Creates a call without keys or changes.
    pub fn new(namespace: &str, instance: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            instance: instance.to_owned(),
            ..Self::default()
        }
    }
}

/// Demand for one key. A unit is granted either under all of the key's limits or under none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseKey {
    /// Name of the rule.
    pub rule: String,
    /// Key.
    pub key: String,
    /// Limits of the key.
    pub limits: Vec<LeaseLimit>,
    /// Requested units. The relay may grant fewer units.
    #[serde(default)]
    pub want: u64,
    /// Minimum useful grant: the cost of the cheapest held request, or 0. If fewer units are available, the relay
    /// grants none, because the caller could not use them. [`Lease::wait_us`] in the response is the wait for this
    /// amount.
    #[serde(default)]
    pub need: u64,
    /// Units admitted without a lease. The engine charges these units even if that exceeds a limit.
    #[serde(default)]
    pub debt: u64,
}

impl LeaseKey {
    /// Creates a key that requests no units, only its balance.
    pub fn new(rule: &str, key: &str, limits: Vec<LeaseLimit>) -> Self {
        Self {
            rule: rule.to_owned(),
            key: key.to_owned(),
            limits,
            ..Self::default()
        }
    }
}

/// Body of the response to a lease call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseAnswer {
    /// Number of instances that made a call in the last ten seconds, including the caller. 0 if the engine did not
    /// return this number.
    #[serde(default)]
    pub envoys: u64,
    /// Epoch of the changes. This epoch differs from the caller's epoch if the engine has lost changes. If the epoch is
    /// empty, the engine did not return changes, and the caller keeps its current changes.
    #[serde(default)]
    pub epoch: String,
    /// Generation up to which the caller has received all changes, including the changes in this response. This is the
    /// generation of the last change in the response, or the current generation if the response contains no changes.
    #[serde(default)]
    pub generation: u64,
    /// Answers for the keys, in the same order as in the call.
    #[serde(default)]
    pub keys: Vec<KeyAnswer>,
    /// Changes that the caller has not received yet, oldest first. If the caller's epoch differs, this contains all
    /// changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
    /// True if there are more changes, to be returned by the next call.
    #[serde(default, skip_serializing_if = "is_false")]
    pub more: bool,
    /// Changes in the call that the engine did not store.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rejected: Vec<RejectedChange>,
}

/// The relay's answer for one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub enum KeyAnswer {
    /// The central bucket responded.
    Lease(Lease),
    /// The central bucket did not respond. It is unknown whether the units were taken.
    Failed(LeaseError),
}

/// Units granted to a key, and the state of its central bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    /// Units that the caller may use, at most `want`.
    pub granted: u64,
    /// Units charged, always the entire debt.
    pub charged: u64,
    /// Time until `need` units, but at least one unit, are available, in microseconds. 0 if `want` units were granted
    /// and no debt exceeds a limit.
    pub wait_us: u64,
    /// Units that remain in the central bucket under each limit, in the same order as the call's limits.
    pub left: Vec<u64>,
    /// Time until the first fixed window ends, and this lease with it, in microseconds. 0 if the key has no fixed
    /// window.
    pub ends_us: u64,
}

/// Reason why the central bucket did not respond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeaseError {
    /// The engine did not respond in time.
    Timeout,
    /// The relay has no connection to the engine.
    Unreachable,
    /// The engine returned an error.
    Refused,
    /// A reason sent by a newer relay that this version does not know.
    #[default]
    #[serde(other)]
    Unknown,
}

/// JSON form of a [`KeyAnswer`].
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

// Parsing and validation of calls and answers. If a value is out of range, the error contains the path to that value.

/// Error for an invalid call or response, with the path of the invalid value, the value itself and the allowed values.
/// For a string, the error contains only the length, because the string may be a user secret.
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

    /// Converts a `serde_json` error. Keeps only the category and position of the error, because its message quotes
    /// values of the wrong type.
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

/// Checks that a string is `least` to `most` bytes long.
fn length(place: &str, text: &str, least: usize, most: usize) -> Result<(), BadLease> {
    if text.len() < least || text.len() > most {
        let value = format!("{} bytes", text.len());
        return Err(BadLease::new(place, value, format!("{least} to {most}")));
    }
    Ok(())
}

/// Checks that the number of elements is between `least` and `most`.
fn count(place: &str, found: usize, least: usize, most: usize) -> Result<(), BadLease> {
    if found < least || found > most {
        return Err(BadLease::new(place, found, format!("{least} to {most}")));
    }
    Ok(())
}

impl LeaseRequest {
    /// Parses and validates the body of a lease call.
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
    /// Parses and validates the body of the response to a call with the keys `asked`.
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
