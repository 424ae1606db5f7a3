//! Finds Loudou configurations in Kubernetes manifests for Istio and Envoy Gateway.
//!
//! All other objects are skipped, so the output of `kustomize build` can be checked without
//! filtering it first.

use loudou_rules::config::{Path, Step};
use serde_json::Value;

use super::configuration::{Configuration, Object, Place};
use super::envoy::{Search, is_our_name, looks_like_rules, role};
use super::tree::{Document, Fault, Position};

/// API group of `WasmPlugin` and `TrafficExtension` in Istio.
pub const ISTIO: &str = "extensions.istio.io";
const ISTIO_NETWORK: &str = "networking.istio.io";
const ENVOY_GATEWAY: &str = "gateway.envoyproxy.io";

/// Field of an `EnvoyExtensionPolicy` that lists native modules.
const GATEWAY_MODULES: &str = "dynamicModule";

/// API group and kind of each object type that can contain a Loudou configuration.
pub const KINDS: [(&str, &str); 5] = [
    (ISTIO, "WasmPlugin"),
    (ISTIO, "TrafficExtension"),
    (ISTIO_NETWORK, "EnvoyFilter"),
    (ENVOY_GATEWAY, "EnvoyExtensionPolicy"),
    (ENVOY_GATEWAY, "EnvoyPatchPolicy"),
];

/// Returns all Loudou configurations in a manifest file, in file order, or an error if the file
/// contains none.
pub fn configurations(file: &Document) -> Result<Vec<Configuration>, Fault> {
    let mut search = Search::new(file);
    for object in objects(file) {
        match object {
            Ok(object) => of_object(&mut search, &object),
            Err(path) => {
                let at = file.locate(&path, false);
                let message = "not an object of Kubernetes: it needs `apiVersion` and `kind`";
                let place = Place {
                    content: path,
                    ..Place::default()
                };
                let title = "a document of another kind".to_owned();
                search.keep(title, Err(Fault::error(at, message)), place);
            }
        }
    }
    if search.found.is_empty() {
        let message = none(search.others);
        return Err(Fault::error(Position::default(), message));
    }
    Ok(search.found)
}

fn none(others: usize) -> String {
    let kinds: Vec<&str> = KINDS.iter().map(|(_, kind)| *kind).collect();
    let (last, first) = kinds.split_last().unwrap_or((&"", &[]));
    let others = match others {
        0 => String::new(),
        1 => "; there is 1 other filter".to_owned(),
        n => format!("; there are {n} other filters"),
    };
    format!(
        "no Loudou filter in these manifests: expected {} or {last} with `loudou` in the name or the address of \
         the module, or with rules in its configuration{others}",
        first.join(", ")
    )
}

/// Returns the Kubernetes objects in a file, including the items of `List` objects. If a document
/// or item is not a Kubernetes object, its path is returned instead.
pub fn objects(file: &Document) -> Vec<Result<Object, Path>> {
    let mut found = Vec::new();
    let documents = file.value.as_array();
    for (index, value) in documents.into_iter().flatten().enumerate() {
        if !value.is_null() {
            collect(value, &Path::root().index(index), &mut found);
        }
    }
    found
}

/// Adds an object, or each item of a `List` object. The parser limits the nesting depth of a
/// document, which bounds the recursion.
fn collect(value: &Value, path: &Path, found: &mut Vec<Result<Object, Path>>) {
    let text = |value: &Value, name: &str| Some(value.get(name)?.as_str()?.to_owned());
    let (Some(api), Some(kind)) = (text(value, "apiVersion"), text(value, "kind")) else {
        found.push(Err(path.clone()));
        return;
    };
    if let Some(items) = value.get("items").and_then(Value::as_array)
        && kind.ends_with("List")
    {
        let path = path.field("items");
        for (index, item) in items.iter().enumerate() {
            collect(item, &path.index(index), found);
        }
        return;
    }
    let metadata = value.get("metadata");
    let meta = |name| metadata.and_then(|metadata| text(metadata, name));
    found.push(Ok(Object {
        api,
        kind,
        namespace: meta("namespace"),
        name: meta("name").unwrap_or_else(|| "without a name".to_owned()),
        path: path.clone(),
    }));
}

