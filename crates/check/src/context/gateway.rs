//! Checks the configuration around the rules in an `EnvoyExtensionPolicy` of Envoy Gateway.

use loudou_rules::config::Path;
use serde_json::Value;

use super::envoy;
use super::view::View;
use crate::document::manifest;

pub(super) fn check(view: &mut View<'_>, object: &Path) {
    if manifest::is_gateway_module(&view.place.plugin) {
        module(view);
    } else {
        envoy::in_wasm(view);
        wasm(view);
    }
    if view.is_admin() && !has_section(view, object) {
        view.misplaced_admin(
            "`admin.at` beside the rules, or a listener of its own, by `sectionName`",
        );
    }
}

fn wasm(view: &mut View<'_>) {
    let wasm = view.place.plugin.clone();
    let open = wasm.field("failOpen");
    if view.at(&open) == Some(&Value::Bool(true)) {
        view.warning(
            &open,
            "if the module ever crashes or cannot be fetched, every request passes without limits",
            "false",
            Some("false"),
        );
    }
    let code = wasm.field("code");
    let kind = view.word(&code.field("type"), &["Image", "HTTP"]);
    let field = if kind == Some("HTTP") {
        "http"
    } else {
        "image"
    };
    let source = code.field(field);
    let (url, sum) = (source.field("url"), source.field("sha256"));
    view.checksum(&sum, "");
    match view.text(&url) {
        Some(_) => {}
        None if view.at(&source).is_none() => {
            let message = "the address of the module";
            view.error(&source, message, "`{ url: … }`", None);
        }
        None => view.error(&url, "the address of the module", "", None),
    }
}

/// Checks the settings for a native module. If the file contains `EnvoyProxy` objects, at least one
/// object must register the module.
fn module(view: &mut View<'_>) {
    let plugin = view.place.plugin.clone();
    envoy::role_name(view, &plugin.field("filterName"));
    envoy::in_module(view);
    let terminal = plugin.field("terminalFilter");
    if view.at(&terminal) == Some(&Value::Bool(true)) {
        let message =
            "requests that Loudou admits would get no response, because no service follows";
        view.error(&terminal, message, "false", Some("false"));
    }
    let path = plugin.field("name");
    let Some(name) = view.text(&path) else {
        return;
    };
    let entries = entries(view);
    let is_named = |entry: &&Path| view.text(&entry.field("name")) == Some(name);
    if let Some(entry) = entries.iter().find(is_named) {
        envoy::stays_loaded(view, &entry.field("doNotClose"));
    } else if !entries.is_empty() {
        let names = entries.iter();
        let names: Vec<&str> = names
            .filter_map(|entry| view.text(&entry.field("name")))
            .collect();
        let message =
            "no EnvoyProxy in this file registers this module, so Envoy Gateway refuses the policy";
        let near = loudou_rules::config::nearest(name, &names);
        view.warning(&path, message, &names.join(", "), near);
    }
}

/// Returns the paths of all modules that `EnvoyProxy` objects in the file register.
fn entries(view: &View<'_>) -> Vec<Path> {
    let objects = manifest::objects(view.file).into_iter().flatten();
    let proxies = objects.filter(|object| object.kind == "EnvoyProxy");
    let lists = proxies.map(|proxy| proxy.path.field("spec").field("dynamicModules"));
    lists
        .flat_map(|list| (0..view.len(&list)).map(move |index| list.index(index)))
        .collect()
}

fn has_section(view: &View<'_>, object: &Path) -> bool {
    let spec = object.field("spec");
    let many = spec.field("targetRefs");
    let many = (0..view.len(&many)).map(|index| many.index(index));
    let mut targets = many.chain([spec.field("targetRef")]);
    targets.any(|target| view.at(&target.field("sectionName")).is_some())
}
