//! Converts Spring Cloud Gateway's `RequestRateLimiter` filter, which is configured in properties
//! or YAML.
//!
//! The filter's Redis script counts time in whole seconds and adds `replenishRate` tokens per
//! second. This corresponds to a token bucket with `refill: interval` and `align: clock`.

use std::collections::BTreeMap;
use std::rc::Rc;

use loudou_check::document::Position;
use serde_json::{Value, json};

use crate::conditions::{Conditions, named};
use crate::model::Model;
use crate::model::spring::Limiter;
use crate::out::{Out, Place, Rule, quoted};
use crate::yaml::At;

/// Prefixes of the gateway's properties, for all versions. The longer prefix comes first, because
/// it starts with the shorter one.
const ROOTS: [&str; 2] = [
    "spring.cloud.gateway.server.webflux.",
    "spring.cloud.gateway.",
];

/// Returns true if a text contains properties of Spring Cloud Gateway.
pub(crate) fn looks_like(text: &str) -> bool {
    text.lines().any(|line| {
        let line = line.trim_start();
        line.starts_with("spring.cloud.gateway.") && line.contains(['=', ':']) && line.contains('[')
    })
}

/// Returns true if a YAML document contains properties of Spring.
pub(crate) fn looks_like_document(document: &At) -> bool {
    document.get("spring").exists()
        || document
            .fields()
            .iter()
            .any(|(name, _)| name.starts_with("spring."))
}

/// Maximum number of routes. It is bounded because each route is compared with all earlier routes.
const MAX_ROUTES: usize = 1_000;

/// Arguments of a filter, by name.
type Args = BTreeMap<String, String>;

/// A route, independent of the format in which it was written.
#[derive(Clone, Debug, Default)]
struct Route {
    id: String,
    predicates: Vec<String>,
    /// Spring tries routes with lower numbers first.
    order: i64,
    limiters: Vec<(Place, Args)>,
}

/// Returns all values at a path of field names. A single key such as `a.b` may cover several steps
/// of the path.
fn dig(at: &At, path: &[&str]) -> Vec<At> {
    if path.is_empty() {
        return vec![at.clone()];
    }
    let mut found = Vec::new();
    for (name, inner) in at.fields() {
        let steps: Vec<&str> = name.split('.').collect();
        if let Some(rest) = path.strip_prefix(steps.as_slice()) {
            found.extend(dig(&inner, rest));
        }
    }
    found
}

/// Converts a YAML document.
pub(crate) fn document(document: &At, out: &mut Out) {
    let (mut routes, mut defaults) = (Vec::new(), Vec::new());
    for gateway in ROOTS {
        let list = |name: &str| -> Vec<At> {
            let path: Vec<&str> = gateway.split_terminator('.').chain([name]).collect();
            dig(document, &path).iter().flat_map(At::items).collect()
        };
        for filter in list("default-filters") {
            defaults.extend(limiter(&filter).map(|args| (filter.place(), args)));
        }
        for route in list("routes") {
            let predicates = route.get("predicates").items();
            let filters = route.get("filters").items();
            let order = route.get("order").text();
            routes.push(Route {
                id: route.get("id").text().unwrap_or_default(),
                predicates: predicates.iter().map(predicate).collect(),
                order: order.and_then(|order| order.parse().ok()).unwrap_or(0),
                limiters: filters
                    .iter()
                    .filter_map(|filter| Some((filter.place(), limiter(filter)?)))
                    .collect(),
            });
        }
    }
    for profile in dig(document, &["spring", "config", "activate", "on-profile"]) {
        let message = format!(
            "the rules always apply, and their source only in the profile {}",
            quoted(&profile.json())
        );
        out.note(&profile.place(), &message);
    }
    if !add_all(routes, &defaults, out) {
        out.note(
            &document.place(),
            "no filter `RequestRateLimiter` in a list of routes",
        );
    }
}

