//! `GET /v1/rules`, `GET/PUT/DELETE /v1/rules/{rule}`, `PUT/DELETE /v1/overrides/{rule}/{key}`.
//!
//! A rule is a JSON object with the same fields as in a rule file. `loudou_rules::config::parse_rule` parses a rule.
//! The type parameter `R` stands for a rule, and `E` for the body of an edit. In clients, both types are JSON values.
//! In the server, both are types that serialize to JSON.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::change::Spread;
use crate::status::RuleTotals;

/// All rules, or a page of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rules<R = Value, E = Value> {
    /// Unique name of the Envoy process, as in [`crate::Status::instance`].
    #[serde(default)]
    pub instance: String,
    /// Current time on the server's monotonic clock.
    pub now_ns: u64,
    /// Generation number of the rules. The instance and the generation together form the `ETag`.
    pub generation: u64,
    /// Rules, in evaluation order.
    pub rules: Vec<RuleView<R, E>>,
    /// Value to pass as the `cursor` parameter to get the next page. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// Two versions of a rule: the one in effect and the one in the plugin configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RuleView<R = Value, E = Value> {
    /// Name of the rule.
    pub name: String,
    /// Unique name of the Envoy process, as in [`crate::Status::instance`].
    #[serde(default)]
    pub instance: String,
    /// Generation of the rules at the time this rule was read. To edit the rule, send `"INSTANCE-GENERATION"` as
    /// `If-Match`.
    pub generation: u64,
    /// Rule in effect.
    pub rule: R,
    /// Rule in the plugin configuration.
    pub base: R,
    /// Edit that changes `base`, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edit: Option<EditView>,
    /// The edit, in the same form as the body of `PUT /v1/rules/{rule}`.
    #[serde(default = "none::<E>", skip_serializing_if = "Option::is_none")]
    pub edit_body: Option<E>,
    /// Overrides that were edited separately after the rule was edited. `rule` already contains the values of these
    /// overrides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<OverrideView>,
    /// The rule's request totals.
    pub totals: RuleTotals,
}

impl<R, E> RuleView<R, E> {
    /// Returns the value of the `If-Match` header. If the filter does not report an instance, the value contains only
    /// the generation.
    pub fn etag(&self) -> String {
        match self.instance.as_str() {
            "" => format!("\"{}\"", self.generation),
            instance => format!("\"{instance}-{}\"", self.generation),
        }
    }
}

/// Default value of `edit_body`. With `Option::default`, serde's derive would require `E: Default`.
const fn none<E>() -> Option<E> {
    None
}

/// Author and lifetime of an edit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EditView {
    /// Name of the author's API token.
    pub by: String,
    /// Reason given by the author.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Time of the edit, on the server's monotonic clock.
    pub at_ns: u64,
    /// Time of the edit, in milliseconds since the Unix epoch.
    pub at_unix_ms: u64,
    /// Time at which the edit ends, on the server's monotonic clock. Absent if the edit does not expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at_ns: Option<u64>,
}

/// An edited override.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OverrideView {
    /// Pattern in the rule: an exact key, or a prefix followed by `*`.
    pub key: String,
    /// Author, reason, time and expiry of the edit.
    pub edit: EditView,
}

/// Response to `PUT` and `DELETE` of `/v1/rules/{rule}` and `/v1/overrides/{rule}/{key}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EditAnswer<R = Value, E = Value> {
    /// True for a dry run, which changes nothing.
    pub dry_run: bool,
    /// Rule in effect before the call.
    pub before: R,
    /// Rule after the call. The `generation` in this view is the new generation.
    pub after: RuleView<R, E>,
    /// One-line summary of the change, such as `burst: capacity 15 → 30`. Empty if nothing changed, or if only the
    /// expiry time changed.
    pub change: String,
    /// True if anything changed, or would change in a dry run. If nothing changes, the call creates neither a new
    /// generation nor an event.
    #[serde(default = "yes")]
    pub changed: bool,
    /// Status of the change's distribution to the other Envoys. Absent if there is no fleet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<Spread>,
}

/// Default value of `changed`. For filters that do not send this field, every accepted edit counts as a change.
const fn yes() -> bool {
    true
}
