//! The parts of an Envoy configuration, as JSON.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::{Value, json};

pub(super) const TYPE: &str = "type.googleapis.com/";
const HTTP: &str = "type.googleapis.com/envoy.extensions.filters.http.";
const NETWORK: &str = "type.googleapis.com/envoy.extensions.filters.network.";
/// The name of the limiter in the filter chain, and of its ECDS resource.
const LIMITER: &str = "loudou";
/// The name of the listener without the limiter, and of its statistics.
pub const PULSE: &str = "pulse";

pub(super) fn any_port() -> Value {
    json!({ "socket_address": { "address": "127.0.0.1", "port_value": 0 } })
}

pub(super) fn cluster(name: &str, address: Option<SocketAddr>) -> Value {
    let endpoint = address.map(|address| {
        let address = json!({ "socket_address": {
            "address": address.ip().to_string(), "port_value": address.port(),
        } });
        json!({ "endpoint": { "address": address } })
    });
    let endpoints: Vec<Value> = endpoint.into_iter().collect();
    json!({
        "name": name,
        "type": "STATIC",
        "connect_timeout": "5s",
        "load_assignment": { "cluster_name": name, "endpoints": [{ "lb_endpoints": endpoints }] },
    })
}

pub(super) fn plugin(name: &str, wasm: &Path, configuration: &Value) -> Value {
    plugin_in("loudou", name, wasm, configuration)
}

/// A plugin in the sandbox of this name.
fn plugin_in(vm: &str, name: &str, wasm: &Path, configuration: &Value) -> Value {
    json!({
        "name": name,
        "failure_policy": "FAIL_RELOAD",
        "vm_config": {
            "vm_id": vm,
            "runtime": "envoy.wasm.runtime.v8",
            "code": { "local": { "filename": wasm } },
        },
        // Not a Struct: Envoy passes that on in protobuf's own encoding, not as JSON.
        "configuration": {
            "@type": format!("{TYPE}google.protobuf.StringValue"),
            "value": configuration.to_string(),
        },
    })
}

/// The HTTP filter that runs a plugin.
pub(super) fn limiter(plugin: &Value) -> Value {
    json!({ "name": LIMITER, "typed_config": {
        "@type": format!("{HTTP}wasm.v3.Wasm"), "config": plugin,
    } })
}

/// The HTTP filter that runs a module with this configuration, in a sandbox of this name.
pub fn module(vm: &str, name: &str, wasm: &Path, configuration: &Value) -> Value {
    limiter(&plugin_in(vm, name, wasm, configuration))
}

/// The same filter, delivered through its own file.
pub(super) fn discovered_limiter(ecds: &Path) -> Value {
    json!({ "name": LIMITER, "config_discovery": {
        "config_source": watched(ecds), "type_urls": [format!("{HTTP}wasm.v3.Wasm")],
    } })
}

/// A configuration source: a file that Envoy reads again when it is replaced.
pub(super) fn watched(file: &Path) -> Value {
    let directory = file.parent().unwrap_or(file);
    json!({
        "resource_api_version": "V3",
        "path_config_source": { "path": file, "watched_directory": { "path": directory } },
    })
}

pub(super) fn access_log(format: &str) -> Value {
    json!({ "name": "stdout", "typed_config": {
        "@type": format!("{TYPE}envoy.extensions.access_loggers.stream.v3.StdoutAccessLog"),
        "log_format": { "text_format_source": { "inline_string": format } },
    } })
}

pub(super) fn listener(
    name: &str,
    routes: &Value,
    [before, behind]: [&[Value]; 2],
    limiter: Value,
    access_log: Option<Value>,
) -> Value {
    let filters = [before, &[limiter], behind].concat();
    http_listener(name, routes, filters, access_log)
}

/// A listener that answers `200` itself; its connections are spread evenly over the workers.
pub(super) fn pulse() -> Value {
    let all = json!([{ "match": { "prefix": "/" }, "direct_response": { "status": 200 } }]);
    let mut pulse = http_listener(PULSE, &all, Vec::new(), None);
    super::set(&mut pulse, "stat_prefix", json!(PULSE));
    let balance = json!({ "exact_balance": {} });
    super::set(&mut pulse, "connection_balance_config", balance);
    pulse
}

fn http_listener(
    name: &str,
    routes: &Value,
    mut filters: Vec<Value>,
    access_log: Option<Value>,
) -> Value {
    let last =
        json!({ "name": "router", "typed_config": { "@type": format!("{HTTP}router.v3.Router") } });
    filters.push(last);
    let manager = json!({
        "@type": format!("{NETWORK}http_connection_manager.v3.HttpConnectionManager"),
        "stat_prefix": name,
        "access_log": access_log.into_iter().collect::<Vec<_>>(),
        // HTTP/1.1, or HTTP/2 where a client starts with that.
        "codec_type": "AUTO",
        "use_remote_address": true,
        // Room for the 60 KiB header values of the hostile-input tests.
        "max_request_headers_kb": 96,
        "route_config": { "name": name, "virtual_hosts": [
            { "name": name, "domains": ["*"], "routes": routes },
        ] },
        "http_filters": filters,
    });
    json!({
        "name": name,
        "address": any_port(),
        "filter_chains": [{ "filters": [
            { "name": "envoy.filters.network.http_connection_manager", "typed_config": manager },
        ] }],
    })
}

/// The labels of the filter's metrics; `envoy/quickstart/envoy.yaml` explains them.
pub(super) fn stats_tags() -> Value {
    json!([
        { "tag_name": "loudou_rule", "regex": r"^wasmcustom\.loudou\.rule(\.([a-z0-9-]+))\.\w+$" },
        { "tag_name": "loudou_verdict", "regex": r"^wasmcustom\.loudou\.rule\.[a-z0-9-]+(\.(\w+))$" },
    ])
}
