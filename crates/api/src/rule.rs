//! `GET /v1/rules`, `GET/PUT/DELETE /v1/rules/{rule}`, `PUT/DELETE /v1/overrides/{rule}/{key}`.
//!
//! Rules travel in the rule file's own form, as JSON; `loudou_rules::config::parse_rule` reads it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::change::Spread;
use crate::status::RuleTotals;

/// All rules, or a page of them. They are `R`, and edits of them `E`: JSON in clients, and types that serialise to it in the
/// server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rules<R = Value, E = Value> {
    /// The process; see [`crate::Status::instance`].
    #[serde(default)]
    pub instance: String,
    /// The server's clock.
    pub now_ns: u64,
    /// The generation; with the instance it is the `ETag`.
    pub generation: u64,
    /// The rules, in order of evaluation.
    pub rules: Vec<RuleView<R, E>>,
    /// Where the next page begins; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// One rule: as in force, and as in the plugin configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RuleView<R = Value, E = Value> {
    /// Its name.
    pub name: String,
    /// The process; see [`crate::Status::instance`].
    #[serde(default)]
    pub instance: String,
    /// The generation it was read at; send `"INSTANCE-GENERATION"` back as `If-Match`.
    pub generation: u64,
    /// The rule in force.
    pub rule: R,
    /// The rule of the plugin configuration.
    pub base: R,
    /// The edit of the base, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edit: Option<EditView>,
    /// That edit as the body of `PUT /v1/rules/{rule}`.
    #[serde(default = "none::<E>", skip_serializing_if = "Option::is_none")]
    pub edit_body: Option<E>,
    /// The overrides that were edited one by one, on top of the edit. Their values are in `rule`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<OverrideView>,
    /// Its totals so far.
    pub totals: RuleTotals,
}

impl<R, E> RuleView<R, E> {
    /// The value to send as `If-Match`. A filter that names no process uses the generation alone.
    pub fn etag(&self) -> String {
        match self.instance.as_str() {
            "" => format!("\"{}\"", self.generation),
            instance => format!("\"{instance}-{}\"", self.generation),
        }
    }
}

/// A default that needs none of `E`.
const fn none<E>() -> Option<E> {
    None
}

/// The author and lifetime of an edit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EditView {
    /// The name of the token.
    pub by: String,
    /// The reason that was given.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// When, on the server's monotonic clock.
    pub at_ns: u64,
    /// When, in milliseconds since the Unix epoch.
    pub at_unix_ms: u64,
    /// When it expires, on the server's monotonic clock; absent for never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at_ns: Option<u64>,
}

/// An edited override.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OverrideView {
    /// The key as in the rule: exact, or a prefix followed by `*`.
    pub key: String,
    /// Its author, reason, time and end.
    pub edit: EditView,
}

/// The answer to `PUT` and `DELETE /v1/rules/{rule}` and `/v1/overrides/{rule}/{key}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EditAnswer<R = Value, E = Value> {
    /// True if it was a dry run, which changes nothing.
    pub dry_run: bool,
    /// The rule in force before.
    pub before: R,
    /// The rule after; its `generation` is the new one.
    pub after: RuleView<R, E>,
    /// The change in one line: `burst: capacity 15 → 30`; empty if only an end changed, or nothing.
    pub change: String,
    /// True if anything changed, or would: if not, there is no new generation and no event.
    #[serde(default = "yes")]
    pub changed: bool,
    /// Where else it will hold; absent without a fleet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<Spread>,
}

/// The default, since every accepted edit was a change before the field existed.
const fn yes() -> bool {
    true
}
