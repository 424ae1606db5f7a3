//! How the record writes and reads the changes that buckets may still have to undergo.

use loudou_limiter::config::{parse_limits, parse_override};
use loudou_limiter::rule::Override;
use loudou_limiter::versions::{Before, Change, History};
use loudou_limiter::{Carry, Limits, Nanos};
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::read::{carry, optional};
use crate::json::{list, number};

#[derive(Serialize)]
struct HistoryRecord<'a> {
    since: u32,
    version: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    changes: Vec<ChangeRecord<'a>>,
}

#[derive(Serialize)]
struct ChangeRecord<'a> {
    version: u32,
    at_ns: u64,
    carry: Carry,
    #[serde(skip_serializing_if = "Option::is_none")]
    limits: Option<&'a Limits>,
    #[serde(skip_serializing_if = "Option::is_none")]
    overrides: Option<Replaced<'a>>,
}

struct Replaced<'a>(&'a [(String, Option<Override>)]);

impl Serialize for Replaced<'_> {
    /// An object of patterns; null where there was no override.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut fields = to.serialize_map(Some(self.0.len()))?;
        for (pattern, gives) in self.0 {
            fields.serialize_entry(pattern, gives)?;
        }
        fields.end()
    }
}

pub(super) fn serialize<S: Serializer>(history: &History, to: S) -> Result<S::Ok, S::Error> {
    let changes = history.changes.iter().map(|change| {
        let (limits, overrides) = match &change.before {
            Before::Limits(limits) => (Some(limits), None),
            Before::Overrides(replaced) => (None, Some(Replaced(replaced))),
            Before::Same => (None, None),
        };
        ChangeRecord {
            version: change.version,
            at_ns: change.at.get(),
            carry: change.carry,
            limits,
            overrides,
        }
    });
    let record = HistoryRecord {
        since: history.since,
        version: history.version,
        changes: changes.collect(),
    };
    record.serialize(to)
}

pub(super) fn read(history: &Value) -> Option<History> {
    Some(History {
        since: version(history, "since")?,
        version: version(history, "version")?,
        changes: optional(history, "changes", |changes| list(changes, change))?.unwrap_or_default(),
    })
}

fn version(object: &Value, name: &str) -> Option<u32> {
    u32::try_from(number(object, name)?).ok()
}

fn change(change: &Value) -> Option<Change> {
    let limits = optional(change, "limits", |limits| parse_limits(limits).ok())?;
    let before = match (limits, change.get("overrides")) {
        (Some(limits), _) => Before::Limits(limits),
        (None, Some(replaced)) => Before::Overrides(overrides(replaced)?),
        (None, None) => Before::Same,
    };
    Some(Change {
        version: version(change, "version")?,
        at: Nanos::new(number(change, "at_ns")?),
        carry: carry(change)?,
        before,
    })
}

fn overrides(replaced: &Value) -> Option<Vec<(String, Option<Override>)>> {
    let mut all = Vec::new();
    for (pattern, gives) in replaced.as_object()? {
        let gives = match gives {
            Value::Null => None,
            gives => Some(parse_override(pattern, gives, None).ok()?),
        };
        all.push((pattern.clone(), gives));
    }
    Some(all)
}
