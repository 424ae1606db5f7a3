//! The manifests for Istio and Envoy Gateway, delivered to a real Envoy as these control planes do.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::clock::now;
use loudou_tests::console::{self, Shell};
use loudou_tests::load::load;
use loudou_tests::paths::workspace_root;
use loudou_tests::temp::TempDir;
use loudou_tests::wasm::{native_path, wasm_path};
use loudou_tests::{Envoy, Http, Request, Update, eventually, expect};
use serde_json::{Value, json};

use self::ads::Ads;
use self::delivered::{
    admin_listener, by_envoy_filter, by_envoy_gateway, by_istio, field, manifest,
    module_by_envoy_gateway, name, patch, rules,
};

mod ads;
mod delivered;
mod shared;

const WASM: &str = "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm";
const RBAC: &str = "type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC";
const FILTER_CONFIG: &str = "type.googleapis.com/envoy.config.route.v3.FilterConfig";
/// Timeout of an update on a busy machine.
const SOON: Duration = Duration::from_secs(20);
/// Token in the manifests.
const TOKEN: &str = "ops";

/// Returns a filter whose configuration comes over ADS.
fn discovered(name: &str) -> Value {
    json!({ "name": name, "config_discovery": {
        "config_source": { "ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": "0s" },
        "type_urls": [WASM, RBAC],
    } })
}

fn listener(name: &str, filter: Option<&Value>, status: u16) -> Value {
    let router = json!({ "name": "router", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router",
    } });
    let filters: Vec<&Value> = filter.into_iter().chain([&router]).collect();
    let mut route = json!({ "match": { "prefix": "/" }, "direct_response": { "status": status } });
    // Envoy Gateway disables native modules for the listener, and enables them for their routes.
    let disabled = filter.filter(|filter| filter.get("disabled").is_some_and(|it| it == true));
    if let (Some(name), Some(fields)) = (
        disabled.and_then(|filter| filter.get("name")?.as_str()),
        route.as_object_mut(),
    ) {
        let enabled = json!({ "@type": FILTER_CONFIG, "config": {} });
        fields.insert(
            "typed_per_filter_config".to_owned(),
            json!({ name: enabled }),
        );
    }
    let manager = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": name,
        "use_remote_address": true,
        "route_config": { "virtual_hosts": [{ "name": "all", "domains": ["*"], "routes": [route] }] },
        "http_filters": filters,
    });
    json!({
        "name": name,
        "address": { "socket_address": { "address": "127.0.0.1", "port_value": 0 } },
        "filter_chains": [{ "filters": [
            { "name": "envoy.filters.network.http_connection_manager", "typed_config": manager },
        ] }],
    })
}

/// Starts an Envoy with four workers, this filter on its data listener, and an optional admin
/// listener. The extensions come from the control plane.
fn start(ads: &Ads, filter: &Value, admin: Option<Value>) -> Result<Envoy> {
    start_with(ads, filter, admin, None)
}

/// Like [`start`], but with more listeners from a file.
fn start_with(
    ads: &Ads,
    filter: &Value,
    admin: Option<Value>,
    more: Option<&Path>,
) -> Result<Envoy> {
    let nothing = || listener("admin", None, 404);
    let listeners = [
        listener("data", Some(filter), 200),
        admin.unwrap_or_else(nothing),
    ];
    let address = ads.address();
    let endpoint = json!({ "address": { "socket_address": {
        "address": address.ip().to_string(), "port_value": address.port(),
    } } });
    let http2 = json!({
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": { "http2_protocol_options": {} },
    });
    let more = more.map(|path| {
        json!({
            "resource_api_version": "V3",
            "path_config_source": { "path": path, "watched_directory": { "path": path.parent() } },
        })
    });
    let bootstrap = json!({
        "node": { "id": "sidecar", "cluster": "mesh" },
        "admin": { "address": { "socket_address": { "address": "127.0.0.1", "port_value": 0 } } },
        "dynamic_resources": { "lds_config": more, "ads_config": {
            "api_type": "DELTA_GRPC",
            "transport_api_version": "V3",
            "grpc_services": [{ "envoy_grpc": { "cluster_name": "control-plane" } }],
        } },
        "static_resources": {
            "clusters": [{
                "name": "control-plane",
                "type": "STATIC",
                "typed_extension_protocol_options": {
                    "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": http2,
                },
                "load_assignment": { "cluster_name": "control-plane", "endpoints": [
                    { "lb_endpoints": [{ "endpoint": endpoint }] },
                ] },
            }],
            "listeners": listeners,
        },
    });
    Envoy::start_workers(&bootstrap.to_string(), &wasm_path()?, 4)
}

