//! Converts Kong's `rate-limiting` plugin from a declarative configuration file.
//!
//! For each request, Kong runs only the most specific configuration of the plugin. Each
//! configuration therefore becomes a rule with `stop: true`, and more specific configurations come
//! first.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use loudou_check::document::Position;
use serde_json::{Map, Value, json};

use crate::conditions::{Conditions, escaped, named, whole};
use crate::ingress::listed;
use crate::locations::{Host, host_conditions};
use crate::model::Model;
use crate::model::kong::{Period, Plugin as Numbers};
use crate::out::{Out, Place, Rule, quoted};
use crate::routes::{domain_host, prefix_test};
use crate::yaml::At;

/// Maximum number of paths, and of plugin configurations. It is bounded because each one is
/// compared with all others.
const MAX_ENTITIES: usize = 1_000;

/// Fields of a configuration that are either converted or have no effect on verdicts.
const KNOWN: [&str; 26] = [
    "second",
    "minute",
    "hour",
    "day",
    "month",
    "year",
    "limit_by",
    "header_name",
    "path",
    "policy",
    "fault_tolerant",
    "hide_client_headers",
    "error_code",
    "error_message",
    "sync_rate",
    "redis",
    "redis_host",
    "redis_port",
    "redis_username",
    "redis_password",
    "redis_ssl",
    "redis_ssl_verify",
    "redis_server_name",
    "redis_timeout",
    "redis_database",
    "redis_prefix",
];

const NAMES: &str = "Kong decodes and normalizes paths before it compares them, and Loudou compares them as Envoy passes them: \
                     set normalize_path and merge_slashes in Envoy";
const UNROUTED: &str = "the rule also counts requests without a route, which Kong answers with 404";
const SHARED: &str = "Kong counts the requests of several rules in one counter, and this rule counts its own requests only";

/// Path of the JWT subject in Envoy's dynamic metadata.
const SUBJECT: [&str; 3] = ["envoy.filters.http.jwt_authn", "payload", "sub"];

/// Returns true if a document is a declarative configuration file of Kong.
pub(crate) fn looks_like(document: &At) -> bool {
    document.get("_format_version").exists()
}

/// A test of the request path.
#[derive(Clone, Debug, PartialEq)]
enum PathTest {
    All,
    Prefix(String),
    Regex(String),
}

/// A route, restricted to one of its paths. Kong assigns a separate priority to each path of a
/// route.
#[derive(Clone, Debug)]
struct Part {
    path: PathTest,
    /// Priority: number of kinds of tests, true if all hosts are exact, number of headers, true for
    /// a regular expression, `regex_priority`, prefix length.
    priority: (usize, bool, usize, bool, u64, usize),
}

/// A route.
#[derive(Debug)]
struct Route {
    names: Vec<String>,
    service: Option<String>,
    methods: Vec<String>,
    hosts: Vec<String>,
    headers: Vec<(String, Vec<String>)>,
    sources: Vec<String>,
    parts: Vec<Part>,
    /// Route settings that the rule does not test.
    untested: Vec<String>,
}

/// A configuration of the `rate-limiting` plugin.
struct Plugin {
    at: At,
    config: At,
    route: Option<String>,
    service: Option<String>,
    consumer: Option<String>,
    /// Indices of the routes to which the configuration applies. `None` if the configuration
    /// applies to all routes.
    routes: Option<Vec<usize>>,
}

#[derive(Default)]
struct File {
    routes: Vec<Route>,
    services: Vec<Vec<String>>,
    consumers: Vec<Vec<String>>,
    plugins: Vec<Plugin>,
}

