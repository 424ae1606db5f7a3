//! Rules as in a rule file: match, key, limits and actions.
//!
//! These types are only ever built valid, by [`crate::config`]; serialised, they are the rule file's
//! own form, so an exported rule set can be committed and read back.

use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use loudou_limiter::ban::Penalty;
use loudou_limiter::hash::tag;
use loudou_limiter::{Decimal, Limits};
use loudou_store::When;
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::Value;
use text::object;

use crate::request::Request;

pub use cidr::{Cidr, SourcePrefix};
pub use cost::{Cost, Price};
pub use failing::{Failing, Found, Missing, Repeated};
pub use fleet::{FleetSettings, OnOutage, Scope, Secret};
pub use key_map::KeyMap;
pub(crate) use key_map::holds;
pub use matcher::{Fit, Match, Part, PathMatch};
pub use part::KeyPart;
pub use pattern::{Pattern, PatternAt};
pub use possible::Impossible;
pub use respond::{GrpcStatus, RateLimitHeaders, Refuse, RefuseBody, Respond};
pub use text::{MetadataTest, NamedTest, Test, Truth};

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
pub mod text;

/// A whole rule file. `defaults` are already applied to the rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RuleFile {
    /// The format; always 1.
    pub version: Version,
    /// The store that holds the buckets.
    pub store: StoreSettings,
    /// The fleet whose Envoys share the buckets of some rules; without it, no rule has [`Scope::Fleet`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetSettings>,
    /// The rules, in order of evaluation.
    pub rules: Vec<Rule>,
}

/// The version of the rule file's format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Version;

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(1)
    }
}

/// The store that holds the buckets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StoreSettings {
    /// The maximum number of live buckets.
    pub buckets: u32,
    /// The prefix of all shared-data keys and metrics: two installations with different namespaces in one
    /// `vm_id` share nothing.
    pub namespace: String,
    /// The bounds on held requests.
    #[serde(skip_serializing_if = "WaitingSettings::is_default")]
    pub waiting: WaitingSettings,
}

/// The bounds on the requests that one worker holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct WaitingSettings {
    /// The most requests.
    pub requests: u32,
    /// The most memory that they take in Envoy, in MiB.
    pub memory_mib: u32,
    /// The most that Envoy buffers of the body of each, in KiB.
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
            waiting: WaitingSettings::default(),
        }
    }
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rule {
    /// The name, unique in the file.
    pub name: String,
    /// The requests that the rule matches.
    #[serde(rename = "match", skip_serializing_if = "Match::is_everything")]
    pub matches: Match,
    /// The decision for requests with a value that is longer than the match tests.
    #[serde(skip_serializing_if = "OnLongValue::is_default")]
    pub on_long_value: OnLongValue,
    /// Only while an upstream fails; without it, always.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<When>,
    /// The key of a request's bucket; empty for one bucket for all requests.
    pub key: Vec<KeyPart>,
    /// The decision for requests without a key part.
    pub on_missing_key: OnMissingKey,
    /// The decision for requests with several values of a key part.
    #[serde(skip_serializing_if = "is_first")]
    pub on_ambiguous_key: OnAmbiguousKey,
    /// The limits of a bucket.
    pub limits: Limits,
    /// The Envoys that share the buckets.
    #[serde(skip_serializing_if = "Scope::is_default")]
    pub scope: Scope,
    /// The cost of a request.
    pub cost: Cost,
    /// Whether refusals are enforced.
    pub mode: Mode,
    /// The rule with which this one is compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shadows: Option<String>,
    /// Whether later rules are skipped for requests that this one matches.
    #[serde(skip_serializing_if = "is_false")]
    pub stop: bool,
    /// The decision for a request when the store fails.
    pub on_error: OnError,
    /// Exceptions from the limits for some keys.
    #[serde(skip_serializing_if = "KeyMap::is_empty")]
    pub overrides: Overrides,
    /// Bans for keys that are refused too often.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub penalty: Option<Penalty>,
    /// The response to refused requests.
    #[serde(skip_serializing_if = "Refuse::is_default")]
    pub refuse: Refuse,
    /// Headers of responses.
    pub respond: Respond,
}

