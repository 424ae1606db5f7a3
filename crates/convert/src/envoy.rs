//! Converts Envoy's `local_ratelimit` filter.
//!
//! Since version 1.31, Envoy refills these buckets continuously at `tokens_per_fill` per
//! `fill_interval`, not in steps.

use std::collections::BTreeSet;

use loudou_limiter::Nanos;
use serde_json::{Map, Value, json};

use crate::actions::{Actions, EntryValue};
use crate::conditions::{Conditions, bucket_key};
use crate::model::Model;
use crate::model::envoy::LocalBucket;
use crate::number::{proto_duration, rate};
use crate::out::{Out, Place, Rule, quoted};
use crate::routes::{Route, Routes, has_limit};
use crate::yaml::At;

/// Fields that are either converted or have no effect on verdicts.
const KNOWN: [&str; 13] = [
    "@type",
    "stat_prefix",
    "status",
    "token_bucket",
    "filter_enabled",
    "filter_enforced",
    "descriptors",
    "rate_limits",
    "always_consume_default_token_bucket",
    "enable_x_ratelimit_headers",
    "response_headers_to_add",
    "max_dynamic_descriptors",
    "rate_limited_as_resource_exhausted",
];

const KEPT: &str = "a request that one bucket refuses takes nothing from the others, and in Envoy it keeps what it took \
                    from the buckets before";

/// Warning about several rate limit filters in one configuration.
pub(crate) const ONE_AFTER_ANOTHER: &str = "Envoy asks its rate limit filters one after another, and a request that one of them \
                                            refuses keeps what it took from the filters before; here, a refused request takes nothing";

/// Converts the configurations of all filters and routes. `has_service` is true if the same rule
/// file also contains rules of a rate limit service.
pub(crate) fn convert(routes: &Routes, has_service: bool, out: &mut Out) {
    let own: Vec<&Route> = routes
        .all
        .iter()
        .filter(|route| route.local.is_some() || route.off.is_some())
        .collect();
    let filters: Vec<&At> = routes
        .local
        .iter()
        .filter(|filter| has_limit(filter))
        .collect();
    if let [first, _, ..] = filters.as_slice() {
        out.note(
            &first.place(),
            "the rules are from several filters `local_ratelimit`, and each route's own configuration here replaces all of \
             them; give each list of filters only its own rules, and check the rules that stop if one list has several \
             such filters",
        );
    }
    let has_global = has_service && !routes.global.is_empty();
    let asked_before = match (
        filters.as_slice(),
        own.iter().find(|own| own.local.is_some()),
    ) {
        ([_, second, ..], _) => Some(second.place()),
        ([one], _) if has_global => Some(one.place()),
        ([], Some(route)) if has_global => route.local.as_ref().map(At::place),
        _ => None,
    };
    if let Some(place) = asked_before {
        out.note(&place, ONE_AFTER_ANOTHER);
    }
    // In Envoy, a route's configuration replaces the configuration of its virtual host and of the
    // filter. If only one route has its own configuration, the filter's rules can exclude it with
    // `not`. If several routes have their own, their rules get `stop: true` instead.
    let is_replaced = own.iter().any(|route| route.is_replaced);
    let stops = !filters.is_empty() && own.len() > 1 || is_replaced;
    for route in &own {
        let Some(config) = &route.local else {
            if let Some(place) = route.off.as_ref().filter(|_| stops) {
                let mut rule = exempt(&route.name, place, &route.local_conditions);
                for difference in &route.differences {
                    rule.differs(difference.clone());
                }
                out.add(rule);
            }
            continue;
        };
        let mut config = Config::read(config);
        config.step = routes.step(&config.at);
        config.base = route.local_conditions.clone();
        config.differences.extend(route.differences.clone());
        if !route.name.is_empty() {
            config.name.clone_from(&route.name);
        }
        config.stops = stops;
        let actions = actions_of(&asked(route, routes), &config.at, out);
        config.rules(&actions, out);
    }
    // Routes that use the configuration of the filter.
    let is_own = |route: &&Route| route.local.is_some() || route.off.is_some();
    let hosts = own.iter().filter(|route| route.is_host);
    let hosts: BTreeSet<Option<usize>> = hosts.map(|host| host.host).collect();
    let others = routes.all.iter();
    let others = others.filter(|route| !is_own(route) && !hosts.contains(&route.host));
    let others: Vec<Route> = others.cloned().collect();
    for filter in filters {
        let mut config = Config::read(filter);
        config.step = routes.step(filter);
        match own.as_slice() {
            [route] => {
                let excluded = route.local_conditions.value();
                if !excluded.is_some_and(|excluded| config.base.exclude(excluded)) {
                    config.differences.push(
                        "the rule also applies to a route that has its own limits".to_owned(),
                    );
                }
            }
            [] => {}
            _ => config.remarks.push(
                "The rules of the routes stop, so this rule applies to the other routes only"
                    .to_owned(),
            ),
        }
        let actions = actions_of(&others, filter, out);
        config.rules(&actions, out);
    }
}

