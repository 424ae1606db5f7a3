//! Checks the filter configuration around the rules in Envoy's own format, or in a Kubernetes
//! object that patches the Envoy configuration.

use std::net::IpAddr;
use std::rc::Rc;

use loudou_rules::config::{self, Path};
use serde_json::Value;

use super::discovery::{self, Discovered};
use super::istio;
use super::view::View;
use crate::document::configuration::Object;

const POLICIES: [&str; 4] = ["FAIL_RELOAD", "FAIL_OPEN", "FAIL_CLOSED", "UNSPECIFIED"];
/// Lowest `num_retries` for fetching a module that causes no warning. Envoy's default is 1, so
/// after two failed fetches the listener answers 503 until Envoy restarts.
const RETRIES: u64 = 10;
const CONTEXTS: [&str; 5] = [
    "SIDECAR_INBOUND",
    "SIDECAR_OUTBOUND",
    "GATEWAY",
    "WAYPOINT",
    "ANY",
];

pub(super) fn check(view: &mut View<'_>) {
    let plugin = view.place.plugin.clone();
    let object = view.place.object.as_ref();
    let patch = object.and_then(|object| patch_of(object, &plugin));
    let apply_to = patch.as_ref().map(|patch| patch.field("applyTo"));
    let apply_to = apply_to.and_then(|path| view.text(&path));
    if is_module(view, &plugin) {
        module(view, &plugin);
    } else {
        in_wasm(view);
        failure_policy(view, &plugin);
        code(view, &plugin, apply_to == Some("EXTENSION_CONFIG"));
    }
    if view.is_admin() {
        admin(view, &plugin);
    } else if let Some(patch) = &patch {
        data(view, patch);
    }
    if apply_to == Some("EXTENSION_CONFIG")
        && let Some(patch) = patch
    {
        discovered(view, &patch);
    }
}

/// Returns the path of the `configPatches` element that contains `plugin`, if `object` is an
/// `EnvoyFilter`.
fn patch_of(object: &Object, plugin: &Path) -> Option<Path> {
    let depth = object.path.steps().len().checked_add(3)?;
    let steps = plugin.steps().get(..depth)?;
    (object.kind == "EnvoyFilter").then(|| Path::from(steps.to_vec()))
}

/// Returns true if the filter runs a native module.
pub(super) fn is_module(view: &View<'_>, plugin: &Path) -> bool {
    let module = view.envoy(plugin, &["dynamic_module_config"]);
    view.at(&module).is_some()
}

/// Checks the filter settings for a native module.
fn module(view: &mut View<'_>, plugin: &Path) {
    let open = view.envoy(plugin, &["dynamic_module_config", "do_not_close"]);
    stays_loaded(view, &open);
    let name = view.envoy(plugin, &["filter_name"]);
    role_name(view, &name);
    in_module(view);
}

/// Checks that the field at `path`, which keeps a native module loaded, is true.
pub(super) fn stays_loaded(view: &mut View<'_>, path: &Path) {
    if view.at(path) != Some(&Value::Bool(true)) {
        view.error(
            path,
            "the buckets are in the module's memory, and its timer is a thread: Envoy must not unload it",
            "true",
            Some("true"),
        );
    }
}

/// Checks that the field at `path` selects the right role of a native module.
pub(super) fn role_name(view: &mut View<'_>, path: &Path) {
    let wanted = if view.is_admin() {
        "loudou-admin"
    } else {
        "loudou"
    };
    if view.text(path) != Some(wanted) {
        view.error(path, "it selects the role", wanted, Some(wanted));
    }
}

/// Reports settings in the rules that a native module does not support.
pub(super) fn in_module(view: &mut View<'_>) {
    let unsupported = view.content.map(config::unsupported_natively);
    view.inside.extend(unsupported.unwrap_or_default());
}

/// Reports settings in the rules that a Wasm filter does not support.
pub(super) fn in_wasm(view: &mut View<'_>) {
    let unsupported = view.content.map(config::unsupported_in_wasm);
    view.inside.extend(unsupported.unwrap_or_default());
}

fn failure_policy(view: &mut View<'_>, plugin: &Path) {
    let path = view.envoy(plugin, &["failure_policy"]);
    let old = view.envoy(plugin, &["fail_open"]);
    let open = "if the module ever crashes, every request passes without limits from then on";
    let closed = "if the module ever crashes, every request gets 503 from then on";
    let (path, message) = match view.at(&path).map(|_| view.word(&path, &POLICIES)) {
        None if view.at(&old) == Some(&Value::Bool(true)) => {
            let allowed = "failure_policy: FAIL_RELOAD";
            view.warning(&old, open, allowed, Some(allowed));
            return;
        }
        None | Some(Some("FAIL_CLOSED" | "UNSPECIFIED")) => (path, closed),
        Some(Some("FAIL_OPEN")) => (path, open),
        Some(_) => return,
    };
    view.warning(&path, message, &POLICIES.join(", "), Some("FAIL_RELOAD"));
}

