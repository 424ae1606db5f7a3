//! Builds the Envoy configuration of a test, written as JSON (which Envoy reads like YAML).
//!
//! There are two listeners, `data` and `admin`. Their `vm_config` is identical, so that both
//! plugins share the shared data and one VM per worker. File-based LDS delivers both listeners, so
//! a test can push a valid or invalid update into the running Envoy.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// Bearer token that may edit.
pub const EDIT_TOKEN: &str = "ops-token-of-the-tests";
/// Name of the relay's cluster.
const RELAY: &str = "loudou-relay";
/// Bearer token that may only view.
pub const VIEW_TOKEN: &str = "wall-token-of-the-tests";

/// Settings that differ between tests. All other settings are as in the quickstart.
#[derive(Debug, Clone)]
pub struct Config {
    data_plugin: Value,
    admin_plugin: Value,
    pub(crate) concurrency: u32,
    pub(crate) drain_s: u32,
    pub(crate) log_level: String,
    /// Envoy's base identifier, which the first process chooses, and the number of hot restarts before this process.
    /// `None` if there are no hot restarts.
    pub(crate) restart_epoch: Option<(Option<u32>, u32)>,
    pub(crate) wasm: Option<PathBuf>,
    /// Module of the data listener, if it differs from the admin listener's module.
    data_wasm: Option<PathBuf>,
    clusters: Vec<Value>,
    /// Routes that replace the default route.
    routes: Option<Value>,
    before: Vec<Value>,
    behind: Vec<Value>,
    access_log: Option<String>,
    trusted_hops: u32,
    pub(crate) extension: bool,
    /// Address of the data listener, if it is not only the loopback address.
    data_on: Option<&'static str>,
    /// True if Envoy passes bodies to the admin plugin.
    has_bodies: bool,
    /// More listeners for the admin plugin, each with its address, and its transport socket if the
    /// listener is not plain-text.
    more_admin: Vec<(Value, Option<Value>)>,
    /// True if there is a listener without the limiter.
    has_pulse: bool,
}

impl Config {
    /// Creates a configuration with these rules (a JSON array as in a rule file), two workers, 65
    /// 536 buckets and two tokens.
    pub fn new(rules: Value) -> Self {
        let mut config = Self {
            data_plugin: json!({
                "version": 1,
                "store": { "buckets": 65_536, "namespace": "loudou" },
            }),
            admin_plugin: json!({
                "version": 1,
                "store": { "buckets": 65_536, "namespace": "loudou" },
                "admin": { "role": "admin", "tokens": [
                    { "name": "ops", "sha256": sha256_hex(EDIT_TOKEN), "may": "edit" },
                    { "name": "wall", "sha256": sha256_hex(VIEW_TOKEN), "may": "view" },
                ] },
            }),
            concurrency: 2,
            drain_s: 1,
            restart_epoch: None,
            log_level: "info".to_owned(),
            wasm: None,
            data_wasm: None,
            clusters: Vec::new(),
            routes: None,
            before: Vec::new(),
            behind: Vec::new(),
            access_log: None,
            trusted_hops: 0,
            extension: false,
            data_on: None,
            has_bodies: true,
            more_admin: Vec::new(),
            has_pulse: false,
        };
        set(&mut config.data_plugin, "rules", rules);
        config
    }

    /// Sets the number of Envoy's worker threads.
    #[must_use]
    pub const fn concurrency(mut self, workers: u32) -> Self {
        self.concurrency = workers;
        self
    }

    /// Sets the fleet settings, with the relay at this address.
    #[must_use]
    pub fn fleet(self, settings: &Value, relay: SocketAddr) -> Self {
        let mut fleet = json!({ "cluster": RELAY });
        for (name, value) in settings.as_object().into_iter().flatten() {
            set(&mut fleet, name, value.clone());
        }
        let mut config = self.cluster(RELAY, Some(relay));
        set(&mut config.data_plugin, "fleet", fleet);
        config
    }

    /// Sets the bounds on held requests.
    #[must_use]
    pub fn waiting(self, bounds: &Value) -> Self {
        self.store("waiting", bounds)
    }

    /// Sets the maximum number of live buckets.
    #[must_use]
    pub fn buckets(self, buckets: u64) -> Self {
        self.store("buckets", &json!(buckets))
    }

    /// Sets the prefix of the shared-data keys.
    #[must_use]
    pub fn namespace(self, namespace: &str) -> Self {
        self.store("namespace", &json!(namespace))
    }

