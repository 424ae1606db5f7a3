//! Changes that travel with lease calls: an edit, an override or a ban that was made at one Envoy and holds
//! at all of them.
//!
//! The engine keeps one value per name: the value of the latest change. A change made with
//! knowledge of another always follows it.
//! Each gets the next generation. A change that has ended stays known
//! for [`TOMBSTONE_S`], so that every Envoy gets to know its end.
//!
//! Times are spans as of the call or of the answer, never instants, so only the clocks of engines
//! that follow each other are compared.

use core::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::bucket::{BanView, BucketView};
use crate::percent::percent_decoded;

/// Maximum number of changes of a namespace that are kept.
pub const MAX_CHANGES: usize = 4_096;
/// Maximum length of a change as JSON text, in bytes.
pub const MAX_CHANGE_BYTES: usize = 64 * 1024;
/// Maximum number of bytes of all changes of a namespace.
pub const MAX_ALL_CHANGES_BYTES: usize = 2 * 1024 * 1024;
/// Maximum number of changes in an answer.
pub const MAX_ANSWER_CHANGES: usize = 64;
/// Maximum number of bytes of changes in an answer; a single one that is longer is sent alone.
pub const MAX_ANSWER_CHANGES_BYTES: usize = 128 * 1024;
/// Maximum length of a change's name, in bytes.
pub const MAX_CHANGE_NAME: usize = 32 * 1024;
/// Maximum length of a name in a [`RejectedChange`], in characters.
pub const SHOWN_CHANGE_NAME: usize = 256;
/// How long the end of a change is kept, in seconds.
pub const TOMBSTONE_S: u64 = 3_600;

/// One change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Its name, as a [`ChangeName`] writes it.
    pub name: String,
    /// The change, in whatever form Envoys agree on; null where it has ended.
    #[serde(default)]
    pub value: Value,
    /// The milliseconds since it was made.
    #[serde(default)]
    pub age_ms: u64,
    /// The milliseconds until it ends by itself; 0 for never.
    #[serde(default)]
    pub ends_in_ms: u64,
    /// The engine's number of this change: higher than the number of every earlier change. 0 in a request.
    #[serde(default)]
    pub generation: u64,
    /// The instance at which it was made; in a request, empty for the caller.
    #[serde(default)]
    pub instance: String,
}

/// A change of a call that was not written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RejectedChange {
    /// Its name, cut to [`SHOWN_CHANGE_NAME`].
    pub name: String,
    /// The reason: the value and the allowed ones.
    pub why: String,
}

/// Where a change that was just made holds, apart from the Envoy that answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Spread {
    /// It is on its way to the other Envoys of the fleet: within a second while the engine answers, and once
    /// it answers again if it does not.
    Sending,
    /// It holds at this Envoy only, because the changes of a fleet have no more room.
    HereOnly,
    /// Something that a newer filter knows.
    #[default]
    #[serde(other)]
    Unknown,
}

/// The name of a change: what it is about.
///
/// An edit or an override belongs to one version of its rule, the *base*, which is a field of its value. The plain name
/// holds the change of one version. During a deployment, some Envoys of a fleet have another version of the rule; a
/// change of that version has a name with its base. A reader that knows no bases takes such a name for the name of an
/// unknown rule, and waits for the rule.
///
/// ```
/// use loudou_api::ChangeName;
///
/// let name = ChangeName::Ban { rule: "daily".to_owned(), key: "a/b%".to_owned() };
/// assert_eq!(name.to_string(), "ban/daily/a%2Fb%25");
/// assert_eq!(ChangeName::parse("ban/daily/a%2Fb%25"), Some(name));
/// assert_eq!(ChangeName::parse("ban/daily"), None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangeName {
    /// `ban/RULE/KEY`: a ban of a key.
    Ban {
        /// The name of the rule.
        rule: String,
        /// The key.
        key: String,
    },
    /// `edit/RULE` or `edit/RULE@BASE`: the edit of a rule.
    Edit {
        /// The name of the rule.
        rule: String,
        /// The version of the rule that alone it concerns.
        base: Option<String>,
    },
    /// `override/RULE/PATTERN` or `override/RULE@BASE/PATTERN`: an override.
    Override {
        /// The name of the rule.
        rule: String,
        /// The version of the rule that alone it concerns.
        base: Option<String>,
        /// The pattern of keys.
        pattern: String,
    },
}

