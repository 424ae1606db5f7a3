//! Reads the parts of Envoy's configuration that concern rate limits: the filters, and the routes
//! with their settings.

use serde_json::json;

use crate::actions::add_matcher;
use crate::conditions::Conditions;
use crate::locations::{Host, host_conditions};
use crate::out::{Out, Place, quoted};
use crate::yaml::At;

const LOCAL: &str = "envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit";
const GLOBAL: &str = "envoy.extensions.filters.http.ratelimit.v3.RateLimit";
const PER_ROUTE: &str = "envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute";
const NETWORK: &str = "envoy.extensions.filters.network.local_ratelimit.v3.LocalRateLimit";
const PER_FILTER: [&str; 2] = ["typed_per_filter_config", "typedPerFilterConfig"];
const VIRTUAL_HOSTS: [&str; 2] = ["virtual_hosts", "virtualHosts"];

/// Maximum number of domains with which the domains of a virtual host are compared.
const MAX_DOMAINS: usize = 256;

/// A route or virtual host.
#[derive(Clone)]
pub(crate) struct Route {
    pub(crate) name: String,
    /// Conditions that the requests of the route meet.
    pub(crate) conditions: Conditions,
    pub(crate) differences: Vec<String>,
    /// Elements of `rate_limits` that apply to the route.
    pub(crate) rate_limits: Vec<At>,
    /// Elements of the virtual host's `rate_limits` that also apply to the route.
    pub(crate) inherited: Vec<At>,
    /// Identifies the virtual host by the index of its first route.
    pub(crate) host: Option<usize>,
    /// True if this is a virtual host.
    pub(crate) is_host: bool,
    /// The route's own configuration of `local_ratelimit`, if it contains a limit.
    pub(crate) local: Option<At>,
    /// Conditions for the requests to which `local` applies. They may match more requests than
    /// `conditions`.
    pub(crate) local_conditions: Conditions,
    /// The place where the route disables `local_ratelimit`.
    pub(crate) off: Option<Place>,
    /// True if the route disables the filter for a rate limit service.
    pub(crate) is_service_off: bool,
    /// True if this is a virtual host or route configuration, and routes in it have their own
    /// `local_ratelimit` configuration.
    pub(crate) is_replaced: bool,
}

/// The filters and routes of all files.
#[derive(Default)]
pub(crate) struct Routes {
    /// Configurations of `local_ratelimit` in filter chains.
    pub(crate) local: Vec<At>,
    /// Configurations of the filter for a rate limit service.
    pub(crate) global: Vec<At>,
    /// Places of the configurations that are `disabled` in their filter chain.
    pub(crate) disabled: Vec<Place>,
    pub(crate) all: Vec<Route>,
    /// Places of both kinds of filters, in the order in which Envoy runs them.
    order: Vec<Place>,
    /// Settings that were not converted to a rule.
    lost: Vec<(Place, String)>,
}

