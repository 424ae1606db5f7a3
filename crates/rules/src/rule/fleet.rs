//! Limits shared by many Envoys: the settings of the fleet, and the scope of a rule.

use alloc::string::String;
use core::fmt;

use loudou_limiter::Nanos;
use loudou_limiter::lease::LeaseSettings;
use serde::Serialize;

/// Which Envoys share the buckets of a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Each Envoy has separate buckets.
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

/// What happens to requests of fleet rules while the relay or its store is unreachable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnOutage {
    /// Each Envoy enforces its part of the limits.
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
    /// Name of the relay's cluster in Envoy's configuration.
    pub cluster: String,
    /// Time after which granted tokens expire in an Envoy; more than zero.
    pub lease: Nanos,
    /// Timeout of a call to the relay, and of a request's wait for one; more than zero.
    pub timeout: Nanos,
    /// Number of cost units per key that each Envoy may admit before the relay has answered.
    pub credit: u32,
    /// What happens to requests while the relay does not answer.
    pub on_outage: OnOutage,
    /// Number of Envoys by which the limits are divided in an outage until the relay has reported a
    /// number; at least 1.
    #[serde(skip_serializing_if = "is_one")]
    pub envoys: u32,
    /// Shared secret that the relay requires. It is never serialised, so a file that is read back
    /// lacks it.
    #[serde(skip_serializing)]
    pub token: Option<Secret>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
const fn is_one(number: &u32) -> bool {
    *number == 1
}

impl FleetSettings {
    /// Returns the settings of all leases.
    pub fn lease_settings(&self) -> LeaseSettings {
        LeaseSettings {
            lease: self.lease,
            timeout: self.timeout,
            credit: self.credit.into(),
        }
    }
}

/// A secret string that is never shown. It has no serialised form, and its `Debug` form hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub(crate) const fn new(text: String) -> Self {
        Self(text)
    }

    /// Returns the secret, so that it can be sent.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}
