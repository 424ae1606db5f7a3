//! Types for the rules in a rule file: match, key, limits and actions.
//!
//! [`crate::config`] builds these types, always with valid values. The types serialise to the rule
//! file format, so an exported rule set can be committed and read back.

use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use loudou_limiter::ban::Penalty;
use loudou_limiter::hash::tag;
use loudou_limiter::{Decimal, Limits};
use loudou_store::UpstreamCondition;
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::Value;
use text::object;

use crate::request::Request;

pub use cidr::Cidr;
pub use cidr::SourcePrefix;
pub(crate) use cost::whole;
pub use cost::{Cost, Price};
pub use failing::Failing;
pub use failing::Found;
pub use failing::Missing;
pub use failing::Repeated;
pub use fleet::FleetSettings;
pub use fleet::OnOutage;
pub use fleet::Scope;
pub use fleet::Secret;
pub use key_map::KeyMap;
pub(crate) use key_map::holds;
pub use matcher::Fit;
pub use matcher::Match;
pub use matcher::Part;
pub use matcher::PathMatch;
pub use part::KeyPart;
pub use pattern::Pattern;
pub use pattern::PatternAt;
pub use possible::Impossible;
pub use respond::GrpcStatus;
pub use respond::RateLimitHeaders;
pub use respond::Refuse;
pub use respond::RefuseBody;
pub use respond::Respond;
pub use settlement::{End, Ended, Settled, SettledBy, Settlement};
pub use text::MetadataTest;
pub use text::NamedTest;
pub use text::Test;
pub use text::Truth;

pub mod cidr;
pub mod cost;
mod failing;
mod fleet;
pub mod key;
mod key_map;
pub mod matcher;
pub mod part;
pub(crate) mod parts;
pub mod paths;
pub mod pattern;
mod possible;
mod respond;
pub mod settlement;
pub mod text;

/// A whole rule file. The `defaults` are already merged into the rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RuleFile {
    /// Format version, always 1.
    pub version: Version,
    /// Settings of the store that holds the buckets.
    pub store: StoreSettings,
    /// Settings of the fleet, whose Envoys share the buckets of some rules. Without these settings,
    /// no rule has [`Scope::Fleet`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetSettings>,
    /// The rules in evaluation order.
    pub rules: Vec<Rule>,
}

/// Version of the rule file format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Version;

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(1)
    }
}

/// Settings of the store that holds the buckets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StoreSettings {
    /// Maximum number of live buckets.
    pub buckets: u32,
    /// Prefix of all shared data keys and metrics. Two installations with different namespaces
    /// share no data, even if their `vm_id` is the same.
    pub namespace: String,
    /// File that preserves the buckets across Envoy restarts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Bounds on held requests.
    #[serde(skip_serializing_if = "WaitingSettings::is_default")]
    pub waiting: WaitingSettings,
}

/// Bounds on the requests held by one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct WaitingSettings {
    /// Maximum number of held requests.
    pub requests: u32,
    /// Maximum memory used by held requests in Envoy, in MiB.
    pub memory_mib: u32,
    /// Maximum body size that Envoy buffers for each held request, in KiB.
    pub body_kib: u32,
}

impl Default for WaitingSettings {
    fn default() -> Self {
        Self {
            requests: 65_536,
            memory_mib: 64,
            body_kib: 1_024,
        }
    }
}

