//! The manifests of this repository, and the configurations that Istio and Envoy Gateway generate
//! from them for Envoy.
//!
//! These functions replace only three values. The address of the module becomes a file, as after a
//! fetch by istio-agent. The ports of listeners become any free ports. The admin listener gets the
//! name by which the harness finds it.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use envoy_types::pb::envoy::config::core::v3::{
    AsyncDataSource, DataSource, TypedExtensionConfig, async_data_source, data_source,
};
use envoy_types::pb::envoy::extensions::filters::http::wasm::v3::Wasm;
use envoy_types::pb::envoy::extensions::wasm::v3::{
    FailurePolicy, PluginConfig, VmConfig, plugin_config,
};
use envoy_types::pb::google::protobuf::{BoolValue, StringValue};
use envoy_types::util::pack_any;
use loudou_tests::paths::workspace_root;
use serde_json::{Value, json};

/// Returns the only document of a manifest below `envoy/`.
pub(super) fn manifest(path: &str) -> Result<Value> {
    let path = workspace_root().join("envoy").join(path);
    let text = fs::read(&path).with_context(|| path.display().to_string())?;
    let document = loudou_check::document::read(&text);
    let document = document.map_err(|fault| anyhow::anyhow!("{}: {fault:?}", path.display()))?;
    // The value is the list of the documents in the file.
    Ok(field(&document.value, "/0")?.clone())
}

/// Returns a field of a manifest. Fails if there is no such field.
pub(super) fn field<'a>(manifest: &'a Value, pointer: &str) -> Result<&'a Value> {
    let field = manifest.pointer(pointer);
    field.with_context(|| format!("no {pointer}"))
}

fn text(manifest: &Value, pointer: &str) -> Result<String> {
    let text = field(manifest, pointer)?.as_str();
    Ok(text
        .with_context(|| format!("{pointer} is no text"))?
        .to_owned())
}

/// Returns `NAMESPACE.NAME`, the name that Istio gives to the extension of a manifest.
pub(super) fn name(manifest: &Value) -> Result<String> {
    let namespace = text(manifest, "/metadata/namespace")?;
    Ok(format!("{namespace}.{}", text(manifest, "/metadata/name")?))
}

/// Returns the plugin configuration in a `WasmPlugin`, `TrafficExtension` or
/// `EnvoyExtensionPolicy`.
pub(super) fn rules(manifest: &mut Value) -> Result<&mut Value> {
    let at = match text(manifest, "/kind")?.as_str() {
        "WasmPlugin" => "/spec/pluginConfig",
        "TrafficExtension" => "/spec/wasm/pluginConfig",
        _ if manifest.pointer("/spec/dynamicModule").is_some() => "/spec/dynamicModule/0/config",
        "EnvoyExtensionPolicy" => "/spec/wasm/0/config",
        other => bail!("{other} has no rules"),
    };
    manifest.pointer_mut(at).with_context(|| format!("no {at}"))
}

/// Returns the extension that Istio generates from a `WasmPlugin` or `TrafficExtension`. It has no
/// `vm_id` and no `allow_on_headers_stop_iteration`, and its rules are JSON in a `StringValue`.
pub(super) fn by_istio(manifest: &Value, module: &Path) -> Result<TypedExtensionConfig> {
    let mut manifest = manifest.clone();
    let rules = rules(&mut manifest)?.to_string();
    let strategy = match text(&manifest, "/kind")?.as_str() {
        "WasmPlugin" => text(&manifest, "/spec/failStrategy")?,
        _ => text(&manifest, "/spec/wasm/failStrategy")?,
    };
    let plugin = PluginConfig {
        name: name(&manifest)?,
        failure_policy: policy(&strategy)?.into(),
        configuration: Some(pack_any(StringValue { value: rules })),
        vm: Some(plugin_config::Vm::VmConfig(sandbox("", module))),
        ..PluginConfig::default()
    };
    Ok(extension(&name(&manifest)?, plugin))
}

/// Returns the extension that Istio forwards from the patch of an `EnvoyFilter`.
pub(super) fn by_envoy_filter(manifest: &Value, module: &Path) -> Result<TypedExtensionConfig> {
    let value = patch(manifest, "EXTENSION_CONFIG")?;
    let plugin = field(value, "/typed_config/config")?;
    let known = [
        "name",
        "failure_policy",
        "allow_on_headers_stop_iteration",
        "vm_config",
        "configuration",
    ];
    let fields = plugin.as_object().context("no plugin")?;
    if let Some(other) = fields.keys().find(|name| !known.contains(&name.as_str())) {
        bail!("{other} would be lost");
    }
    // Istio forwards the Struct. The module reads the same rules from text, which a unit test of
    // the filter shows.
    let rules = field(plugin, "/configuration/value")?.to_string();
    let vm_id = plugin.pointer("/vm_config/vm_id").and_then(Value::as_str);
    let plugin = PluginConfig {
        name: text(plugin, "/name")?,
        failure_policy: policy(&text(plugin, "/failure_policy")?)?.into(),
        configuration: Some(pack_any(StringValue { value: rules })),
        allow_on_headers_stop_iteration: Some(BoolValue {
            value: field(plugin, "/allow_on_headers_stop_iteration")? == true,
        }),
        vm: Some(plugin_config::Vm::VmConfig(sandbox(
            vm_id.unwrap_or_default(),
            module,
        ))),
        ..PluginConfig::default()
    };
    Ok(extension(&text(value, "/name")?, plugin))
}