/// Adds the rules for all routes. Returns false if no route has a rate limiter.
fn add_all(mut routes: Vec<Route>, defaults: &[(Place, Args)], out: &mut Out) -> bool {
    if let (true, [(place, _), ..]) = (routes.is_empty(), defaults) {
        out.lost(place, "a default filter without a list of routes");
        return true;
    }
    if let (true, Some((place, _))) = (
        routes.len() > MAX_ROUTES,
        routes
            .iter()
            .find_map(|route| route.limiters.first())
            .or_else(|| defaults.first()),
    ) {
        let message = format!("more than {MAX_ROUTES} routes; convert fewer routes at once");
        out.lost(place, &message);
        return true;
    }
    routes.sort_by_key(|route| route.order);
    let mut found = false;
    for (index, route) in routes.iter().enumerate() {
        let earlier: Vec<&Route> = routes.iter().take(index).collect();
        let limiters: Vec<&(Place, Args)> = defaults.iter().chain(&route.limiters).collect();
        found |= !limiters.is_empty();
        add_route(route, &earlier, &limiters, out);
    }
    found
}

/// Returns true if a request may satisfy the path predicates of both routes.
fn overlaps(one: &Route, other: &Route) -> bool {
    let starts = |route: &Route| -> Vec<String> {
        let paths = route.predicates.iter();
        let paths = paths.filter_map(|predicate| predicate.strip_prefix("Path="));
        let paths = paths.flat_map(|paths| paths.split(','));
        paths
            .map(|path| {
                let path = path.trim();
                let end = path.find(['*', '{', '?']).unwrap_or(path.len());
                // `/api/**` also matches `/api`.
                let start = path.get(..end).unwrap_or_default();
                start.trim_end_matches('/').to_owned()
            })
            .collect()
    };
    let (one, other) = (starts(one), starts(other));
    one.is_empty()
        || other.is_empty()
        || one.iter().any(|one| {
            other
                .iter()
                .any(|other| one.starts_with(other.as_str()) || other.starts_with(one.as_str()))
        })
}

/// Returns the short form of a predicate, `NAME=VALUES`.
fn predicate(at: &At) -> String {
    if let Some(text) = at.text() {
        return text;
    }
    let args: Vec<String> = at
        .get("args")
        .fields()
        .iter()
        .filter_map(|(_, value)| value.text())
        .collect();
    format!(
        "{}={}",
        at.get("name").text().unwrap_or_default(),
        args.join(",")
    )
}

/// Returns the arguments of a filter if it is a `RequestRateLimiter`.
fn limiter(filter: &At) -> Option<Args> {
    if let Some(text) = filter.str() {
        let (name, args) = text.split_once('=').unwrap_or((text, ""));
        return (name.trim() == "RequestRateLimiter").then(|| short_form(args));
    }
    if filter.get("name").str() != Some("RequestRateLimiter") {
        return None;
    }
    let mut all = BTreeMap::new();
    for (name, value) in filter.get("args").fields() {
        match value.text() {
            Some(text) => {
                all.insert(name, text);
            }
            // The value is an object with its own fields, such as `redis-rate-limiter`.
            None => {
                for (inner, value) in value.fields() {
                    all.insert(format!("{name}.{inner}"), value.text().unwrap_or_default());
                }
            }
        }
    }
    Some(all)
}

/// Parses arguments in short form, such as `2, 2, #{@resolver}`: the rate, the burst and the key
/// resolver.
fn short_form(args: &str) -> Args {
    let names = [
        "redis-rate-limiter.replenishRate",
        "redis-rate-limiter.burstCapacity",
        "key-resolver",
    ];
    let args = args.split(',').map(|arg| arg.trim().to_owned());
    names
        .iter()
        .map(|name| (*name).to_owned())
        .zip(args)
        .collect()
}

