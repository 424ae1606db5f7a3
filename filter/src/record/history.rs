//! Encodes and decodes a rule's history and limits its length. The history contains the changes
//! that some buckets may not have been converted to yet.

use loudou_limiter::{Carry, Limits, Nanos};
use loudou_rules::config::{parse_limits, parse_override};
use loudou_rules::rule::Override;
use loudou_rules::versions::{Before, Change, History};
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::part::Text;
use crate::json::{carry, list, number, optional};

/// Maximum number of changes in a rule's history. When the history is full, further edits are
/// refused until a sweep has converted the rule's buckets.
pub(super) const MAX_CHANGES: usize = 1_024;

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
    /// Only used with `carry: proportional`: true if the exact proportion is carried over. Earlier
    /// versions did not write this field, so changes without it are applied as they were in those
    /// versions.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    exact: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    limits: Option<&'a Limits>,
    #[serde(skip_serializing_if = "Option::is_none")]
    overrides: Option<Replaced<'a>>,
}

struct Replaced<'a>(&'a [(String, Option<Override>)]);

impl Serialize for Replaced<'_> {
    /// Serializes a map from patterns to overrides. `null` means that the pattern had no override.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut fields = to.serialize_map(Some(self.0.len()))?;
        for (pattern, gives) in self.0 {
            fields.serialize_entry(pattern, gives)?;
        }
        fields.end()
    }
}

impl Text for History {
    fn write(&self) -> Vec<u8> {
        serde_json::to_vec(&HistoryRecord::of(self)).unwrap_or_default()
    }

    fn read(text: &[u8]) -> Option<Self> {
        let history: Value = serde_json::from_slice(text).ok()?;
        let changes = optional(&history, "changes", |changes| list(changes, change))?;
        Some(Self {
            since: version(&history, "since")?,
            version: version(&history, "version")?,
            changes: changes.unwrap_or_default(),
        })
    }
}

impl<'a> HistoryRecord<'a> {
    fn of(history: &'a History) -> Self {
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
                exact: change.carry == Carry::Proportional,
                limits,
                overrides,
            }
        });
        Self {
            since: history.since,
            version: history.version,
            changes: changes.collect(),
        }
    }
}

fn version(object: &Value, name: &str) -> Option<u32> {
    u32::try_from(number(object, name)?).ok()
}

fn change(change: &Value) -> Option<Change> {
    let limits = optional(change, "limits", |limits| parse_limits(limits).ok())?;
    let before = match (limits, change.get("overrides")) {
        (Some(limits), _) => Before::Limits(limits),
        (None, Some(replaced)) => Before::Overrides(overrides(replaced)?.into()),
        (None, None) => Before::Same,
    };
    Some(Change {
        version: version(change, "version")?,
        at: Nanos::new(number(change, "at_ns")?),
        carry: match carry(change)? {
            Carry::Proportional if change.get("exact").is_none() => Carry::Stepped,
            carry => carry,
        },
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

/// Drops the oldest changes if there are more than [`MAX_CHANGES`]. Buckets that have not been
/// converted to the dropped changes yet will be reset.
pub(super) fn bound(history: &mut History) {
    let changes = &history.changes;
    let surplus = changes.len().checked_sub(MAX_CHANGES);
    if let Some(last) = surplus.and_then(|surplus| changes.get(surplus.checked_sub(1)?)) {
        let version = last.version;
        history.forget(version);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Changes written by earlier versions retain their meaning, even when they are rewritten. New
    /// proportional changes are marked as exact. Earlier versions ignore the mark and interpret the
    /// changes as `proportional`.
    #[test]
    fn each_change_keeps_the_meaning_that_it_was_made_with() {
        for (carry, exact, is) in [
            ("proportional", "", Carry::Stepped),
            ("proportional", r#","exact":true"#, Carry::Proportional),
            ("keep", "", Carry::Keep),
            ("reset", "", Carry::Reset),
        ] {
            let change = format!(r#"{{"version":2,"at_ns":5,"carry":"{carry}"{exact}}}"#);
            let text = format!(r#"{{"since":1,"version":2,"changes":[{change}]}}"#);
            let history = History::read(text.as_bytes()).expect("readable");
            let carries: Vec<_> = history.changes.iter().map(|change| change.carry).collect();
            assert_eq!(carries, [is]);
            assert_eq!(String::from_utf8_lossy(&history.write()), text);
        }
        // API clients cannot select the old variant.
        assert_eq!(Carry::parse("proportional"), Some(Carry::Proportional));
    }
}