/// Returns a rule with `stop: true` that limits no request. The rule's key is the method, which
/// every request has, and an override exempts all methods.
fn exempt(name: &str, place: &Place, conditions: &Conditions) -> Rule {
    let mut rule = Rule::new(
        &format!("{name} without limit"),
        place,
        "requests to which no later rule applies",
    );
    if let Some(value) = conditions.value() {
        rule.set("match", value);
    }
    rule.set("stop", json!(true));
    rule.set("key", json!(["method"]));
    rule.set(
        "limits",
        json!([{ "algorithm": "token_bucket", "capacity": 1, "rate": "1/s" }]),
    );
    rule.set("overrides", json!({ "*": "unlimited" }));
    rule
}

/// Returns the routes whose actions apply to the configuration of a route or virtual host. For a
/// virtual host, the result omits its routes with their own configuration, because they do not use
/// the virtual host's configuration.
fn asked(own: &Route, routes: &Routes) -> Vec<Route> {
    let mut own = own.clone();
    own.rate_limits.append(&mut own.inherited);
    let Some(first) = own.host.filter(|_| own.is_host) else {
        return vec![own];
    };
    let inner = routes.all.iter().skip(first);
    let inner = inner.take_while(|route| route.host == own.host && !route.is_host);
    let inner = inner.filter(|route| route.local.is_none() && route.off.is_none());
    let mut all: Vec<Route> = inner.cloned().collect();
    all.push(own);
    all
}

/// Returns the actions in a configuration's `rate_limits`. If it has none, returns the actions of
/// the routes, each restricted to its route's conditions.
fn actions_of(routes: &[Route], config: &At, out: &mut Out) -> Vec<Actions> {
    if !config.proto("descriptors").exists() {
        return Vec::new();
    }
    let own = config.proto("rate_limits").items();
    let mut all: Vec<(At, Option<&Route>)> = Vec::new();
    if own.is_empty() {
        for route in routes {
            all.extend(
                route
                    .rate_limits
                    .iter()
                    .map(|one| (one.clone(), Some(route))),
            );
        }
    } else {
        all.extend(own.into_iter().map(|one| (one, None)));
    }
    let mut read = Vec::new();
    for (rate_limit, route) in all {
        match Actions::read(&rate_limit) {
            Ok(actions) if actions.at_end => out.lost(
                &rate_limit.place(),
                "`apply_on_stream_done`; see `cost.settle` for costs that are known at the end",
            ),
            Ok(mut actions) => {
                if let Some(route) = route {
                    actions.differences.extend(route.differences.clone());
                    actions.within(&route.conditions);
                }
                read.push(actions);
            }
            Err(what) => out.lost(
                &rate_limit.place(),
                &format!("actions with {what}, which has no counterpart"),
            ),
        }
    }
    read
}

/// A configuration of `local_ratelimit`.
struct Config {
    at: At,
    name: String,
    base: Conditions,
    mode: &'static str,
    stops: bool,
    /// Position of the filter among the rate limit filters.
    step: u32,
    differences: Vec<String>,
    remarks: Vec<String>,
}