/// Converts declarative configuration files. Kubernetes objects only produce warnings, because the
/// routes to which they apply are in other objects.
pub(crate) fn convert(files: &[At], objects: &[At], out: &mut Out) {
    for object in objects.iter().flat_map(listed) {
        let kind = object.get("kind").text().unwrap_or_default();
        let plugin = object.get("plugin").text().unwrap_or_default();
        if kind.starts_with("Kong") && is_limit(&plugin) {
            let message = format!(
                "{} `{}`: convert a declarative file of Kong, which `deck gateway dump` writes",
                quoted(&kind),
                quoted(&plugin)
            );
            out.lost(&object.place(), &message);
        }
    }
    // Kong merges the files of an installation before it uses them.
    let mut file = File::default();
    for document in files {
        let version = document.get("_format_version").text().unwrap_or_default();
        if version.starts_with("1.") || version.starts_with("2.") {
            let message = "before version 3.0, Kong finds regular expressions in paths without a leading `~`; convert the \
                           file with `deck convert` first";
            out.lost(&document.place(), message);
        }
        file.read(document, out);
    }
    if let Some(first) = files.first() {
        file.rules(first, out);
    }
}

/// Returns true if the plugin with this name limits requests.
fn is_limit(name: &str) -> bool {
    name.contains("rate-limiting") || name == "response-ratelimiting"
}

/// Returns the names and IDs by which other entities can refer to an entity.
fn names(at: &At) -> Vec<String> {
    let fields = ["name", "username", "id", "custom_id"];
    let texts = fields.iter().filter_map(|field| at.get(field).text());
    texts.filter(|text| !text.is_empty()).collect()
}

/// Returns the name in a reference to an entity. The reference may be a string or an object.
fn reference(at: &At) -> Option<String> {
    if at.is_null() {
        return None;
    }
    at.text().or_else(|| names(at).into_iter().next())
}

fn texts(at: &At) -> Vec<String> {
    at.items().iter().filter_map(At::text).collect()
}

impl File {
    fn read(&mut self, document: &At, out: &mut Out) {
        for service in document.get("services").items() {
            if service.get("enabled").truth() == Some(false) {
                continue;
            }
            let mut own = names(&service);
            if own.is_empty() {
                own.push(format!(
                    "service #{}",
                    self.services.len().saturating_add(1)
                ));
            }
            let name = own.first().cloned();
            self.services.push(own);
            self.plugins(&service, (None, name.clone(), None), out);
            for route in service.get("routes").items() {
                self.route(&route, name.clone(), out);
            }
        }
        for route in document.get("routes").items() {
            let service = reference(&route.get("service"));
            self.route(&route, service, out);
        }
        for consumer in document.get("consumers").items() {
            let own = names(&consumer);
            let name = own.first().cloned();
            self.consumers.push(own);
            self.plugins(&consumer, (None, None, name), out);
        }
        self.plugins(document, (None, None, None), out);
        for group in document.get("consumer_groups").items() {
            for plugin in group.get("plugins").items() {
                lost(
                    &plugin,
                    " of a group of consumers, which has no counterpart",
                    out,
                );
            }
        }
    }

    fn route(&mut self, at: &At, service: Option<String>, out: &mut Out) {
        let mut own = names(at);
        if own.is_empty() {
            own.push(format!("route #{}", self.routes.len().saturating_add(1)));
        }
        let protocols = texts(&at.get("protocols"));
        let is_http =
            |protocol: &String| protocol.starts_with("http") || protocol.starts_with("grpc");
        if !protocols.is_empty() && !protocols.iter().any(is_http) {
            return;
        }
        let name = own.first().cloned();
        self.plugins(at, (name, service.clone(), None), out);
        self.routes.push(Route::read(at, own, service));
    }