    /// Sends admitted requests to this server instead of answering `200 ok` in Envoy.
    #[must_use]
    pub fn upstream(self, address: SocketAddr) -> Self {
        let route = json!({ "cluster": "upstream" });
        let route = json!([{ "name": "data", "match": { "prefix": "/" }, "route": route }]);
        self.cluster("upstream", Some(address)).routes(route)
    }

    /// Adds a cluster with this endpoint, or without an endpoint.
    #[must_use]
    pub fn cluster(mut self, name: &str, address: Option<SocketAddr>) -> Self {
        self.clusters.push(cluster(name, address));
        self
    }

    /// Sets a field of the last added cluster.
    #[must_use]
    pub fn cluster_field(mut self, field: &str, value: Value) -> Self {
        if let Some(cluster) = self.clusters.last_mut() {
            set(cluster, field, value);
        }
        self
    }

    /// Sets the routes of the data listener, in Envoy's configuration format.
    #[must_use]
    pub fn routes(mut self, routes: Value) -> Self {
        self.routes = Some(routes);
        self
    }

    /// Puts one of Envoy's HTTP filters before the limiter on the data listener.
    #[must_use]
    pub fn filter_before(mut self, filter: Value) -> Self {
        self.before.push(filter);
        self
    }

    /// Puts one of Envoy's HTTP filters after the limiter on the data listener.
    #[must_use]
    pub fn filter_behind(mut self, filter: Value) -> Self {
        self.behind.push(filter);
        self
    }

    /// Sets the number of trusted proxies, which record a request's source in `x-forwarded-for`.
    #[must_use]
    pub const fn trusted_hops(mut self, hops: u32) -> Self {
        self.trusted_hops = hops;
        self
    }

    /// Adds a listener without the limiter, named [`HEARTBEAT`]. Its connections are distributed over
    /// the workers in turn, so one connection per worker shows whether that worker responds.
    #[must_use]
    pub const fn with_pulse(mut self) -> Self {
        self.has_pulse = true;
        self
    }

    /// Delivers the data listener's filter by file-based ECDS instead of inside the listener.
    #[must_use]
    pub const fn extension(mut self) -> Self {
        self.extension = true;
        self
    }

    /// Logs each request of the data listener in this format into Envoy's log.
    #[must_use]
    pub fn access_log(mut self, format: &str) -> Self {
        self.access_log = Some(format!("{format}\n"));
        self
    }

    /// Replaces the whole configuration of the data plugin, for instance with an invalid one.
    #[must_use]
    pub fn data_plugin(mut self, configuration: Value) -> Self {
        self.data_plugin = configuration;
        self
    }

    /// Replaces the whole configuration of the admin plugin.
    #[must_use]
    pub fn admin_plugin(mut self, configuration: Value) -> Self {
        self.admin_plugin = configuration;
        self
    }

    /// Opens the data listener on all addresses instead of only the loopback address.
    #[must_use]
    pub const fn data_on_all_addresses(mut self) -> Self {
        self.data_on = Some("0.0.0.0");
        self
    }

    /// Uses this module instead of [`crate::wasm_path`].
    #[must_use]
    pub fn wasm(mut self, path: impl Into<PathBuf>) -> Self {
        self.wasm = Some(path.into());
        self
    }

    /// Uses this module for the data listener, and the usual module for the admin listener.
    #[must_use]
    pub fn data_wasm(mut self, path: impl Into<PathBuf>) -> Self {
        self.data_wasm = Some(path.into());
        self
    }

    /// Sets Envoy's log level (default `info`).
    #[must_use]
    pub fn log_level(mut self, level: &str) -> Self {
        level.clone_into(&mut self.log_level);
        self
    }

    /// Sets the time for which a replaced listener drains (default 1 s).
    #[must_use]
    pub const fn drain_s(mut self, seconds: u32) -> Self {
        self.drain_s = seconds;
        self
    }

    /// Keeps the buckets in a file (default none).
    #[must_use]
    pub fn file(mut self, path: &Path) -> Self {
        if let Some(store) = self.data_plugin.get_mut("store") {
            set(store, "file", json!(path));
        }
        self
    }

    /// Allows [`Envoy::hot_restart`](crate::Envoy::hot_restart).
    #[must_use]
    pub const fn hot_restarts(mut self) -> Self {
        self.restart_epoch = Some((None, 0));
        self
    }