impl Config {
    fn read(at: &At) -> Self {
        let name = at.proto("stat_prefix").text().unwrap_or_default();
        let mut differences = Vec::new();
        let mut share = |name: &str, off: &'static str| -> Option<&'static str> {
            let percent = at.proto(name);
            if percent.proto("runtime_key").exists() {
                differences.push(format!("`runtime_key` of `{name}` is ignored"));
            }
            let (numerator, whole) = fraction(&percent);
            if numerator == 0 {
                return Some(off);
            }
            if numerator < whole {
                differences.push(format!(
                    "the rule applies to all requests, and `{name}` chooses {numerator} of {whole}"
                ));
            }
            None
        };
        // Without `filter_enabled`, Envoy disables the filter; without `filter_enforced`, the
        // filter refuses no requests.
        let enabled = share("filter_enabled", "off");
        let enforced = share("filter_enforced", "shadow");
        let mode = enabled.or(enforced).unwrap_or("enforce");
        for (field, inner) in at.fields() {
            let is_known = KNOWN
                .iter()
                .any(|known| at.proto(known).exists() && at.proto(known).place() == inner.place());
            if !is_known && inner.exists() {
                let message = match field.as_str() {
                    "local_rate_limit_per_downstream_connection" | "localRateLimitPerDownstreamConnection" => {
                        if inner.truth() == Some(false) {
                            continue;
                        }
                        "each connection has a bucket of its own in Envoy, and all requests share one here; a key such as `source` is usually meant".to_owned()
                    }
                    "local_cluster_rate_limit" | "localClusterRateLimit" => {
                        "Envoy divides the limit by the size of its cluster; use `scope: fleet` for one limit".to_owned()
                    }
                    other => format!("`{}` is ignored", quoted(other)),
                };
                differences.push(message);
            }
        }
        Self {
            at: at.clone(),
            name,
            base: Conditions::default(),
            mode,
            stops: false,
            step: 0,
            differences,
            remarks: Vec::new(),
        }
    }

    /// Adds the rules for the descriptors and the default bucket.
    fn rules(&self, actions: &[Actions], out: &mut Out) {
        let consumes = self.at.proto("always_consume_default_token_bucket").truth() != Some(false);
        let default = self.at.proto("token_bucket");
        let descriptors = self.at.proto("descriptors").items();
        let mut rules = Vec::new();
        for descriptor in &descriptors {
            rules.extend(self.descriptor(descriptor, &descriptors, actions, out));
        }
        let several = rules.len().saturating_add(usize::from(default.exists())) > 1;
        let is_one = rules.len() == 1;
        let is_shadow = self.mode != "enforce";
        for mut rule in rules {
            if several {
                rule.differs(KEPT);
            }
            if !consumes && default.exists() && is_one && !is_shadow {
                rule.remark("It stops, because `always_consume_default_token_bucket` is false");
                rule.set("stop", json!(true));
            }
            out.add(rule);
        }
        // A rule in shadow mode does not end the evaluation, so a separate exempt rule does.
        let exempts = self.stops && (is_shadow || !default.exists());
        let exempt = exempt(&self.name, &self.at.place(), &self.base);
        if !default.exists() {
            if exempts {
                out.add(exempt);
            }
            return;
        }
        let mut rule = self.rule(&self.name, &default, &self.base);
        if !consumes && several && (!is_one || is_shadow) {
            rule.differs(
                "the rule also counts requests that a descriptor counts, and Envoy counts only the others",
            );
        }
        for counting in &mut rule.counted.limits {
            if let Model::LocalBucket(bucket) = &mut counting.model {
                bucket.is_default = true;
            }
        }
        rule.set("key", json!([]));
        if self.stops && !is_shadow {
            rule.set("stop", json!(true));
        }
        out.add(rule);
        if exempts {
            out.add(exempt);
        }
    }

