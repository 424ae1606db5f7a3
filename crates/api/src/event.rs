//! `GET /v1/events?after=INSTANCE-SEQ&of=operators`: changes with their authors, and warnings.

use serde::{Deserialize, Serialize};

/// Events after a sequence number, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Events {
    /// The process that counts them; empty from a filter that reports none.
    #[serde(default)]
    pub instance: String,
    /// When that process started to limit, in milliseconds since the Unix epoch.
    #[serde(default)]
    pub started_unix_ms: u64,
    /// True if the requested number is of another process: these are all events of this one, from its first.
    #[serde(default, skip_serializing_if = "is_false")]
    pub restarted: bool,
    /// The server's clock.
    pub now_ns: u64,
    /// The events that are still kept.
    pub events: Vec<Event>,
    /// The number after which to continue: the newest event's, 0 if there was none yet, or the last
    /// one's here if there is `more`.
    pub last_seq: u64,
    /// The number of events after the requested one that are no longer kept. It may be too large where only
    /// operators' actions or only the filter's events have lost some.
    pub lost: u64,
    /// True if there are newer events than those here.
    #[serde(default, skip_serializing_if = "is_false")]
    pub more: bool,
}

/// Where an event comes from. Each source has a ring of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventSource {
    /// A call of the admin API: an edit, a ban, a reset, an override.
    Operators,
    /// The filter itself: configurations, expiries, upstreams.
    Filter,
}

impl EventSource {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Operators, Self::Filter];
    /// Their names, in the same order.
    pub const NAMES: [&str; 2] = ["operators", "filter"];

    /// The name in queries.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Operators => "operators",
            Self::Filter => "filter",
        }
    }

    /// The source of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|source| source.name() == name)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Event {
    /// Its number, from 1, without gaps.
    pub seq: u64,
    /// When, on the server's monotonic clock.
    pub at_ns: u64,
    /// When, in milliseconds since the Unix epoch: for people, and for logs elsewhere.
    pub at_unix_ms: u64,
    /// Its kind.
    pub kind: EventKind,
    /// The rule, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The key, if it is about one bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The name of the token that caused it; `loudou` for automatic events.
    pub by: String,
    /// The reason that was given.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The change in one line: `burst: capacity 15 → 30`.
    pub detail: String,
    /// The generation after the event.
    pub generation: u64,
    /// When the change expires, on the server's monotonic clock; absent for never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ns: Option<u64>,
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A rule was edited.
    Edit,
    /// An edit was dropped: the rule is back to its base.
    EditDropped,
    /// An edit, or an override of a key, expired.
    EditExpired,
    /// A new plugin configuration changed a rule with an edit or edited overrides; the configuration
    /// took precedence.
    EditRetired,
    /// The override of a key was edited.
    Override,
    /// The edited override of a key was dropped: the key is back under its rule.
    OverrideDropped,
    /// A key was banned.
    Ban,
    /// A key was unbanned.
    Unban,
    /// An operator's ban expired, at `until_ns`.
    BanExpired,
    /// A new plugin configuration took effect.
    Configured,
    /// The plugin configuration no longer has a rule.
    RuleRemoved,
    /// A bucket was reset.
    Reset,
    /// An upstream fails: rules with `when` apply to requests for it.
    UpstreamFails,
    /// An upstream that failed has recovered.
    UpstreamHeals,
    /// The relay of the fleet, or its engine, does not answer: fleet rules are decided by `on_outage`.
    FleetDown,
    /// It answers again.
    FleetUp,
    /// Something needs attention.
    #[default]
    #[serde(other)]
    Warning,
}

impl EventKind {
    /// Its name in answers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Edit => "edit",
            Self::EditDropped => "edit_dropped",
            Self::EditExpired => "edit_expired",
            Self::EditRetired => "edit_retired",
            Self::Override => "override",
            Self::OverrideDropped => "override_dropped",
            Self::Ban => "ban",
            Self::Unban => "unban",
            Self::BanExpired => "ban_expired",
            Self::Configured => "configured",
            Self::RuleRemoved => "rule_removed",
            Self::Reset => "reset",
            Self::UpstreamFails => "upstream_fails",
            Self::UpstreamHeals => "upstream_heals",
            Self::FleetDown => "fleet_down",
            Self::FleetUp => "fleet_up",
            Self::Warning => "warning",
        }
    }

    /// Where events of this kind come from.
    pub const fn source(self) -> EventSource {
        match self {
            Self::Edit
            | Self::EditDropped
            | Self::Override
            | Self::OverrideDropped
            | Self::Ban
            | Self::Unban
            | Self::Reset => EventSource::Operators,
            Self::EditExpired
            | Self::EditRetired
            | Self::BanExpired
            | Self::Configured
            | Self::RuleRemoved
            | Self::UpstreamFails
            | Self::UpstreamHeals
            | Self::FleetDown
            | Self::FleetUp
            | Self::Warning => EventSource::Filter,
        }
    }

    /// The kind of that name; an unknown kind is a warning.
    pub fn parse(name: &str) -> Self {
        let kinds = [
            Self::Edit,
            Self::EditDropped,
            Self::EditExpired,
            Self::EditRetired,
            Self::Override,
            Self::OverrideDropped,
            Self::Ban,
            Self::Unban,
            Self::BanExpired,
            Self::Configured,
            Self::RuleRemoved,
            Self::Reset,
            Self::UpstreamFails,
            Self::UpstreamHeals,
            Self::FleetDown,
            Self::FleetUp,
        ];
        let mut known = kinds.into_iter();
        known
            .find(|kind| kind.name() == name)
            .unwrap_or(Self::Warning)
    }
}
