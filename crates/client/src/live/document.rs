//! The document of `loudou export --live` and `loudou import`.

use loudou_rules::config::{self, Path, Problem, Step};
use serde::Serialize;
use serde_json::{Map, Value};

use super::{Item, Kind, What};

/// The origin of a document, in messages.
const SOURCE: &str = "the output of `loudou export --live`";
/// The version of the document format.
pub const VERSION: u64 = 1;

const FIELDS: [&str; 6] = [
    "live_version",
    "instance",
    "exported_unix_ms",
    "edits",
    "overrides",
    "bans",
];

/// The document as written.
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
    /// Absent for never.
    #[serde(skip_serializing_if = "Option::is_none")]
    ends_unix_ms: Option<u64>,
}

impl<'a> Document<'a> {
    /// The document of the live changes in the process `instance` at `unix_ms`.
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

/// Reads a document: its items with their places, in the order of listing, or all its problems.
pub fn read(document: &Value) -> Result<Vec<(Path, Item)>, Vec<Problem>> {
    let mut problems = Vec::new();
    let root = Path::root();
    let Some(fields) = document.as_object() else {
        let problem = Problem::error(root, document, "not an object");
        return Err(vec![problem.allowed(SOURCE)]);
    };
    match fields.get("live_version") {
        Some(version) if version.as_u64() == Some(VERSION) => {}
        Some(version) => {
            let problem = Problem::error(root.field("live_version"), version, "an unknown version");
            return Err(vec![problem.allowed(VERSION.to_string())]);
        }
        None => {
            let message = if fields.contains_key("rules") {
                "no live_version: this is a rule file, which belongs in Envoy's configuration"
            } else {
                "no live_version"
            };
            let problem = Problem::error(root, &Value::Null, message);
            return Err(vec![problem.allowed(SOURCE)]);
        }
    }
    known(fields, &FIELDS, &root, &mut problems);
    let mut items = Vec::new();
    for (name, kind) in [
        ("edits", Kind::Edit),
        ("overrides", Kind::Override),
        ("bans", Kind::Ban),
    ] {
        let at = root.field(name);
        match fields.get(name) {
            None => {}
            Some(Value::Array(list)) => {
                for (index, entry) in list.iter().enumerate() {
                    let at = at.index(index);
                    let item = item(kind, entry, &at, &mut problems);
                    items.extend(item.map(|item| (at, item)));
                }
            }
            Some(other) => problems.push(Problem::error(at, other, "not a list")),
        }
    }
    for (index, (at, item)) in items.iter().enumerate() {
        let id = item.id();
        if items
            .iter()
            .take(index)
            .any(|(_, earlier)| earlier.id() == id)
        {
            let what = Value::String(item.words());
            problems.push(Problem::error(at.clone(), &what, "duplicate"));
        }
    }
    if problems.is_empty() {
        Ok(items)
    } else {
        Err(problems)
    }
}

fn item(kind: Kind, entry: &Value, at: &Path, problems: &mut Vec<Problem>) -> Option<Item> {
    let Some(fields) = entry.as_object() else {
        problems.push(Problem::error(at.clone(), entry, "not an object"));
        return None;
    };
    let common = ["rule", "by", "reason", "made_unix_ms", "ends_unix_ms"];
    let specific: &[&str] = match kind {
        Kind::Edit => &["change"],
        Kind::Override => &["key", "gives"],
        Kind::Ban => &["key"],
    };
    let names: Vec<&str> = common.iter().chain(specific).copied().collect();
    let before = problems.len();
    known(fields, &names, at, problems);
    let mut reader = Reader {
        fields,
        at,
        problems,
    };
    let rule = reader.needed("rule");
    let by = reader.text("by");
    let reason = reader.text("reason");
    let made_unix_ms = reader.number("made_unix_ms");
    let ends_unix_ms = reader.number("ends_unix_ms");
    let what = match kind {
        Kind::Edit => reader
            .value("change", |change| config::parse_edit(change).err())
            .map(What::Edit),
        Kind::Override => {
            let key = reader.needed("key");
            let wrong = |gives: &Value| config::parse_override(key.as_deref()?, gives, None).err();
            let gives = reader.value("gives", wrong);
            key.clone()
                .zip(gives)
                .map(|(key, gives)| What::Override { key, gives })
        }
        Kind::Ban => {
            let key = reader.needed("key");
            if let Some(key) = key.as_deref().filter(|key| !config::is_key(key)) {
                let allowed = "a key as `loudou buckets` prints it";
                let problem =
                    Problem::error(at.field("key"), &Value::from(key), "not a possible key");
                reader.problems.push(problem.allowed(allowed));
            }
            key.map(|key| What::Ban { key })
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
    (problems.len() == before).then_some(item)
}

/// Finds unknown fields.
fn known(fields: &Map<String, Value>, names: &[&str], at: &Path, problems: &mut Vec<Problem>) {
    for (name, value) in fields {
        if !names.contains(&name.as_str()) {
            let problem = Problem::error(at.field(name), value, "an unknown field");
            let problem = problem
                .allowed(names.join(", "))
                .suggest(config::nearest(name, names));
            problems.push(Problem {
                at_name: true,
                ..problem
            });
        }
    }
}

/// The fields of one entry.
struct Reader<'a> {
    fields: &'a Map<String, Value>,
    at: &'a Path,
    problems: &'a mut Vec<Problem>,
}

impl Reader<'_> {
    fn missing(&mut self, name: &str) {
        let message = format!("`{name}` is missing");
        let problem = Problem::error(self.at.clone(), &Value::Null, message);
        self.problems.push(problem);
    }

    fn text(&mut self, name: &str) -> Option<String> {
        let value = self.fields.get(name).filter(|value| !value.is_null())?;
        let text = value.as_str().map(ToOwned::to_owned);
        if text.is_none() {
            let problem = Problem::error(self.at.field(name), value, "not a string");
            self.problems.push(problem);
        }
        text
    }

    fn needed(&mut self, name: &str) -> Option<String> {
        if self.fields.get(name).is_none_or(Value::is_null) {
            self.missing(name);
        }
        self.text(name)
    }

    fn number(&mut self, name: &str) -> Option<u64> {
        let value = self.fields.get(name).filter(|value| !value.is_null())?;
        if value.as_u64().is_none() {
            let problem = Problem::error(self.at.field(name), value, "invalid time");
            let allowed = "whole milliseconds since the Unix epoch";
            self.problems.push(problem.allowed(allowed));
        }
        value.as_u64()
    }

    /// A value, checked by the reader that the filter uses.
    fn value(
        &mut self,
        name: &str,
        wrong: impl FnOnce(&Value) -> Option<Vec<Problem>>,
    ) -> Option<Value> {
        let Some(value) = self.fields.get(name) else {
            self.missing(name);
            return None;
        };
        let place = self.at.field(name);
        for problem in wrong(value).unwrap_or_default() {
            let steps: Vec<Step> = place
                .steps()
                .iter()
                .chain(problem.path.steps())
                .cloned()
                .collect();
            self.problems.push(Problem {
                path: steps.into(),
                ..problem
            });
        }
        Some(value.clone())
    }
}