/// Converts a properties file.
pub(crate) fn properties(file: &Rc<str>, text: &str, out: &mut Out) {
    let mut filters: BTreeMap<(Option<usize>, usize), (Place, Args)> = BTreeMap::new();
    let mut routes: BTreeMap<usize, Route> = BTreeMap::new();
    for (line, text) in (1..).zip(text.lines()) {
        let place = Place::new(file, Position { line, column: 1 });
        let text = text.trim();
        let Some((name, value)) = text.split_once(['=', ':']) else {
            continue;
        };
        let (name, value) = (name.trim(), value.trim());
        if name.starts_with('#') || name.starts_with('!') {
            continue;
        }
        let Some(rest) = ROOTS.iter().find_map(|root| name.strip_prefix(root)) else {
            continue;
        };
        let (route, filter) = if let Some(rest) = rest.strip_prefix("default-filters") {
            (None, numbered(rest))
        } else {
            let Some((number, rest)) = rest.strip_prefix("routes").and_then(numbered) else {
                continue;
            };
            let route = routes.entry(number).or_default();
            if rest == ".id" {
                value.clone_into(&mut route.id);
            } else if rest == ".order" {
                route.order = value.parse().unwrap_or(0);
            } else if rest.starts_with(".predicates[") {
                route.predicates.push(value.to_owned());
            }
            (
                Some(number),
                rest.strip_prefix(".filters").and_then(numbered),
            )
        };
        if let Some((filter, rest)) = filter {
            let entry = filters.entry((route, filter));
            let (_, entry) = entry.or_insert_with(|| (place, Args::new()));
            let name = rest.trim_start_matches(['.', '[']).trim_end_matches(']');
            let name = name
                .strip_prefix("args.")
                .or_else(|| name.strip_prefix("args["))
                .unwrap_or(name);
            let (short, args) = value.split_once('=').unwrap_or((value, ""));
            if name.is_empty() && short == "RequestRateLimiter" {
                *entry = short_form(args);
                entry.insert("name".to_owned(), short.to_owned());
            } else {
                entry.insert(name.to_owned(), value.to_owned());
            }
        }
    }
    let mut defaults = Vec::new();
    for ((number, _), filter) in filters {
        if filter.1.get("name").map(String::as_str) != Some("RequestRateLimiter") {
            continue;
        }
        match number.and_then(|number| routes.get_mut(&number)) {
            Some(route) => route.limiters.push(filter),
            None => defaults.push(filter),
        }
    }
    add_all(routes.into_values().collect(), &defaults, out);
}

/// Splits a name such as `[3].rest` into its index and the rest.
fn numbered(text: &str) -> Option<(usize, &str)> {
    let (number, rest) = text.strip_prefix('[')?.split_once(']')?;
    Some((number.parse().ok()?, rest))
}

/// Returns the argument with the given name. Spring also accepts argument names in kebab case.
fn find<'a>(args: &'a Args, name: &str) -> Option<&'a str> {
    let plain = |text: &str| text.replace(['-', '_'], "").to_ascii_lowercase();
    let mut all = args.iter();
    let found = all.find(|(key, _)| plain(key).rsplit('.').next() == Some(&plain(name)));
    found.map(|(_, value)| value.as_str())
}

/// Adds the rules for a route. Spring runs all filters of the route, default filters first. If
/// several filters set a rate, burst or cost, Spring applies the settings of the last one to all
/// filters.
fn add_route(route: &Route, earlier: &[&Route], limiters: &[&(Place, Args)], out: &mut Out) {
    let has_numbers = |(_, args): &&&(Place, Args)| {
        let names = ["replenishRate", "burstCapacity", "requestedTokens"];
        names.iter().any(|name| find(args, name).is_some())
    };
    let Some((_, numbers)) = limiters
        .iter()
        .rfind(has_numbers)
        .or_else(|| limiters.first())
    else {
        return;
    };
    let resolver = |args: &Args| find(args, "keyResolver").map(str::to_owned);
    let mut keys: Vec<Option<String>> = Vec::new();
    for (step, (place, args)) in (0..).zip(limiters) {
        // Filters with the same key resolver share a bucket.
        let key = resolver(args);
        if keys.contains(&key) {
            continue;
        }
        let same = limiters.iter();
        let same: Vec<&&(Place, Args)> = same.filter(|(_, args)| resolver(args) == key).collect();
        let mut differences = Vec::new();
        if limiters.len() > 1 {
            differences.push(format!(
                "{} filters limit the route, Spring uses the numbers of the last for all of them, and a request that one \
                 filter refuses keeps what it took from the filters before; here, a refused request takes nothing",
                limiters.len()
            ));
        }
        let filter = Filter {
            place,
            args,
            numbers,
            step,
            many: u64::try_from(same.len()).unwrap_or(u64::MAX),
            denies: same.iter().any(|(_, args)| denies(args)),
            differences,
        };
        keys.push(key);
        add(route, earlier, &filter, out);
    }
}

/// Returns true if a filter refuses requests without a key.
fn denies(args: &Args) -> bool {
    let text = find(args, "denyEmptyKey").map(str::to_ascii_lowercase);
    !matches!(text.as_deref(), Some("false" | "no" | "off" | "0"))
}

