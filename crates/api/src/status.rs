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
    /// Unique name of the process. Empty if the filter does not report it. Generations and event numbers are valid only
    /// within a process.
    #[serde(default)]
    pub instance: String,
    /// When the process started to limit, in milliseconds since the Unix epoch.
    #[serde(default)]
    pub started_unix_ms: u64,
    /// Generation of the rules. Every accepted edit and configuration increments it.
    pub generation: u64,
    /// Current time of the server's monotonic clock.
    pub now_ns: u64,
    /// Current time of the server's wall clock, in milliseconds since the Unix epoch.
    pub unix_ms: u64,
    /// Time since the first worker started to limit.
    pub uptime_ns: u64,
    /// Access of the caller.
    #[cfg_attr(feature = "schema", schemars(schema_with = "crate::schema::access"))]
    pub access: Access,
    /// State of the bucket store.
    pub store: StoreStatus,
    /// Totals of all rules, in order of evaluation.
    pub rules: Vec<RuleTotals>,
    /// Requests held now, on all workers together.
    #[serde(default)]
    pub waiting: u64,
    /// Requests refused because they would have been held beyond their deadline.
    #[serde(default)]
    pub not_held_deadline: u64,
    /// Requests refused because their worker already held the maximum of `store.waiting` requests.
    #[serde(default)]
    pub not_held_full: u64,
    /// Fleet that shares limits. Absent if no rule is shared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetStatus>,
    /// Warnings for operators.
    pub warnings: Vec<String>,
}

/// State of the bucket store. Counts are since Envoy started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StoreStatus {
    /// Maximum number of live buckets.
    pub buckets: u64,
    /// Slots in use, including slots with idle buckets.
    pub used: u64,
    /// Number of slots with idle buckets among `sampled`.
    pub sampled_idle: u64,
    /// Number of slots in use that were sampled for `sampled_idle`.
    pub sampled: u64,
    /// Idle buckets that were evicted. No state was lost.
    pub evicted_lossless: u64,
    /// Buckets that were evicted before they were idle.
    pub evicted_lossy: u64,
    /// Retries after compare-and-swap conflicts.
    pub cas_retries: u64,
    /// Decisions that failed after too many conflicts. The rule's `on_error` applied.
    pub cas_give_ups: u64,
    /// Refusals whose count could not be written.
    pub lost_counts: u64,
    /// Permits of ended requests that could not be returned. They expire with their lease.
    #[serde(default)]
    pub lost_returns: u64,
    /// Responses that rules with `when` could not count for their upstream.
    #[serde(default)]
    pub lost_responses: u64,
    /// Number of times that a worker's sandbox crashed and was loaded again.
    #[serde(default)]
    pub reloads: u64,
}

impl StoreStatus {
    /// Returns a warning if buckets were evicted before they were idle since Envoy started. A reader that knows the
    /// time of the evictions can replace it with a more precise warning.
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

/// State of the fleet, as reported to this Envoy. Counts are since Envoy started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FleetStatus {
    /// Number of Envoys in the engine's last answer, including this Envoy.
    pub envoys: u64,
    /// When the engine last answered, on the server's monotonic clock. 0 if it has never answered.
    pub answered_ns: u64,
    /// Number of workers that currently request no leases, because calls failed. On these workers, `on_outage` decides
    /// for fleet rules.
    pub workers_down: u64,
    /// Calls to the relay.
    pub calls: u64,
    /// Calls without a usable answer.
    pub failed: u64,
    /// Units that the engine granted.
    pub granted: u64,
    /// Requests that waited for an answer of the relay.
    pub held: u64,
    /// Requests that were decided by `on_outage`.
    pub local: u64,
    /// Edits, overrides and bans that the fleet shares.
    #[serde(default)]
    pub changes: FleetChanges,
}

/// Changes that the fleet shares, as received by this Envoy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FleetChanges {
    /// Generation of the last change that this Envoy has received.
    pub generation: u64,
    /// Number of changes known to this Envoy. Tombstones are kept for an hour.
    pub known: u64,
    /// Number of changes made at this Envoy that the engine has not stored yet.
    pub unsent: u64,
    /// Number of changes made at this Envoy that the engine refused. They apply at this Envoy only.
    pub refused: u64,
    /// Number of changes that do not apply at this Envoy, because its version of the rule differs, or because the rule
    /// has no room for them.
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
    /// Requests that were held, counted on arrival. They are not included in `admitted`.
    #[serde(default)]
    pub held: u64,
    /// True if an edit is in effect.
    pub edited: bool,
    /// Upstreams whose responses a rule with `when` has counted, sorted by name. Absent for a rule without `when`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstreams: Option<Vec<UpstreamView>>,
}

/// Health of an upstream, as evaluated by the `when` of a rule at `now_ns` of the answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UpstreamView {
    /// Prefix of the name of the Envoy cluster.
    pub cluster: String,
    /// Number of responses within the counted time span.
    pub responses: u64,
    /// Number of errors among these responses.
    pub errors: u64,
    /// True if the rule applies to requests for this upstream.
    pub applies: bool,
    /// When `applies` last changed, on the server's monotonic clock.
    pub since_ns: u64,
}

impl RuleTotals {
    /// Returns the number of requests that were admitted, at once or after a wait.
    pub const fn passed(&self) -> u64 {
        self.admitted.saturating_add(self.held)
    }
}
