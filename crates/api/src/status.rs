//! `GET /v1/status`.

use loudou_rules::config::Access;
use serde::{Deserialize, Serialize};

/// State of the filter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Status {
    /// Version of the filter.
    pub version: String,
    /// Commit that the filter was built from.
    pub git: String,
    /// Unique name of the Envoy process. Empty if the filter does not report it. Generations and event numbers are
    /// valid only within a process.
    #[serde(default)]
    pub instance: String,
    /// Time at which the process started limiting requests, in milliseconds since the Unix epoch.
    #[serde(default)]
    pub started_unix_ms: u64,
    /// Generation number of the rules. Every accepted edit and every new configuration increments
    /// the generation.
    pub generation: u64,
    /// Current time on the server's monotonic clock.
    pub now_ns: u64,
    /// Current time on the server's wall clock, in milliseconds since the Unix epoch.
    pub unix_ms: u64,
    /// Time since the first worker started limiting requests.
    pub uptime_ns: u64,
    /// The caller's access level.
    #[cfg_attr(feature = "schema", schemars(schema_with = "crate::schema::access"))]
    pub access: Access,
    /// State of the bucket store.
    pub store: StoreStatus,
    /// Totals of all rules, in evaluation order.
    pub rules: Vec<RuleTotals>,
    /// Total number of requests that are currently being held by all workers.
    #[serde(default)]
    pub waiting: u64,
    /// Number of requests refused because they would have been held beyond their deadline.
    #[serde(default)]
    pub not_held_deadline: u64,
    /// Number of requests refused because their worker was already holding the maximum of
    /// `store.waiting` requests.
    #[serde(default)]
    pub not_held_full: u64,
    /// State of the fleet that shares the limits. Absent if no rule is fleet-wide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetStatus>,
    /// Warnings for operators.
    pub warnings: Vec<String>,
}

/// State of the bucket store. All counters start at zero when Envoy starts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StoreStatus {
    /// Maximum number of live buckets.
    pub buckets: u64,
    /// Number of slots in use, including slots that contain idle buckets.
    pub used: u64,
    /// Number of sampled slots whose buckets are idle.
    pub sampled_idle: u64,
    /// Number of slots in use that were sampled for `sampled_idle`.
    pub sampled: u64,
    /// Number of idle buckets that were evicted. Evicting an idle bucket loses no state.
    pub evicted_lossless: u64,
    /// Number of buckets that were evicted before they were idle.
    pub evicted_lossy: u64,
    /// Number of retries after compare-and-swap conflicts.
    pub cas_retries: u64,
    /// Number of decisions abandoned after too many compare-and-swap conflicts. The rule's
    /// `on_error` was applied instead.
    pub cas_give_ups: u64,
    /// Number of refusals that could not be recorded in their bucket.
    pub lost_counts: u64,
    /// Number of requests whose permits or cost could not be given back. These units stay taken
    /// until they expire.
    #[serde(default)]
    pub lost_returns: u64,
    /// Number of responses that could not be counted towards their upstream's health, for rules
    /// with `when`.
    #[serde(default)]
    pub lost_responses: u64,
    /// Number of times that a worker's sandbox crashed and was reloaded.
    #[serde(default)]
    pub reloads: u64,
}

impl StoreStatus {
    /// Returns a warning if buckets were evicted before they were idle since Envoy started. A caller that knows when
    /// the evictions happened can replace this warning with a more precise one.
    #[inline]
    pub fn evictions(&self) -> Option<String> {
        (self.evicted_lossy > 0).then(|| {
            format!(
                "{} buckets were evicted before they were idle: raise store.buckets (now {})",
                self.evicted_lossy, self.buckets
            )
        })
    }
}

/// State of the fleet, as seen by this Envoy. All counters start at zero when Envoy starts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FleetStatus {
    /// Number of Envoys in the fleet, including this one, as last reported by the engine.
    pub envoys: u64,
    /// Time of the engine's last response, on the server's monotonic clock. 0 if the engine has
    /// never responded.
    pub answered_ns: u64,
    /// Number of workers that are currently not requesting leases because their calls failed. On these workers,
    /// `on_outage` decides for fleet-wide rules.
    pub workers_down: u64,
    /// Number of calls to the relay.
    pub calls: u64,
    /// Number of calls without a usable response.
    pub failed: u64,
    /// Number of units that the engine granted.
    pub granted: u64,
    /// Number of requests that had to wait for a response from the relay.
    pub held: u64,
    /// Number of requests decided by `on_outage`.
    pub local: u64,
    /// Edits, overrides and bans that the fleet shares.
    #[serde(default)]
    pub changes: FleetChanges,
}

/// Statistics about the changes that the fleet shares, as seen by this Envoy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FleetChanges {
    /// Generation of the last change that this Envoy has received.
    pub generation: u64,
    /// Number of changes known to this Envoy. Tombstones of ended changes are kept for an hour.
    pub known: u64,
    /// Number of changes made on this Envoy that the engine has not stored yet.
    pub unsent: u64,
    /// Number of changes made on this Envoy that the engine rejected. These changes apply to this
    /// Envoy only.
    pub refused: u64,
    /// Number of changes that cannot be applied on this Envoy yet, for example because it has a different version of
    /// the rule.
    pub waiting: u64,
}

/// Totals of a rule since Envoy started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RuleTotals {
    /// Name of the rule.
    pub name: String,
    /// `enforce`, `shadow` or `off`.
    pub mode: String,
    /// Requests that were admitted immediately.
    pub admitted: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Requests that would have been refused, but passed because the rule was in shadow mode.
    pub shadow_refused: u64,
    /// Requests that matched, but were skipped because they had no key.
    pub skipped: u64,
    /// Requests that were decided by `on_error`.
    pub errors: u64,
    /// Requests that were held, counted on arrival. `admitted` does not include these requests.
    #[serde(default)]
    pub held: u64,
    /// True if an edit of the rule is in effect.
    pub edited: bool,
    /// Upstreams whose responses were counted by a rule with `when`, sorted by name. Absent for a rule without `when`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstreams: Option<Vec<UpstreamView>>,
}

/// Health of an upstream at the response's `now_ns`, as evaluated by the `when` condition of a
/// rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UpstreamView {
    /// Name of the Envoy cluster. A long name is truncated.
    pub cluster: String,
    /// Number of responses within the condition's time window.
    pub responses: u64,
    /// Number of errors among these responses.
    pub errors: u64,
    /// True if the rule applies to requests for this upstream.
    pub applies: bool,
    /// Time at which `applies` last changed, on the server's monotonic clock.
    pub since_ns: u64,
}

impl RuleTotals {
    /// Returns the number of requests that were admitted, either immediately or after a wait.
    pub const fn passed(&self) -> u64 {
        self.admitted.saturating_add(self.held)
    }
}