/// A part of a name, in which all but letters, digits and `-._~` is `%XX`.
struct Part<'a>(&'a str);

impl fmt::Display for Part<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                write!(f, "{}", char::from(byte))?;
            } else {
                write!(f, "%{byte:02X}")?;
            }
        }
        Ok(())
    }
}

/// A rule, with the version of it that alone is meant.
struct Of<'a>(&'a str, Option<&'a str>);

impl fmt::Display for Of<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Part(self.0).fmt(f)?;
        self.1.map_or(Ok(()), |base| write!(f, "@{}", Part(base)))
    }
}

impl fmt::Display for ChangeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ban { rule, key } => write!(f, "ban/{}/{}", Part(rule), Part(key)),
            Self::Edit { rule, base } => write!(f, "edit/{}", Of(rule, base.as_deref())),
            Self::Override {
                rule,
                base,
                pattern,
            } => {
                let of = Of(rule, base.as_deref());
                write!(f, "override/{of}/{}", Part(pattern))
            }
        }
    }
}

impl ChangeName {
    /// Reads a name; `None` where it is of no kind that is known here.
    pub fn parse(name: &str) -> Option<Self> {
        let (kind, rest) = name.split_once('/')?;
        let (rule, of) = match rest.split_once('/') {
            None => (rest, None),
            Some((rule, of)) => (rule, Some(of)),
        };
        let (rule, base) = match rule.split_once('@') {
            // In a part, it is escaped.
            Some((rule, base)) if kind != "ban" => (rule, Some(percent_decoded(base)?)),
            _ => (rule, None),
        };
        let rule = percent_decoded(rule)?;
        // A slash in a part is escaped.
        let of = match of {
            Some(of) if of.contains('/') => return None,
            Some(of) => Some(percent_decoded(of)?),
            None => None,
        };
        match (kind, of) {
            ("ban", Some(key)) => Some(Self::Ban { rule, key }),
            ("edit", None) => Some(Self::Edit { rule, base }),
            ("override", Some(pattern)) => Some(Self::Override {
                rule,
                base,
                pattern,
            }),
            _ => None,
        }
    }

    /// The version of the rule that alone it concerns, if the name has one.
    pub fn base(&self) -> Option<&str> {
        match self {
            Self::Edit { base, .. } | Self::Override { base, .. } => base.as_deref(),
            Self::Ban { .. } => None,
        }
    }

    /// The same for this version of the rule alone, or for the one that the value says; a ban has none.
    #[must_use]
    pub fn with_base(&self, of: Option<&str>) -> Self {
        let mut name = self.clone();
        if let Self::Edit { base, .. } | Self::Override { base, .. } = &mut name {
            *base = of.map(str::to_owned);
        }
        name
    }
}

// `POST /v1/buckets/{rule}/{key}/reset`, `…/ban` and `…/unban`.

/// The answer to `POST /v1/buckets/{rule}/{key}/reset`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ResetAnswer {
    /// True if there was a bucket; a key without one is idle.
    pub existed: bool,
    /// The bucket before the reset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<BucketView>,
}

/// The answer to `POST /v1/buckets/{rule}/{key}/ban` and `…/unban`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BanAnswer {
    /// The server's clock.
    pub now_ns: u64,
    /// The ban that was in force before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<BanView>,
    /// The bucket after the call; absent if the key has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<BucketView>,
    /// True if anything changed. An earlier ban that ends later stays, unless the call has `replace`.
    #[serde(default = "yes")]
    pub changed: bool,
    /// Where else it will hold; absent without a fleet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<Spread>,
}

/// The default, since every ban replaced the one before until the field existed.
const fn yes() -> bool {
    true
}
