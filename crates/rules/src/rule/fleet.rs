//! Limits shared by many Envoys: the settings of the fleet, and the scope of a rule.

use alloc::string::String;
use core::fmt;

use loudou_limiter::Nanos;
use loudou_limiter::lease::LeaseSettings;
use serde::Serialize;

/// Scope of a rule: the Envoys that share its buckets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Each Envoy has its own buckets.
    #[default]
    Envoy,
    /// All Envoys of the fleet share one bucket per key.
    Fleet,
}

impl Scope {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// How to treat requests under rules with fleet scope while the relay or its store is unreachable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnOutage {
    /// Each Envoy enforces its share of the limits.
    #[default]
    Local,
    /// The requests are admitted.
    Admit,
    /// The requests are refused.
    Refuse,
}

/// Settings of the fleet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FleetSettings {
    /// Name of the relay's cluster in the Envoy configuration.
    pub cluster: String,
    /// Time after which tokens granted to an Envoy expire; non-zero.
    pub lease: Nanos,
    /// Timeout of relay calls, and maximum time that a request waits for tokens; non-zero.
    pub timeout: Nanos,
    /// Number of cost units per key that each Envoy may admit before the relay has responded.
    pub credit: u32,
    /// How to treat requests while the relay is not responding.
    pub on_outage: OnOutage,
    /// Number of Envoys by which each Envoy divides the limits during an outage, until the relay
    /// has reported the actual number; at least 1.
    #[serde(skip_serializing_if = "is_one")]
    pub envoys: u32,
    /// Shared secret required by the relay. The secret is never serialised, so an exported file
    /// does not contain it.
    #[serde(skip_serializing)]
    pub token: Option<Secret>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
const fn is_one(number: &u32) -> bool {
    *number == 1
}

impl FleetSettings {
    /// Returns the settings common to all leases.
    pub fn lease_settings(&self) -> LeaseSettings {
        LeaseSettings {
            lease: self.lease,
            timeout: self.timeout,
            credit: self.credit.into(),
        }
    }
}

/// A secret string that is never shown. A secret cannot be serialised, and its `Debug` output hides
/// the string.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub(crate) const fn new(text: String) -> Self {
        Self(text)
    }

    /// Returns the secret, for sending it to the relay.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}