impl Rule {
    /// A number that distinguishes the buckets of this rule from others, by its name and its key. It is the
    /// same in every build.
    pub fn tag(&self) -> u32 {
        let key = of_key(&self.key);
        tag(&[self.name.as_bytes(), b"\n", &key].concat())
    }

    /// A number that differs for rules that differ in any field.
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

/// The decision for requests without a key part.
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

/// The decision for requests with several values of a key part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnAmbiguousKey {
    /// The first value that is not empty is the key.
    #[default]
    First,
    /// The request is refused.
    Refuse,
}

/// Whether refusals are enforced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Yes.
    #[default]
    Enforce,
    /// No, but they are counted.
    Shadow,
    /// The rule is not evaluated.
    Off,
}

impl Mode {
    /// The name in rule files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Shadow => "shadow",
            Self::Off => "off",
        }
    }

    /// The mode of that name.
    pub fn parse(name: &str) -> Option<Self> {
        let modes = [Self::Enforce, Self::Shadow, Self::Off];
        modes.into_iter().find(|mode| mode.name() == name)
    }
}

/// The decision for a request when the store fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// The request passes.
    #[default]
    Admit,
    /// The request is refused.
    Refuse,
}

/// The decision for requests whose match stays open, because a value is longer than a regular expression
/// tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnLongValue {
    /// The rule applies. Otherwise a client would escape a limit by making a value longer.
    #[default]
    Apply,
    /// The rule does not apply.
    Skip,
    /// The request is refused.
    Refuse,
}

impl OnLongValue {
    /// Whether this is the default, which serialised rules leave out.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Whether a rule applies to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// It applies.
    Yes,
    /// It does not.
    No,
    /// It applies, and refuses the request because a value is too long.
    Refuse,
}

impl Rule {
    /// Whether the rule's match applies to a request, by its `on_long_value`.
    pub fn reach(&self, request: &mut dyn Request) -> Reach {
        match (self.matches.fit(request), self.on_long_value) {
            (Fit::Yes, _) | (Fit::TooLong(_), OnLongValue::Apply) => Reach::Yes,
            (Fit::No(_), _) | (Fit::TooLong(_), OnLongValue::Skip) => Reach::No,
            (Fit::TooLong(_), OnLongValue::Refuse) => Reach::Refuse,
        }
    }
}

/// The exception from a rule's limits for a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Override {
    /// The rule's limits, with all numbers that count cost units multiplied by this factor.
    Scale(Decimal),
    /// Other limits.
    Limits(Limits),
    /// No limits: every request is admitted.
    Unlimited,
    /// No request is admitted.
    Banned,
}

/// The overrides of a rule. A key is exact, or a prefix followed by `*`.
pub type Overrides = KeyMap<Override>;

impl<T: Serialize> Serialize for KeyMap<T> {
    /// An object of patterns.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_map(Some(self.len()))?;
        for (pattern, value) in self.entries() {
            fields.serialize_entry(&*pattern, value)?;
        }
        fields.end()
    }
}

// The identity of a rule's buckets, in a separate form.
//
// The form never changes, even if fields of rule files are renamed: it determines the tag of a bucket,
// and with another tag every live bucket would start anew.

/// The identity of a key, from the identities of its parts.
fn of_key(parts: &[KeyPart]) -> Vec<u8> {
    let parts = parts.iter().map(KeyPart::identity).collect();
    serde_json::to_vec(&Value::Array(parts)).unwrap_or_default()
}

impl KeyPart {
    fn identity(&self) -> Value {
        if let Some(word) = self.word() {
            // The word that this part had when its buckets got their tags.
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
                // As before there were two forms of paths, unless the path is the raw one.
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