impl Routes {
    pub(crate) fn of<'a>(documents: impl Iterator<Item = &'a At>, out: &mut Out) -> Self {
        let mut routes = Self::default();
        for document in documents {
            routes.visit(document);
        }
        for (place, message) in &routes.lost {
            out.lost(place, message);
        }
        routes
    }

    /// Returns the position of a filter in the order in which Envoy runs the rate limit filters. A
    /// route's configuration has the position of the first `local_ratelimit` filter.
    pub(crate) fn step(&self, filter: &At) -> u32 {
        let of = |place: &Place| self.order.iter().position(|other| other == place);
        let first = || of(&self.local.first()?.place());
        let step = of(&filter.place()).or_else(first).unwrap_or(0);
        u32::try_from(step).unwrap_or(u32::MAX)
    }

    /// Visits a value and the values inside it. The document's maximum depth limits the recursion.
    fn visit(&mut self, at: &At) {
        if at.value().is_array() {
            at.items().iter().for_each(|item| self.visit(item));
            return;
        }
        if let Some(config) = typed(at, LOCAL) {
            self.order.push(config.place());
            self.local.push(config);
            return;
        }
        if let Some(config) = typed(at, GLOBAL) {
            self.order.push(config.place());
            self.global.push(config);
            return;
        }
        if typed(at, NETWORK).is_some() {
            let message = "a `local_ratelimit` of connections, which has no counterpart";
            self.lost.push((at.place(), message.to_owned()));
            return;
        }
        let is_disabled = at.proto("disabled").truth() == Some(true);
        if is_disabled && typed(&at.proto("typed_config"), LOCAL).is_some_and(|own| has_limit(&own))
        {
            let message = "the limits of a filter that is `disabled`; a route that switches it on needs a rule of its own";
            self.lost.push((at.place(), message.to_owned()));
            return;
        }
        if is_disabled && let Some(config) = typed(&at.proto("typed_config"), GLOBAL) {
            self.disabled.push(config.place());
        }
        let first = self.all.len();
        let has_hosts = at.proto("virtual_hosts").exists();
        for (name, field) in at.fields() {
            if VIRTUAL_HOSTS.contains(&name.as_str()) {
                let hosts = field.items();
                let all: Vec<String> = hosts.iter().flat_map(domains).collect();
                for host in &hosts {
                    self.host(host, &all);
                }
            } else if PER_FILTER.contains(&name.as_str()) && !has_hosts {
                // A partial route in an EnvoyFilter, which patches the route.
                let local = own(at, LOCAL);
                if let Some(place) = off(at, local.as_ref()) {
                    let message = "a patch that switches `local_ratelimit` off for one route";
                    self.lost.push((place, message.to_owned()));
                }
                if let Some(local) = local.filter(has_limit) {
                    self.all.push(Route {
                        name: "route".to_owned(),
                        conditions: Conditions::default(),
                        differences: vec![
                            "the rule applies to all routes, and the source patches one route; add `match.route`".to_owned(),
                        ],
                        rate_limits: Vec::new(),
                        inherited: Vec::new(),
                        host: None,
                        is_host: false,
                        local: Some(local),
                        local_conditions: Conditions::default(),
                        off: None,
                        is_service_off: false,
                        is_replaced: false,
                    });
                }
            } else {
                self.visit(&field);
            }
        }
        // The limits of a `RouteConfiguration` apply to virtual hosts and routes without their own
        // limits.
        let local = own(at, LOCAL).filter(|_| has_hosts);
        let off = off(at, local.as_ref()).filter(|_| has_hosts);
        let local = local.filter(has_limit);
        if local.is_some() || off.is_some() {
            let is_own = |route: &Route| route.local.is_some() || route.off.is_some();
            self.all.push(Route {
                name: at.proto("name").text().unwrap_or_default(),
                conditions: Conditions::default(),
                differences: Vec::new(),
                rate_limits: Vec::new(),
                inherited: Vec::new(),
                host: None,
                is_host: false,
                local,
                local_conditions: Conditions::default(),
                off,
                is_service_off: false,
                is_replaced: self.all.iter().skip(first).any(is_own),
            });
        }
    }

    /// Adds a virtual host and its routes. `all` contains the domains of all virtual hosts.
    fn host(&mut self, host: &At, all: &[String]) {
        let mut conditions = Conditions::default();
        let mut differences = Vec::new();
        let domains = domains(host);
        if !domains.iter().any(|domain| domain == "*") {
            let hosts: Vec<Host> = domains.iter().map(|domain| domain_host(domain)).collect();
            host_conditions(&hosts.iter().collect::<Vec<_>>(), &mut conditions);
        }
        // Envoy prefers exact names to wildcards, and longer wildcards to shorter ones.
        let taken = all.iter().take(MAX_DOMAINS);
        let taken: Vec<&String> = taken
            .filter(|other| {
                !domains.contains(other) && domains.iter().any(|own| is_narrower(other, own))
            })
            .collect();
        let is_mixed = taken
            .iter()
            .any(|taken| domains.iter().any(|own| is_narrower(own, taken)));
        let mut excluded = Conditions::default();
        let hosts: Vec<Host> = taken.iter().map(|domain| domain_host(domain)).collect();
        host_conditions(&hosts.iter().collect::<Vec<_>>(), &mut excluded);
        if all.len() > MAX_DOMAINS && domains.iter().any(|own| own.contains('*')) {
            differences.push(format!(
                "the rule may also apply to hosts of other virtual hosts, because there are more than {MAX_DOMAINS} domains"
            ));
        }
        if is_mixed {
            differences.push(
                "the rule also applies to hosts of other virtual hosts, because their names overlap in both directions"
                    .to_owned(),
            );
        } else if let Some(excluded) = excluded.value() {
            conditions.exclude(excluded);
        }
        let mut rate_limits = host.proto("rate_limits").items();
        if let Some(own) = own(host, PER_ROUTE) {
            self.other_domain(&own);
            rate_limits.extend(own.proto("rate_limits").items());
        }
        let local = own(host, LOCAL);
        let first = self.all.len();
        let mut whole = Route {
            name: host.proto("name").text().unwrap_or_default(),
            conditions: conditions.clone(),
            differences,
            rate_limits,
            inherited: Vec::new(),
            host: Some(first),
            is_host: true,
            off: off(host, local.as_ref()),
            local: local.filter(has_limit),
            local_conditions: conditions.clone(),
            is_service_off: is_service_off(host),
            is_replaced: false,
        };
        // Routes to which the limits of the virtual host do not apply.
        let mut excluded = Vec::new();
        for route in host.proto("routes").items() {
            self.route(&route, (&conditions, &whole), &mut excluded);
        }
        if whole.rate_limits.is_empty() && whole.local.is_none() && whole.off.is_none() {
            return;
        }
        let mut routes = self.all.iter().skip(first);
        whole.is_replaced = routes.any(|route| route.local.is_some() || route.off.is_some());
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
        // A route's rules come before the rules of its virtual host, because they may have `stop:
        // true`.
        self.all.push(whole);
    }

    /// Warns about a route that uses a different domain from its filter.
    fn other_domain(&mut self, per_route: &At) {
        let domain = per_route.proto("domain");
        if domain.exists() {
            let message = format!(
                "`domain: {}` of a route, whose rules use the domain of the filter",
                quoted(&domain.text().unwrap_or_default())
            );
            self.lost.push((domain.place(), message));
        }
    }

    fn route(
        &mut self,
        route: &At,
        (host, whole): (&Conditions, &Route),
        excluded: &mut Vec<Conditions>,
    ) {
        let action = route.proto("route");
        let mut rate_limits = action.proto("rate_limits").items();
        let per_route = own(route, PER_ROUTE);
        if let Some(own) = &per_route {
            self.other_domain(own);
            rate_limits.extend(own.proto("rate_limits").items());
        }
        let option = per_route.map(|own| own.proto("vh_rate_limits"));
        let option = option.as_ref().and_then(At::str);
        let clusters = action.proto("weighted_clusters").proto("clusters");
        for cluster in clusters.items() {
            let is_own = own(&cluster, LOCAL).is_some() || own(&cluster, PER_ROUTE).is_some();
            if is_own || off(&cluster, None).is_some() || is_service_off(&cluster) {
                let message = "the limits of a weighted cluster, which have no counterpart";
                self.lost.push((cluster.place(), message.to_owned()));
            }
        }
        let local = own(route, LOCAL);
        let off = off(route, local.as_ref());
        let local = local.filter(has_limit);
        let is_service_off = is_service_off(route);
        let ignores = is_service_off || option == Some("IGNORE");
        if rate_limits.is_empty() && local.is_none() && off.is_none() && !ignores {
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
        let includes = action.proto("include_vh_rate_limits").truth() == Some(true)
            || option == Some("INCLUDE");
        if ignores || !rate_limits.is_empty() && !includes {
            excluded.push(conditions.clone());
        }
        let inherits = includes || rate_limits.is_empty();
        let inherited = if inherits {
            whole.rate_limits.clone()
        } else {
            Vec::new()
        };
        self.all.push(Route {
            name,
            local_conditions: conditions.clone(),
            conditions,
            differences,
            rate_limits,
            inherited,
            host: whole.host,
            is_host: false,
            local,
            off,
            is_service_off,
            is_replaced: false,
        });
    }
}