fn of_object(search: &mut Search<'_>, object: &Object) {
    let group = object.api.split('/').next().unwrap_or_default();
    if !KINDS.contains(&(group, &object.kind)) {
        return;
    }
    let spec = object.path.field("spec");
    match object.kind.as_str() {
        "WasmPlugin" => plugin(search, object, &spec, "pluginConfig"),
        "TrafficExtension" => plugin(search, object, &spec.field("wasm"), "pluginConfig"),
        "EnvoyExtensionPolicy" => {
            for list in ["wasm", GATEWAY_MODULES] {
                each(search, &spec.field(list), |search, path| {
                    plugin(search, object, path, "config");
                });
            }
        }
        "EnvoyFilter" => each(search, &spec.field("configPatches"), |search, path| {
            patch(search, object, &path.field("patch"));
        }),
        _ => each(search, &spec.field("jsonPatches"), |search, path| {
            patch(search, object, &path.field("operation"));
        }),
    }
}

/// Returns true if this is the path of a native module in an `EnvoyExtensionPolicy`.
pub fn is_gateway_module(plugin: &Path) -> bool {
    let mut steps = plugin.steps().iter();
    steps.any(|step| matches!(step, Step::Field(name) if name == GATEWAY_MODULES))
}

fn each(search: &mut Search<'_>, list: &Path, mut f: impl FnMut(&mut Search<'_>, &Path)) {
    let values = search.file.value_at(list).and_then(Value::as_array);
    for index in 0..values.map_or(0, Vec::len) {
        f(search, &list.index(index));
    }
}

fn patch(search: &mut Search<'_>, object: &Object, path: &Path) {
    let path = path.field("value");
    if let Some(value) = search.file.value_at(&path) {
        search.patch(object, value, &path);
    }
}

/// Adds the configuration of the plugin that is defined at `path` in an object, if the plugin is
/// Loudou.
fn plugin(search: &mut Search<'_>, object: &Object, path: &Path, field: &str) {
    let file = search.file;
    let Some(fields) = file.value_at(path).and_then(Value::as_object) else {
        return;
    };
    let content = fields.get(field).filter(|content| !content.is_null());
    let text = |name: &str| fields.get(name)?.as_str();
    let url = |kind: &str| fields.get("code")?.get(kind)?.get("url")?.as_str();
    let names = ["name", "pluginName", "rootID", "url", "filterName"].map(text);
    let urls = ["image", "http"].map(url);
    let mut names = names.into_iter().chain(urls).flatten();
    let is_ours = is_our_name(&object.name) || names.any(is_our_name);
    if !is_ours && !content.is_some_and(looks_like_rules) {
        search.others = search.others.saturating_add(1);
        return;
    }
    let place = |content: Path| Place {
        object: Some(object.clone()),
        plugin: path.clone(),
        content,
        listener: None,
    };
    let title = format!("{object}, {} role", role(content));
    let inner = path.field(field);
    let fault = |path: &Path, message: String| Fault::error(file.locate(path, false), message);
    match content {
        Some(Value::Object(_)) => {
            let content = file.value_at(&inner).unwrap_or(&Value::Null);
            let document = file.part(content, &inner);
            search.keep(title, Ok(document), place(inner));
        }
        Some(_) => {
            let message = format!("`{field}` is not an object: write the rules as its fields");
            search.keep(title, Err(fault(&inner, message)), place(inner));
        }
        None => {
            let effect = if is_gateway_module(path) {
                "Envoy refuses the listener"
            } else {
                "every request gets an error (500)"
            };
            let message = format!("no `{field}`: without rules, {effect}");
            search.keep(title, Err(fault(path, message)), place(path.clone()));
        }
    }
}
