//! Finds the parts of rules whose meaning depends on where the filter runs: the client address and
//! token claims.

use loudou_rules::config::Path;
use serde_json::Value;

/// Metadata namespaces in which Envoy and Istio store the claims of a verified token.
const CLAIMS: [&str; 2] = ["envoy.filters.http.jwt_authn", "istio_authn"];

/// Returns the paths in keys and matches at which rules use the client address.
pub(super) fn sources(content: &Value) -> Vec<Path> {
    let mut found = Vec::new();
    let rules = content.get("rules").and_then(Value::as_array);
    let defaults = content.get("defaults").into_iter();
    let defaults = defaults.map(|defaults| (Path::root().field("defaults"), defaults));
    let rules = rules.into_iter().flatten().enumerate();
    let rules = rules.map(|(index, rule)| (Path::root().field("rules").index(index), rule));
    for (path, rule) in defaults.chain(rules) {
        let key = rule.get("key").and_then(Value::as_array);
        for (index, part) in key.into_iter().flatten().enumerate() {
            let path = path.field("key").index(index);
            if part == "source" {
                found.push(path);
            } else if part.get("source").is_some() {
                found.push(path.field("source"));
            }
        }
        let mut path = path.field("match");
        let mut matches = rule.get("match");
        while let Some(inner) = matches {
            if inner.get("source").is_some() {
                found.push(path.field("source"));
            }
            path = path.field("not");
            matches = inner.get("not");
        }
    }
    found
}

/// Returns the paths at which rules use token claims.
pub(super) fn claims(content: &Value) -> Vec<Path> {
    let mut found = Vec::new();
    visit(content, &Path::root(), &mut found);
    found
}

/// Searches a value recursively. The parser limits the nesting depth of a document, which bounds
/// the recursion.
fn visit(value: &Value, path: &Path, found: &mut Vec<Path>) {
    match value {
        Value::Array(values) => {
            for (index, value) in values.iter().enumerate() {
                visit(value, &path.index(index), found);
            }
        }
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = path.field(name);
                // Both keys and match conditions write a metadata path as a list, whose first
                // element is the namespace.
                let is_claim = |value: &Value| {
                    let first = value.get(0).and_then(Value::as_str);
                    first.is_some_and(|first| CLAIMS.contains(&first))
                };
                if (name == "metadata" || name == "path") && is_claim(value) {
                    found.push(path);
                } else {
                    visit(value, &path, found);
                }
            }
        }
        _ => {}
    }
}