/// Returns the message of type `name`, which may be wrapped in a `TypedStruct`.
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

/// Returns the message of type `name` from `typed_per_filter_config`.
fn own(at: &At, name: &str) -> Option<At> {
    let all = at.proto("typed_per_filter_config").fields();
    all.iter().find_map(|(_, config)| {
        typed(config, name).or_else(|| typed(&config.proto("config"), name))
    })
}

/// Returns the place where a route disables `local_ratelimit`, either with `disabled` or with a
/// configuration that has no limit.
fn off(at: &At, local: Option<&At>) -> Option<Place> {
    if let Some(local) = local.filter(|local| !has_limit(local)) {
        return Some(local.place());
    }
    let all = at.proto("typed_per_filter_config").fields();
    all.iter()
        .find(|(name, config)| name.contains("local_ratelimit") && is_disabled(config))
        .map(|(_, config)| config.place())
}

/// Returns true if a route disables the filter for a rate limit service.
fn is_service_off(at: &At) -> bool {
    let all = at.proto("typed_per_filter_config").fields();
    all.iter().any(|(name, config)| {
        name.contains("ratelimit") && !name.contains("local") && is_disabled(config)
    })
}

fn is_disabled(config: &At) -> bool {
    config.proto("disabled").truth() == Some(true)
}