    /// Returns a rule with the limit of an Envoy token bucket.
    fn rule(&self, name: &str, bucket: &At, conditions: &Conditions) -> Rule {
        let max = bucket.proto("max_tokens").number().unwrap_or(0);
        let fill = bucket.proto("tokens_per_fill").number().unwrap_or(1);
        let interval = bucket.proto("fill_interval");
        let interval = interval.str().unwrap_or_default();
        let original = format!(
            "token_bucket max_tokens: {max}, tokens_per_fill: {fill}, fill_interval: {interval}"
        );
        let mut rule = Rule::new(name, &bucket.place(), &original);
        // An invalid duration counts as 0 and gives an invalid rate, so a warning replaces the
        // rule.
        let nanos = proto_duration(interval).unwrap_or(0);
        rule.set(
            "limits",
            json!([{ "algorithm": "token_bucket", "capacity": max, "rate": rate(fill, nanos) }]),
        );
        let model = LocalBucket::new(max, fill, Nanos::new(nanos));
        rule.counts(bucket.place().to_string(), Model::LocalBucket(model));
        rule.in_step(self.step);
        if let Some(value) = conditions.value() {
            rule.set("match", value);
        }
        if self.mode != "enforce" {
            rule.set("mode", json!(self.mode));
        }
        rule.remarks.extend(self.remarks.clone());
        for difference in &self.differences {
            rule.differs(difference.clone());
        }
        self.answer(&mut rule);
        rule
    }

    fn answer(&self, rule: &mut Rule) {
        let mut refuse = Map::new();
        let status = status(&self.at.proto("status"));
        // If the configured status is below 400, Envoy answers with 429 instead.
        if let Some(status) = status.filter(|status| *status >= 400 && *status != 429) {
            refuse.insert("status".to_owned(), json!(status));
        }
        let mut headers = Map::new();
        for header in self.at.proto("response_headers_to_add").items() {
            let header = header.proto("header");
            let text = |name: &str| header.proto(name).text().unwrap_or_default();
            let (name, value) = (text("key"), text("value"));
            if value.contains('%') {
                rule.differs(format!(
                    "the header `{}` has no fixed value and is left out",
                    quoted(&name)
                ));
            } else {
                headers.insert(name, json!(value));
            }
        }
        if !headers.is_empty() {
            refuse.insert("headers".to_owned(), Value::Object(headers));
        }
        if !refuse.is_empty() {
            rule.set("refuse", Value::Object(refuse));
        }
        if self.at.proto("enable_x_ratelimit_headers").str() == Some("DRAFT_VERSION_03") {
            rule.set("respond", json!({ "ratelimit_headers": "legacy" }));
        }
    }

    /// Returns the rules for a descriptor, one for each list of actions that produces it.
    fn descriptor(
        &self,
        descriptor: &At,
        all: &[At],
        actions: &[Actions],
        out: &mut Out,
    ) -> Vec<Rule> {
        let entries = pairs(descriptor);
        let words: Vec<String> = entries
            .iter()
            .map(|(key, value)| {
                if value.is_empty() {
                    key.clone()
                } else {
                    format!("{key}={value}")
                }
            })
            .collect();
        let words = words.join(", ");
        let mut rules = Vec::new();
        for list in actions {
            let Some((mut conditions, is_met)) = meet(&self.base, &list.conditions) else {
                continue;
            };
            let Some((parts, is_exact)) = made(list, &entries, &mut conditions) else {
                continue;
            };
            let name = format!("{}-{words}", self.name);
            let mut rule = self.rule(&name, &descriptor.proto("token_bucket"), &conditions);
            rule.originals = vec![(
                descriptor.place(),
                format!("descriptor {}: {}", quoted(&words), rule.original()),
            )];
            if !is_exact || !is_met {
                rule.differs("the rule does not test all conditions of the descriptor, because two conditions exclude each other in one `match`");
            }
            for difference in &list.differences {
                rule.differs(difference.clone());
            }
            // A descriptor with values takes precedence over a descriptor without values.
            let overrides = more_exact(all, &entries);
            if !overrides.is_empty() {
                rule.set("overrides", Value::Object(overrides));
            }
            rule.set("key", json!(parts));
            if let Some(cost) = &list.cost {
                rule.set("cost", cost.clone());
            }
            if descriptor.proto("shadow_mode").truth() == Some(true) {
                rule.set("mode", json!("shadow"));
            }
            rules.push(rule);
        }
        if rules.is_empty() {
            let message = format!(
                "descriptor {}: no `rate_limits` in the given files make it",
                quoted(&words)
            );
            out.lost(&descriptor.place(), &message);
        }
        rules
    }
}

