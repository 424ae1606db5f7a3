//! Converts the limits of ingress-nginx, which are set as annotations on Ingress objects.
//!
//! ingress-nginx generates one nginx zone for each limit of an Ingress, and locations for the paths
//! of the Ingress. The locations of all given Ingresses matter, because a more specific path of one
//! Ingress takes requests from another Ingress.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::locations::{
    Host, Key, Location, MAX_LOCATIONS, MAX_USES, Pattern, Server, Use, add_rules,
};
use crate::model::Model;
use crate::model::nginx::LimitConn;
use crate::nginx::{LEASE, REFUNDED, limit, model, rounded};
use crate::number::Nginx;
use crate::out::{Out, Place, Problem, quoted};
use crate::yaml::At;

const PREFIX: &str = "nginx.ingress.kubernetes.io/";
/// Default of `limit-burst-multiplier`: the burst as a multiple of the limit.
const MULTIPLIER: u64 = 5;
const SNIPPET: &str = "its limits are directives of nginx; convert them as an nginx.conf";
/// Keys of the `ConfigMap` that affect limits.
const STATUS: &str = "limit-req-status-code";
const CONNECTION_STATUS: &str = "limit-conn-status-code";
const KEY: &str = "limit-conn-zone-variable";

/// Limits of one Ingress.
struct Ingress {
    uses: Vec<usize>,
    uses_regex: bool,
    /// Value of the `rewrite-target` annotation, or empty if it is not set.
    rewrite: String,
}

/// Converts the Ingress objects.
pub(crate) fn convert(objects: &[At], out: &mut Out) -> Result<(), Problem> {
    let objects: Vec<At> = objects.iter().flat_map(listed).collect();
    let (mut status, mut connection_status) = (503, 503);
    let mut seen = None;
    for map in objects.iter().filter(|object| is(object, "ConfigMap")) {
        let data = map.get("data");
        if data.get(STATUS).exists() || data.get(CONNECTION_STATUS).exists() {
            if seen.is_some_and(|seen: &At| seen.get("data").value() != data.value()) {
                let message = "several ConfigMaps set the status of refusals, and the last one counts here; give only the one of the controller";
                out.note(&map.place(), message);
            }
            seen = Some(map);
        }
        status = data.get(STATUS).number().unwrap_or(status);
        connection_status = data
            .get(CONNECTION_STATUS)
            .number()
            .unwrap_or(connection_status);
        for (name, snippet) in data.fields() {
            if name.ends_with("-snippet") && snippet.str().is_some_and(has_limit) {
                out.lost(&snippet.place(), &format!("{name}: {SNIPPET}"));
            }
        }
        let key = data.get(KEY);
        if key.exists() {
            let message = format!(
                "{KEY}: {}: the key of all limits is the client address here",
                quoted(&key.json())
            );
            out.lost(&key.place(), &message);
        }
    }
    let mut uses: Vec<Use> = Vec::new();
    let mut servers: BTreeMap<String, Vec<(Location, bool)>> = BTreeMap::new();
    let mut fallbacks: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    let mut ingresses: Vec<&At> = objects.iter().filter(|one| is(one, "Ingress")).collect();
    ingresses.sort_by(|one, other| by_age(one, other));
    for object in ingresses {
        let first = uses.len();
        let annotations = Annotations::of(object);
        // ingress-nginx ignores the limits of a canary, and applies the limits of the main Ingress
        // of the path.
        if annotations.is_true("canary") {
            annotations.canary(out);
            continue;
        }
        annotations.limits((status, connection_status), &mut uses, out);
        let rewrite = annotations.get("rewrite-target");
        let ingress = Ingress {
            uses: (first..uses.len()).collect(),
            uses_regex: annotations.is_true("use-regex"),
            rewrite: rewrite.and_then(|one| one.text()).unwrap_or_default(),
        };
        if !ingress.uses.is_empty() {
            annotations.elsewhere(object, out);
        }
        others(object, &ingress, &servers, &mut fallbacks);
        locations(object, &ingress, &mut servers);
    }
    if uses.is_empty() {
        return Ok(());
    }
    let mut all = Vec::new();
    for (host, locations) in servers {
        if let Some(first) = uses.first()
            && (locations.len() > MAX_LOCATIONS || uses.len() > MAX_USES)
        {
            let message = format!(
                "more than {MAX_LOCATIONS} paths of a host, or more than {MAX_USES} limits"
            );
            return Err(Problem::error(first.place.clone(), &message));
        }
        let fallback = fallbacks.remove(&host).unwrap_or_default();
        all.push(server(&host, locations, fallback));
    }
    // Default server for hosts that no Ingress names; it is not needed if an Ingress without a host
    // exists.
    if !all.iter().any(|server| server.is_default) {
        all.push(Server {
            is_default: true,
            ..Server::default()
        });
    }
    add_rules(&all, &uses, out);
    Ok(())
}

