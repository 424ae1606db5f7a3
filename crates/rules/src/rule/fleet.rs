//! One limit across many Envoys: the fleet's settings, and a rule's scope.

use alloc::string::String;
use core::fmt;

use loudou_limiter::Nanos;
use loudou_limiter::lease::LeaseSettings;
use serde::Serialize;

/// The Envoys among which the buckets of a rule are shared.
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

/// The decision for requests of fleet rules while the relay or its store is unreachable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnOutage {
    /// Each Envoy limits alone, by its part of the limits.
    #[default]
    Local,
    /// The requests pass.
    Admit,
    /// The requests are refused.
    Refuse,
}

/// The settings of the fleet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FleetSettings {
    /// The name of the relay's cluster in Envoy's configuration.
    pub cluster: String,
    /// The time after which an Envoy no longer uses tokens that it was granted; more than zero.
    pub lease: Nanos,
    /// The longest time for a call to the relay, and for a request to wait for one; more than zero.
    pub timeout: Nanos,
    /// The cost units that may pass per key and Envoy before the relay has answered.
    pub credit: u32,
    /// The decision while the relay does not answer.
    pub on_outage: OnOutage,
    /// The number of Envoys by which an Envoy divides the limits in an outage until the relay has reported one; at
    /// least 1.
    #[serde(skip_serializing_if = "is_one")]
    pub envoys: u32,
    /// The shared secret that the relay asks for. It is never written, so a file that is read back lacks it.
    #[serde(skip_serializing)]
    pub token: Option<Secret>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
const fn is_one(number: &u32) -> bool {
    *number == 1
}

impl FleetSettings {
    /// The settings of every lease.
    pub fn lease_settings(&self) -> LeaseSettings {
        LeaseSettings {
            lease: self.lease,
            timeout: self.timeout,
            credit: self.credit.into(),
        }
    }
}

/// A text that is never shown: it has no serialised form, and its `Debug` form hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub(crate) const fn new(text: String) -> Self {
        Self(text)
    }

    /// The text, to send it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}
