//! `GET /v1/rules`, `GET/PUT/DELETE /v1/rules/{rule}`, `PUT/DELETE /v1/overrides/{rule}/{key}`.
//!
//! Rules have the form of rule files, as JSON. `loudou_rules::config::parse_rule` parses it. The type parameters `R` and
//! `E` are a rule and the body of its edit. In clients both are JSON, and in the server they are types that serialize to
//! JSON.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::change::Spread;
use crate::status::RuleTotals;

/// All rules, or a page of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rules<R = Value, E = Value> {
    /// Unique name of the process, as in [`crate::Status::instance`].
    #[serde(default)]
    pub instance: String,
    /// Current time of the server's monotonic clock.
    pub now_ns: u64,
    /// Generation of the rules. Instance and generation form the `ETag`.
    pub generation: u64,
    /// Rules, in order of evaluation.
    pub rules: Vec<RuleView<R, E>>,
    /// Value of `cursor` for the next page. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// A rule as in effect, and as in the plugin configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RuleView<R = Value, E = Value> {
    /// Name of the rule.
    pub name: String,
    /// Unique name of the process, as in [`crate::Status::instance`].
    #[serde(default)]
    pub instance: String,
    /// Generation at which the rule was read. Send `"INSTANCE-GENERATION"` as `If-Match`.
    pub generation: u64,
    /// Rule in effect.
    pub rule: R,
    /// Rule in the plugin configuration.
    pub base: R,
    /// Edit of the base, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edit: Option<EditView>,
    /// The edit as body of `PUT /v1/rules/{rule}`.
    #[serde(default = "none::<E>", skip_serializing_if = "Option::is_none")]
    pub edit_body: Option<E>,
    /// Overrides that were edited separately, after the edit of the rule. Their values are in `rule`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<OverrideView>,
    /// Totals of the rule.
    pub totals: RuleTotals,
}

impl<R, E> RuleView<R, E> {
    /// Returns the value of `If-Match`. If the filter does not report an instance, the value is only the generation.
    pub fn etag(&self) -> String {
        match self.instance.as_str() {
            "" => format!("\"{}\"", self.generation),
            instance => format!("\"{instance}-{}\"", self.generation),
        }
    }
}

/// Default of `edit_body`. Unlike `Option::default`, it does not require `E: Default` in serde's derive.
const fn none<E>() -> Option<E> {
    None
}

/// Author and lifetime of an edit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EditView {
    /// Name of the author's token.
    pub by: String,
    /// Reason that the author gave.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Time of the edit, on the server's monotonic clock.
    pub at_ns: u64,
    /// Time of the edit, in milliseconds since the Unix epoch.
    pub at_unix_ms: u64,
    /// End of the edit, on the server's monotonic clock. Absent if the edit does not expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at_ns: Option<u64>,
}

/// An edited override.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OverrideView {
    /// Pattern in the rule: an exact key, or a prefix followed by `*`.
    pub key: String,
    /// Author, reason, time and end of the edit.
    pub edit: EditView,
}

/// Answer to `PUT` and `DELETE /v1/rules/{rule}` and `/v1/overrides/{rule}/{key}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EditAnswer<R = Value, E = Value> {
    /// True for a dry run, which changes nothing.
    pub dry_run: bool,
    /// Rule in effect before the call.
    pub before: R,
    /// Rule after the call. Its `generation` is the new generation.
    pub after: RuleView<R, E>,
    /// Change in one line, such as `burst: capacity 15 → 30`. Empty if nothing changed, or only the end.
    pub change: String,
    /// True if anything changed, or would change in a dry run. Otherwise the call causes no new generation and no
    /// event.
    #[serde(default = "yes")]
    pub changed: bool,
    /// Distribution of the change to the other Envoys. Absent without a fleet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<Spread>,
}

/// Default of `changed`. In a filter without this field, every accepted edit was a change.
const fn yes() -> bool {
    true
}