impl WaitingSettings {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for StoreSettings {
    fn default() -> Self {
        Self {
            buckets: 65_536,
            namespace: String::from("loudou"),
            file: None,
            waiting: WaitingSettings::default(),
        }
    }
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rule {
    /// Name of the rule, unique in the file.
    pub name: String,
    /// The requests that the rule matches.
    #[serde(rename = "match", skip_serializing_if = "Match::is_everything")]
    pub matches: Match,
    /// How to treat requests with a value that is too long for the match to test.
    #[serde(skip_serializing_if = "OnLongValue::is_default")]
    pub on_long_value: OnLongValue,
    /// If present, the rule applies only while an upstream is failing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<UpstreamCondition>,
    /// Parts of the key that identifies a request's bucket. If the list is empty, all requests
    /// share one bucket.
    pub key: Vec<KeyPart>,
    /// How to treat requests that lack a key part.
    pub on_missing_key: OnMissingKey,
    /// How to treat requests with several values for a key part.
    #[serde(skip_serializing_if = "is_first")]
    pub on_ambiguous_key: OnAmbiguousKey,
    /// Limits of each bucket.
    pub limits: Limits,
    /// The Envoys that share the buckets.
    #[serde(skip_serializing_if = "Scope::is_default")]
    pub scope: Scope,
    /// Cost of a request.
    pub cost: Cost,
    /// Mode of the rule: enforced, shadow, or off.
    pub mode: Mode,
    /// Name of the rule with which this rule is compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shadows: Option<String>,
    /// True if later rules are skipped for requests matched by this rule.
    #[serde(skip_serializing_if = "is_false")]
    pub stop: bool,
    /// How to treat requests if the store fails.
    pub on_error: OnError,
    /// Exceptions from the limits for some keys.
    #[serde(skip_serializing_if = "KeyMap::is_empty")]
    pub overrides: Overrides,
    /// Penalty, which bans keys whose requests are refused too often.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub penalty: Option<Penalty>,
    /// Response to refused requests.
    #[serde(skip_serializing_if = "Refuse::is_default")]
    pub refuse: Refuse,
    /// Headers that the rule adds to responses.
    pub respond: Respond,
}

/// Suffix appended to a rule's name to form the name of its trial. A name with this suffix is
/// invalid in a rule file.
pub const TRIAL: &str = "~trial";

/// If `name` is the name of a trial, returns the name of the rule that it tries.
pub fn tried(name: &str) -> Option<&str> {
    name.strip_suffix(TRIAL)
}

impl Rule {
    /// Returns a trial of this rule: a copy in shadow mode with the same match, key and cost, whose
    /// limits can then be edited. A trial neither bans keys nor changes responses.
    #[must_use]
    pub fn trial(&self) -> Self {
        Self {
            name: [&self.name, TRIAL].concat(),
            mode: Mode::Shadow,
            shadows: Some(self.name.clone()),
            stop: false,
            penalty: None,
            refuse: Refuse::default(),
            respond: Respond::default(),
            ..self.clone()
        }
    }

    /// Returns a number that distinguishes this rule's buckets from other rules' buckets. The
    /// number depends on the rule's name and key, and is identical across builds.
    pub fn tag(&self) -> u32 {
        let key = of_key(&self.key);
        tag(&[self.name.as_bytes(), b"\n", &key].concat())
    }

    /// Returns a hash of all fields, which differs between rules that differ in any field.
    pub(crate) fn whole_tag(&self) -> u32 {
        tag(&serde_json::to_vec(self).unwrap_or_default())
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
const fn is_false(value: &bool) -> bool {
    !*value
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_first(value: &OnAmbiguousKey) -> bool {
    *value == OnAmbiguousKey::First
}

/// How to treat requests that lack a key part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnMissingKey {
    /// This rule does not apply.
    #[default]
    Skip,
    /// The request is refused.
    Refuse,
    /// All such requests share one bucket.
    Share,
}

/// How to treat requests with several values for a key part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnAmbiguousKey {
    /// The first non-empty value is used.
    #[default]
    First,
    /// The request is refused.
    Refuse,
}

/// Mode of a rule, which controls whether its refusals are enforced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Refusals are enforced.
    #[default]
    Enforce,
    /// Refusals are only counted.
    Shadow,
    /// The rule is not evaluated.
    Off,
}

impl Mode {
    /// Name of the mode in rule files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Shadow => "shadow",
            Self::Off => "off",
        }
    }

    /// Returns the mode with this name.
    pub fn parse(name: &str) -> Option<Self> {
        let modes = [Self::Enforce, Self::Shadow, Self::Off];
        modes.into_iter().find(|mode| mode.name() == name)
    }
}

