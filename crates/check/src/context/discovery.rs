//! Finds filters whose configuration Envoy fetches by name through its extension config discovery
//! service (ECDS).

use loudou_rules::config::Path;
use serde_json::Value;

use crate::document::Document;
use crate::document::proto;

pub(super) const WASM: &str = "envoy.extensions.filters.http.wasm.v3.Wasm";
pub(super) const RBAC: &str = "envoy.extensions.filters.http.rbac.v3.RBAC";
pub(super) const WASM_URL: &str = "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm";
pub(super) const RBAC_URL: &str = "type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC";

/// A filter with `config_discovery`.
pub(super) struct Discovered {
    pub(super) name: String,
    pub(super) path: Path,
    /// Innermost listener that contains the filter.
    pub(super) listener: Option<Path>,
}

/// Returns all named filters with `config_discovery` in a file.
pub(super) fn all(file: &Document) -> Vec<Discovered> {
    let mut found = Vec::new();
    visit(&file.value, &Path::root(), None, &mut found);
    found
}

/// Searches a value recursively. The parser limits the nesting depth of a document, which bounds
/// the recursion.
fn visit(value: &Value, path: &Path, listener: Option<&Path>, found: &mut Vec<Discovered>) {
    match value {
        Value::Array(values) => {
            for (index, value) in values.iter().enumerate() {
                visit(value, &path.index(index), listener, found);
            }
        }
        Value::Object(fields) => {
            let has = |name: &str| proto::get(fields, name).is_some();
            let is_listener = has("filter_chains") || has("default_filter_chain");
            let listener = if is_listener { Some(path) } else { listener };
            if has("config_discovery")
                && let Some(name) = proto::text(fields, "name")
            {
                found.push(Discovered {
                    name: name.to_owned(),
                    path: path.clone(),
                    listener: listener.cloned(),
                });
            }
            for (name, value) in fields {
                visit(value, &path.field(name), listener, found);
            }
        }
        _ => {}
    }
}
