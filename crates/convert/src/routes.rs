//! The parts of Envoy's configuration that belong to rate limits: the filters, and the routes with
//! their settings.

use serde_json::json;

use crate::actions::add_matcher;
use crate::conditions::Conditions;
use crate::locations::{Host, host_conditions};
use crate::out::quoted;
use crate::yaml::At;

const LOCAL: &str = "envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit";
const GLOBAL: &str = "envoy.extensions.filters.http.ratelimit.v3.RateLimit";
const PER_ROUTE: &str = "envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute";
const PER_FILTER: [&str; 2] = ["typed_per_filter_config", "typedPerFilterConfig"];
const VIRTUAL_HOSTS: [&str; 2] = ["virtual_hosts", "virtualHosts"];

/// A route or virtual host.
#[derive(Clone)]
pub(crate) struct Route {
    pub(crate) name: String,
    /// Requests that it serves.
    pub(crate) conditions: Conditions,
    pub(crate) differences: Vec<String>,
    /// Elements of `rate_limits` that apply to it.
    pub(crate) rate_limits: Vec<At>,
    /// Its own configuration of `local_ratelimit`.
    pub(crate) local: Option<At>,
    /// True if it switches `local_ratelimit` off.
    pub(crate) is_off: bool,
}

/// The filters and routes of all files.
#[derive(Default)]
pub(crate) struct Routes {
    /// Configurations of `local_ratelimit` in lists of filters.
    pub(crate) local: Vec<At>,
    /// Configurations of the filter for a rate limit service.
    pub(crate) global: Vec<At>,
    pub(crate) all: Vec<Route>,
}

impl Routes {
    pub(crate) fn of<'a>(documents: impl Iterator<Item = &'a At>) -> Self {
        let mut routes = Self::default();
        for document in documents {
            routes.visit(document);
        }
        routes
    }

    /// Visits a value. The document's depth bounds the recursion.
    fn visit(&mut self, at: &At) {
        if at.value().is_array() {
            at.items().iter().for_each(|item| self.visit(item));
            return;
        }
        if let Some(config) = typed(at, LOCAL) {
            self.local.push(config);
            return;
        }
        if let Some(config) = typed(at, GLOBAL) {
            self.global.push(config);
            return;
        }
        for (name, field) in at.fields() {
            if VIRTUAL_HOSTS.contains(&name.as_str()) {
                field.items().iter().for_each(|host| self.host(host));
            } else if PER_FILTER.contains(&name.as_str()) {
                // A part of a route that an EnvoyFilter adds.
                if let Some(local) = own(at, LOCAL) {
                    self.all.push(Route {
                        name: "route".to_owned(),
                        conditions: Conditions::default(),
                        differences: vec![
                            "the rule applies to all routes, and the source patches one route; add `match.route`".to_owned(),
                        ],
                        rate_limits: Vec::new(),
                        local: Some(local),
                        is_off: false,
                    });
                }
            } else {
                self.visit(&field);
            }
        }
    }

    fn host(&mut self, host: &At) {
        let mut conditions = Conditions::default();
        let domains = host.proto("domains").items();
        let domains: Vec<String> = domains.iter().filter_map(At::text).collect();
        if !domains.iter().any(|domain| domain == "*") {
            let hosts: Vec<Host> = domains.iter().map(|domain| domain_host(domain)).collect();
            host_conditions(&hosts.iter().collect::<Vec<_>>(), &mut conditions);
        }
        let mut whole = Route {
            name: host.proto("name").text().unwrap_or_default(),
            conditions: conditions.clone(),
            differences: Vec::new(),
            rate_limits: host.proto("rate_limits").items(),
            local: own(host, LOCAL),
            is_off: is_off(host),
        };
        // Routes to which the limits of the virtual host do not apply.
        let mut excluded = Vec::new();
        let first = self.all.len();
        for route in host.proto("routes").items() {
            self.route(&route, &conditions, &mut excluded);
        }
        if whole.rate_limits.is_empty() && whole.local.is_none() && !whole.is_off {
            return;
        }
        let is_excluded = match excluded.as_slice() {
            [] => true,
            [one] => {
                let one = one.value();
                one.is_some_and(|one| whole.conditions.exclude(one))
            }
            _ => false,
        };
        if !is_excluded && !whole.rate_limits.is_empty() {
            whole.differences.push(
                "the rule also applies to routes that replace the limits of their virtual host, because a match has only one \
                 `not`"
                    .to_owned(),
            );
        }
        self.all.insert(first, whole);
    }

    fn route(&mut self, route: &At, host: &Conditions, excluded: &mut Vec<Conditions>) {
        let action = route.proto("route");
        let mut rate_limits = action.proto("rate_limits").items();
        if let Some(own) = own(route, PER_ROUTE) {
            rate_limits.extend(own.proto("rate_limits").items());
        }
        let (local, is_off) = (own(route, LOCAL), is_off(route));
        if rate_limits.is_empty() && local.is_none() && !is_off {
            return;
        }
        let mut differences = Vec::new();
        let name = route.proto("name").text().unwrap_or_default();
        let mut conditions = Conditions::default();
        if name.is_empty() {
            conditions.clone_from(host);
            differences.push(
                "the route has no name, so the rule also applies to such requests of earlier routes; name the route and \
                 use `match.route`"
                    .to_owned(),
            );
            if let Err(what) = matched(&route.proto("match"), &mut conditions) {
                differences.push(format!("the rule does not test {what}"));
            }
        } else {
            conditions.route = Some(json!({ "exact": name }));
        }
        let includes = action.proto("include_vh_rate_limits").truth() == Some(true);
        if !rate_limits.is_empty() && !includes {
            excluded.push(conditions.clone());
        }
        self.all.push(Route {
            name,
            conditions,
            differences,
            rate_limits,
            local,
            is_off,
        });
    }
}