fn order() -> Request {
    Request::post("/orders")
}

/// Sends many orders at once. Fails unless the number of passed orders fits a bucket of 15 that
/// leaks one every two seconds.
fn exactly_fifteen(envoy: &Envoy) -> Result<()> {
    let began = now();
    let counts = envoy.load(400, 16, |_| order())?;
    let leaked = began.elapsed().as_secs() / 2 + 1;
    let passed = counts.of(200);
    ensure!(
        (15..=15 + leaked).contains(&passed),
        "{passed} of 15 passed: {counts:?}"
    );
    ensure!(counts.of(429) == 400 - passed, "{counts:?}");
    Ok(())
}

/// Returns the manifest with another capacity.
fn with_capacity(manifest: &Value, capacity: Value) -> Result<Value> {
    let mut manifest = manifest.clone();
    let limit = rules(&mut manifest)?.pointer_mut("/rules/0/limits/0");
    *limit
        .and_then(|limit| limit.get_mut("capacity"))
        .context("no capacity")? = capacity;
    Ok(manifest)
}

/// Writes a module with different bytes and the same behaviour, by adding a custom section that no
/// program reads.
fn upgraded(dir: &TempDir) -> Result<PathBuf> {
    let mut bytes = fs::read(wasm_path()?).context("no module")?;
    bytes.extend(b"\x00\x08\x07upgrade");
    let path = dir.path().join("upgraded.wasm");
    fs::write(&path, bytes).context("no room")?;
    Ok(path)
}

/// Returns the current capacity of the first rule at the admin API below this path.
fn capacity(http: &mut Http, at: &str) -> Result<Value> {
    let answer = http.send(&Request::get(&format!("{at}/v1/rules")).token(TOKEN))?;
    let rules = expect(&answer, 200)?;
    Ok(field(&rules, "/rules/0/rule/limits/0/capacity")?.clone())
}

/// Returns the request and the body of an edit that sets this capacity in the first rule of a
/// manifest.
fn edit(manifest: &Value, at: &str, capacity: u32) -> Result<(Request, Value)> {
    let mut changed = with_capacity(manifest, json!(capacity))?;
    let rule = field(rules(&mut changed)?, "/rules/0")?.clone();
    let name = field(&rule, "/name")?.as_str().context("no name")?;
    let body = json!({ "limits": field(&rule, "/limits")? });
    let request = Request::new("PUT", &format!("{at}/v1/rules/{name}?carry=keep"));
    Ok((request.token(TOKEN).header("if-match", "*"), body))
}

/// Starts a sidecar with this plugin and the admin listener of the `EnvoyFilter`.
fn sidecar(ads: &Ads, plugin: &Value) -> Result<Envoy> {
    let filter = manifest("istio/admin/envoy-filter.yaml")?;
    let module = wasm_path()?;
    ads.offer(by_istio(plugin, &module)?);
    ads.offer(by_envoy_filter(&filter, &module)?);
    let admin = admin_listener(patch(&filter, "LISTENER")?, &module)?;
    start(ads, &discovered(&name(plugin)?), Some(admin))
}

/// Both kinds of manifests for Istio must give exact limits, apply updates, reject a broken update,
/// keep the buckets in an upgrade of the module, and accept an edit with a body on the admin
/// listener of the `EnvoyFilter`.
fn in_a_sidecar(path: &str) -> Result<()> {
    let ads = Ads::start()?;
    let plugin = manifest(path)?;
    let module = wasm_path()?;
    let envoy = sidecar(&ads, &plugin)?;
    exactly_fifteen(&envoy)?;
    ensure!(capacity(&mut envoy.admin(), "")? == 15);

    let more = with_capacity(&plugin, json!(20))?;
    ensure!(ads.push(by_istio(&more, &module)?)? == Update::Accepted);
    await_capacity(&envoy, 20)?;
    let broken = with_capacity(&plugin, json!("many"))?;
    ensure!(ads.push(by_istio(&broken, &module)?)? == Update::Rejected);
    ensure!(
        capacity(&mut envoy.admin(), "")? == 20,
        "the old rules stay"
    );
    ensure!(envoy.data().send(&Request::get("/"))?.status == 200);

    let dir = TempDir::new("upgrade")?;
    let newer = upgraded(&dir)?;
    ensure!(ads.push(by_istio(&more, &newer)?)? == Update::Accepted);
    let counts = envoy.load(400, 16, |_| order())?;
    ensure!(counts.of(200) < 15, "the bucket was kept: {counts:?}");

    let (request, body) = edit(&plugin, "", 1_000)?;
    expect(&envoy.admin().send(&request.json(&body))?, 200)?;
    let counts = envoy.load(400, 16, |_| order())?;
    ensure!(counts.of(200) == 400, "{counts:?}");
    envoy.stop()?;
    ads.stop()
}