/// Returns true if a snippet contains nginx directives that limit requests.
fn has_limit(snippet: &str) -> bool {
    snippet.contains("limit_req") || snippet.contains("limit_conn")
}

/// Returns the items of a `List` object, or the object itself if it is not a list.
pub(crate) fn listed(object: &At) -> Vec<At> {
    let kind = object.get("kind");
    if kind.str().is_some_and(|kind| kind.ends_with("List")) {
        return object
            .get("items")
            .items()
            .iter()
            .flat_map(listed)
            .collect();
    }
    vec![object.clone()]
}

fn is(object: &At, kind: &str) -> bool {
    object.get("kind").str() == Some(kind)
}

/// Compares two Ingresses by the order in which ingress-nginx reads them: older ones first, and for
/// equal ages in reverse order of their names. Ingresses without a `creationTimestamp` come last
/// and compare as equal.
fn by_age(one: &At, other: &At) -> Ordering {
    let of = |ingress: &At| {
        let metadata = ingress.get("metadata");
        let age = metadata.get("creationTimestamp").text()?;
        Some((age, Annotations::of(ingress).ingress))
    };
    match (of(one), of(other)) {
        (Some((age, name)), Some((other_age, other_name))) => {
            age.cmp(&other_age).then_with(|| other_name.cmp(&name))
        }
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => Ordering::Equal,
    }
}

/// The annotations of an Ingress.
struct Annotations {
    /// Namespace and name of the Ingress.
    ingress: String,
    all: At,
}

/// A whole number from an annotation, with its place in the source.
type Number = Option<(u64, Place)>;

impl Annotations {
    fn of(object: &At) -> Self {
        let metadata = object.get("metadata");
        let name = metadata.get("name").text().unwrap_or_default();
        let ingress = match metadata.get("namespace").text() {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name,
        };
        Self {
            ingress,
            all: metadata.get("annotations"),
        }
    }

    fn get(&self, name: &str) -> Option<At> {
        let annotation = self.all.get(&format!("{PREFIX}{name}"));
        annotation.exists().then_some(annotation)
    }

    /// Returns true if Go's `strconv.ParseBool`, which ingress-nginx uses, would parse the
    /// annotation as true.
    fn is_true(&self, name: &str) -> bool {
        let text = self.get(name).and_then(|annotation| annotation.text());
        text.is_some_and(|text| matches!(text.as_str(), "1" | "t" | "T" | "true" | "TRUE" | "True"))
    }

    /// Warns that ingress-nginx ignores the limits of a canary.
    fn canary(&self, out: &mut Out) {
        for name in ["limit-rps", "limit-rpm", "limit-connections"] {
            if let Some(annotation) = self.get(name) {
                let message = format!(
                    "{}: ingress-nginx ignores the limits of a canary",
                    self.original(name)
                );
                out.lost(&annotation.place(), &message);
            }
        }
    }

    /// Warns about hosts and ingress classes to which the limits may not apply.
    fn elsewhere(&self, object: &At, out: &mut Out) {
        let spec = object.get("spec");
        if let Some(alias) = self.get("server-alias") {
            let message = format!(
                "Ingress {}, server-alias: {}: the limits do not apply to these hosts",
                self.ingress,
                quoted(&alias.json())
            );
            out.lost(&alias.place(), &message);
        }
        let class = spec.get("ingressClassName");
        if let Some(name) = class.str().filter(|name| !name.contains("nginx")) {
            let message = format!(
                "Ingress {}: its class is `{}`, and its limits only apply if this is a class of ingress-nginx",
                self.ingress,
                quoted(name)
            );
            out.note(&class.place(), &message);
        }
    }