    /// Reads the plugins that are nested in an entity. A plugin in a route is bound to the route's
    /// service only if the plugin names that service.
    fn plugins(
        &mut self,
        at: &At,
        of: (Option<String>, Option<String>, Option<String>),
        out: &mut Out,
    ) {
        let (route, service, consumer) = of;
        for plugin in at.get("plugins").items() {
            let name = plugin.get("name").text().unwrap_or_default();
            if !is_limit(&name) || plugin.get("enabled").truth() == Some(false) {
                continue;
            }
            if name == "rate-limiting-advanced" {
                let message = ", whose source is not public: write a rule with `fixed_window` for `window_type: fixed`, or with \
                               `sliding_counter` for `sliding`, and a limit for each `limit` and `window_size`";
                lost(&plugin, message, out);
                continue;
            }
            if name != "rate-limiting" {
                lost(&plugin, ", which has no counterpart", out);
                continue;
            }
            if plugin.get("_config").exists() {
                let message = ": `_config` is not read; write its fields into the plugin";
                lost(&plugin, message, out);
                continue;
            }
            if plugin.get("consumer_group").exists() {
                lost(
                    &plugin,
                    " of a group of consumers, which has no counterpart",
                    out,
                );
                continue;
            }
            let named = |field: &str| reference(&plugin.get(field));
            let service = if route.is_some() {
                named("service")
            } else {
                named("service").or_else(|| service.clone())
            };
            self.plugins.push(Plugin {
                config: plugin.get("config"),
                route: named("route").or_else(|| route.clone()),
                service,
                consumer: named("consumer").or_else(|| consumer.clone()),
                routes: None,
                at: plugin,
            });
        }
    }

    fn rules(&mut self, document: &At, out: &mut Out) {
        let paths = self.routes.iter().map(|route| route.parts.len());
        if paths.sum::<usize>().max(self.plugins.len()) > MAX_ENTITIES {
            let message =
                format!("more than {MAX_ENTITIES} paths or plugins; convert fewer of them at once");
            out.lost(&document.place(), &message);
            return;
        }
        let routes = &self.routes;
        let services = &self.services;
        let is = |names: &[String], name: &str| names.iter().any(|one| one == name);
        for plugin in &mut self.plugins {
            let of_route = |name: &String| routes.iter().position(|route| is(&route.names, name));
            let of_service = |name: &String| -> Vec<usize> {
                let service = services.iter().find(|names| is(names, name));
                let is_its = |route: &Route| {
                    let service_of = route.service.as_ref();
                    service_of
                        .is_some_and(|of| of == name || service.is_some_and(|names| is(names, of)))
                };
                let all = routes.iter().enumerate();
                let all = all.filter(|(_, route)| is_its(route));
                all.map(|(index, _)| index).collect()
            };
            plugin.routes = match (&plugin.route, &plugin.service) {
                (Some(route), _) => Some(of_route(route).into_iter().collect()),
                (None, Some(service)) => Some(of_service(service)),
                (None, None) => None,
            };
        }
        let all = std::mem::take(&mut self.plugins);
        let (mut all, empty): (Vec<Plugin>, Vec<Plugin>) = all.into_iter().partition(|plugin| {
            plugin
                .routes
                .as_ref()
                .is_none_or(|routes| !routes.is_empty())
        });
        for plugin in empty {
            lost(&plugin.at, " without a route in this file", out);
        }
        // Kong looks up the configuration for a request in this order.
        all.sort_by_key(|plugin| {
            let rank = match (&plugin.consumer, &plugin.route, &plugin.service) {
                (Some(_), Some(_), Some(_)) => 0,
                (Some(_), Some(_), None) => 1,
                (Some(_), None, Some(_)) => 2,
                (None, Some(_), Some(_)) => 3,
                (Some(_), None, None) => 4,
                (None, Some(_), None) => 5,
                (None, None, Some(_)) => 6,
                (None, None, None) => 7,
            };
            let first = plugin.routes.iter().flatten();
            let first = first.filter_map(|index| self.routes.get(*index));
            let highest = first
                .flat_map(|route| &route.parts)
                .map(|part| part.priority);
            (rank, Reverse(highest.max()))
        });
        let of = |plugin: &Plugin| {
            let of = [&plugin.route, &plugin.service, &plugin.consumer];
            of.map(Clone::clone)
        };
        let mut known = BTreeSet::new();
        for plugin in all {
            if known.insert(of(&plugin)) {
                self.plugins.push(plugin);
            } else {
                let message =
                    " for the route, service and consumer of another one, which Kong refuses";
                lost(&plugin.at, message, out);
            }
        }
        for index in 0..self.plugins.len() {
            self.plugin(index, out);
        }
    }