fn await_capacity(envoy: &Envoy, expected: u32) -> Result<()> {
    eventually(SOON, "the update", || {
        // A worker publishes a configuration at its first request.
        envoy.data().send(&Request::get("/"))?;
        Ok((capacity(&mut envoy.admin(), "")? == expected).then_some(()))
    })
}

#[test]
fn a_wasm_plugin_limits_a_sidecar() -> Result<()> {
    in_a_sidecar("istio/sidecar/wasm-plugin.yaml")
}

#[test]
fn a_traffic_extension_does_the_same() -> Result<()> {
    in_a_sidecar("istio/traffic-extension/traffic-extension.yaml")
}

#[test]
fn a_gateway_limits_addresses() -> Result<()> {
    let ads = Ads::start()?;
    let plugin = manifest("istio/gateway/wasm-plugin.yaml")?;
    ads.offer(by_istio(&plugin, &wasm_path()?)?);
    let envoy = start(&ads, &discovered(&name(&plugin)?), None)?;
    let began = now();
    let counts = envoy.load(800, 16, |_| order())?;
    let leaked = 20 * (began.elapsed().as_secs() + 1);
    let passed = counts.of(200);
    ensure!((60..=60 + leaked).contains(&passed), "{counts:?}");
    ensure!(passed + counts.of(429) == 800, "{counts:?}");
    envoy.stop()?;
    ads.stop()
}

/// A waypoint has no separate listener and passes no body to the plugin. So an edit must work in a
/// header through the embedded API.
#[test]
fn a_waypoint_is_edited_through_the_plugin() -> Result<()> {
    let ads = Ads::start()?;
    let plugin = manifest("istio/waypoint/wasm-plugin.yaml")?;
    ads.offer(by_istio(&plugin, &wasm_path()?)?);
    let envoy = start(&ads, &discovered(&name(&plugin)?), None)?;
    exactly_fifteen(&envoy)?;
    embedded(&envoy, &plugin)?;
    envoy.stop()?;
    ads.stop()
}

/// Edits the plugin through its embedded API, whose path is in the manifest.
fn embedded(envoy: &Envoy, plugin: &Value) -> Result<()> {
    let mut with_admin = plugin.clone();
    let at = field(rules(&mut with_admin)?, "/admin/at")?.clone();
    let at = at.as_str().context("no path")?;
    let (request, body) = edit(plugin, at, 100_000)?;
    let request = request.header("loudou-body", body.to_string());
    let answer = envoy.data().send(&request)?;
    expect(&answer, 200)?;
    ensure!(answer.header("loudou-body") == Some("header"), "{answer:?}");
    ensure!(capacity(&mut envoy.data(), at)? == 100_000);
    let counts = envoy.load(400, 16, |_| order())?;
    ensure!(counts.of(200) == 400, "{counts:?}");
    Ok(())
}

/// The policy must limit and answer the embedded API. The patch must add a listener for the admin
/// role, which runs in the same sandbox.
#[test]
fn envoy_gateway_limits_and_is_edited() -> Result<()> {
    let ads = Ads::start()?;
    let module = wasm_path()?;
    let policy = manifest("envoy-gateway/policy/extension-policy.yaml")?;
    let patch = manifest("envoy-gateway/admin-patch/patch-policy.yaml")?;
    let listener = field(&patch, "/spec/jsonPatches/0/operation/value")?;
    let admin = admin_listener(listener, &module)?;
    let envoy = start(&ads, &by_envoy_gateway(&policy, &module)?, Some(admin))?;
    let counts = envoy.load(800, 16, |_| order())?;
    ensure!(counts.of(200) >= 60 && counts.of(429) > 0, "{counts:?}");
    let (request, body) = edit(&policy, "", 70_000)?;
    expect(&envoy.admin().send(&request.json(&body))?, 200)?;
    ensure!(capacity(&mut envoy.admin(), "")? == 70_000);
    embedded(&envoy, &policy)?;
    ensure!(capacity(&mut envoy.admin(), "")? == 100_000);
    envoy.stop()?;
    ads.stop()
}

/// The native module must do the same.
#[test]
fn envoy_gateway_runs_the_native_module() -> Result<()> {
    let ads = Ads::start()?;
    let policy = manifest("envoy-gateway/native/extension-policy.yaml")?;
    let proxy = manifest("envoy-gateway/native/envoy-proxy.yaml")?;
    let filter = module_by_envoy_gateway(&policy, &proxy, &native_path()?)?;
    let envoy = start(&ads, &filter, None)?;
    let counts = envoy.load(800, 16, |_| order())?;
    ensure!(counts.of(200) >= 60 && counts.of(429) > 0, "{counts:?}");
    embedded(&envoy, &policy)?;
    envoy.stop()?;
    ads.stop()
}