/// Filters of a route that share a bucket.
struct Filter<'a> {
    place: &'a Place,
    args: &'a Args,
    /// Arguments of the filter from which Spring takes the numbers.
    numbers: &'a Args,
    step: u32,
    /// Number of filters that share the bucket.
    many: u64,
    /// True if one of the filters refuses requests without a key.
    denies: bool,
    differences: Vec<String>,
}

impl Filter<'_> {
    /// Sets the response to refused requests.
    fn answer(&self, rule: &mut Rule) {
        let find = |name: &str| find(self.args, name);
        // By default, Spring answers requests without a key with 403.
        for name in ["statusCode", "emptyKeyStatus"] {
            if let Some(text) = find(name).filter(|text| status_of(text).is_none()) {
                rule.differs(format!("`{name}: {}` is ignored", quoted(text)));
            }
        }
        let status = find("statusCode").and_then(status_of).unwrap_or(429);
        if self.denies {
            rule.set("on_missing_key", json!("refuse"));
            let empty = find("emptyKeyStatus").and_then(status_of).unwrap_or(403);
            rule.set(
                "refuse",
                json!({ "status": status, "status_without_key": empty }),
            );
        } else {
            rule.status(status);
        }
    }
}

/// Adds the rule for a group of filters that share a bucket.
fn add(route: &Route, earlier: &[&Route], filter: &Filter<'_>, out: &mut Out) {
    let Filter { place, args, .. } = *filter;
    let find = |name: &str| find(args, name);
    let number = |name: &str| {
        let text = self::find(filter.numbers, name);
        text.and_then(|text| text.parse::<u64>().ok())
    };
    let words: Vec<String> = args
        .iter()
        .filter(|(name, _)| *name != "name")
        .map(|(name, value)| format!("{}: {value}", name.rsplit('.').next().unwrap_or(name)))
        .collect();
    let original = format!(
        "route {}, RequestRateLimiter {}",
        route.id,
        words.join(", ")
    );
    let mut rule = Rule::new(&route.id, place, &original);
    let (Some(rate), burst) = (number("replenishRate"), number("burstCapacity")) else {
        let message = format!(
            "{}: expected `replenishRate` as a whole number",
            rule.original()
        );
        out.lost(place, &message);
        return;
    };
    for difference in &filter.differences {
        rule.differs(difference.clone());
    }
    let mut conditions = Conditions::default();
    for predicate in &route.predicates {
        if let Err(why) = restrict(predicate, &mut conditions) {
            rule.differs(format!(
                "the rule does not test the predicate `{}`{why}",
                quoted(predicate)
            ));
        }
    }
    // Spring uses the first route that matches, so the rule excludes the requests of earlier
    // routes.
    for other in earlier.iter().filter(|other| overlaps(other, route)) {
        let mut its = Conditions::default();
        let mut predicates = other.predicates.iter();
        let is_exact = predicates.all(|predicate| restrict(predicate, &mut its).is_ok());
        let its = its.value().filter(|_| is_exact);
        if !its.is_some_and(|its| conditions.exclude(its)) {
            rule.differs(format!(
                "the rule may also count requests of the route `{}`, which Spring tries first",
                quoted(&other.id)
            ));
        }
    }
    if let Some(value) = conditions.value() {
        rule.set("match", value);
    }
    let (part, difference) = resolver(find("keyResolver"));
    rule.set("key", json!([part]));
    rule.differs(difference);
    rule.set("scope", json!("fleet"));
    rule.set(
        "limits",
        json!([{
            "algorithm": "token_bucket",
            "capacity": burst.unwrap_or(1),
            "rate": format!("{rate}/s"),
            "refill": "interval",
            "align": "clock",
        }]),
    );
    let capacity = burst.unwrap_or(1);
    let limiter = Limiter {
        rate,
        capacity,
        filters: filter.many,
    };
    if limiter.forgets() {
        rule.differs(
            "Spring's script keeps nothing with these numbers, because twice the time to fill the bucket is below a second, so it limits nothing",
        );
    }
    let counter = format!("{} {}", route.id, find("keyResolver").unwrap_or_default());
    rule.counts(counter, Model::Limiter(limiter));
    rule.in_step(filter.step);
    let cost = number("requestedTokens").unwrap_or(1);
    let cost = cost.saturating_mul(filter.many);
    if cost != 1 {
        rule.set("cost", json!(cost));
    }
    filter.answer(&mut rule);
    out.add(rule);
}