/// Returns a message of this type, which may be in a `TypedStruct`.
fn typed(at: &At, name: &str) -> Option<At> {
    let is = |field: &At| {
        let url = field.str();
        url.is_some_and(|url| url.rsplit('/').next() == Some(name))
    };
    if is(&at.get("@type")) {
        return Some(at.clone());
    }
    is(&at.proto("type_url")).then(|| at.proto("value"))
}

/// Returns the message of this type in `typed_per_filter_config`.
fn own(at: &At, name: &str) -> Option<At> {
    let all = at.proto("typed_per_filter_config").fields();
    all.iter().find_map(|(_, config)| {
        typed(config, name).or_else(|| typed(&config.proto("config"), name))
    })
}

/// Returns true if `typed_per_filter_config` switches the filter off.
fn is_off(at: &At) -> bool {
    let all = at.proto("typed_per_filter_config").fields();
    all.iter().any(|(name, config)| {
        name.contains("local_ratelimit") && config.proto("disabled").truth() == Some(true)
    })
}

fn domain_host(domain: &str) -> Host {
    let domain = domain.to_ascii_lowercase();
    let domain = domain.split(':').next().unwrap_or_default();
    if let Some(suffix) = domain.strip_prefix('*') {
        Host::Suffix(suffix.to_owned())
    } else if let Some(prefix) = domain.strip_suffix('*') {
        Host::Prefix(prefix.to_owned())
    } else {
        Host::Exact(domain.to_owned())
    }
}

/// Adds the conditions of a route's match. The error says what is not tested.
fn matched(route: &At, conditions: &mut Conditions) -> Result<(), String> {
    let text = |name: &str| route.proto(name).text();
    if let Some(path) = text("path") {
        conditions.path = Some(json!({ "exact": path }));
    } else if let Some(prefix) = text("path_separated_prefix") {
        conditions.path = Some(json!({ "prefix": prefix }));
    } else if let Some(prefix) = text("prefix") {
        conditions.path = prefix_test(&prefix);
    } else if let Some(regex) = route.proto("safe_regex").proto("regex").text() {
        conditions.path = Some(json!({ "regex": regex }));
    }
    for matcher in route.proto("headers").items() {
        add_matcher(&matcher, true, conditions)?;
    }
    for matcher in route.proto("query_parameters").items() {
        add_matcher(&matcher, false, conditions)?;
    }
    let known = [
        "path",
        "path_separated_prefix",
        "prefix",
        "safe_regex",
        "headers",
        "query_parameters",
        "case_sensitive",
    ];
    let other = route.fields();
    let other = other
        .iter()
        .find(|(name, _)| !known.contains(&name.as_str()));
    match other {
        Some((name, _)) => Err(format!("`{}` of the route's match", quoted(name))),
        None => Ok(()),
    }
}

/// Returns a test of a path for a prefix that may end within a segment.
pub(crate) fn prefix_test(prefix: &str) -> Option<serde_json::Value> {
    match prefix {
        "" | "/" => None,
        prefix if prefix.ends_with('/') => Some(json!({ "prefix": prefix })),
        prefix => Some(json!({ "regex": format!("{}.*", crate::conditions::escaped(prefix)) })),
    }
}
