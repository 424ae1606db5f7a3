//! `GET /v1/status`.

use loudou_rules::config::Access;
use serde::{Deserialize, Serialize};

/// State of the filter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Status {
    /// Version of the filter.
    pub version: String,
    /// Commit from which the filter was built.
    pub git: String,
    /// Unique name of the Envoy process. Empty if the filter does not report it. Generations and event numbers are
    /// valid only within a process.
    #[serde(default)]
    pub instance: String,
    /// Time at which the process started to limit requests, in milliseconds since the Unix epoch.
    #[serde(default)]
    pub started_unix_ms: u64,
    /// Generation number of the rules. Every accepted edit and every new configuration increments
    /// the generation.
    pub generation: u64,
    /// Current time of the server's monotonic clock.
    pub now_ns: u64,
    /// Current time of the server's wall clock, in milliseconds since the Unix epoch.
    pub unix_ms: u64,
    /// Time since the first worker started to limit requests.
    pub uptime_ns: u64,
    /// Access level of the caller.
    #[cfg_attr(feature = "schema", schemars(schema_with = "crate::schema::access"))]
    pub access: Access,
    /// State of the bucket store.
    pub store: StoreStatus,
    /// Totals of all rules, in order of evaluation.
    pub rules: Vec<RuleTotals>,
    /// Number of requests that all workers together hold at the moment.
    #[serde(default)]
    pub waiting: u64,
    /// Number of requests refused because they would have been held beyond their deadline.
    #[serde(default)]
    pub not_held_deadline: u64,
    /// Number of requests refused because their worker already held the maximum of `store.waiting`
    /// requests.
    #[serde(default)]
    pub not_held_full: u64,
    /// State of the fleet that shares limits. Absent if no rule is fleet-wide.
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
    /// Number of slots in use, including slots with idle buckets.
    pub used: u64,
    /// Number of sampled slots whose buckets are idle.
    pub sampled_idle: u64,
    /// Number of slots in use that were sampled for `sampled_idle`.
    pub sampled: u64,
    /// Number of idle buckets that were evicted. Evicting an idle bucket loses no state.
    pub evicted_lossless: u64,
    /// Number of buckets that were evicted before they were idle.
    pub evicted_lossy: u64,
    /// Retries after compare-and-swap conflicts.
    pub cas_retries: u64,
    /// Number of decisions that were given up after too many compare-and-swap conflicts. The rule's
    /// `on_error` was applied instead.
    pub cas_give_ups: u64,
    /// Number of refusals that could not be counted in their bucket.
    pub lost_counts: u64,
    /// Number of requests whose permits or costs could not be returned. These units stay taken
    /// until they expire.
    #[serde(default)]
    pub lost_returns: u64,
    /// Number of responses that could not be counted in the health of their upstream, for rules
    /// with `when`.
    #[serde(default)]
    pub lost_responses: u64,
    /// Number of times that a worker's sandbox crashed and was reloaded.
    #[serde(default)]
    pub reloads: u64,
}

impl StoreStatus {
    /// Returns a warning if buckets were evicted before they were idle since Envoy started. A caller that knows when
    /// the evictions happened can replace this warning with a more precise warning.
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

/// State of the fleet, as this Envoy sees it. All counters start at zero when Envoy starts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FleetStatus {
    /// Number of Envoys in the fleet according to the engine's last answer, including this Envoy.
    pub envoys: u64,
    /// Time of the engine's last answer, on the server's monotonic clock. 0 if the engine has never
    /// answered.
    pub answered_ns: u64,
    /// Number of workers that do not request leases at the moment, because their calls failed. On these workers,
    /// `on_outage` decides for fleet-wide rules.
    pub workers_down: u64,
    /// Number of calls to the relay.
    pub calls: u64,
    /// Number of calls without a usable response.
    pub failed: u64,
    /// Number of units that the engine granted.
    pub granted: u64,
    /// Number of requests that waited for a response from the relay.
    pub held: u64,
    /// Number of requests that were decided by `on_outage`.
    pub local: u64,
    /// Edits, overrides and bans that the fleet shares.
    #[serde(default)]
    pub changes: FleetChanges,
}

/// Statistics of the changes that the fleet shares, as this Envoy sees them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FleetChanges {
    /// Generation of the last change that this Envoy has received.
    pub generation: u64,
    /// Number of changes known to this Envoy. Tombstones of ended changes are kept for an hour.
    pub known: u64,
    /// Number of changes made at this Envoy that the engine has not stored yet.
    pub unsent: u64,
    /// Number of changes made at this Envoy that the engine rejected. These changes apply at this
    /// Envoy only.
    pub refused: u64,
    /// Number of changes that cannot be applied at this Envoy yet, for example because it has a different version of
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
    /// Requests that were admitted at once.
    pub admitted: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Requests that would have been refused, but passed because the rule was in shadow mode.
    pub shadow_refused: u64,
    /// Requests that matched, but were skipped because they had no key.
    pub skipped: u64,
    /// Requests for which `on_error` decided.
    pub errors: u64,
    /// Requests that were held, counted when they arrived. `admitted` does not include these
    /// requests.
    #[serde(default)]
    pub held: u64,
    /// True if an edit of the rule is in effect.
    pub edited: bool,
    /// Upstreams whose responses a rule with `when` has counted, sorted by name. Absent for a rule without `when`.
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
    /// Number of responses within the time window of the condition.
    pub responses: u64,
    /// Number of errors among these responses.
    pub errors: u64,
    /// True if the rule applies to requests for this upstream.
    pub applies: bool,
    /// Time at which `applies` last changed, on the server's monotonic clock.
    pub since_ns: u64,
}

impl RuleTotals {
    /// Returns the number of requests that were admitted, at once or after a wait.
    pub const fn passed(&self) -> u64 {
        self.admitted.saturating_add(self.held)
    }
}
