//! `GET /v1/status`.

use loudou_rules::config::Access;
use serde::{Deserialize, Serialize};

/// The state of the filter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Status {
    /// The filter's version.
    pub version: String,
    /// The commit it was built from.
    pub git: String,
    /// The unique name of the process; empty from a filter that has none. Generations and event numbers
    /// mean nothing in another process.
    #[serde(default)]
    pub instance: String,
    /// When the process started to limit, in milliseconds since the Unix epoch.
    #[serde(default)]
    pub started_unix_ms: u64,
    /// The generation of the rules; every accepted edit and configuration raises it.
    pub generation: u64,
    /// The server's monotonic clock.
    pub now_ns: u64,
    /// The server's wall clock, in milliseconds since the Unix epoch.
    pub unix_ms: u64,
    /// The time since the first worker started to limit.
    pub uptime_ns: u64,
    /// The access of the caller.
    #[cfg_attr(feature = "schema", schemars(schema_with = "crate::schema::access"))]
    pub access: Access,
    /// The bucket store.
    pub store: StoreStatus,
    /// The rules, in order of evaluation.
    pub rules: Vec<RuleTotals>,
    /// Requests held now, on all workers.
    #[serde(default)]
    pub waiting: u64,
    /// Requests refused because they would have been held beyond their deadline.
    #[serde(default)]
    pub not_held_deadline: u64,
    /// Requests refused because their worker holds as many as `store.waiting` allows.
    #[serde(default)]
    pub not_held_full: u64,
    /// The fleet that shares limits; absent where no rule is of a fleet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetStatus>,
    /// Warnings for operators.
    pub warnings: Vec<String>,
}

/// The bucket store. Counts are since Envoy started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StoreStatus {
    /// The hard bound on live buckets.
    pub buckets: u64,
    /// Slots in use, idle ones included.
    pub used: u64,
    /// The number of idle slots among `sampled`.
    pub sampled_idle: u64,
    /// The number of slots in use that were sampled for `sampled_idle`.
    pub sampled: u64,
    /// Idle buckets reclaimed; nothing was lost.
    pub evicted_lossless: u64,
    /// Buckets that were evicted before they were idle.
    pub evicted_lossy: u64,
    /// Retries after compare-and-swap conflicts.
    pub cas_retries: u64,
    /// Decisions given up after too many conflicts; the rule's `on_error` applied.
    pub cas_give_ups: u64,
    /// Refusals whose count could not be written.
    pub lost_counts: u64,
    /// Places of ended requests that could not be given back; they are free again when their lease
    /// expires.
    #[serde(default)]
    pub lost_returns: u64,
    /// Responses that were not counted for their upstream, by rules with `when`.
    #[serde(default)]
    pub lost_responses: u64,
    /// Sandboxes of workers that died and were loaded again.
    #[serde(default)]
    pub reloads: u64,
}

impl StoreStatus {
    /// The warning about buckets that were evicted before they were idle, since Envoy started; `None` without any.
    /// A reader that knows when they were evicted has a better one in its place.
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

/// The fleet as this Envoy knows it. Counts are since Envoy started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FleetStatus {
    /// The Envoys that the engine knew of in its last answer; this one included.
    pub envoys: u64,
    /// When the engine last answered, on the server's monotonic clock; 0 for never.
    pub answered_ns: u64,
    /// The workers that do not ask at the moment, because calls failed: fleet rules are decided by
    /// `on_outage` there.
    pub workers_down: u64,
    /// Calls of the relay.
    pub calls: u64,
    /// Calls without an answer that could be used.
    pub failed: u64,
    /// Units that the engine granted.
    pub granted: u64,
    /// Requests that waited for an answer.
    pub held: u64,
    /// Requests that were decided by `on_outage`.
    pub local: u64,
    /// The edits, overrides and bans that travel.
    #[serde(default)]
    pub changes: FleetChanges,
}

/// The changes that a fleet shares, as this Envoy knows them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FleetChanges {
    /// The engine's number of the last one that is known here.
    pub generation: u64,
    /// All that are known here; ends are known for an hour.
    pub known: u64,
    /// Those made here that the engine does not have yet.
    pub unsent: u64,
    /// Those made here that the engine refused: they hold at this Envoy only.
    pub refused: u64,
    /// Those that do not hold here, because the rule is another than the one that they were made for, or has
    /// no room for them.
    pub waiting: u64,
}

/// The totals of a rule since Envoy started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RuleTotals {
    /// Its name.
    pub name: String,
    /// `enforce`, `shadow` or `off`.
    pub mode: String,
    /// Requests it admitted at once.
    pub admitted: u64,
    /// Requests it refused.
    pub refused: u64,
    /// Requests it would have refused in shadow mode; they passed.
    pub shadow_refused: u64,
    /// Requests that matched but had no key, and were skipped.
    pub skipped: u64,
    /// Requests decided by `on_error`.
    pub errors: u64,
    /// Requests that it held for their turn, counted when they arrive; they are not among `admitted`.
    #[serde(default)]
    pub held: u64,
    /// True if an edit is in force.
    pub edited: bool,
    /// For a rule with `when`: the upstreams that were seen, sorted by name. Absent for a rule that always
    /// applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstreams: Option<Vec<UpstreamView>>,
}

/// The health of an upstream by the `when` of a rule, as of `now_ns` of the answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UpstreamView {
    /// The beginning of the name of Envoy's cluster.
    pub cluster: String,
    /// Its responses within the counted time.
    pub responses: u64,
    /// The errors among them.
    pub errors: u64,
    /// True if the rule applies to requests for it.
    pub applies: bool,
    /// Since when `applies` has its value, on the server's monotonic clock.
    pub since_ns: u64,
}

impl RuleTotals {
    /// Requests it admitted, at once or after a wait.
    pub const fn passed(&self) -> u64 {
        self.admitted.saturating_add(self.held)
    }
}
