//! Checks the configuration around the rules in Istio's `WasmPlugin` and `TrafficExtension`.

use loudou_rules::config::Path;
use serde_json::Value;

use super::keys;
use super::view::View;
use crate::document::manifest;

const STRATEGIES: [&str; 3] = ["FAIL_RELOAD", "FAIL_OPEN", "FAIL_CLOSE"];
const MODES: [&str; 4] = ["SERVER", "CLIENT", "CLIENT_AND_SERVER", "UNDEFINED"];

/// Kind of proxy that runs a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proxies {
    /// Sidecars of workloads.
    Sidecars,
    /// Gateways. The flag is false if the target could also be a waypoint.
    Gateways(bool),
    Waypoints,
}

pub(super) fn check(view: &mut View<'_>, object: &Path, kind: &str) {
    let spec = object.field("spec");
    let plugin = view.place.plugin.clone();
    let none = if kind == "WasmPlugin" {
        "UNSPECIFIED_PHASE"
    } else {
        "UNSPECIFIED"
    };
    fail_strategy(view, &plugin);
    module(view, &plugin);
    let phase = view.word(&spec.field("phase"), &["AUTHN", "AUTHZ", "STATS", none]);
    if view.is_admin() {
        admin(view, &spec);
        return;
    }
    let proxies = proxies(view, &spec);
    directions(view, &spec, proxies);
    content(view, proxies, phase == Some("AUTHN"));
}

fn fail_strategy(view: &mut View<'_>, plugin: &Path) {
    let path = plugin.field("failStrategy");
    let message = match view.at(&path).map(|_| view.word(&path, &STRATEGIES)) {
        None | Some(Some("FAIL_CLOSE")) => {
            "if the module ever crashes, FAIL_CLOSE refuses every request from then on"
        }
        Some(Some("FAIL_OPEN")) => {
            "if the module ever crashes or cannot be fetched, FAIL_OPEN lets every request pass without limits"
        }
        Some(_) => return,
    };
    view.warning(&path, message, &STRATEGIES.join(", "), Some("FAIL_RELOAD"));
}

/// Checks the module's URL, the format of its checksum, and the plugin type.
fn module(view: &mut View<'_>, plugin: &Path) {
    let (path, sum) = (plugin.field("url"), plugin.field("sha256"));
    view.checksum(&sum, "");
    let kind = plugin.field("type");
    let kinds = ["HTTP", "NETWORK", "UNSPECIFIED_PLUGIN_TYPE"];
    if view.word(&kind, &kinds) == Some("NETWORK") {
        let message = "Loudou limits requests, and a filter of the network gets none";
        view.error(&kind, message, "HTTP", Some("HTTP"));
    }
    if view.text(&path).is_none() {
        let allowed = "oci://…, https://…, http://…, file://…";
        view.error(&path, "the address of the module", allowed, None);
    }
}

/// Reports an admin role that is not restricted to certain ports, because the admin role answers
/// every request that reaches it.
fn admin(view: &mut View<'_>, spec: &Path) {
    let matches = spec.field("match");
    let mut entries = (0..view.len(&matches)).map(|index| matches.index(index).field("ports"));
    if view.len(&matches) == 0 || entries.any(|ports| view.len(&ports) == 0) {
        view.misplaced_admin(
            "an EnvoyFilter with a listener on 127.0.0.1 for the admin role, or `admin.at` beside the rules",
        );
    }
}

fn proxies(view: &View<'_>, spec: &Path) -> Proxies {
    let targets = spec.field("targetRefs");
    let many = (0..view.len(&targets)).map(|index| targets.index(index));
    let one = spec.field("targetRef");
    let one = view.at(&one).is_some().then_some(one);
    let mut targets = many.chain(one);
    if let Some(target) = targets.next() {
        let text = |name: &str| view.text(&target.field(name)).unwrap_or_default();
        return match text("kind") {
            "Gateway" => gateway(view, text("name")),
            "GatewayClass" if text("name") != "istio-waypoint" => Proxies::Gateways(true),
            _ => Proxies::Waypoints,
        };
    }
    let labels = view.at(&spec.field("selector").field("matchLabels"));
    let labels = labels.and_then(Value::as_object);
    let text = |name: &str| labels?.get(name)?.as_str();
    if let Some(name) = text("gateway.networking.k8s.io/gateway-name") {
        return gateway(view, name);
    }
    match text("istio") {
        Some(name) if name.ends_with("gateway") => Proxies::Gateways(true),
        _ => Proxies::Sidecars,
    }
}