    /// Adds the rules for a configuration.
    fn plugin(&self, index: usize, out: &mut Out) {
        let Some(plugin) = self.plugins.get(index) else {
            return;
        };
        let by_service = plugin.config.get("limit_by").str() == Some("service");
        // With `limit_by: service`, each service has its own counter.
        if by_service && plugin.routes.is_none() {
            let mut known: Vec<&str> = Vec::new();
            for route in &self.routes {
                let Some(service) = route.service.as_deref() else {
                    continue;
                };
                if !known.contains(&service) {
                    known.push(service);
                    let all = self.routes.iter().enumerate();
                    let all = all.filter(|(_, one)| one.service.as_deref() == Some(service));
                    let routes: Vec<usize> = all.map(|(index, _)| index).collect();
                    self.limit((index, plugin), Some(&routes), out);
                }
            }
            return;
        }
        self.limit((index, plugin), plugin.routes.as_deref(), out);
    }

    /// Adds the rules for a configuration that applies to the given routes. Routes that differ only
    /// in their paths share a rule.
    fn limit(&self, of: (usize, &Plugin), routes: Option<&[usize]>, out: &mut Out) {
        let mut differences = Vec::new();
        let same = |other: &&Plugin| (&other.route, &other.service) == (&of.1.route, &of.1.service);
        if self.plugins.iter().filter(same).count() > 1 {
            differences.push(SHARED.to_owned());
        }
        let Some(routes) = routes else {
            let conditions = Conditions::default();
            if !self.routes.iter().any(Route::is_catch_all) {
                differences.push(UNROUTED.to_owned());
            }
            rules(of.1, conditions, &differences, None, out);
            return;
        };
        // Skip the routes to which a more specific configuration applies.
        let has_own = |index: &usize| {
            let mut earlier = self.plugins.iter().take(of.0);
            earlier.any(|other| {
                let routes = other.routes.as_ref();
                (other.consumer.is_none() || other.consumer == of.1.consumer)
                    && routes.is_some_and(|routes| routes.contains(index))
            })
        };
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for index in routes.iter().filter(|index| !has_own(index)) {
            let same = groups.iter_mut().find(|group| {
                let first = group.first().and_then(|first| self.routes.get(*first));
                let pair = first.zip(self.routes.get(*index));
                pair.is_some_and(|(one, other)| one.is_alike(other))
            });
            match same {
                Some(group) => group.push(*index),
                None => groups.push(vec![*index]),
            }
        }
        for group in &groups {
            let of_group: Vec<&Route> = group
                .iter()
                .filter_map(|one| self.routes.get(*one))
                .collect();
            let Some(first) = of_group.first() else {
                continue;
            };
            let mut differences = differences.clone();
            if groups.len() > 1 {
                differences.push(SHARED.to_owned());
            }
            let mut conditions = first.conditions();
            let parts: Vec<&Part> = of_group.iter().flat_map(|route| &route.parts).collect();
            conditions.path = path(&parts);
            if conditions.path.is_some() {
                let file = of.1.at.place().file;
                out.note(&Place::new(&file, Position::default()), NAMES);
            }
            for route in &of_group {
                differences.extend(route.untested.clone());
            }
            self.exclude(of, routes, &of_group, &mut conditions, &mut differences);
            let service = first.service.as_deref();
            rules(of.1, conditions, &differences, service, out);
        }
    }