    fn store(mut self, field: &str, value: &Value) -> Self {
        for plugin in [&mut self.data_plugin, &mut self.admin_plugin] {
            if let Some(store) = plugin.get_mut("store") {
                set(store, field, value.clone());
            }
        }
        self
    }

    /// Returns the bootstrap. It reads its listeners from `lds` if given, and otherwise contains
    /// them.
    pub(crate) fn bootstrap(&self, wasm: &Path, lds: Option<&Path>) -> Value {
        let mut bootstrap = json!({
            "node": { "id": "loudou-tests", "cluster": "loudou-tests" },
            "admin": { "address": any_port() },
            "static_resources": { "clusters": self.clusters },
            "stats_config": { "stats_tags": stats_tags() },
        });
        if let Some(lds) = lds {
            set(
                &mut bootstrap,
                "dynamic_resources",
                json!({ "lds_config": watched(lds) }),
            );
        } else if let Some(resources) = bootstrap.get_mut("static_resources") {
            set(resources, "listeners", json!(self.listeners(wasm, None)));
        }
        bootstrap
    }

    /// Returns the listeners as a file for LDS. `ecds` is the file of the data listener's filter,
    /// if that is delivered separately.
    pub(crate) fn lds(&self, wasm: &Path, ecds: &Path) -> Value {
        let ecds = self.extension.then_some(ecds);
        let of_type = |mut listener: Value| {
            set(
                &mut listener,
                "@type",
                json!(format!("{TYPE}envoy.config.listener.v3.Listener")),
            );
            listener
        };
        json!({
            "resources": self.listeners(wasm, ecds).into_iter().map(of_type).collect::<Vec<_>>(),
        })
    }

    /// Returns the data listener's filter as a file for ECDS.
    pub(crate) fn ecds(&self, wasm: &Path) -> Value {
        let mut filter = limiter(&plugin("loudou", wasm, &self.data_plugin));
        set(
            &mut filter,
            "@type",
            json!(format!("{TYPE}envoy.config.core.v3.TypedExtensionConfig")),
        );
        json!({ "resources": [filter] })
    }

    fn listeners(&self, wasm: &Path, ecds: Option<&Path>) -> Vec<Value> {
        let mut listeners = vec![
            self.data_listener(self.data_wasm.as_deref().unwrap_or(wasm), ecds),
            self.admin_listener(wasm),
        ];
        for (number, (address, transport)) in self.more_admin.iter().enumerate() {
            let mut admin = self.admin_listener(wasm);
            set(&mut admin, "name", json!(format!("admin-{number}")));
            set(&mut admin, "address", address.clone());
            let chain = admin.pointer_mut("/filter_chains/0");
            if let (Some(chain), Some(transport)) = (chain, transport) {
                set(chain, "transport_socket", transport.clone());
            }
            listeners.push(admin);
        }
        if self.has_pulse {
            listeners.push(pulse());
        }
        listeners
    }

    fn data_listener(&self, wasm: &Path, ecds: Option<&Path>) -> Value {
        let ok = json!({ "status": 200, "body": { "inline_string": "ok\n" } });
        let all = json!([{ "name": "data", "match": { "prefix": "/" }, "direct_response": ok }]);
        let routes = self.routes.as_ref().unwrap_or(&all);
        let log = self.access_log.as_deref().map(access_log);
        let filter = ecds.map_or_else(
            || limiter(&plugin("loudou", wasm, &self.data_plugin)),
            |ecds| discovered_limiter(ecds, wasm),
        );
        let mut data = listener("data", routes, [&self.before, &self.behind], filter, log);
        let manager = data.pointer_mut("/filter_chains/0/filters/0/typed_config");
        if let Some(manager) = manager {
            set(manager, "xff_num_trusted_hops", json!(self.trusted_hops));
        }
        if let (Some(on), Some(address)) = (
            self.data_on,
            data.pointer_mut("/address/socket_address/address"),
        ) {
            *address = json!(on);
        }
        data
    }

    fn admin_listener(&self, wasm: &Path) -> Value {
        let mut plugin = plugin("loudou-admin", wasm, &self.admin_plugin);
        // Without this, the body of a paused PUT never arrives.
        set(
            &mut plugin,
            "allow_on_headers_stop_iteration",
            json!(self.has_bodies),
        );
        let none = json!([{ "match": { "prefix": "/" }, "direct_response": { "status": 404 } }]);
        listener("admin", &none, [&[], &[]], limiter(&plugin), None)
    }
}

