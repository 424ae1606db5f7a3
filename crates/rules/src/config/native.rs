//! Fields that the native module does not support yet.

use alloc::vec::Vec;

use serde_json::Value;

use super::problem::{Path, Problem};

/// Fields of a rule that may name metadata.
const WITH_METADATA: [&str; 4] = ["key", "match", "cost", "limits"];

/// Returns a problem for each field of a rule file that the native module cannot support, because
/// Envoy does not tell a module the facts that it needs.
pub fn unsupported_natively(document: &Value) -> Vec<Problem> {
    let mut problems = Vec::new();
    let defaults = document.get("defaults").into_iter();
    let defaults = defaults.map(|defaults| (Path::root().field("defaults"), defaults));
    let rules = document.get("rules").and_then(Value::as_array);
    let rules = rules.into_iter().flatten().enumerate();
    let rules = rules.map(|(index, rule)| (Path::root().field("rules").index(index), rule));
    for (path, rule) in defaults.chain(rules) {
        let when = rule.get("when").map(|when| (path.field("when"), when));
        let settle = rule.pointer("/cost/settle");
        let settle = settle.map(|settle| (path.field("cost").field("settle"), settle));
        problems.extend(when.into_iter().chain(settle).map(problem));
        for field in WITH_METADATA {
            if let Some(value) = rule.get(field) {
                find_metadata(value, &path.field(field), &mut problems);
            }
        }
    }
    problems
}

/// Searches a value. The depth of the document bounds the recursion.
fn find_metadata(value: &Value, path: &Path, problems: &mut Vec<Problem>) {
    match value {
        Value::Array(values) => {
            for (index, value) in values.iter().enumerate() {
                find_metadata(value, &path.index(index), problems);
            }
        }
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = path.field(name);
                // A settlement is a problem itself.
                if name == "metadata" {
                    problems.push(problem((path, value)));
                } else if name != "settle" {
                    find_metadata(value, &path, problems);
                }
            }
        }
        _ => {}
    }
}

fn problem((path, value): (Path, &Value)) -> Problem {
    let message = "the native module does not support this field yet; use the Wasm filter";
    Problem::error(path, value, message)
}

#[cfg(test)]
mod tests {
    use alloc::string::{String, ToString as _};

    use serde_json::json;

    use super::*;

    #[test]
    fn each_unsupported_field_is_named_once() {
        let claim = json!({ "metadata": ["a", "b"] });
        let document = json!({
            "version": 1,
            "defaults": { "key": [claim] },
            "rules": [
                {
                    "name": "all", "key": [{ "header": "x" }, claim],
                    "match": { "not": claim }, "when": {},
                    "cost": { "reserve": claim, "settle": claim, "max": 9 },
                    "limits": [{ "capacity": claim }],
                    "overrides": [{ "key": "metadata", "scale": 2 }],
                },
                { "name": "metadata", "key": [{ "literal": "metadata" }], "overrides": { "metadata": {} } },
            ],
        });
        let problems = unsupported_natively(&document);
        let paths: Vec<String> = problems.iter().map(|one| one.path.to_string()).collect();
        let expected = [
            "defaults.key[0].metadata",
            "rules[0].when",
            "rules[0].cost.settle",
            "rules[0].key[1].metadata",
            "rules[0].match.not.metadata",
            "rules[0].cost.reserve.metadata",
            "rules[0].limits[0].capacity.metadata",
        ];
        assert_eq!(paths, expected);
    }
}