    /// Excludes requests that Kong sends to other routes, which have another configuration or none.
    fn exclude(
        &self,
        (index, plugin): (usize, &Plugin),
        routes: &[usize],
        group: &[&Route],
        conditions: &mut Conditions,
        differences: &mut Vec<String>,
    ) {
        for (number, other) in self.routes.iter().enumerate() {
            if routes.contains(&number) || !group.iter().any(|route| route.may_meet(other)) {
                continue;
            }
            let own: Vec<&Part> = group.iter().flat_map(|route| &route.parts).collect();
            let is_before = |one: &Part, mine: &&Part| {
                one.priority >= mine.priority && one.path.may_meet(&mine.path)
            };
            let before: Vec<&Part> = other
                .parts
                .iter()
                .filter(|one| own.iter().any(|mine| is_before(one, mine)))
                .collect();
            // For these requests, an earlier rule already ends the evaluation.
            let is_stopped = || {
                self.plugins.iter().take(index).any(|earlier| {
                    let has = earlier.routes.as_ref();
                    has.is_none_or(|routes| routes.contains(&number))
                        && (earlier.consumer.is_none() || earlier.consumer == plugin.consumer)
                })
            };
            if before.is_empty() || is_stopped() {
                continue;
            }
            // Requests that Kong sends to a route of the group must not be excluded.
            let is_own = |one: &&Part| {
                let mut own = own.iter();
                own.any(|mine| mine.priority >= one.priority && mine.path.may_meet(&one.path))
            };
            let mut excluded = other.conditions();
            excluded.path = path(&before);
            let is_exact = other.untested.is_empty() && !before.iter().any(is_own);
            let value = excluded.value().filter(|_| is_exact);
            if !value.is_some_and(|value| conditions.exclude(value)) {
                let name = other.names.first().cloned().unwrap_or_default();
                differences.push(format!(
                    "the rule may also count requests of the route `{}`, which Kong tries first",
                    quoted(&name)
                ));
            }
        }
    }
}

impl PathTest {
    /// Returns false if no path can satisfy both tests.
    fn may_meet(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Prefix(one), Self::Prefix(other)) => {
                one.starts_with(other.as_str()) || other.starts_with(one.as_str())
            }
            _ => true,
        }
    }
}

impl Route {
    fn read(at: &At, names: Vec<String>, service: Option<String>) -> Self {
        let headers: Vec<(String, Vec<String>)> = at
            .get("headers")
            .fields()
            .into_iter()
            .map(|(name, values)| (name.to_ascii_lowercase(), texts(&values)))
            .collect();
        let hosts = texts(&at.get("hosts"));
        let methods = texts(&at.get("methods"));
        let sources = at.get("sources").items();
        let mut untested = Vec::new();
        for field in ["snis", "destinations", "expression"] {
            if !at.get(field).items().is_empty() || at.get(field).str().is_some() {
                untested.push(format!("the rule does not test `{field}` of the route"));
            }
        }
        let with_port = sources.iter().any(|source| source.get("port").exists());
        if with_port || hosts.iter().any(|host| host.contains(':')) {
            untested.push("the rule does not test the port of the route".to_owned());
        }
        let paths = texts(&at.get("paths"));
        let kinds = [
            !sources.is_empty(),
            !at.get("destinations").items().is_empty(),
            !methods.is_empty(),
            !hosts.is_empty(),
            !headers.is_empty(),
            !at.get("snis").items().is_empty(),
            !paths.is_empty(),
        ];
        let kinds = kinds.iter().filter(|kind| **kind).count();
        let is_plain = !hosts.is_empty() && !hosts.iter().any(|host| host.contains('*'));
        let regex_priority = at.get("regex_priority").number().unwrap_or(0);
        let part = |path: PathTest| {
            let (regex, length) = match &path {
                PathTest::Regex(_) => (true, 0),
                PathTest::Prefix(prefix) => (false, prefix.len()),
                PathTest::All => (false, 0),
            };
            let priority = if regex { regex_priority } else { 0 };
            Part {
                priority: (kinds, is_plain, headers.len(), regex, priority, length),
                path,
            }
        };
        let mut parts: Vec<Part> = paths
            .into_iter()
            .map(|path| match path.strip_prefix('~') {
                Some(regex) => part(PathTest::Regex(regex.to_owned())),
                None => part(PathTest::Prefix(path)),
            })
            .collect();
        if parts.is_empty() {
            parts.push(part(PathTest::All));
        }
        Self {
            names,
            service,
            methods,
            hosts,
            sources: sources
                .iter()
                .filter_map(|source| source.get("ip").text())
                .collect(),
            parts,
            untested,
            headers,
        }
    }

