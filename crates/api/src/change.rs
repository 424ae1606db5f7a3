//! Changes that lease calls distribute to a fleet: edits, overrides and bans that were made on one Envoy and apply to
//! all Envoys.
//!
//! The engine stores only the latest value for each change name. A change counts as later than all changes that its
//! author had already seen at that time. Each stored change is assigned the next generation number. The engine keeps a
//! tombstone of each ended change for [`TOMBSTONE_S`], so that every Envoy is notified that the change has ended.
//!
//! Times are durations relative to the call or its response, never timestamps. The clocks of different Envoys are
//! therefore never compared. After a failover, however, the engine's clock is compared with its replacement's clock.

use core::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::bucket::{BanView, BucketView};
use crate::percent::percent_decoded;

/// Maximum number of stored changes per namespace.
pub const MAX_CHANGES: usize = 4_096;
/// Maximum length of a change as JSON text, in bytes.
pub const MAX_CHANGE_BYTES: usize = 64 * 1024;
/// Maximum total length of all changes in a namespace, in bytes.
pub const MAX_ALL_CHANGES_BYTES: usize = 2 * 1024 * 1024;
/// Maximum number of changes in a response.
pub const MAX_ANSWER_CHANGES: usize = 64;
/// Maximum total length of the changes in a response, in bytes. A longer change is sent on its own.
pub const MAX_ANSWER_CHANGES_BYTES: usize = 128 * 1024;
/// Maximum length of a change's name, in bytes.
pub const MAX_CHANGE_NAME: usize = 32 * 1024;
/// Maximum length of a name in a [`RejectedChange`], in characters.
pub const SHOWN_CHANGE_NAME: usize = 256;
/// How long the engine keeps the tombstone of an ended change, in seconds.
pub const TOMBSTONE_S: u64 = 3_600;

/// A change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Name of the change, in the form of [`ChangeName`].
    pub name: String,
    /// Value of the change, which is interpreted only by Envoys. Null if the change has ended.
    #[serde(default)]
    pub value: Value,
    /// Milliseconds since the change was made.
    #[serde(default)]
    pub age_ms: u64,
    /// Milliseconds until the change expires, or 0 if it does not expire.
    #[serde(default)]
    pub ends_in_ms: u64,
    /// Number of the change, assigned by the engine in ascending order. 0 in a request.
    #[serde(default)]
    pub generation: u64,
    /// Envoy process in which the change was made. In a request, an empty string means the caller.
    #[serde(default)]
    pub instance: String,
}

/// A change that the engine did not store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RejectedChange {
    /// Name of the change, truncated to [`SHOWN_CHANGE_NAME`] characters.
    pub name: String,
    /// Reason for the rejection, with the rejected value and the allowed values.
    pub why: String,
}

/// Status of a new change's distribution to the fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Spread {
    /// The change is being sent to the other Envoys of the fleet. If the engine is available, the change reaches them
    /// within a second. Otherwise, the change reaches them once the engine is available again.
    Sending,
    /// The change applies to this Envoy only, because the fleet's record of changes is full.
    HereOnly,
    /// A value sent by a newer filter that this version does not know.
    #[default]
    #[serde(other)]
    Unknown,
}

/// Name of a change, which identifies what the change applies to.
///
/// An edit or an override belongs to one version of its rule, the *base*. The base is recorded in a field of the
/// change's value. A change to either version uses the name without a base. During a deployment, some Envoys of the
/// fleet have a different version of the rule. The name of a change to that version includes the base. A reader that
/// does not support bases interprets a name with a base as the name of an unknown rule and waits for that rule.
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
        /// Name of the rule.
        rule: String,
        /// Key.
        key: String,
    },
    /// `edit/RULE` or `edit/RULE@BASE`: an edit of a rule.
    Edit {
        /// Name of the rule.
        rule: String,
        /// Version of the rule to which the change applies, if the name includes it.
        base: Option<String>,
    },
    /// `override/RULE/PATTERN` or `override/RULE@BASE/PATTERN`: an override.
    Override {
        /// Name of the rule.
        rule: String,
        /// Version of the rule to which the change applies, if the name includes it.
        base: Option<String>,
        /// Pattern of the keys to which the override applies.
        pattern: String,
    },
}

/// Formats one part of a change name. Every byte other than a letter, a digit, `-`, `.`, `_` or `~` is written as
/// `%XX`.
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

/// Formats a rule name, followed by the base if the change has one.
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
    /// Parses a name. Returns `None` if the kind of change is unknown.
    pub fn parse(name: &str) -> Option<Self> {
        let (kind, rest) = name.split_once('/')?;
        let (rule, of) = match rest.split_once('/') {
            None => (rest, None),
            Some((rule, of)) => (rule, Some(of)),
        };
        let (rule, base) = match rule.split_once('@') {
            // An `@` in a rule name is escaped, so this `@` starts the base.
            Some((rule, base)) if kind != "ban" => (rule, Some(percent_decoded(base)?)),
            _ => (rule, None),
        };
        let rule = percent_decoded(rule)?;
        // A slash in a key or a pattern is escaped, so the rest must not contain a slash.
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

    /// Returns the base of an edit or override, if the name has one.
    pub fn base(&self) -> Option<&str> {
        match self {
            Self::Edit { base, .. } | Self::Override { base, .. } => base.as_deref(),
            Self::Ban { .. } => None,
        }
    }

    /// Returns the name with `of` as its base. If the name has no base, the base is in the value of the change. The
    /// name of a ban is returned unchanged.
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

/// Response to `POST /v1/buckets/{rule}/{key}/reset`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ResetAnswer {
    /// True if the key had a bucket. A key without a bucket is idle.
    pub existed: bool,
    /// Bucket before the reset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<BucketView>,
}

/// Response to `POST /v1/buckets/{rule}/{key}/ban` and `…/unban`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BanAnswer {
    /// Current time on the server's monotonic clock.
    pub now_ns: u64,
    /// Ban that was in effect before the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<BanView>,
    /// Bucket after the call. Absent if the key has no bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<BucketView>,
    /// True if anything changed. An earlier ban that ends after the requested ban stays in effect unless the call sets
    /// `replace`.
    #[serde(default = "yes")]
    pub changed: bool,
    /// Status of the change's distribution to the other Envoys. Absent if there is no fleet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<Spread>,
}

/// Default value of `changed`. Filters that do not send this field always replace an earlier ban.
const fn yes() -> bool {
    true
}