/// Returns the status code of an `HttpStatus`, which may be given as a number or a name.
pub(crate) fn status(at: &At) -> Option<u64> {
    let code = at.proto("code");
    let Some(name) = code.str() else {
        return code.number();
    };
    Some(match name {
        "BadRequest" => 400,
        "Unauthorized" => 401,
        "PaymentRequired" => 402,
        "Forbidden" => 403,
        "NotFound" => 404,
        "MethodNotAllowed" => 405,
        "NotAcceptable" => 406,
        "RequestTimeout" => 408,
        "Conflict" => 409,
        "Gone" => 410,
        "PreconditionFailed" => 412,
        "PayloadTooLarge" => 413,
        "ExpectationFailed" => 417,
        "MisdirectedRequest" => 421,
        "UnprocessableEntity" => 422,
        "Locked" => 423,
        "FailedDependency" => 424,
        "UpgradeRequired" => 426,
        "PreconditionRequired" => 428,
        "TooManyRequests" => 429,
        "RequestHeaderFieldsTooLarge" => 431,
        "InternalServerError" => 500,
        "NotImplemented" => 501,
        "BadGateway" => 502,
        "ServiceUnavailable" => 503,
        "GatewayTimeout" => 504,
        "InsufficientStorage" => 507,
        _ => return code.number(),
    })
}

/// Combines the conditions of a route and of its actions. Returns `None` if no request can meet
/// both. The flag is false if the combination omits a condition and therefore matches too many
/// requests.
fn meet(base: &Conditions, actions: &Conditions) -> Option<(Conditions, bool)> {
    let routes = (&base.route, &actions.route);
    if let (Some(one), Some(other)) = routes
        && one != other
    {
        return None;
    }
    let mut joined = actions.clone();
    let is_met = joined.meet(base);
    Some((joined, is_met))
}

/// Returns the key-value pairs of a descriptor.
fn pairs(descriptor: &At) -> Vec<(String, String)> {
    let entries = descriptor.proto("entries").items();
    let pairs = entries.iter().map(|entry| {
        let text = |name: &str| entry.proto(name).text().unwrap_or_default();
        (text("key"), text("value"))
    });
    pairs.collect()
}

/// Returns the key parts for a descriptor that the actions produce, or `None` if they do not
/// produce it. The flag is false if the match cannot test one of the descriptor's values.
fn made(
    actions: &Actions,
    entries: &[(String, String)],
    conditions: &mut Conditions,
) -> Option<(Vec<Value>, bool)> {
    if actions.entries.len() != entries.len() {
        return None;
    }
    let mut parts = Vec::new();
    let mut is_exact = true;
    for (action, (key, value)) in actions.entries.iter().zip(entries) {
        if action.key != *key {
            return None;
        }
        match &action.value {
            EntryValue::Fixed(fixed) if value.is_empty() || fixed == value => {}
            EntryValue::Fixed(_) => return None,
            EntryValue::Of(input) if value.is_empty() => parts.push(input.part()),
            EntryValue::Of(input) => {
                is_exact &= input.require(std::slice::from_ref(value), conditions);
            }
        }
    }
    Some((parts, is_exact))
}

/// Returns overrides that exempt the keys for which more specific descriptors exist.
fn more_exact(all: &[At], entries: &[(String, String)]) -> Map<String, Value> {
    let mut overrides = Map::new();
    if entries.iter().all(|(_, value)| !value.is_empty()) {
        return overrides;
    }
    for other in all {
        let other = pairs(other);
        let is_same_but = other.len() == entries.len()
            && other
                .iter()
                .zip(entries)
                .all(|((key, value), (mine, given))| {
                    key == mine && !value.is_empty() && (given.is_empty() || given == value)
                });
        if is_same_but {
            let values: Vec<String> = other
                .iter()
                .zip(entries)
                .filter(|(_, (_, given))| given.is_empty())
                .map(|((_, value), _)| value.clone())
                .collect();
            overrides.insert(bucket_key(&values), json!("unlimited"));
        }
    }
    overrides
}

/// Returns the numerator and the denominator of Envoy's `RuntimeFractionalPercent`.
pub(crate) fn fraction(percent: &At) -> (u64, u64) {
    let default = percent.proto("default_value");
    let numerator = default.proto("numerator").number().unwrap_or(0);
    let whole = match default.proto("denominator").str() {
        Some("TEN_THOUSAND") => 10_000,
        Some("MILLION") => 1_000_000,
        _ => 100,
    };
    (numerator, whole)
}