/// How to treat requests if the store fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// The request is admitted.
    #[default]
    Admit,
    /// The request is refused.
    Refuse,
}

/// How to treat requests for which the match is undecided, because a value is too long for a
/// regular expression to test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnLongValue {
    /// The rule applies. With [`Skip`](Self::Skip), a client could evade a limit by making a value
    /// longer.
    #[default]
    Apply,
    /// The rule does not apply.
    Skip,
    /// The request is refused.
    Refuse,
}

impl OnLongValue {
    /// Returns true for the default, which is omitted from serialised rules.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Result of checking whether a rule applies to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The rule applies.
    Yes,
    /// The rule does not apply.
    No,
    /// The rule applies, and refuses the request because a value is too long.
    Refuse,
}

impl Rule {
    /// Checks whether the rule applies to a request, based on its match and `on_long_value`.
    pub fn reach(&self, request: &mut dyn Request) -> Reach {
        match (self.matches.fit(request), self.on_long_value) {
            (Fit::Yes, _) | (Fit::TooLong(_), OnLongValue::Apply) => Reach::Yes,
            (Fit::No(_), _) | (Fit::TooLong(_), OnLongValue::Skip) => Reach::No,
            (Fit::TooLong(_), OnLongValue::Refuse) => Reach::Refuse,
        }
    }
}

/// An exception from a rule's limits for a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Override {
    /// The rule's limits, with all numbers that count cost units multiplied by this factor.
    Scale(Decimal),
    /// Limits to use in place of the rule's limits.
    Limits(Limits),
    /// No limits. Every request is admitted.
    Unlimited,
    /// No request is admitted.
    Banned,
}

/// Overrides of a rule. A pattern is an exact key, or a prefix followed by `*`.
pub type Overrides = KeyMap<Override>;

impl<T: Serialize> Serialize for KeyMap<T> {
    /// Serialises the map as an object with one field per pattern.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_map(Some(self.len()))?;
        for (pattern, value) in self.entries() {
            fields.serialize_entry(&*pattern, value)?;
        }
        fields.end()
    }
}

// A rule key's identity has a format of its own.
//
// This format never changes, even if rule file fields are renamed, because the rule's tag depends
// on it. If the tag changed, the rule would lose all its live buckets.

/// Returns the identity of a key, which consists of the identities of its parts.
fn of_key(parts: &[KeyPart]) -> Vec<u8> {
    let parts = parts.iter().map(KeyPart::identity).collect();
    serde_json::to_vec(&Value::Array(parts)).unwrap_or_default()
}

impl KeyPart {
    fn identity(&self) -> Value {
        if let Some(word) = self.word() {
            // Uses the key part's old name, because the tags of existing buckets depend on it.
            return text(if *self == Self::ClientCert {
                "peer"
            } else {
                word
            });
        }
        let (kind, value) = match self {
            Self::Header(name) => ("header", text(name)),
            Self::Query(name) => ("query", text(name)),
            Self::Cookie(name) => ("cookie", text(name)),
            Self::Literal(literal) => ("literal", text(literal)),
            Self::Metadata(path) => {
                let path = path.iter().map(|step| text(step)).collect();
                ("metadata", Value::Array(path))
            }
            Self::Source(prefix) => {
                let v4 = ("v4_prefix", prefix.v4.into());
                ("source", object(Some(v4), ("v6_prefix", prefix.v6.into())))
            }
            Self::Path {
                segments,
                normalize,
            } => {
                let segments = segments.map(|count| ("segments", count.into()));
                // The tags of existing buckets depend on this form, in which a normalized path with
                // `segments` omits `normalize`.
                let path = match (normalize, segments) {
                    (true, Some(segments)) => object(None, segments),
                    (_, segments) => object(segments, ("normalize", (*normalize).into())),
                };
                ("path", path)
            }
            _ => return Value::Null,
        };
        object(None, (kind, value))
    }
}

fn text(text: &str) -> Value {
    Value::String(text.to_string())
}
