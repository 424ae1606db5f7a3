//! `GET /v1/events?after=INSTANCE-SEQ&of=operators`: changes with their authors, and warnings.

use serde::{Deserialize, Serialize};

/// Events after a sequence number, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Events {
    /// Unique name of the Envoy process that numbers these events. Empty if the filter does not
    /// report it.
    #[serde(default)]
    pub instance: String,
    /// Time at which the process started limiting requests, in milliseconds since the Unix epoch.
    #[serde(default)]
    pub started_unix_ms: u64,
    /// True if the requested sequence number belongs to another process. In that case, the response contains all events
    /// of this process.
    #[serde(default, skip_serializing_if = "is_false")]
    pub restarted: bool,
    /// Current time on the server's monotonic clock.
    pub now_ns: u64,
    /// Events that are still stored.
    pub events: Vec<Event>,
    /// Sequence number to send in the next call. This is the number of the newest event, or 0 if there are no events.
    /// If `more` is true, this is the number of the last event in the response.
    pub last_seq: u64,
    /// Number of events after the requested sequence number that have been discarded. This number may be too high if
    /// only one source has lost events.
    pub lost: u64,
    /// True if there are newer events beyond the ones in this response.
    #[serde(default, skip_serializing_if = "is_false")]
    pub more: bool,
}

/// Source of an event. Each source has a separate ring buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventSource {
    /// Calls of the admin API: edits, bans, resets and overrides.
    Operators,
    /// The filter itself: new configurations, expiries and upstream state changes.
    Filter,
}

impl EventSource {
    /// All sources.
    pub const ALL: [Self; 2] = [Self::Operators, Self::Filter];
    /// Names of all sources, in the order of [`EventSource::ALL`].
    pub const NAMES: [&str; 2] = ["operators", "filter"];

    /// Returns the name used in queries.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Operators => "operators",
            Self::Filter => "filter",
        }
    }

    /// Returns the source with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|source| source.name() == name)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

/// An event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Event {
    /// Sequence number. Events are numbered from 1 without gaps.
    pub seq: u64,
    /// Time of the event, on the server's monotonic clock.
    pub at_ns: u64,
    /// Time of the event in milliseconds since the Unix epoch, for display and for correlation with
    /// other logs.
    pub at_unix_ms: u64,
    /// Kind of event.
    pub kind: EventKind,
    /// Name of the rule, if the event concerns a rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Key, if the event concerns a bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Name of the API token whose call caused the event, or `loudou` for automatic events.
    pub by: String,
    /// Reason given by the author.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// One-line summary of the change, such as `burst: capacity 15 → 30`.
    pub detail: String,
    /// Generation number of the rules after the event.
    pub generation: u64,
    /// Time at which the change ends, on the server's monotonic clock. Absent if the change does
    /// not expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ns: Option<u64>,
}

/// Kind of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A rule was edited.
    Edit,
    /// An edit was dropped, so the rule in the plugin configuration applies again.
    EditDropped,
    /// An edit or a key's override expired.
    EditExpired,
    /// A new plugin configuration changed a rule that had an edit or edited overrides. The configuration took
    /// precedence, so these edits ended.
    EditRetired,
    /// A key's override was edited.
    Override,
    /// A key's edited override was dropped, so the rule applies to the key as it did before this
    /// edit.
    OverrideDropped,
    /// A key was banned.
    Ban,
    /// A key was unbanned.
    Unban,
    /// An operator's ban expired at `until_ns`.
    BanExpired,
    /// A new plugin configuration took effect.
    Configured,
    /// A rule is no longer in the plugin configuration.
    RuleRemoved,
    /// A bucket was reset.
    Reset,
    /// An upstream started failing, so rules with a `when` condition apply to requests for this
    /// upstream.
    UpstreamFails,
    /// A failing upstream has recovered.
    UpstreamHeals,
    /// The fleet's relay or its engine is not responding, so `on_outage` decides for fleet-wide
    /// rules.
    FleetDown,
    /// The relay and its engine are responding again.
    FleetUp,
    /// A problem that needs attention.
    #[default]
    #[serde(other)]
    Warning,
}

impl EventKind {
    /// Returns the name used in responses.
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

    /// Returns the source that events of this kind come from.
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

    /// Returns the kind with this name. Returns [`Self::Warning`] for an unknown name.
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
