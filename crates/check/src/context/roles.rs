//! Compares the data roles and admin roles in one Envoy. An admin role reads the store of a data
//! role. Both roles find the store by `vm_id` and namespace.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use loudou_rules::config::{self, Path, Step};
use loudou_rules::rule::StoreSettings;
use serde_json::Value;

use super::envoy;
use super::view::View;
use crate::document::manifest;

/// Stands for the `vm_id` of a native module. All native modules in a process share its memory.
const NATIVE: &str = "native module";

/// Properties of a configuration that must be consistent with the other configurations in the same
/// Envoy.
pub(super) struct Role {
    /// Name of the configuration in messages.
    name: String,
    is_admin: bool,
    /// `vm_id` of the filter, or `None` if another object sets it.
    vm_id: Option<String>,
    /// Namespace and selector of the proxies that run the configuration.
    target: String,
    store: StoreSettings,
    /// Hash of the configuration's content.
    content: u64,
}

impl Role {
    pub(super) fn of(view: &View<'_>, name: &str, store: StoreSettings) -> Self {
        Self {
            name: name.to_owned(),
            is_admin: view.is_admin(),
            vm_id: vm_id(view),
            target: target(view),
            store,
            content: hash(view.content),
        }
    }
}

fn hash(content: Option<&Value>) -> u64 {
    let mut hasher = DefaultHasher::new();
    content.map(Value::to_string).hash(&mut hasher);
    hasher.finish()
}

/// Returns the `vm_id`, which names the shared memory that contains the stores. Istio sets no
/// `vm_id` for a `WasmPlugin` or `TrafficExtension`.
fn vm_id(view: &View<'_>) -> Option<String> {
    let plugin = &view.place.plugin;
    let object = view.place.object.as_ref();
    match object.map(|object| (object, object.kind.as_str())) {
        Some((_, "WasmPlugin" | "TrafficExtension")) => Some(String::new()),
        Some((_, "EnvoyExtensionPolicy")) if manifest::is_gateway_module(plugin) => {
            Some(NATIVE.to_owned())
        }
        Some((object, "EnvoyExtensionPolicy")) => {
            let Some(Step::Index(index)) = plugin.steps().last() else {
                return None;
            };
            let (namespace, name) = (object.namespace.as_ref()?, &object.name);
            Some(format!(
                "envoyextensionpolicy/{namespace}/{name}/wasm/{index}"
            ))
        }
        // This object patches only the rules. Another object sets the `vm_id`.
        _ if plugin.steps().is_empty() => None,
        _ if envoy::is_module(view, plugin) => Some(NATIVE.to_owned()),
        _ => {
            let path = view.envoy(plugin, &["vm_config", "vm_id"]);
            Some(view.text(&path).unwrap_or_default().to_owned())
        }
    }
}

fn target(view: &View<'_>) -> String {
    let Some(object) = &view.place.object else {
        return String::new();
    };
    let spec = object.path.field("spec");
    let at = |names: &[&str]| {
        let path = names
            .iter()
            .fold(spec.clone(), |path, name| path.field(name));
        view.at(&path).map(Value::to_string)
    };
    let places: [&[&str]; 5] = [
        &["selector", "matchLabels"],
        &["workloadSelector", "labels"],
        &["targetRefs"],
        &["targetRef"],
        &[],
    ];
    let found = places.iter().find_map(|names| at(names));
    format!("{:?} {}", object.namespace, found.unwrap_or_default())
}

