//! Live changes, which exist only in an Envoy's memory and are lost when its process exits. Live
//! changes are edits of rules, edited overrides of keys, and operators' bans.
//!
//! Expiry times are stored as wall-clock time, because the monotonic clock in the server's
//! responses restarts at each boot.

use std::collections::BTreeMap;

use loudou_api::{BanBy, BucketView, EditView, Event, EventKind, Rules, Status};
use loudou_limiter::Nanos;
use serde_json::Value;

use loudou_words::limit_edit::text;
use loudou_words::meaning::short;
use loudou_words::text::counted;

pub mod apply;
pub mod collect;
pub mod document;
pub mod ledger;

/// Expiry times that differ by no more than this are treated as equal. The value is roughly the
/// maximum duration of a call.
const SAME_END_MS: u64 = 5_000;

/// A change that exists only in an Envoy's memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// The name of the rule.
    pub rule: String,
    /// The edit, override or ban.
    pub what: What,
    /// Author of the change. Empty if the event that names the author is no longer stored.
    pub by: String,
    /// Reason for the change. May be empty.
    pub reason: String,
    /// Time of the change, in milliseconds since the Unix epoch, if known.
    pub made_unix_ms: Option<u64>,
    /// Expiry time of the change, in milliseconds since the Unix epoch. `None` if the change does
    /// not expire.
    pub ends_unix_ms: Option<u64>,
}

/// A live change's kind and contents.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// An edit of a rule: the parts of the rule it replaces.
    Edit(Value),
    /// An override of a key.
    Override {
        /// The key, formatted as in the bucket list.
        key: String,
        /// The override, in rule file syntax.
        gives: Value,
    },
    /// A ban of a key.
    Ban {
        /// The key, formatted as in the bucket list.
        key: String,
    },
}

/// Identifies a live change by its kind, rule and key. A rule or key has at most one live change of
/// each kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id {
    kind: Kind,
    rule: String,
    key: String,
}

/// Kinds of live changes, in listing order. Edits come first, because an edit may replace its
/// rule's overrides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// An edit of a rule.
    Edit,
    /// An edited override of a key.
    Override,
    /// An operator's ban of a key.
    Ban,
}

/// Remaining lifetime of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeLeft {
    /// The change does not expire.
    Endless,
    /// The change expires after this duration.
    For(Nanos),
    /// The change has expired.
    Nothing,
}

impl Kind {
    /// Returns the name of the kind.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Edit => "edit",
            Self::Override => "override",
            Self::Ban => "ban",
        }
    }
}

impl Item {
    /// Returns the ID of the change.
    pub fn id(&self) -> Id {
        Id::new(self.kind(), &self.rule, self.key().unwrap_or_default())
    }

    /// Returns the kind of the change.
    pub const fn kind(&self) -> Kind {
        match self.what {
            What::Edit(_) => Kind::Edit,
            What::Override { .. } => Kind::Override,
            What::Ban { .. } => Kind::Ban,
        }
    }

    /// Returns the affected key. `None` for an edit of a rule.
    pub fn key(&self) -> Option<&str> {
        match &self.what {
            What::Edit(_) => None,
            What::Override { key, .. } | What::Ban { key } => Some(key),
        }
    }

    /// Returns the change's remaining lifetime at the given time.
    pub fn left(&self, unix_ms: u64) -> TimeLeft {
        match self.ends_unix_ms {
            None => TimeLeft::Endless,
            Some(at) if at <= unix_ms => TimeLeft::Nothing,
            Some(at) => TimeLeft::For(Nanos::from_millis(at.saturating_sub(unix_ms))),
        }
    }

    /// Describes the change, for example `ban of mallory`, `override of alice: scale 10`, `edit to
    /// burst 9 at 3/s; mode shadow`.
    pub fn words(&self) -> String {
        match &self.what {
            What::Edit(change) => {
                let parts = change.as_object().into_iter().flatten();
                let parts: Vec<String> = parts
                    .map(|(part, value)| match value {
                        Value::Array(_) if part == "limits" => short::line(change),
                        Value::Array(_) | Value::Object(_) => part.clone(),
                        _ => format!("{part} {}", text(value)),
                    })
                    .collect();
                format!("edit to {}", parts.join("; "))
            }
            What::Override { key, gives } => format!("override of {key}: {}", short::gives(gives)),
            What::Ban { key } => format!("ban of {key}"),
        }
    }
}

impl Id {
    /// Creates the ID of a change of this kind. The key is empty for an edit of a rule.
    pub fn new(kind: Kind, rule: &str, key: &str) -> Self {
        Self {
            kind,
            rule: rule.to_owned(),
            key: key.to_owned(),
        }
    }
}

/// Readings of the server's two clocks, taken at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clocks {
    /// The monotonic clock, in nanoseconds. It starts from zero at each boot.
    pub now_ns: u64,
    /// The wall clock, in milliseconds since the Unix epoch.
    pub unix_ms: u64,
}

impl Clocks {
    /// Returns the clock readings from a status response.
    pub const fn of(status: &Status) -> Self {
        Self {
            now_ns: status.now_ns,
            unix_ms: status.unix_ms,
        }
    }

