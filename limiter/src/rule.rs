//! Rules as they stand in a rule file: match, key, limits and what to do.
//!
//! These types are only ever built valid, by [`crate::config`]; serialised, they are the rule file's
//! own form, so an exported rule set can be committed and read back.

use alloc::string::String;
use alloc::vec::Vec;

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use crate::hash::tag;
use crate::limit::Limits;

pub mod key;
pub mod matcher;
mod refuse;
mod respond;

pub use refuse::{GrpcStatus, Refuse, RefuseBody};
pub use respond::{RateLimitHeaders, Respond};

/// A whole rule file. `defaults` are already applied to the rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RuleFile {
    /// The format; always 1.
    pub version: Version,
    /// Where buckets live.
    pub store: StoreSettings,
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

/// Where buckets live.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StoreSettings {
    /// The hard bound on live buckets.
    pub buckets: u32,
    /// The prefix of all shared-data keys and metrics: two installations with different ones in one
    /// `vm_id` do not meet.
    pub share: String,
}

impl Default for StoreSettings {
    fn default() -> Self {
        Self {
            buckets: 65_536,
            share: String::from("loudou"),
        }
    }
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rule {
    /// Its name, unique in the file.
    pub name: String,
    /// Which requests it is for.
    #[serde(rename = "match", skip_serializing_if = "Match::is_everything")]
    pub matches: Match,
    /// Which bucket a request goes to; empty for one bucket for all.
    pub key: Vec<KeyPart>,
    /// What a request gets that lacks a key part.
    pub on_missing_key: OnMissingKey,
    /// What a bucket holds.
    pub limits: Limits,
    /// What a request takes.
    pub cost: u32,
    /// Whether refusals are carried out.
    pub mode: Mode,
    /// Whether the rules behind it are not asked about a request that it is for.
    #[serde(skip_serializing_if = "is_false")]
    pub stop: bool,
    /// What a request gets when the store gives up.
    pub on_error: OnError,
    /// What refused requests are answered.
    #[serde(skip_serializing_if = "Refuse::is_default")]
    pub refuse: Refuse,
    /// What responses carry.
    pub respond: Respond,
}

impl Rule {
    /// A number that tells this rule from others by its name.
    pub fn tag(&self) -> u32 {
        tag(self.name.as_bytes())
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
const fn is_false(value: &bool) -> bool {
    !*value
}

/// All given parts must hold; none means every request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Match {
    /// Any of these methods; empty for all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub methods: Vec<String>,
    /// The path without its query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathMatch>,
    /// All of these headers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<HeaderMatch>,
}

impl Match {
    /// Whether every request matches.
    pub const fn is_everything(&self) -> bool {
        self.methods.is_empty() && self.path.is_none() && self.headers.is_empty()
    }
}

/// A test of the path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PathMatch {
    /// It starts with this text, on whole segments: `/reply` matches `/reply` and `/reply/7` but not
    /// `/replyall`.
    Prefix(String),
    /// It is this text.
    Exact(String),
}

/// A test of one header's first value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderMatch {
    /// The name, in lower case.
    pub name: String,
    /// What must hold.
    pub test: HeaderTest,
}

/// What must hold of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderTest {
    /// It is there, or it is not.
    Present(bool),
    /// Its value is exactly this.
    Exact(String),
}

impl Serialize for HeaderMatch {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_map(Some(2))?;
        fields.serialize_entry("name", &self.name)?;
        match &self.test {
            HeaderTest::Present(present) => fields.serialize_entry("present", present)?,
            HeaderTest::Exact(text) => fields.serialize_entry("exact", text)?,
        }
        fields.end()
    }
}

/// One part of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyPart {
    /// The first value of this header, whose name is in lower case.
    Header(String),
    /// A fixed text.
    Literal(String),
    /// The trusted client address, as Envoy sees it, without the port.
    Source,
    /// The path without its query.
    Path,
    /// The name of Envoy's route.
    Route,
}

/// What a request gets that lacks a key part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnMissingKey {
    /// This rule does not apply.
    #[default]
    Skip,
    /// It is refused.
    Refuse,
    /// All such requests share one bucket.
    Share,
}

/// Whether refusals are carried out.
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

/// What a request gets when the store gives up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// It passes.
    #[default]
    Admit,
    /// It is refused.
    Refuse,
}