/// Returns the value of the patch that an `EnvoyFilter` applies to `to`.
pub(super) fn patch<'a>(manifest: &'a Value, to: &str) -> Result<&'a Value> {
    let patches = field(manifest, "/spec/configPatches")?.as_array();
    let mut patches = patches.into_iter().flatten();
    let found = patches.find(|patch| patch.get("applyTo").is_some_and(|kind| kind == to));
    field(
        found.with_context(|| format!("no patch of {to}"))?,
        "/patch/value",
    )
}

/// Returns the HTTP filter that Envoy Gateway generates from an `EnvoyExtensionPolicy`.
pub(super) fn by_envoy_gateway(manifest: &Value, module: &Path) -> Result<Value> {
    let wasm = field(manifest, "/spec/wasm/0")?;
    let namespace = text(manifest, "/metadata/namespace")?;
    let vm_id = format!(
        "envoyextensionpolicy/{namespace}/{}/wasm/0",
        text(manifest, "/metadata/name")?
    );
    Ok(json!({
        "name": format!("envoy.filters.http.wasm/{vm_id}"),
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm",
            "config": {
                "name": text(wasm, "/name")?,
                "root_id": text(wasm, "/rootID")?,
                "fail_open": field(wasm, "/failOpen")?,
                "vm_config": {
                    "vm_id": vm_id,
                    "runtime": "envoy.wasm.runtime.v8",
                    "code": { "local": { "filename": module } },
                },
                "configuration": {
                    "@type": "type.googleapis.com/google.protobuf.StringValue",
                    "value": field(wasm, "/config")?.to_string(),
                },
            },
        },
    }))
}

/// Returns the HTTP filter that Envoy Gateway generates from an `EnvoyExtensionPolicy` with a native module, which an
/// `EnvoyProxy` registers.
pub(super) fn module_by_envoy_gateway(
    manifest: &Value,
    proxy: &Value,
    library: &Path,
) -> Result<Value> {
    let module = field(manifest, "/spec/dynamicModule/0")?;
    let registered = field(proxy, "/spec/dynamicModules/0")?;
    let mounted = text(registered, "/source/local/path")?;
    if field(module, "/name")? != field(registered, "/name")? {
        bail!("the policy names another module");
    }
    if Path::new(&mounted).file_name() != library.file_name() {
        bail!("the image has another file than {mounted}");
    }
    let name = format!(
        "envoyextensionpolicy/{}/{}/dynamicmodule/0",
        text(manifest, "/metadata/namespace")?,
        text(manifest, "/metadata/name")?
    );
    Ok(json!({
        "name": format!("envoy.filters.http.dynamic_modules/{name}"),
        "disabled": true,
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter",
            "dynamic_module_config": {
                "module": { "local": { "filename": library } },
                "do_not_close": field(registered, "/doNotClose")?,
            },
            "filter_name": text(module, "/filterName")?,
            "filter_config": {
                "@type": "type.googleapis.com/google.protobuf.StringValue",
                "value": field(module, "/config")?.to_string(),
            },
        },
    }))
}

/// Returns the admin listener of a patch with any free port. If the patch names a module, this file
/// replaces it.
pub(super) fn admin_listener(value: &Value, module: &Path) -> Result<Value> {
    let mut listener = value.clone();
    let mut set = |pointer: &str, to: Value| -> Result<()> {
        let place = listener.pointer_mut(pointer);
        *place.with_context(|| format!("no {pointer}"))? = to;
        Ok(())
    };
    set("/name", json!("admin"))?;
    set("/address/socket_address/port_value", json!(0))?;
    let filter = "/filter_chains/0/filters/0/typed_config/http_filters/0";
    let file = format!("{filter}/typed_config/config/vm_config/code/local/filename");
    if value.pointer(&file).is_some() {
        set(&file, json!(module))?;
    }
    Ok(listener)
}

fn policy(name: &str) -> Result<FailurePolicy> {
    // Istio's FAIL_CLOSE is Envoy's FAIL_CLOSED.
    let policy = FailurePolicy::from_str_name(if name == "FAIL_CLOSE" {
        "FAIL_CLOSED"
    } else {
        name
    });
    policy.with_context(|| format!("unknown strategy {name}"))
}

fn sandbox(vm_id: &str, module: &Path) -> VmConfig {
    let file = data_source::Specifier::Filename(module.display().to_string());
    let code = DataSource {
        specifier: Some(file),
        ..DataSource::default()
    };
    VmConfig {
        vm_id: vm_id.to_owned(),
        runtime: "envoy.wasm.runtime.v8".to_owned(),
        code: Some(AsyncDataSource {
            specifier: Some(async_data_source::Specifier::Local(code)),
        }),
        ..VmConfig::default()
    }
}

fn extension(name: &str, plugin: PluginConfig) -> TypedExtensionConfig {
    TypedExtensionConfig {
        name: name.to_owned(),
        typed_config: Some(pack_any(Wasm {
            config: Some(plugin),
        })),
    }
}
