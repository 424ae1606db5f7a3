//! Finds fields that the native module or the Wasm filter does not support.

use alloc::vec::Vec;

use serde_json::Value;

use super::problem::{Path, Problem};
use super::settlement::LLM_TOKENS;

/// Fields of a rule that may contain metadata paths.
const WITH_METADATA: [&str; 4] = ["key", "match", "cost", "limits"];

/// Returns a problem for each rule file field that the native module cannot support because Envoy
/// does not give it the necessary data.
pub fn unsupported_natively(document: &Value) -> Vec<Problem> {
    let mut problems = Vec::new();
    let defaults = document.get("defaults").into_iter();
    let defaults = defaults.map(|defaults| (Path::root().field("defaults"), defaults));
    let rules = document.get("rules").and_then(Value::as_array);
    let rules = rules.into_iter().flatten().enumerate();
    let rules = rules.map(|(index, rule)| (Path::root().field("rules").index(index), rule));
    for (path, rule) in defaults.chain(rules) {
        if let Some(settle) = rule.pointer("/cost/settle") {
            let path = path.field("cost").field("settle");
            find_token_usage(settle, &path, &mut problems);
        }
        if let Some(cost) = rule.get("cost").filter(|cost| *cost == LLM_TOKENS) {
            problems.push(problem((path.field("cost"), cost)));
        }
        for field in WITH_METADATA {
            if let Some(value) = rule.get(field) {
                find_metadata(value, &path.field(field), &mut problems);
            }
        }
    }
    problems
}

/// Reason why the Wasm filter rejects `store.file`.
pub const FILE_IN_WASM: &str = "a Wasm filter cannot write a file, so a restart of Envoy loses its buckets: use \
                                the native module, or remove the field";

/// Returns a problem for each rule file field that the Wasm filter cannot support.
pub fn unsupported_in_wasm(document: &Value) -> Vec<Problem> {
    let path = Path::root().field("store").field("file");
    let file = document.pointer("/store/file").into_iter();
    file.map(|file| Problem::error(path.clone(), file, FILE_IN_WASM))
        .collect()
}

/// Reports each use of `token_usage` as a source in `settle`.
fn find_token_usage(settle: &Value, path: &Path, problems: &mut Vec<Problem>) {
    const WORD: &str = "token_usage";
    if settle == WORD {
        problems.push(problem((path.clone(), settle)));
    }
    for (index, source) in settle.as_array().into_iter().flatten().enumerate() {
        if source == WORD {
            problems.push(problem((path.index(index), source)));
        }
    }
}

/// Searches a field for metadata paths that the native module cannot read. The recursion is bounded
/// by the depth of the document.
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
                if name == "metadata" {
                    find_deep(value, &path, problems);
                } else {
                    find_metadata(value, &path, problems);
                }
            }
        }
        _ => {}
    }
}

/// Reports each path in a `metadata` field that has more than one key below the namespace.
fn find_deep(value: &Value, path: &Path, problems: &mut Vec<Problem>) {
    let names = value.as_array().into_iter().flatten();
    for (index, test) in names.enumerate() {
        if let Some(names) = test.get("path") {
            find_deep(names, &path.index(index).field("path"), problems);
        }
    }
    let is_path = value.get(0).is_some_and(Value::is_string);
    if is_path && value.get(2).is_some() {
        let message = "the native module reads a namespace and one key of metadata, and nothing inside its value: use a \
                       header, such as by `claim_to_headers` of Envoy's jwt_authn, or the Wasm filter";
        problems.push(Problem::error(path.clone(), value, message));
    }
}

fn problem((path, value): (Path, &Value)) -> Problem {
    let message = "the native module does not support this field yet; use the Wasm filter";
    Problem::error(path, value, message)
}

#[cfg(test)]
mod tests {
    use alloc::string::{String, ToString};

    use serde_json::json;

    use super::*;

    #[test]
    fn each_unsupported_field_is_named_once() {
        let claim = json!({ "metadata": ["a", "b", "c"] });
        let flat = json!({ "metadata": ["a", "b"] });
        let document = json!({
            "version": 1,
            "defaults": { "key": [claim] },
            "rules": [
                {
                    "name": "all", "key": [{ "header": "x" }, claim, flat],
                    "match": { "metadata": [
                        { "path": ["a", "b"], "exact": "c" }, { "path": ["a", "b", "c"], "present": true },
                    ] },
                    "when": {},
                    "cost": { "reserve": claim, "settle": [claim, "token_usage"], "max": 9 },
                    "limits": [{ "capacity": claim }],
                    "overrides": [{ "key": "metadata", "scale": 2 }],
                },
                { "name": "r", "cost": { "settle": "token_usage" } },
                { "name": "word", "cost": "llm_tokens" },
                { "name": "metadata", "key": [{ "literal": "metadata" }], "overrides": { "metadata": {} } },
            ],
        });
        assert!(unsupported_in_wasm(&document).is_empty());
        let file = json!({ "store": { "file": "/buckets" }, "rules": [] });
        let problems: Vec<String> = unsupported_in_wasm(&file)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            problems,
            [alloc::format!("store.file: \"/buckets\": {FILE_IN_WASM}")]
        );
        assert!(unsupported_natively(&file).is_empty());
        let problems = unsupported_natively(&document);
        let paths: Vec<String> = problems.iter().map(|one| one.path.to_string()).collect();
        let expected = [
            "defaults.key[0].metadata",
            "rules[0].cost.settle[1]",
            "rules[0].key[1].metadata",
            "rules[0].match.metadata[1].path",
            "rules[0].cost.reserve.metadata",
            "rules[0].cost.settle[0].metadata",
            "rules[0].limits[0].capacity.metadata",
            "rules[1].cost.settle",
            "rules[2].cost",
        ];
        assert_eq!(paths, expected);
    }
}
