//! Builds parts of Envoy configurations for measurements. The listeners omit everything that only
//! tests need.

use serde_json::{Value, json};

pub(super) const TYPE: &str = "type.googleapis.com/envoy.extensions.";
/// Target cluster of all routes; it has no endpoints.
pub(super) const NOWHERE: &str = "nowhere";

pub(super) fn route(prefix: &str) -> Value {
    json!({ "match": { "prefix": prefix }, "route": { "cluster": NOWHERE } })
}

/// Returns a filter that answers 200; it follows the limiting filter. A direct response of the
/// route would also do for Loudou, but Envoy's own filter limits only routes to a cluster.
pub(super) fn answer() -> Value {
    json!({
        "name": "fault",
        "typed_config": {
            "@type": format!("{TYPE}filters.http.fault.v3.HTTPFault"),
            "abort": { "http_status": 200, "percentage": { "numerator": 100 } },
        },
    })
}

/// Returns a listener with these routes and filters, similar to the listeners of the test harness.
pub(super) fn listener(name: &str, routes: &Value, filters: &Value) -> Value {
    let manager = json!({
        "@type": format!("{TYPE}filters.network.http_connection_manager.v3.HttpConnectionManager"),
        "stat_prefix": name,
        "codec_type": "AUTO",
        "use_remote_address": true,
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

pub(super) fn any_port() -> Value {
    json!({ "socket_address": { "address": "127.0.0.1", "port_value": 0 } })
}

pub(super) fn cluster(name: &str, endpoints: &Value) -> Value {
    json!({
        "name": name,
        "type": "STATIC",
        "connect_timeout": "5s",
        "load_assignment": { "cluster_name": name, "endpoints": [{ "lb_endpoints": endpoints }] },
    })
}

/// Returns the router filter, the last filter of a listener.
pub(super) fn router() -> Value {
    json!({
        "name": "router",
        "typed_config": { "@type": format!("{TYPE}filters.http.router.v3.Router") },
    })
}

/// Returns a listener named `admin` without an admin API; the test harness expects each Envoy to
/// have a listener with this name.
pub(super) fn no_admin() -> Value {
    let nothing = json!([{ "match": { "prefix": "/" }, "direct_response": { "status": 404 } }]);
    listener("admin", &nothing, &json!([router()]))
}