/// Compares one role with all roles that may run in the same Envoy.
pub(super) fn check(view: &mut View<'_>, own: usize, all: &[Option<Role>]) {
    let Some(role) = all.get(own).and_then(Option::as_ref) else {
        return;
    };
    let is_data = |it: &&Role| !it.is_admin;
    let same = |it: &&Role| it.store.namespace == role.store.namespace;
    let data: Vec<&Role> = all.iter().flatten().filter(is_data).collect();
    let in_namespace: Vec<&Role> = data.iter().copied().filter(same).collect();
    if !role.is_admin {
        let earlier = all.iter().take(own).flatten().filter(is_data).filter(same);
        let mut earlier = earlier.filter(|it| it.target == role.target && it.vm_id == role.vm_id);
        if let Some(other) = earlier.find(|it| it.content != role.content) {
            beside(view, role, other);
        }
        return;
    }
    if data.is_empty() {
        lonely(view, role);
    } else if in_namespace.is_empty() {
        namespace(view, role, &data);
    } else {
        let fits =
            |it: &&Role| it.vm_id.is_none() || role.vm_id.is_none() || it.vm_id == role.vm_id;
        let shared: Vec<&Role> = in_namespace.iter().copied().filter(fits).collect();
        if shared.is_empty() {
            for_vm_id(view, &in_namespace);
        } else if shared
            .iter()
            .all(|it| it.store.buckets != role.store.buckets)
            && let Some(other) = shared.first()
        {
            buckets(view, other);
        }
    }
}

/// Reports that another configuration of the same Envoy puts different rules into the same store.
fn beside(view: &mut View<'_>, role: &Role, other: &Role) {
    if role.store.buckets != other.store.buckets {
        // The first configuration that Envoy loads determines the size of the store.
        buckets(view, other);
    }
    let message = format!(
        "the namespace `{}` has the rules of {}, too, but only one rule set: they overwrite each other",
        role.store.namespace, other.name
    );
    let path = Path::root().field("store").field("namespace");
    let problem = view.of_content(path, &message, "a namespace of its own, or the same rules");
    view.inside.push(problem.warning());
}

/// Warns about an admin role in an `EnvoyFilter` that sets a `vm_id`, if no file contains its data
/// role.
fn lonely(view: &mut View<'_>, role: &Role) {
    let object = view.place.object.as_ref();
    let is_istio = object.is_some_and(|object| object.kind == "EnvoyFilter");
    if is_istio && role.vm_id.as_ref().is_some_and(|id| !id.is_empty()) {
        let path = view.envoy(&view.place.plugin, &["vm_config", "vm_id"]);
        view.warning(
            &path,
            "Istio gives no vm_id to a WasmPlugin or TrafficExtension: this admin API does not find its buckets",
            "no vm_id, unless the data role has the same one in an EnvoyFilter",
            None,
        );
    }
}

fn for_vm_id(view: &mut View<'_>, data: &[&Role]) {
    let shown = |role: &Role| match role.vm_id.as_deref() {
        Some("") | None => format!("no vm_id, as in {}", role.name),
        Some(id) => format!("`{id}`, as in {}", role.name),
    };
    let ids: Vec<String> = data.iter().map(|role| shown(role)).collect();
    let path = view.envoy(&view.place.plugin, &["vm_config", "vm_id"]);
    let message = "the data role has another one: this admin API finds no buckets and answers 503";
    let id = data.first().and_then(|role| role.vm_id.as_deref());
    let id = id.filter(|id| !id.is_empty());
    view.error(&path, message, &ids.join("; "), id);
}

fn namespace(view: &mut View<'_>, role: &Role, data: &[&Role]) {
    let mut names: Vec<&str> = data.iter().map(|it| it.store.namespace.as_str()).collect();
    names.dedup();
    let near = match names.as_slice() {
        [one] => Some(*one),
        several => config::nearest(&role.store.namespace, several),
    };
    let own = &role.store.namespace;
    let message = format!("no data role has the namespace `{own}`: the admin API finds no buckets");
    let path = Path::root().field("store").field("namespace");
    let problem = view.of_content(path, &message, &names.join(", "));
    view.inside.push(problem.warning().suggest(near));
}

fn buckets(view: &mut View<'_>, other: &Role) {
    let most = other.store.buckets.to_string();
    let name = &other.name;
    let message =
        format!("not the {most} of {name}: the number that Envoy loads first applies to both");
    let path = Path::root().field("store").field("buckets");
    let problem = view.of_content(path, &message, &most);
    view.inside.push(problem.warning().suggest(Some(&most)));
}