    /// Returns true if the route matches every request.
    fn is_catch_all(&self) -> bool {
        let all = |part: &Part| match &part.path {
            PathTest::All => true,
            PathTest::Prefix(prefix) => prefix == "/",
            PathTest::Regex(_) => false,
        };
        self.methods.is_empty()
            && self.hosts.is_empty()
            && self.headers.is_empty()
            && self.sources.is_empty()
            && self.untested.is_empty()
            && self.parts.iter().any(all)
    }

    /// Returns true if the two routes differ only in their paths.
    fn is_alike(&self, other: &Self) -> bool {
        self.methods == other.methods
            && self.hosts == other.hosts
            && self.headers == other.headers
            && self.sources == other.sources
            && self.untested == other.untested
    }

    /// Returns false if no request can satisfy the tests of both routes, apart from the path tests.
    fn may_meet(&self, other: &Self) -> bool {
        let share = |one: &[String], other: &[String]| {
            one.is_empty() || other.is_empty() || one.iter().any(|text| other.contains(text))
        };
        let is_wild = |route: &Self| route.hosts.iter().any(|host| host.contains('*'));
        let hosts = |route: &Self| -> Vec<String> {
            let hosts = route.hosts.iter();
            hosts.map(|host| host.to_ascii_lowercase()).collect()
        };
        share(&self.methods, &other.methods)
            && (is_wild(self) || is_wild(other) || share(&hosts(self), &hosts(other)))
    }

    /// Returns the conditions of the route without its path.
    fn conditions(&self) -> Conditions {
        let mut conditions = Conditions {
            methods: self.methods.clone(),
            source: self.sources.clone(),
            ..Conditions::default()
        };
        let hosts: Vec<Host> = self.hosts.iter().map(|host| domain_host(host)).collect();
        host_conditions(&hosts.iter().collect::<Vec<_>>(), &mut conditions);
        for (name, values) in &self.headers {
            let values: Vec<String> = values
                .iter()
                .map(|value| match value.strip_prefix("~*") {
                    Some(regex) => whole(regex),
                    None => escaped(value),
                })
                .collect();
            let regex = format!("(?i:{})", values.join("|"));
            conditions.headers.push(named(name, "regex", regex));
        }
        conditions
    }
}

/// Returns a test that passes if the path matches one of the parts, or `None` if every path does.
fn path(parts: &[&Part]) -> Option<Value> {
    if let [part] = parts
        && let PathTest::Prefix(prefix) = &part.path
    {
        return prefix_test(prefix);
    }
    let mut regexes = Vec::new();
    for part in parts {
        regexes.push(match &part.path {
            PathTest::All => return None,
            PathTest::Prefix(prefix) if prefix == "/" => return None,
            PathTest::Prefix(prefix) => format!("{}.*", escaped(prefix)),
            PathTest::Regex(regex) => whole(&format!("^{regex}")),
        });
    }
    regexes.dedup();
    Some(json!({ "regex": regexes.join("|") }))
}

/// Adds a warning about a plugin that cannot be converted.
fn lost(plugin: &At, why: &str, out: &mut Out) {
    let name = plugin.get("name").text().unwrap_or_default();
    let message = format!("plugin `{}`{why}", quoted(&name));
    out.lost(&plugin.place(), &message);
}

/// A way to identify a client.
struct Identity {
    /// Condition on the path of the requests to which this identity applies.
    path: Option<Value>,
    key: Value,
    difference: Option<String>,
}