    /// Returns the source text of an annotation and of the annotations that modify it.
    fn original(&self, name: &str) -> String {
        let names = [
            name,
            "limit-burst-multiplier",
            "limit-allowlist",
            "limit-whitelist",
        ];
        let words = names.into_iter().filter_map(|name| {
            let text = self.get(name)?.text()?;
            Some(format!("{name}: {text}"))
        });
        let words: Vec<String> = words.collect();
        format!("Ingress {}, {}", self.ingress, words.join(", "))
    }

    /// Returns the number in an annotation. 0 means that there is no limit.
    fn number(&self, name: &str, out: &mut Out) -> Number {
        let annotation = self.get(name)?;
        let Some(number) = annotation.number() else {
            let message = format!(
                "Ingress {}, {name}: {} is not a whole number",
                self.ingress,
                quoted(&annotation.json())
            );
            out.lost(&annotation.place(), &message);
            return None;
        };
        Some((number, annotation.place()))
    }

    /// Warns about annotations that limit requests in other ways.
    fn others(&self, out: &mut Out) {
        for (name, annotation) in self.all.fields() {
            let text = annotation.text().unwrap_or_default();
            let why = match name.strip_prefix(PREFIX) {
                Some("limit-rate" | "limit-rate-after") => {
                    "bandwidth is out of scope, Loudou limits requests"
                }
                Some(name) if name.starts_with("global-rate-limit") => {
                    "write a rule with `scope: fleet`"
                }
                Some(name) if name.ends_with("-snippet") && has_limit(&text) => SNIPPET,
                _ => continue,
            };
            let name = name.strip_prefix(PREFIX).unwrap_or_default();
            let value = if why == SNIPPET {
                String::new()
            } else {
                format!(": {}", quoted(&text))
            };
            let message = format!("Ingress {}, {name}{value}: {why}", self.ingress);
            out.lost(&annotation.place(), &message);
        }
    }

    /// Returns the key that all limits share: the client address, with the addresses on the
    /// allowlist excluded.
    fn key(&self) -> Key {
        let mut key = Key {
            parts: vec![json!({ "source": { "v6_prefix": 128 } })],
            ..Key::default()
        };
        let list = self.get("limit-allowlist");
        let list = list.or_else(|| self.get("limit-whitelist"));
        let list = list.and_then(|list| list.text()).unwrap_or_default();
        let networks: Vec<&str> = list.split(',').map(str::trim).collect();
        let networks: Vec<&&str> = networks.iter().filter(|one| !one.is_empty()).collect();
        if !networks.is_empty() {
            key.conditions.exclude(json!({ "source": networks }));
        }
        key
    }

    /// Adds the limits that the annotations define to `uses`.
    fn limits(&self, statuses: (u64, u64), uses: &mut Vec<Use>, out: &mut Out) {
        self.others(out);
        let multiplier = self.number("limit-burst-multiplier", out);
        let multiplier = multiplier.map_or(MULTIPLIER, |(number, _)| number);
        let mut has_requests = false;
        for (name, label, scale) in [("limit-rps", "rps", 1), ("limit-rpm", "rpm", 60)] {
            let number = self.number(name, out);
            let Some((number, place)) = number.filter(|(number, _)| *number > 0) else {
                continue;
            };
            let Some(rate) = Nginx::new(number, scale) else {
                out.lost(&place, &format!("{}: out of range", self.original(name)));
                continue;
            };
            has_requests = true;
            let burst = number.saturating_mul(multiplier);
            let mut limit = self.usage(
                name,
                label,
                place,
                (limit(&rate, burst, burst), model(&rate, burst, burst)),
            );
            limit.status = statuses.0;
            limit.remarks.extend(rounded(&rate));
            uses.push(limit);
        }
        let number = self.number("limit-connections", out);
        if let Some((number, place)) = number.filter(|(number, _)| *number > 0) {
            let limit = json!({ "algorithm": "concurrency", "capacity": number });
            let model = Model::LimitConn(LimitConn { most: number });
            let mut limit = self.usage("limit-connections", "connections", place, (limit, model));
            limit.status = statuses.1;
            limit.differences.push(LEASE.to_owned());
            if has_requests {
                limit.differences.push(REFUNDED.to_owned());
            }
            uses.push(limit);
        }
    }