/// Returns false for a filter without a limit, which only enables the configurations of routes.
pub(crate) fn has_limit(filter: &At) -> bool {
    filter.proto("token_bucket").exists() || filter.proto("descriptors").exists()
}

/// Returns the domains of a virtual host.
fn domains(host: &At) -> Vec<String> {
    let domains = host.proto("domains").items();
    domains.iter().filter_map(At::text).collect()
}

/// Returns true if Envoy prefers the first domain to the second for some hosts.
fn is_narrower(one: &str, other: &str) -> bool {
    let (one, other) = (one.to_ascii_lowercase(), other.to_ascii_lowercase());
    if one == other || one == "*" {
        return false;
    }
    if let Some(suffix) = other.strip_prefix('*') {
        // Suffix wildcards take precedence over prefix wildcards.
        return suffix.is_empty() || one.ends_with(suffix) && !one.ends_with('*');
    }
    match (other.strip_suffix('*'), one.strip_prefix('*')) {
        (Some(_), Some(_)) => true,
        (Some(prefix), None) => one.starts_with(prefix),
        (None, _) => false,
    }
}

/// Parses a domain, which may have a wildcard at either end, and drops its port.
pub(crate) fn domain_host(domain: &str) -> Host {
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

/// Adds the conditions from the `match` of an Envoy route. The error describes what the conditions
/// do not test.
fn matched(route: &At, conditions: &mut Conditions) -> Result<(), String> {
    let text = |name: &str| route.proto(name).text();
    let escaped = crate::conditions::escaped;
    let without_case = if route.proto("case_sensitive").truth() != Some(false) {
        None
    } else if let Some(path) = text("path") {
        Some(escaped(&path))
    } else if let Some(prefix) = text("path_separated_prefix") {
        Some(format!("{}(?:/.*)?", escaped(&prefix)))
    } else {
        text("prefix").map(|prefix| format!("{}.*", escaped(&prefix)))
    };
    if let Some(regex) = without_case {
        conditions.path = Some(json!({ "regex": format!("(?i:{regex})") }));
    } else if let Some(path) = text("path") {
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

/// Returns a path test for a prefix that may end within a path segment, or `None` for all paths.
pub(crate) fn prefix_test(prefix: &str) -> Option<serde_json::Value> {
    match prefix {
        "" | "/" => None,
        prefix if prefix.ends_with('/') => Some(json!({ "prefix": prefix })),
        prefix => Some(json!({ "regex": format!("{}.*", crate::conditions::escaped(prefix)) })),
    }
}