/// Returns the ways in which a configuration identifies clients. If the first identity is unknown
/// for a request, Kong counts by client address instead.
fn identities(plugin: &Plugin, service: Option<&str>) -> Vec<Identity> {
    let config = &plugin.config;
    let one = |key: Value| Identity {
        path: None,
        key,
        difference: None,
    };
    let address = || one(json!([{ "source": { "v6_prefix": 128 } }]));
    match config.get("limit_by").str().unwrap_or("consumer") {
        "service" if service.is_some() => vec![one(json!([]))],
        "ip" | "service" => vec![address()],
        "header" => {
            let name = config.get("header_name").text().unwrap_or_default();
            vec![
                one(json!([{ "header": name.to_ascii_lowercase() }])),
                address(),
            ]
        }
        "path" => {
            let path = config.get("path").text().unwrap_or_default();
            let exact = Identity {
                path: Some(json!({ "exact": path })),
                ..one(json!([]))
            };
            vec![exact, address()]
        }
        by => {
            let known = Identity {
                difference: Some(format!(
                    "the key is the subject of a JWT (with `payload_in_metadata: payload`), and Kong counts by {}; use the part of \
                     the request that names it",
                    quoted(by)
                )),
                ..one(json!([{ "metadata": SUBJECT }]))
            };
            // A consumer's plugin runs only for requests with a known consumer, so it needs no
            // fallback.
            if plugin.consumer.is_some() {
                vec![known]
            } else {
                vec![known, address()]
            }
        }
    }
}

/// Returns the limits of a configuration, as values for the rule file and as input for the model.
fn limits(config: &At, is_shared: bool, rule: &mut Rule) -> (Vec<Value>, Vec<(Period, u64)>) {
    let mut found = Vec::new();
    for (name, period) in Period::ALL {
        // Kong admits a request while the count is below the configured number, so a fractional
        // number is rounded up.
        let given = config.get(name);
        let number = given.value().as_f64().filter(|number| *number > 0.0);
        if number.is_none() && given.exists() && !given.is_null() {
            let value = given.value().to_string();
            rule.differs(format!(
                "`{name}: {}` is not a number above 0, so the rule has no such limit",
                quoted(&value)
            ));
        }
        if let Some(number) = number {
            found.push((name, period, loudou_words::num::whole(number.ceil())));
            if number.fract() > 0.0 {
                rule.remark(format!(
                    "Kong admits the next whole number above `{name}: {number}`"
                ));
            }
        }
    }
    let is_one = found.len() == 1;
    let mut values = Vec::new();
    for (name, period, capacity) in &found {
        let mut limit = Map::new();
        if !is_one {
            limit.insert("name".to_owned(), json!(name));
        }
        limit.insert("algorithm".to_owned(), json!("fixed_window"));
        limit.insert("capacity".to_owned(), json!(capacity));
        let (window, is_calendar) = match period {
            Period::Second => ("1s", false),
            Period::Minute => ("1m", false),
            Period::Hour => ("1h", false),
            Period::Day => ("1d", false),
            Period::Month if is_shared => ("30d", false),
            Period::Year if is_shared => ("365d", false),
            Period::Month => ("month", true),
            Period::Year => ("year", true),
        };
        limit.insert("window".to_owned(), json!(window));
        if !is_calendar {
            limit.insert("align".to_owned(), json!("clock"));
        }
        match period {
            Period::Month if is_shared => rule.differs(
                "a fleet cannot share a month of the calendar, so the window has 30 days and begins at another day",
            ),
            Period::Year if is_shared => rule.differs(
                "a fleet cannot share a year of the calendar, so the window has 365 days and begins at another day",
            ),
            Period::Month => rule.differs(
                "Kong forgets the count of a month after 30 days, so a month of 31 days can have two limits there",
            ),
            Period::Year => rule.differs(
                "Kong forgets the count of a year after 365 days, so a leap year can have two limits there",
            ),
            _ => {}
        }
        values.push(Value::Object(limit));
    }
    let numbers = found.iter().map(|(_, period, most)| (*period, *most));
    (values, numbers.collect())
}