/// Returns the SHA-256 digest in hexadecimal, which is the format of configured tokens.
pub fn sha256_hex(text: &str) -> String {
    Sha256::digest(text)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect::<Vec<_>>()
        .concat()
}

/// Sets a field of a JSON object.
fn set(object: &mut Value, field: &str, value: Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.insert(field.to_owned(), value);
    }
}

// Address and callers of a test's admin API.

impl Config {
    /// Sets the hosts that requests to the admin plugin may name.
    #[must_use]
    pub fn hosts(mut self, hosts: Value) -> Self {
        if let Some(admin) = self.admin_plugin.get_mut("admin") {
            set(admin, "hosts", hosts);
        }
        self
    }

    /// Replaces the tokens of the admin plugin. An empty array means that there are no tokens.
    #[must_use]
    pub fn tokens(mut self, tokens: Value) -> Self {
        if let Some(admin) = self.admin_plugin.get_mut("admin") {
            set(admin, "tokens", tokens);
        }
        self
    }

    /// Lets the data plugin answer the admin API itself below this path, with the tokens of the
    /// admin plugin.
    #[must_use]
    pub fn admin_at(mut self, path: &str) -> Self {
        let tokens = self.admin_plugin.pointer("/admin/tokens").cloned();
        let admin = json!({ "at": path, "tokens": tokens });
        set(&mut self.data_plugin, "admin", admin);
        self
    }

    /// Adds a listener for the admin plugin at this address.
    #[must_use]
    pub fn also_admin(mut self, address: Value, transport: Option<Value>) -> Self {
        self.more_admin.push((address, transport));
        self
    }

    /// Removes `allow_on_headers_stop_iteration` from the admin listener, so that no body arrives.
    #[must_use]
    pub const fn without_bodies(mut self) -> Self {
        self.has_bodies = false;
        self
    }
}

// Parts of an Envoy configuration, as JSON.

const TYPE: &str = "type.googleapis.com/";
const HTTP: &str = "type.googleapis.com/envoy.extensions.filters.http.";
const NETWORK: &str = "type.googleapis.com/envoy.extensions.filters.network.";
/// Name of the limiter in the filter chain, and of its ECDS resource.
const LIMITER: &str = "loudou";
/// Name of the listener without the limiter, and of its statistics.
pub const HEARTBEAT: &str = "pulse";

fn any_port() -> Value {
    json!({ "socket_address": { "address": "127.0.0.1", "port_value": 0 } })
}

