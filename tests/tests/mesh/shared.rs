//! Rules with `scope: fleet` reach the relay through the clusters that the manifests name.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::wasm::wasm_path;
use loudou_tests::{Envoy, Relay, Valkey, eventually};
use serde_json::{Value, json};

use super::delivered::{by_envoy_gateway, field, manifest, rules};
use super::{listener, order};

/// Port of the relay's services.
const PORT: u16 = 8095;
/// Name that istiod gives to the cluster of the service.
const BY_ISTIO: &str = "outbound|8095||loudou-relay.loudou.svc.cluster.local";
/// Timeout of a call on a busy machine.
const SOON: Duration = Duration::from_secs(20);

/// Returns the DNS name of a service of the relay. Fails if the service has another port.
fn host(file: &str) -> Result<String> {
    let service = manifest(&format!("fleet/kubernetes/{file}"))?;
    ensure!(field(&service, "/spec/ports/0/port")? == PORT, "{service}");
    let text = |pointer: &str| -> Result<String> {
        let text = field(&service, pointer)?.as_str();
        Ok(text.context("no text")?.to_owned())
    };
    Ok(format!(
        "{}.{}.svc.cluster.local",
        text("/metadata/name")?,
        text("/metadata/namespace")?
    ))
}

/// Starts a gateway whose policy has a fleet-wide rule with this cluster. Waits until the relay has
/// answered a call over this HTTP version.
fn reaches_the_relay(cluster: &Value, version: &str) -> Result<()> {
    let name = field(cluster, "/name")?.as_str().context("no name")?;
    let mut policy = manifest("envoy-gateway/policy/extension-policy.yaml")?;
    let config = rules(&mut policy)?.as_object_mut().context("no rules")?;
    config.insert("fleet".to_owned(), json!({ "cluster": name }));
    let rule = config.get_mut("rules").and_then(|rules| rules.get_mut(0));
    let rule = rule.and_then(Value::as_object_mut).context("no rule")?;
    rule.insert("scope".to_owned(), json!("fleet"));

    let module = wasm_path()?;
    let filter = by_envoy_gateway(&policy, &module)?;
    let bootstrap = json!({
        "admin": { "address": { "socket_address": { "address": "127.0.0.1", "port_value": 0 } } },
        "static_resources": {
            "clusters": [cluster],
            "listeners": [listener("data", Some(&filter), 200), listener("admin", None, 404)],
        },
    });
    let envoy = Envoy::start_workers(&bootstrap.to_string(), &module, 2)?;
    let mut http = envoy.data();
    eventually(SOON, "an answer of the relay", || {
        http.send(&order())?;
        let calls = envoy.counter(&format!("cluster.{name}.upstream_rq_2xx"))?;
        let connections = envoy.counter(&format!("cluster.{name}.upstream_cx_{version}_total"))?;
        Ok((calls > 0 && connections > 0).then_some(()))
    })?;
    envoy.stop()
}

#[test]
fn the_manifests_lead_to_the_relay() -> Result<()> {
    let valkey = Valkey::start()?;
    let relay = Relay::start(&valkey)?;
    let patch = manifest("envoy-gateway/relay-cluster/patch-policy.yaml")?;
    let mut cluster = field(&patch, "/spec/jsonPatches/0/operation/value")?.clone();
    let at = "/load_assignment/endpoints/0/lb_endpoints/0/endpoint/address/socket_address";
    let address = cluster.pointer_mut(at).context("no address")?;
    let service = host("service-headless.yaml")?;
    ensure!(*address == json!({ "address": service, "port_value": PORT }));
    let relay = relay.address();
    *address = json!({ "address": relay.ip().to_string(), "port_value": relay.port() });
    reaches_the_relay(&cluster, "http2")?;

    let service = host("service.yaml")?;
    ensure!(BY_ISTIO == format!("outbound|{PORT}||{service}"));
    // istiod selects the protocol by the name of the port.
    let service = manifest("fleet/kubernetes/service.yaml")?;
    ensure!(field(&service, "/spec/ports/0/name")? == "http");
    let cluster = cluster.as_object_mut().context("no cluster")?;
    cluster.remove("typed_extension_protocol_options");
    cluster.insert("name".to_owned(), json!(BY_ISTIO));
    reaches_the_relay(&json!(cluster), "http1")
}
