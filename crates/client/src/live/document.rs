//! The document written by `loudou export --live` and read by `loudou import`.

use loudou_rules::config::{self, Cursor, Path, Problem, Report};
use serde::Serialize;
use serde_json::Value;

use super::{Item, Kind, What};

/// Description of a valid document, used in error messages.
const SOURCE: &str = "the output of `loudou export --live`";
/// Description of a valid key's format, used in error messages.
const KEY: &str = "a key as `loudou buckets` prints it";
/// Document format version.
pub const VERSION: u64 = 1;

const FIELDS: [&str; 6] = [
    "live_version",
    "instance",
    "exported_unix_ms",
    "edits",
    "overrides",
    "bans",
];

/// A document to be written.
#[derive(Clone, Debug, Serialize)]
pub struct Document<'a> {
    live_version: u64,
    instance: &'a str,
    exported_unix_ms: u64,
    edits: Vec<Entry<'a>>,
    overrides: Vec<Entry<'a>>,
    bans: Vec<Entry<'a>>,
}

#[derive(Clone, Debug, Serialize)]
struct Entry<'a> {
    rule: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    change: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gives: Option<&'a Value>,
    #[serde(skip_serializing_if = "str::is_empty")]
    by: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    made_unix_ms: Option<u64>,
    /// Expiry time. Omitted if the change does not expire.
    #[serde(skip_serializing_if = "Option::is_none")]
    ends_unix_ms: Option<u64>,
}

impl<'a> Document<'a> {
    /// Creates a document containing the live changes of the process `instance` at the time
    /// `unix_ms`.
    pub fn new(instance: &'a str, unix_ms: u64, items: impl Iterator<Item = &'a Item>) -> Self {
        let items: Vec<&Item> = items.collect();
        let of = |kind: Kind| {
            let items = items.iter().filter(|item| item.kind() == kind);
            items.map(|item| Entry::new(item)).collect()
        };
        Self {
            live_version: VERSION,
            instance,
            exported_unix_ms: unix_ms,
            edits: of(Kind::Edit),
            overrides: of(Kind::Override),
            bans: of(Kind::Ban),
        }
    }
}

impl<'a> Entry<'a> {
    fn new(item: &'a Item) -> Self {
        let (change, gives) = match &item.what {
            What::Edit(change) => (Some(change), None),
            What::Override { gives, .. } => (None, Some(gives)),
            What::Ban { .. } => (None, None),
        };
        Self {
            rule: &item.rule,
            key: item.key(),
            change,
            gives,
            by: &item.by,
            reason: &item.reason,
            made_unix_ms: item.made_unix_ms,
            ends_unix_ms: item.ends_unix_ms,
        }
    }
}

/// Parses a document. Returns all items with their paths in the document, or all problems found.
pub fn read(document: &Value) -> Result<Vec<(Path, Item)>, Vec<Problem>> {
    let mut report = Report::default();
    let root = Cursor::root(document);
    if let Some(problem) = wrong_version(&root) {
        return Err(vec![problem]);
    }
    let fields = root.object(&FIELDS, &mut report);
    let mut items: Vec<(Path, Item)> = Vec::new();
    for (name, kind) in [
        ("edits", Kind::Edit),
        ("overrides", Kind::Override),
        ("bans", Kind::Ban),
    ] {
        let Some(list) = fields.as_ref().and_then(|fields| fields.get(name)) else {
            continue;
        };
        for entry in list.list(&mut report).into_iter().flatten() {
            let Some(item) = item(kind, &entry, &mut report) else {
                continue;
            };
            if items.iter().any(|(_, earlier)| earlier.id() == item.id()) {
                let words = Value::String(item.words());
                report.add(entry.with(&words).wrong("duplicate"));
            }
            items.push((entry.path(), item));
        }
    }
    report.unless_invalid(Some(items))
}

/// Checks the version. If the version is missing or unknown, the rest of the document is not read,
/// because its fields may have different meanings.
fn wrong_version(root: &Cursor<'_, '_>) -> Option<Problem> {
    let none = root.with(&Value::Null);
    let Some(fields) = root.value.as_object() else {
        return Some(root.wrong("not an object").allowed(SOURCE));
    };
    match fields.get("live_version") {
        Some(version) if version.as_u64() == Some(VERSION) => None,
        Some(version) => {
            let place = Path::root().field("live_version");
            let problem = Problem::error(place, version, "an unknown version");
            Some(problem.allowed(VERSION.to_string()))
        }
        None if fields.contains_key("rules") => {
            let message =
                "no live_version: this is a rule file, which belongs in Envoy's configuration";
            Some(none.wrong(message).allowed(SOURCE))
        }
        None => Some(none.wrong("no live_version").allowed(SOURCE)),
    }
}

/// Parses a single entry, or reports its problems.
fn item(kind: Kind, entry: &Cursor<'_, '_>, report: &mut Report) -> Option<Item> {
    let common = ["rule", "by", "reason", "made_unix_ms", "ends_unix_ms"];
    let specific: &[&str] = match kind {
        Kind::Edit => &["change"],
        Kind::Override => &["key", "gives"],
        Kind::Ban => &["key"],
    };
    let names: Vec<&str> = common.iter().chain(specific).copied().collect();
    let before = report.problems.len();
    let fields = entry.object(&names, report)?;
    let rule = text(fields.need("rule", "the name of a rule", report), report);
    let by = text(fields.get("by"), report);
    let reason = text(fields.get("reason"), report);
    let made_unix_ms = unix_ms(fields.get("made_unix_ms"), report);
    let ends_unix_ms = unix_ms(fields.get("ends_unix_ms"), report);
    let what = match kind {
        Kind::Edit => {
            let change = fields.need("change", "the changes of a rule", report);
            change.map(|change| {
                let problems = config::parse_edit(change.value).err().unwrap_or_default();
                report.within(&change, problems);
                What::Edit(change.value.clone())
            })
        }
        Kind::Override => {
            let key = text(fields.need("key", KEY, report), report);
            let gives = fields.need("gives", "what the key gets", report);
            key.zip(gives).map(|(key, gives)| {
                let read = config::parse_override(&key, gives.value, None);
                report.within(&gives, read.err().unwrap_or_default());
                let gives = gives.value.clone();
                What::Override { key, gives }
            })
        }
        Kind::Ban => {
            let key = fields.need("key", KEY, report);
            if let Some(key) = key.filter(|key| {
                let key = key.value.as_str();
                key.is_some_and(|key| !config::is_key(key))
            }) {
                report.error(&key, "not a possible key", KEY);
            }
            text(key, report).map(|key| What::Ban { key })
        }
    };
    let item = Item {
        rule: rule?,
        what: what?,
        by: by.unwrap_or_default(),
        reason: reason.unwrap_or_default(),
        made_unix_ms,
        ends_unix_ms,
    };
    (report.problems.len() == before).then_some(item)
}

fn text(field: Option<Cursor<'_, '_>>, report: &mut Report) -> Option<String> {
    field?.string(report).map(ToOwned::to_owned)
}

fn unix_ms(field: Option<Cursor<'_, '_>>, report: &mut Report) -> Option<u64> {
    let field = field?;
    let time = field.value.as_u64();
    if time.is_none() {
        let allowed = "whole milliseconds since the Unix epoch";
        report.error(&field, "invalid time", allowed);
    }
    time
}