    /// Converts a time on the server's monotonic clock to wall-clock time.
    pub const fn unix_ms(self, at_ns: u64) -> u64 {
        let ahead = at_ns.saturating_sub(self.now_ns).div_ceil(1_000_000);
        let behind = self.now_ns.saturating_sub(at_ns) / 1_000_000;
        self.unix_ms.saturating_add(ahead).saturating_sub(behind)
    }
}

/// Returns true if two expiry times are equal, allowing for a difference that a call's duration can
/// explain.
pub const fn same_end(a: Option<u64>, b: Option<u64>) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => a.abs_diff(b) <= SAME_END_MS,
        _ => false,
    }
}

/// Returns the edits and edited overrides of rules.
pub fn of_rules(rules: &Rules, clocks: Clocks) -> Vec<Item> {
    let item = |rule: &str, edit: &EditView, what: What| Item {
        rule: rule.to_owned(),
        what,
        by: edit.by.clone(),
        reason: edit.reason.clone(),
        made_unix_ms: Some(edit.at_unix_ms),
        ends_unix_ms: edit.expires_at_ns.map(|at| clocks.unix_ms(at)),
    };
    let mut items = Vec::new();
    for rule in &rules.rules {
        let edit = rule.edit.as_ref().zip(rule.edit_body.as_ref());
        items.extend(edit.map(|(edit, change)| item(&rule.name, edit, What::Edit(change.clone()))));
        for entry in &rule.overrides {
            let gives = rule
                .rule
                .get("overrides")
                .and_then(|all| all.get(&entry.key));
            let Some(gives) = gives.cloned() else {
                continue;
            };
            let key = entry.key.clone();
            items.push(item(&rule.name, &entry.edit, What::Override { key, gives }));
        }
    }
    items
}

/// Returns the ban that an operator imposed on a bucket, if any. The author is not filled in.
pub fn ban_of(bucket: &BucketView, clocks: Clocks) -> Option<Item> {
    let bans = [bucket.ban, bucket.hidden_ban];
    let ban = bans
        .into_iter()
        .flatten()
        .find(|ban| ban.by == BanBy::Operator)?;
    Some(Item {
        rule: bucket.rule.clone(),
        what: What::Ban {
            key: bucket.key.clone(),
        },
        by: String::new(),
        reason: String::new(),
        made_unix_ms: None,
        ends_unix_ms: ban.until_ns.map(|at| clocks.unix_ms(at)),
    })
}

/// Latest ban event of each banned key. The event names the author.
#[derive(Clone, Debug, Default)]
pub struct Authors(BTreeMap<Id, Event>);

impl Authors {
    /// Records events, which must be sorted from oldest to newest.
    pub fn note(&mut self, events: &[Event]) {
        for event in events {
            let (Some(rule), Some(key)) = (&event.rule, &event.key) else {
                continue;
            };
            let id = Id::new(Kind::Ban, rule, key);
            match event.kind {
                EventKind::Ban => {
                    self.0.insert(id, event.clone());
                }
                EventKind::Unban | EventKind::BanExpired | EventKind::Reset => {
                    self.0.remove(&id);
                }
                _ => {}
            }
        }
    }

    /// Removes all entries except those for the bans in `items`.
    pub fn keep(&mut self, items: &BTreeMap<Id, Item>) {
        self.0.retain(|id, _| items.contains_key(id));
    }

    /// Fills in a ban's author, reason and time, if its event is known.
    pub fn fill(&self, item: &mut Item) {
        if let Some(event) = self.0.get(&item.id()) {
            item.by.clone_from(&event.by);
            item.reason.clone_from(&event.reason);
            item.made_unix_ms = Some(event.at_unix_ms);
        }
    }
}

/// Lists the number of changes of each kind, for example `2 bans, 1 edit, 3 overrides`.
pub fn counts<'a>(items: impl Iterator<Item = &'a Item>) -> String {
    let mut counts = [(Kind::Ban, 0_u64), (Kind::Edit, 0), (Kind::Override, 0)];
    for item in items {
        for (kind, n) in &mut counts {
            *n = n.saturating_add(u64::from(*kind == item.kind()));
        }
    }
    let counts = counts.iter().filter(|(_, n)| *n > 0);
    let counts: Vec<String> = counts.map(|(kind, n)| counted(*n, kind.name())).collect();
    counts.join(", ")
}

/// Summarises, in one line, the changes lost in a restart.
pub fn gone<'a>(items: impl ExactSizeIterator<Item = &'a Item>, started_unix_ms: u64) -> String {
    let at = loudou_words::text::date(started_unix_ms);
    let are = if items.len() == 1 { "is" } else { "are" };
    match counts(items).as_str() {
        "" => format!("Envoy restarted at {at}"),
        counts => format!("Envoy restarted at {at}: {counts} of the previous instance {are} lost"),
    }
}

/// Returns true if the key's name has been lost, so that only its hash is known.
pub fn is_lost(key: &str) -> bool {
    let digits = key.strip_prefix('#').unwrap_or_default();
    digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests;