/// After Envoy has rejected an update of an extension, it also rejects a new listener with this
/// extension until a valid update arrives. Existing listeners must keep their rules.
#[test]
fn after_a_refused_update_no_listener_can_be_added() -> Result<()> {
    let ads = Ads::start()?;
    let plugin = manifest("istio/sidecar/wasm-plugin.yaml")?;
    let module = wasm_path()?;
    ads.offer(by_istio(&plugin, &module)?);
    let dir = TempDir::new("listeners")?;
    let listeners = dir.write("lds.json", &json!({ "resources": [] }).to_string())?;
    let filter = discovered(&name(&plugin)?);
    let envoy = start_with(&ads, &filter, None, Some(&listeners))?;
    let broken = with_capacity(&plugin, json!("many"))?;
    ensure!(ads.push(by_istio(&broken, &module)?)? == Update::Rejected);

    let mut added = listener("added", Some(&filter), 200);
    if let Some(fields) = added.as_object_mut() {
        let kind = "type.googleapis.com/envoy.config.listener.v3.Listener";
        fields.insert("@type".to_owned(), json!(kind));
    }
    let add = || -> Result<()> {
        let next = dir.write("next.json", &json!({ "resources": [added] }).to_string())?;
        fs::rename(next, &listeners).context("cannot move")
    };
    add()?;
    eventually(SOON, "a refused listener", || {
        let refused = envoy.counter("listener_manager.lds.update_rejected")?;
        Ok((refused > 0).then_some(()))
    })?;
    ensure!(envoy.listener("added")?.is_none());
    exactly_fifteen(&envoy)?;

    ensure!(ads.push(by_istio(&plugin, &module)?)? == Update::Accepted);
    add()?;
    let address = eventually(SOON, "the added listener", || envoy.listener("added"))?;
    let counts = load(address, 40, 4, |_| order())?;
    ensure!(
        counts.of(429) > 0,
        "the same rules, the same bucket: {counts:?}"
    );
    envoy.stop()?;
    ads.stop()
}

/// Runs the commands of a README. `real` replaces the address that the README names.
fn run_readme(folder: &str, address: &str, real: SocketAddr) -> Result<()> {
    let path = workspace_root()
        .join("envoy")
        .join(folder)
        .join("README.md");
    let text = fs::read_to_string(path).context("no README")?;
    let steps = console::steps(&text);
    ensure!(steps.len() >= 4, "{folder}: {} commands", steps.len());
    let mut shell = Shell::new()?;
    for step in &steps {
        shell.run(step, |text| text.replace(address, &real.to_string()))?;
    }
    Ok(())
}

#[test]
fn the_readme_of_istio_tells_the_truth() -> Result<()> {
    let ads = Ads::start()?;
    let envoy = sidecar(&ads, &manifest("istio/sidecar/wasm-plugin.yaml")?)?;
    await_capacity(&envoy, 15)?;
    run_readme("istio", "127.0.0.1:9911", envoy.admin_address())?;
    envoy.stop()?;
    ads.stop()
}

#[test]
fn the_readme_of_envoy_gateway_tells_the_truth() -> Result<()> {
    let ads = Ads::start()?;
    let policy = manifest("envoy-gateway/policy/extension-policy.yaml")?;
    let envoy = start(&ads, &by_envoy_gateway(&policy, &wasm_path()?)?, None)?;
    eventually(SOON, "the rules", || {
        let status = Request::get("/.loudou/v1/rules").token(TOKEN);
        Ok((envoy.data().send(&status)?.status == 200).then_some(()))
    })?;
    run_readme("envoy-gateway", "127.0.0.1:8080", envoy.data_address())?;
    envoy.stop()?;
    ads.stop()
}

/// Manifests that are alternatives must have the same rules.
#[test]
fn the_kinds_have_the_same_rules() -> Result<()> {
    let of = |path: &str| -> Result<Value> { Ok(rules(&mut manifest(path)?)?.clone()) };
    let plugin = of("istio/sidecar/wasm-plugin.yaml")?;
    ensure!(plugin == of("istio/traffic-extension/traffic-extension.yaml")?);
    let policy = of("envoy-gateway/policy/extension-policy.yaml")?;
    ensure!(policy == of("envoy-gateway/native/extension-policy.yaml")?);
    Ok(())
}