/// Parses a status code, given as a number or by its name in Spring.
fn status_of(text: &str) -> Option<u64> {
    match text {
        "TOO_MANY_REQUESTS" => Some(429),
        "SERVICE_UNAVAILABLE" => Some(503),
        "FORBIDDEN" => Some(403),
        "UNAUTHORIZED" => Some(401),
        "BAD_REQUEST" => Some(400),
        number => number
            .parse()
            .ok()
            .filter(|status| (400..600).contains(status)),
    }
}

/// Returns the closest key for a key resolver, which is code and cannot be converted, and describes
/// the difference.
fn resolver(name: Option<&str>) -> (Value, String) {
    match name {
        None => (
            json!({ "metadata": ["envoy.filters.http.jwt_authn", "payload", "sub"] }),
            "the key is the subject of a JWT (with `payload_in_metadata: payload`), and the source counts by the name of the \
             principal; use the part of the request that holds it"
                .to_owned(),
        ),
        Some(bean) => (
            json!("source"),
            format!(
                "the key is the client address, because `{}` is code; replace it by the part of the request that the code reads",
                quoted(bean)
            ),
        ),
    }
}

/// Adds the condition for a route predicate.
fn restrict(predicate: &str, conditions: &mut Conditions) -> Result<(), String> {
    let (name, values) = predicate.split_once('=').ok_or_else(String::new)?;
    let values: Vec<&str> = values.split(',').map(str::trim).collect();
    match (name.trim(), values.as_slice()) {
        ("Path", [path]) => {
            let test = path_test(path).ok_or_else(String::new)?;
            if let Some(test) = test
                && !conditions.set_path(test)
            {
                return Err(", because it tests another path".to_owned());
            }
        }
        ("Method", methods) => {
            conditions.methods = methods.iter().map(|method| (*method).to_owned()).collect();
        }
        ("Host", [host]) => {
            let suffix = host.strip_prefix("**").filter(|rest| !rest.contains('*'));
            conditions.host = Some(match suffix {
                Some(suffix) => json!({ "suffix": suffix }),
                None if !host.contains(['*', '{']) => json!({ "exact": host }),
                None => return Err(String::new()),
            });
        }
        ("Header", [name]) => conditions.headers.push(named(name, "present", true)),
        ("Header", [name, regex]) => conditions.headers.push(named(name, "regex", *regex)),
        ("Query", [name]) => conditions.query.push(named(name, "present", true)),
        ("Query", [name, regex]) => conditions.query.push(named(name, "regex", *regex)),
        ("Cookie", [name, regex]) => conditions.cookies.push(named(name, "regex", *regex)),
        ("RemoteAddr", networks) => {
            conditions.source = networks
                .iter()
                .map(|network| (*network).to_owned())
                .collect();
        }
        _ => return Err(String::new()),
    }
    Ok(())
}

/// Returns the test for a path pattern, or `Some(None)` if the pattern matches all paths and needs
/// no test. Returns `None` if a match cannot express the pattern.
#[expect(
    clippy::option_option,
    reason = "a pattern for all paths needs no test"
)]
fn path_test(pattern: &str) -> Option<Option<Value>> {
    if pattern == "/**" || pattern == "**" {
        return Some(None);
    }
    // `{*name}` matches any number of path segments, like `**`.
    if let Some((start, end)) = pattern.rsplit_once('/')
        && end.starts_with("{*")
        && end.ends_with('}')
    {
        return path_test(&format!("{start}/**"));
    }
    let is_plain = |text: &str| !text.contains(['*', '{', '?']);
    if let Some(prefix) = pattern
        .strip_suffix("/**")
        .filter(|prefix| is_plain(prefix))
    {
        return Some(Some(json!({ "prefix": prefix })));
    }
    if is_plain(pattern) {
        return Some(Some(json!({ "exact": pattern })));
    }
    let is_template = |segment: &str| {
        is_plain(segment)
            || segment == "*"
            || segment.starts_with('{') && segment.ends_with('}') && !segment.contains([':', '*'])
    };
    if pattern.split('/').all(is_template) && !pattern.contains("**") {
        let segments: Vec<String> = pattern
            .split('/')
            .map(|segment| {
                if segment == "*" {
                    "{any}".to_owned()
                } else {
                    segment.to_owned()
                }
            })
            .collect();
        return Some(Some(json!({ "template": segments.join("/") })));
    }
    None
}