/// Returns the kind of proxy that a `Gateway` object creates. A waypoint is a gateway with the
/// class `istio-waypoint`.
fn gateway(view: &View<'_>, name: &str) -> Proxies {
    let mut objects = manifest::objects(view.file).into_iter().flatten();
    let gateway = objects.find(|object| object.kind == "Gateway" && object.name == name);
    let class = gateway.and_then(|gateway| {
        let class = gateway.path.field("spec").field("gatewayClassName");
        view.text(&class)
    });
    match class {
        Some("istio-waypoint") => Proxies::Waypoints,
        Some(_) => Proxies::Gateways(true),
        None if name.contains("waypoint") => Proxies::Waypoints,
        None => Proxies::Gateways(false),
    }
}

/// Checks the traffic direction. Without a restriction, a sidecar would also limit the requests
/// that its workload sends.
fn directions(view: &mut View<'_>, spec: &Path, proxies: Proxies) {
    let path = spec.field("match");
    let count = view.len(&path);
    let mut modes = Vec::new();
    for index in 0..count {
        let path = path.index(index).field("mode");
        let known = view.word(&path, &MODES);
        if known.is_some() || view.at(&path).is_none() {
            modes.push((path, known.unwrap_or("UNDEFINED")));
        }
    }
    let server = "SERVER, for the requests that the workload gets";
    match proxies {
        Proxies::Sidecars if count == 0 => {
            let message = "the sidecar also limits the requests that its workload sends";
            view.warning(&path, message, server, Some("[{ mode: SERVER }]"));
        }
        Proxies::Sidecars => {
            for (path, _) in modes.iter().filter(|(_, mode)| *mode != "SERVER") {
                let message = "the sidecar limits requests that its workload sends";
                view.warning(path, message, server, Some("SERVER"));
            }
        }
        Proxies::Waypoints | Proxies::Gateways(_) => {
            let (unseen, seen) = if proxies == Proxies::Waypoints {
                ("CLIENT", "SERVER")
            } else {
                ("SERVER", "CLIENT")
            };
            if modes.is_empty() || modes.iter().any(|(_, mode)| *mode != unseen) {
                return;
            }
            let message = match proxies {
                Proxies::Waypoints => {
                    "at a waypoint, requests have the mode SERVER: none is limited"
                }
                _ => {
                    "at a gateway, requests have the mode CLIENT: none is limited, unless it is a waypoint"
                }
            };
            for (path, _) in &modes {
                if proxies == Proxies::Gateways(true) {
                    let message = "at a gateway, requests have the mode CLIENT: none is limited";
                    view.error(path, message, seen, Some(seen));
                } else {
                    view.warning(path, message, seen, Some(seen));
                }
            }
        }
    }
}

/// Checks the parts of the rules whose meaning depends on where the filter runs.
fn content(view: &mut View<'_>, proxies: Proxies, is_before_tokens: bool) {
    match proxies {
        Proxies::Sidecars => sources(view, "a sidecar"),
        Proxies::Waypoints => sources(view, "a waypoint"),
        Proxies::Gateways(_) => {}
    }
    if is_before_tokens {
        claims(view, "phase", "AUTHZ, STATS, or none");
    }
}

/// Warns about rules that use the client address in a proxy that receives requests from another
/// proxy.
pub(super) fn sources(view: &mut View<'_>, proxy: &str) {
    for path in view.content.map(keys::sources).unwrap_or_default() {
        let message = format!(
            "in {proxy}, the address comes from x-forwarded-for, which clients can write: each gets any number of keys"
        );
        let allowed = "client_cert, or claims of a verified token; `source` at gateways";
        let problem = view.of_content(path, &message, allowed).warning();
        view.inside.push(problem.suggest(Some("client_cert")));
    }
}

/// Reports rules that read token claims before the token is verified.
pub(super) fn claims(view: &mut View<'_>, field: &str, allowed: &str) {
    for path in view.content.map(keys::claims).unwrap_or_default() {
        let message = format!(
            "with `{field}: AUTHN`, no token is verified yet: the claim is missing in every request"
        );
        let problem = view.of_content(path, &message, &format!("`{field}` {allowed}"));
        view.inside
            .push(problem.suggest(Some(&format!("{field}: AUTHZ"))));
    }
}
