//! Applies the limit fields that were typed on the command line to the limits of a rule.

use anyhow::{Context as _, Result, bail};
use loudou_rules::config::{self, nearest};
use serde_json::{Map, Value};

use super::world::Usage;
use loudou_words::limit_edit;
use loudou_words::text::{escape, meant};

/// Returns the limits of the rule, with the fields of the selected limit changed.
pub(super) fn changed_limits(
    wanted: Option<&str>,
    changes: &[(&str, String)],
    rule: &Value,
) -> Result<Value> {
    let limits = rule.get("limits").and_then(Value::as_array);
    let mut limits = limits
        .cloned()
        .context("the rule in the answer has no limits")?;
    let name_of = |limit: &Value| {
        let name = limit.get("name").and_then(Value::as_str);
        name.unwrap_or_default().to_owned()
    };
    let names: Vec<String> = limits.iter().map(name_of).collect();
    let listed = escape(&names.join(", ")).into_owned();
    let wanted = match (wanted, names.as_slice()) {
        (Some(name), _) => name,
        (None, [only]) => only,
        (None, _) => {
            bail!(Usage(format!(
                "the rule has several limits; choose one with --limit: {listed}"
            )))
        }
    };
    let limit = limits.iter_mut().find(|limit| name_of(limit) == *wanted);
    let Some(Value::Object(fields)) = limit else {
        let name = escape(wanted);
        bail!(Usage(format!(
            "the rule has no limit `{name}`; it has {listed}{}",
            meant(nearest(
                wanted,
                &names.iter().map(String::as_str).collect::<Vec<_>>()
            ))
        )));
    };
    change(fields, changes)?;
    Ok(Value::Array(limits))
}

/// Sets fields of a limit. The rule parser's table determines which fields the limit's algorithm
/// has.
fn change(limit: &mut Map<String, Value>, changes: &[(&str, String)]) -> Result<()> {
    let algorithm = limit.get("algorithm").and_then(Value::as_str);
    let algorithm = algorithm.unwrap_or_default().to_owned();
    let names: Vec<&str> = config::limit_fields(&algorithm)
        .iter()
        .map(|f| f.name)
        .collect();
    if names.is_empty() {
        let name = escape(&algorithm);
        bail!(Usage(format!("this loudou is too old to edit {name}")));
    }
    // Fields that repeat a default are removed. Some defaults are derived from other fields, and
    // must change along with these fields.
    *limit = config::spoken_value(limit);
    for (index, (name, value)) in changes.iter().enumerate() {
        let Some(field) = limit_edit::field(&algorithm, name) else {
            let meant = meant(nearest(name, &names));
            let (name, names) = (escape(name), names.join(", "));
            bail!(Usage(format!(
                "{algorithm} has no field `{name}`; it has {names}{meant}"
            )));
        };
        if changes
            .iter()
            .take(index)
            .any(|(earlier, _)| earlier == name)
        {
            bail!(Usage(format!("{name} is given twice")));
        }
        limit_edit::put(limit, field, value);
    }
    let set: Vec<&str> = changes.iter().map(|(name, _)| *name).collect();
    limit_edit::settle(limit, &set);
    Ok(())
}