/// Adds the rules of a configuration for requests that meet the given conditions.
fn rules(
    plugin: &Plugin,
    mut conditions: Conditions,
    differences: &[String],
    service: Option<&str>,
    out: &mut Out,
) {
    let config = &plugin.config;
    let place = plugin.at.place();
    let names = [&plugin.consumer, &plugin.route, &plugin.service];
    let names: Vec<&str> = names.into_iter().flatten().map(String::as_str).collect();
    let name = if names.is_empty() {
        "all".to_owned()
    } else {
        names.join(" ")
    };
    if let Some(consumer) = &plugin.consumer {
        let test = json!({ "path": SUBJECT, "exact": consumer });
        conditions.metadata.push(test);
    }
    let policy = config.get("policy").str().unwrap_or("local").to_owned();
    let is_shared = policy != "local";
    // Kong includes the configuration's route and service in the name of each counter.
    let counter = format!(
        "{policy}:{}:{}",
        plugin.route.as_deref().unwrap_or_default(),
        plugin.service.as_deref().unwrap_or_default()
    );
    for identity in identities(plugin, service) {
        let mut rule = Rule::new(&name, &place, &original(plugin));
        for difference in differences {
            rule.differs(difference.clone());
        }
        let mut own = conditions.clone();
        let mut its_counter = counter.clone();
        if let Some(path) = identity.path {
            its_counter = format!("{counter}:{path}");
            if !own.set_path(path) {
                rule.differs("the rule does not test the path of `limit_by: path`, because a match has only one path");
            }
        }
        if identity.key == json!([]) {
            its_counter = format!("{its_counter}:{}", service.unwrap_or_default());
        }
        if let Some(difference) = identity.difference {
            rule.differs(difference);
        } else if plugin.consumer.is_some() {
            rule.differs(
                "the consumer is the subject of a JWT (with `payload_in_metadata: payload`); use the part of the request that \
                 names it",
            );
        }
        let (values, numbers) = limits(config, is_shared, &mut rule);
        if values.is_empty() {
            let message = format!(
                "{}: expected a number of `second`, `minute`, `hour`, `day`, `month` or `year`",
                rule.original()
            );
            out.lost(&place, &message);
            return;
        }
        let is_late = config
            .get("sync_rate")
            .value()
            .as_f64()
            .is_some_and(|rate| rate >= 0.0);
        let counts_refused = policy == "redis" && !is_late;
        if is_late {
            rule.differs("Kong counts late because of its `sync_rate`, and admits more");
        }
        if counts_refused && numbers.len() > 1 {
            rule.differs("a request that one limit refuses takes nothing from the others, and Kong counts it in all of them");
        }
        for (field, inner) in config.fields() {
            if inner.exists() && !KNOWN.contains(&field.as_str()) {
                rule.differs(format!("`{}` is ignored", quoted(&field)));
            }
        }
        if let Some(value) = own.value() {
            rule.set("match", value);
        }
        rule.set("stop", json!(true));
        rule.set("key", identity.key);
        rule.set("limits", json!(values));
        if is_shared {
            rule.set("scope", json!("fleet"));
            out.denies_on_outage |= config.get("fault_tolerant").truth() == Some(false);
        }
        answer(config, &mut rule);
        let limits = Numbers {
            limits: numbers,
            counts_refused,
        };
        rule.counts(its_counter, Model::Plugin(limits));
        out.add(rule);
    }
}

/// Returns the source text of a configuration.
fn original(plugin: &Plugin) -> String {
    let mut words = vec!["rate-limiting".to_owned()];
    for (field, value) in plugin.config.fields() {
        // Fields that start with `redis` are left out, because they may contain passwords.
        if !field.starts_with("redis") && value.exists() {
            words.push(format!("{field}: {}", value.json()));
        }
    }
    words.join(", ")
}

/// Sets the response to refused requests.
fn answer(config: &At, rule: &mut Rule) {
    let code = config.get("error_code").number().unwrap_or(429);
    let mut refuse = Map::new();
    if !(400..600).contains(&code) {
        rule.differs(format!("`error_code: {code}` is ignored"));
    } else if code != 429 {
        refuse.insert("status".to_owned(), json!(code));
    }
    if let Some(message) = config.get("error_message").text() {
        let text = json!({ "message": message }).to_string();
        let body = json!({ "text": text, "content_type": "application/json; charset=utf-8" });
        refuse.insert("body".to_owned(), body);
    }
    if !refuse.is_empty() {
        rule.set("refuse", Value::Object(refuse));
    }
    if config.get("hide_client_headers").truth() == Some(true) {
        rule.set("respond", json!({ "ratelimit_headers": "none" }));
    }
}