    fn usage(&self, name: &str, label: &str, place: Place, (limit, model): (Value, Model)) -> Use {
        Use {
            zone: format!("{} {label}", self.ingress),
            name: self.ingress.clone(),
            key: self.key(),
            limit,
            model,
            label: label.to_owned(),
            status: 0,
            is_dry: false,
            place,
            original: self.original(name),
            remarks: Vec::new(),
            differences: Vec::new(),
        }
    }
}

/// Records the limits for requests to the hosts of an Ingress that match no path. The default
/// backend of the first Ingress of a host serves these requests, so the limits of that Ingress
/// apply to them.
fn others(
    object: &At,
    ingress: &Ingress,
    servers: &BTreeMap<String, Vec<(Location, bool)>>,
    fallbacks: &mut BTreeMap<String, Vec<usize>>,
) {
    let spec = object.get("spec");
    if !spec.get("defaultBackend").exists() {
        return;
    }
    for rule in spec.get("rules").items() {
        let host = rule.get("host").text().unwrap_or_default();
        let host = host.to_ascii_lowercase();
        if !host.is_empty() && !servers.contains_key(&host) {
            fallbacks.insert(host, ingress.uses.clone());
        }
    }
}

/// Adds the paths of an Ingress to the servers of the Ingress's hosts.
fn locations(
    object: &At,
    ingress: &Ingress,
    servers: &mut BTreeMap<String, Vec<(Location, bool)>>,
) {
    let spec = object.get("spec");
    let mut rules = spec.get("rules").items();
    if rules.is_empty() {
        rules.push(spec.get("defaultBackend"));
    }
    for rule in rules {
        let host = rule
            .get("host")
            .text()
            .unwrap_or_default()
            .to_ascii_lowercase();
        let server = servers.entry(host).or_default();
        let mut paths = rule.get("http").get("paths").items();
        if paths.is_empty() {
            paths.push(rule);
        }
        for path in paths {
            let text = path.get("path").text().unwrap_or_else(|| "/".to_owned());
            // A path whose rewrite target is the path itself does not count as rewritten.
            let is_rewritten = !ingress.rewrite.is_empty() && ingress.rewrite != text;
            let uses_regex = ingress.uses_regex || is_rewritten;
            let pattern = match path.get("pathType").str() {
                Some("Exact") => Pattern::Exact(text),
                // ingress-nginx generates one location for the path itself and one for the paths
                // below it.
                Some("Prefix") if !uses_regex => Pattern::Segments(text),
                _ => Pattern::prefix(&text),
            };
            let uses = ingress.uses.clone();
            // If several Ingresses have the same path, the oldest Ingress wins.
            if !server.iter().any(|(other, _)| other.pattern == pattern) {
                server.push((Location { pattern, uses }, uses_regex));
            }
        }
    }
}

/// Returns the nginx server for a host. If any of the host's Ingresses uses regular expressions,
/// ingress-nginx treats all paths of the host as regular expressions and tries longer ones first.
fn server(host: &str, mut locations: Vec<(Location, bool)>, fallback: Vec<usize>) -> Server {
    if locations.iter().any(|(_, uses_regex)| *uses_regex) {
        for (location, _) in &mut locations {
            // A pattern that matches all paths needs no conversion.
            if location.pattern.is_everything() {
                continue;
            }
            location.pattern = match &location.pattern {
                Pattern::Exact(path) | Pattern::Segments(path) => {
                    Pattern::search(&format!("^{path}"), true)
                }
                Pattern::Prefix { text, .. } => Pattern::search(&format!("^{text}"), true),
                Pattern::Regex(regex) => Pattern::Regex(regex.clone()),
            };
        }
        locations.sort_by_key(|(location, _)| std::cmp::Reverse(location.pattern.length()));
    }
    let mut locations: Vec<Location> = locations
        .into_iter()
        .map(|(location, _)| location)
        .collect();
    // The default backend serves the requests that match no other path.
    if !locations
        .iter()
        .any(|location| location.pattern.is_everything())
    {
        locations.push(Location {
            pattern: Pattern::prefix("/"),
            uses: fallback,
        });
    }
    let hosts = match host.strip_prefix('*') {
        _ if host.is_empty() => Vec::new(),
        // In ingress-nginx, a wildcard matches exactly one label.
        Some(suffix) => vec![Host::Label(suffix.to_owned())],
        None => vec![Host::Exact(host.to_owned())],
    };
    Server {
        hosts,
        is_default: host.is_empty(),
        locations,
    }
}