fn code(view: &mut View<'_>, plugin: &Path, fetched_by_istio: bool) {
    let remote = view.envoy(plugin, &["vm_config", "code", "remote"]);
    if view.at(&remote).is_none() {
        return;
    }
    let other_word = if fetched_by_istio { "nil" } else { "" };
    let sum = view.envoy(&remote, &["sha256"]);
    if !view.checksum(&sum, other_word) {
        view.error(
            &sum,
            "Envoy refuses remote code without it",
            "64 hexadecimal digits in lower case, in quotes; `nil` for an image that Istio fetches",
            None,
        );
    }
    if fetched_by_istio {
        return;
    }
    let uri = view.envoy(&remote, &["http_uri", "uri"]);
    if view.text(&uri).is_some_and(|uri| uri.starts_with("oci:")) {
        view.error(
            &uri,
            "Envoy cannot fetch images; Istio does it for a WasmPlugin, and for an EnvoyFilter with EXTENSION_CONFIG",
            "http://…, https://…",
            None,
        );
    }
    let retries = view.envoy(&remote, &["retry_policy", "num_retries"]);
    let count = view.at(&retries).map(Value::as_u64);
    if count.is_none_or(|count| count.is_some_and(|count| count < RETRIES)) {
        // If several fields are missing, the problem names the outermost one.
        let policy = view.envoy(&remote, &["retry_policy"]);
        let (path, suggestion) = if view.at(&policy).is_some() {
            (retries, "10")
        } else {
            (policy, "{ num_retries: 10 }")
        };
        view.warning(
            &path,
            "if the module cannot be fetched at once, the listener answers 503 until Envoy starts again",
            "`num_retries` of at least 10; the default is 1",
            Some(suggestion),
        );
    }
}

/// Checks the rules in an `EnvoyFilter`.
fn data(view: &mut View<'_>, patch: &Path) {
    let context = patch.field("match").field("context");
    let word = view.word(&context, &CONTEXTS);
    match word {
        Some("SIDECAR_INBOUND") => istio::sources(view, "a sidecar"),
        Some("WAYPOINT") => istio::sources(view, "a waypoint"),
        Some("GATEWAY") => {}
        // This patch only defines the filter. `discovered` checks the places that refer to the
        // filter by name.
        _ if view.text(&patch.field("applyTo")) == Some("EXTENSION_CONFIG") => {}
        None if view.at(&context).is_some() => {}
        _ => {
            let (place, suggestion) = if view.at(&patch.field("match")).is_some() {
                (context, "SIDECAR_INBOUND")
            } else {
                (patch.field("match"), "{ context: SIDECAR_INBOUND }")
            };
            view.warning(
                &place,
                "a sidecar also limits the requests that its workload sends",
                "SIDECAR_INBOUND, GATEWAY, WAYPOINT",
                Some(suggestion),
            );
        }
    }
    let class = patch.field("patch").field("filterClass");
    let classes = ["AUTHN", "AUTHZ", "STATS", "UNSPECIFIED"];
    if view.word(&class, &classes) == Some("AUTHN") {
        istio::claims(view, "filterClass", "AUTHZ or STATS");
    }
}

fn admin(view: &mut View<'_>, plugin: &Path) {
    let flag = view.envoy(plugin, &["allow_on_headers_stop_iteration"]);
    if !is_module(view, plugin) && view.at(&flag) != Some(&Value::Bool(true)) {
        view.warning(
            &flag,
            "an edit with a body hangs, because the body never arrives",
            "true",
            Some("true"),
        );
    }
    if let Some(listener) = view.place.listener.clone() {
        loopback(view, &listener);
    }
}

/// Warns about an admin listener that other machines can reach.
fn loopback(view: &mut View<'_>, listener: &Path) {
    let path = view.envoy(listener, &["address", "socket_address", "address"]);
    let Some(text) = view.text(&path) else {
        return;
    };
    if text.parse::<IpAddr>().is_ok_and(|it| it.is_loopback()) {
        return;
    }
    view.warning(
        &path,
        "other machines can reach the admin API; a port-forward reaches loopback, too",
        "127.0.0.1, ::1",
        Some("127.0.0.1"),
    );
}

/// Checks every place in the file where a filter with `config_discovery` refers to this filter by
/// name.
fn discovered(view: &mut View<'_>, patch: &Path) {
    let name = patch.field("patch").field("value").field("name");
    let Some(text) = view.text(&name) else {
        view.error(
            &name,
            "filters with `config_discovery` find it by name",
            "a name",
            None,
        );
        return;
    };
    let all = Rc::clone(&view.discovered);
    let users: Vec<&Discovered> = all.iter().filter(|it| it.name == text).collect();
    if users.is_empty() && !all.is_empty() {
        let names: Vec<&str> = all.iter().map(|it| it.name.as_str()).collect();
        let near = config::nearest(text, &names);
        view.warning(
            &name,
            "no filter with `config_discovery` has this name",
            &names.join(", "),
            near,
        );
    }
    for user in users {
        if view.is_admin()
            && let Some(listener) = &user.listener
        {
            loopback(view, listener);
        }
        types(view, &user.path);
    }
}

/// Checks the filter types that `config_discovery` allows. The allowed types must include RBAC,
/// because Istio's agent delivers an RBAC filter if it cannot fetch the module.
fn types(view: &mut View<'_>, filter: &Path) {
    let path = view.envoy(filter, &["config_discovery", "type_urls"]);
    let urls = view.at(&path).and_then(Value::as_array);
    let has = |kind: &str| {
        let mut urls = urls.into_iter().flatten().filter_map(Value::as_str);
        urls.any(|url| url.rsplit('/').next() == Some(kind))
    };
    let allowed = format!("{}, {}", discovery::WASM_URL, discovery::RBAC_URL);
    if !has(discovery::WASM) {
        let message = "Envoy refuses a wasm filter here";
        view.error(&path, message, &allowed, Some(discovery::WASM_URL));
    } else if !has(discovery::RBAC) {
        let message =
            "Istio's agent answers with RBAC if it cannot fetch the module, and Envoy refuses that";
        view.warning(&path, message, &allowed, Some(discovery::RBAC_URL));
    }
}