fn cluster(name: &str, address: Option<SocketAddr>) -> Value {
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

fn plugin(name: &str, wasm: &Path, configuration: &Value) -> Value {
    plugin_in("loudou", name, wasm, configuration)
}

/// Returns a plugin in the sandbox with this name.
fn plugin_in(vm: &str, name: &str, wasm: &Path, configuration: &Value) -> Value {
    json!({
        "name": name,
        "failure_policy": "FAIL_RELOAD",
        "vm_config": {
            "vm_id": vm,
            "runtime": "envoy.wasm.runtime.v8",
            "code": { "local": { "filename": wasm } },
        },
        // Not a Struct, because Envoy passes a Struct to plugins in protobuf encoding instead of
        // JSON.
        "configuration": {
            "@type": format!("{TYPE}google.protobuf.StringValue"),
            "value": configuration.to_string(),
        },
    })
}

/// Returns the HTTP filter that runs a plugin: in a sandbox, or natively if its module is a library.
fn limiter(plugin: &Value) -> Value {
    let file = plugin.pointer("/vm_config/code/local/filename");
    let module = Path::new(file.and_then(Value::as_str).unwrap_or_default());
    let typed_config = if is_native(module) {
        json!({
            "@type": filter_type(module),
            "dynamic_module_config": {
                "module": { "local": { "filename": file } },
                "do_not_close": true,
                // Dashboards and alerts name the metrics of the Wasm filter.
                "metrics_namespace": "wasmcustom",
            },
            "filter_name": plugin.get("name"),
            "filter_config": plugin.get("configuration"),
        })
    } else {
        json!({ "@type": filter_type(module), "config": plugin })
    };
    json!({ "name": LIMITER, "typed_config": typed_config })
}

/// Returns the type of the HTTP filter that runs a module.
fn filter_type(module: &Path) -> String {
    if is_native(module) {
        format!("{HTTP}dynamic_modules.v3.DynamicModuleFilter")
    } else {
        format!("{HTTP}wasm.v3.Wasm")
    }
}

/// Returns true if a module is a library that Envoy loads into its process.
pub(crate) fn is_native(module: &Path) -> bool {
    module
        .extension()
        .is_some_and(|extension| extension == "so")
}

/// Returns the HTTP filter that runs a module with this configuration, in a sandbox with this name.
pub fn module(vm: &str, name: &str, wasm: &Path, configuration: &Value) -> Value {
    limiter(&plugin_in(vm, name, wasm, configuration))
}

/// Returns the filter's ECDS reference, which reads the filter from a separate file.
fn discovered_limiter(ecds: &Path, module: &Path) -> Value {
    json!({ "name": LIMITER, "config_discovery": {
        "config_source": watched(ecds), "type_urls": [filter_type(module)],
    } })
}

/// Returns a configuration source: a file that Envoy reads again when it is replaced.
fn watched(file: &Path) -> Value {
    let directory = file.parent().unwrap_or(file);
    json!({
        "resource_api_version": "V3",
        "path_config_source": { "path": file, "watched_directory": { "path": directory } },
    })
}

fn access_log(format: &str) -> Value {
    json!({ "name": "stdout", "typed_config": {
        "@type": format!("{TYPE}envoy.extensions.access_loggers.stream.v3.StdoutAccessLog"),
        "log_format": { "text_format_source": { "inline_string": format } },
    } })
}

fn listener(
    name: &str,
    routes: &Value,
    [before, behind]: [&[Value]; 2],
    limiter: Value,
    access_log: Option<Value>,
) -> Value {
    let filters = [before, &[limiter], behind].concat();
    http_listener(name, routes, filters, access_log)
}

/// Returns a listener that answers `200` itself. Its connections are spread evenly over the
/// workers.
fn pulse() -> Value {
    let all = json!([{ "match": { "prefix": "/" }, "direct_response": { "status": 200 } }]);
    let mut pulse = http_listener(HEARTBEAT, &all, Vec::new(), None);
    set(&mut pulse, "stat_prefix", json!(HEARTBEAT));
    let balance = json!({ "exact_balance": {} });
    set(&mut pulse, "connection_balance_config", balance);
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
        // HTTP/1.1, or HTTP/2 if a client starts with it.
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

/// Returns the labels of the filter's metrics. `envoy/quickstart/envoy.yaml` explains them.
fn stats_tags() -> Value {
    json!([
        { "tag_name": "loudou_rule", "regex": r"^wasmcustom\.loudou\.rule(\.([a-z0-9~-]+))\.\w+$" },
        { "tag_name": "loudou_verdict", "regex": r"^wasmcustom\.loudou\.rule\.[a-z0-9~-]+(\.(\w+))$" },
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths::workspace_root;

    /// Operators copy the labels from the examples, and the tests have the labels of this file.
    #[test]
    fn the_examples_have_the_labels_of_the_tests() {
        for tag in stats_tags().as_array().expect("list") {
            let line = format!("regex: '{}'", tag["regex"].as_str().expect("regex"));
            for example in ["quickstart", "monitoring"] {
                let file = workspace_root().join(format!("envoy/{example}/envoy.yaml"));
                let yaml = std::fs::read_to_string(file).expect("example");
                assert!(yaml.contains(&line), "{example}: {line}");
            }
        }
    }

    #[test]
    fn both_plugins_share_one_vm() {
        let lds = Config::new(json!([]))
            .namespace("other")
            .lds(Path::new("/f.wasm"), Path::new("/ecds.json"));
        let config = |n: usize| {
            let chain = &lds["resources"][n]["filter_chains"][0];
            chain["filters"][0]["typed_config"]["http_filters"][0]["typed_config"]["config"].clone()
        };
        assert_eq!(config(0)["vm_config"], config(1)["vm_config"]);
        for n in [0, 1] {
            let text = config(n)["configuration"]["value"].clone();
            assert!(
                text.as_str()
                    .is_some_and(|text| text.contains(r#""namespace":"other""#)),
                "{text}"
            );
        }
        assert_eq!(config(1)["allow_on_headers_stop_iteration"], true);
    }

    #[test]
    fn a_token_is_configured_as_its_sha256() {
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256_hex("abc"), expected);
    }
}
