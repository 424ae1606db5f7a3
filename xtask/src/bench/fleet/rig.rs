//! Starts the processes of a measurement: a Valkey, the relay and the rate limit service next to
//! it, and Envoys with and without the filter.

use std::path::PathBuf;
use std::thread;

use anyhow::{Context as _, Result, anyhow};
use loudou_tests::{Config, Envoy, Relay, Valkey};
use serde_json::{Value, json};

use crate::bench::parts::{
    NOWHERE, TYPE, answer, any_port, cluster, listener, no_admin, route, router,
};

/// Timeout of a client. It is long, because a queue before a busy processor is not an outage.
pub(super) const TIMEOUT: &str = "1s";
const SERVER_TIMEOUT_MS: &str = "900";

/// Cluster of the rate limit service.
pub(super) const SERVICE: &str = "rls";
/// Path of requests for which Envoy calls the rate limit service.
pub(in crate::bench) const ASKED_PATH: &str = "/asked";

/// Programs to measure.
#[derive(Debug)]
pub(in crate::bench) struct Programs {
    pub(in crate::bench) wasm: PathBuf,
    pub(in crate::bench) relay: PathBuf,
    /// Rate limit service.
    pub(in crate::bench) service: PathBuf,
}

/// A Valkey and its clients.
#[derive(Debug)]
pub(in crate::bench) struct Central {
    pub(in crate::bench) relay: Relay,
    pub(in crate::bench) service: Relay,
    pub(in crate::bench) valkey: Valkey,
}

impl Central {
    pub(in crate::bench) fn start(programs: &Programs) -> Result<Self> {
        let valkey = Valkey::start()?;
        let server = |program: &PathBuf| {
            Relay::start_program(
                program.clone(),
                &valkey,
                &["--timeout-ms", SERVER_TIMEOUT_MS],
            )
        };
        Ok(Self {
            relay: server(&programs.relay)?,
            // It has the relay's options, log and `/healthz`.
            service: server(&programs.service)?,
            valkey,
        })
    }
}

/// Starts Envoys in parallel, because each needs seconds to load the filter.
pub(super) fn start_all<T: Sync>(
    of: &[T],
    start: impl Fn(&T) -> Result<Envoy> + Sync,
) -> Result<Vec<Envoy>> {
    let start = &start;
    thread::scope(|scope| {
        let threads: Vec<_> = of
            .iter()
            .map(|one| scope.spawn(move || start(one)))
            .collect();
        let ended = threads.into_iter().map(thread::ScopedJoinHandle::join);
        ended
            .map(|end| end.unwrap_or_else(|_| Err(anyhow!("it panicked"))))
            .collect()
    })
}

/// Starts an Envoy with the filter and with these rules and fleet settings.
pub(super) fn limited(
    (rules, settings): (Value, &Value),
    buckets: u64,
    central: &Central,
    programs: &Programs,
) -> Config {
    Config::new(rules)
        .fleet(settings, central.relay.address())
        // Keys are assigned to pages at random. Without spare room, full pages would evict buckets.
        .buckets((buckets * 13 / 10).max(65_536))
        .wasm(&programs.wasm)
        .cluster(NOWHERE, None)
        .routes(json!([route("/")]))
        .filter_behind(answer())
}

/// Starts an Envoy without the filter. Its own filter calls the service for requests to
/// [`ASKED_PATH`].
pub(super) fn plain(central: &Central, programs: &Programs) -> Result<Envoy> {
    Envoy::start_yaml(&asking(central, "rls")?, &programs.wasm)
}

/// Returns the configuration of an Envoy whose own filter calls the service, with this domain, for requests to
/// [`ASKED_PATH`].
pub(in crate::bench) fn asking(central: &Central, domain: &str) -> Result<String> {
    let mut asked = route(ASKED_PATH);
    let action = asked
        .get_mut("route")
        .and_then(Value::as_object_mut)
        .context("a route")?;
    let user =
        json!({ "request_headers": { "header_name": "x-user-id", "descriptor_key": "per-user" } });
    action.insert("rate_limits".to_owned(), json!([{ "actions": [user] }]));
    let ask = json!({
        "name": "envoy.filters.http.ratelimit",
        "typed_config": {
            "@type": format!("{TYPE}filters.http.ratelimit.v3.RateLimit"),
            "domain": domain,
            "timeout": TIMEOUT,
            "failure_mode_deny": true,
            "rate_limit_service": {
                "transport_api_version": "V3",
                "grpc_service": { "envoy_grpc": { "cluster_name": SERVICE }, "timeout": TIMEOUT },
            },
        },
    });
    let data = listener(
        "data",
        &json!([asked, route("/")]),
        &json!([ask, answer(), router()]),
    );
    let bootstrap = json!({
        "admin": { "address": any_port() },
        "static_resources": {
            "listeners": [data, no_admin()],
            "clusters": [cluster(NOWHERE, &json!([])), service(central)],
        },
    });
    Ok(bootstrap.to_string())
}

/// Returns the cluster of the service, which uses HTTP/2.
fn service(central: &Central) -> Value {
    let at = central.service.address();
    let address = json!({ "socket_address": {
        "address": at.ip().to_string(), "port_value": at.port(),
    } });
    let mut cluster = cluster(SERVICE, &json!([{ "endpoint": { "address": address } }]));
    if let Some(fields) = cluster.as_object_mut() {
        let options = json!({ "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": format!("{TYPE}upstreams.http.v3.HttpProtocolOptions"),
            "explicit_http_config": { "http2_protocol_options": {} },
        } });
        fields.insert("typed_extension_protocol_options".to_owned(), options);
    }
    cluster
}
