//! Random configurations of Envoy's `local_ratelimit`, and of a rate limit service, with random
//! requests. The converted rules decide like Envoy, or a warning says that they do not.
//!
//! The test chooses virtual hosts, routes and the most specific configuration as Envoy does, and asks
//! the buckets as `LocalRateLimiterImpl::requestAllowed` does.
#![cfg(test)]

use std::collections::HashMap;

use loudou_convert::model::envoy::LocalBucket;
use loudou_convert::model::service::Window;
use loudou_convert::model::{Ask, Counter, Model, Said};
use loudou_convert::{Source, convert};
use loudou_limiter::{Nanos, Verdict};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

mod replayed;

/// Start of the trace. Its odd nanoseconds keep requests apart from the times at which a token is
/// just complete, because Envoy counts in floating-point seconds.
const ORIGIN: u64 = 1_700_000_000_000_000_007;
const LOCAL: &str = "t/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit";
const GLOBAL: &str = "t/envoy.extensions.filters.http.ratelimit.v3.RateLimit";
const USERS: [&str; 2] = ["u1", "u2"];

/// A list of actions.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Actions {
    Generic(&'static str),
    User,
    Address,
    UserAndGeneric(&'static str),
}

/// A descriptor with its number.
#[derive(Clone, Copy, Debug)]
struct Descriptor {
    actions: Actions,
    /// Value of the user, or any value.
    user: Option<&'static str>,
    most: u64,
}

/// A configuration of `local_ratelimit`.
#[derive(Clone, Debug)]
struct Local {
    name: String,
    /// Capacity and tokens per second.
    bucket: Option<(u64, u64)>,
    descriptors: Vec<Descriptor>,
}

#[derive(Clone, Debug, Default)]
struct Level {
    local: Option<Local>,
    actions: Vec<Actions>,
}

#[derive(Clone, Debug)]
struct Route {
    prefix: &'static str,
    level: Level,
}

#[derive(Clone, Debug)]
struct Host {
    domain: &'static str,
    level: Level,
    routes: Vec<Route>,
}

#[derive(Clone, Debug)]
struct Envoy {
    filter: Local,
    hosts: Vec<Host>,
    /// Descriptors of a rate limit service, which replaces the local filter.
    service: Option<Vec<Descriptor>>,
}

#[derive(Clone, Debug)]
struct Request {
    gap_us: u64,
    address: &'static str,
    host: &'static str,
    path: &'static str,
    user: Option<&'static str>,
}

/// Pairs of a request's descriptor.
type Pairs = Vec<(&'static str, String)>;

impl Actions {
    fn json(self) -> Value {
        let generic = |value| json!({ "generic_key": { "descriptor_value": value } });
        let user =
            json!({ "request_headers": { "header_name": "x-user", "descriptor_key": "user" } });
        let actions = match self {
            Self::Generic(value) => vec![generic(value)],
            Self::User => vec![user],
            Self::Address => vec![json!({ "remote_address": {} })],
            Self::UserAndGeneric(value) => vec![user, generic(value)],
        };
        json!({ "actions": actions })
    }

    /// Returns the pairs that a request gets, and nothing if one of the actions does not apply.
    fn pairs(self, request: &Request) -> Option<Pairs> {
        let generic = |value: &str| ("generic_key", value.to_owned());
        let user = || Some(("user", request.user?.to_owned()));
        Some(match self {
            Self::Generic(value) => vec![generic(value)],
            Self::User => vec![user()?],
            Self::Address => vec![("remote_address", request.address.to_owned())],
            Self::UserAndGeneric(value) => vec![user()?, generic(value)],
        })
    }
}

impl Descriptor {
    /// Returns its pairs. An empty value stands for any value.
    fn entries(self) -> Vec<(&'static str, &'static str)> {
        let user = ("user", self.user.unwrap_or_default());
        match self.actions {
            Actions::Generic(value) => vec![("generic_key", value)],
            Actions::User => vec![user],
            Actions::Address => vec![("remote_address", "")],
            Actions::UserAndGeneric(value) => vec![user, ("generic_key", value)],
        }
    }

    fn has(self, pairs: &Pairs) -> bool {
        let entries = self.entries();
        entries.len() == pairs.len()
            && entries
                .iter()
                .zip(pairs)
                .all(|((key, value), (own, given))| {
                    key == own && (value.is_empty() || value == given)
                })
    }
}

/// Returns the descriptor for these pairs. A descriptor with values takes precedence.
fn matched(all: &[Descriptor], pairs: &Pairs) -> Option<usize> {
    let is_exact = |one: &Descriptor| !one.entries().iter().any(|(_, value)| value.is_empty());
    let find = |exact: bool| {
        let mut all = all.iter();
        all.position(|one| is_exact(one) == exact && one.has(pairs))
    };
    find(true).or_else(|| find(false))
}

/// Returns the descriptor that a rate limit service finds: `GetLimit` in `config_impl.go`. A node for
/// the value hides the node for any value, even if it has no limit.
fn served(all: &[Descriptor], pairs: &Pairs) -> Option<usize> {
    let (key, value) = pairs.first()?;
    let is_first = |one: &Descriptor, value: &str| one.entries()[0] == (*key, value);
    let has_value = all.iter().any(|one| is_first(one, value));
    let value = if has_value { value } else { "" };
    let mut all = all.iter();
    all.position(|one| is_first(one, value) && one.has(pairs))
}

impl Local {
    fn json(&self) -> Value {
        let bucket = |(max, rate): (u64, u64)| json!({ "max_tokens": max, "tokens_per_fill": rate, "fill_interval": "1s" });
        let all = json!({ "default_value": { "numerator": 100 } });
        let mut config = json!({
            "@type": LOCAL, "stat_prefix": self.name, "filter_enabled": all, "filter_enforced": all,
        });
        if let Some(own) = self.bucket {
            config["token_bucket"] = bucket(own);
        }
        let descriptors = self.descriptors.iter().map(|one| {
            let entries = one.entries().into_iter();
            let entries: Vec<Value> = entries
                .map(|(key, value)| json!({ "key": key, "value": value }))
                .collect();
            json!({ "entries": entries, "token_bucket": bucket((one.most, one.most)) })
        });
        let descriptors: Vec<Value> = descriptors.collect();
        if !descriptors.is_empty() {
            config["descriptors"] = json!(descriptors);
        }
        config
    }
}

impl Level {
    fn write(&self, at: &mut Value, limits: &mut dyn FnMut(&mut Value, Vec<Value>)) {
        if let Some(local) = &self.local {
            let config = json!({ "envoy.filters.http.local_ratelimit": local.json() });
            at["typed_per_filter_config"] = config;
        }
        if !self.actions.is_empty() {
            limits(at, self.actions.iter().map(|one| one.json()).collect());
        }
    }
}

impl Envoy {
    fn text(&self) -> String {
        let hosts = self.hosts.iter().enumerate().map(|(number, host)| {
            let routes = host.routes.iter().enumerate().map(|(index, route)| {
                let mut at = json!({
                    "name": format!("h{number}r{index}"), "match": { "prefix": route.prefix }, "route": { "cluster": "c" },
                });
                route.level.write(&mut at, &mut |at, limits| at["route"]["rate_limits"] = json!(limits));
                at
            });
            let routes: Vec<Value> = routes.collect();
            let mut at = json!({ "name": format!("h{number}"), "domains": [host.domain], "routes": routes });
            host.level.write(&mut at, &mut |at, limits| at["rate_limits"] = json!(limits));
            at
        });
        let hosts: Vec<Value> = hosts.collect();
        let filter = if self.service.is_some() {
            json!({ "@type": GLOBAL, "domain": "d" })
        } else {
            self.filter.json()
        };
        let filter = json!({ "name": "limit", "typed_config": filter });
        json!({ "http_filters": [filter], "virtual_hosts": hosts }).to_string()
    }

    /// Returns the file of the rate limit service. Descriptors with the same first pair are one node.
    fn service_text(&self) -> Option<String> {
        let mut nodes: Vec<Value> = Vec::new();
        for one in self.service.as_ref()? {
            let limit = json!({ "unit": "second", "requests_per_unit": one.most });
            let entries = one.entries();
            let node = |(key, value): (&str, &str)| {
                if value.is_empty() {
                    json!({ "key": key })
                } else {
                    json!({ "key": key, "value": value })
                }
            };
            let first = node(entries[0]);
            let is_same = |other: &Value| {
                (&other["key"], &other["value"]) == (&first["key"], &first["value"])
            };
            let position = nodes.iter().position(is_same).unwrap_or_else(|| {
                nodes.push(first);
                nodes.len() - 1
            });
            let Some(second) = entries.get(1) else {
                nodes[position]["rate_limit"] = limit;
                continue;
            };
            let mut inner = node(*second);
            inner["rate_limit"] = limit;
            match nodes[position]["descriptors"].as_array_mut() {
                Some(all) => all.push(inner),
                None => nodes[position]["descriptors"] = json!([inner]),
            }
        }
        Some(json!({ "domain": "d", "descriptors": nodes }).to_string())
    }

    /// Returns the virtual host and route of a request, as numbers.
    fn route(&self, request: &Request) -> Option<(usize, usize)> {
        let find = |domain: &str| self.hosts.iter().position(|host| host.domain == domain);
        let wild = || {
            let is_inside = request.host.ends_with(".a.com");
            is_inside.then(|| find("*.a.com")).flatten()
        };
        let host = find(request.host).or_else(wild).or_else(|| find("*"))?;
        let mut routes = self.hosts[host].routes.iter();
        let route = routes.position(|route| request.path.starts_with(route.prefix))?;
        Some((host, route))
    }

    /// Answers all requests as Envoy does.
    fn answers(&self, requests: &[Request]) -> Vec<Said> {
        let mut counters: HashMap<(String, usize, Pairs), Counter> = HashMap::new();
        let mut now = ORIGIN;
        let mut answers = Vec::new();
        for request in requests {
            now += request.gap_us * 1_000;
            let ask = Ask {
                now: Nanos::new(now),
                cost: 1,
                end: None,
            };
            let (host, route) = self.route(request).expect("a route");
            let host = &self.hosts[host];
            let route = &host.routes[route];
            let actions = if route.level.actions.is_empty() {
                &host.level.actions
            } else {
                &route.level.actions
            };
            let pairs = actions.iter().filter_map(|one| one.pairs(request));
            let mut said = Said::Pass;
            if let Some(descriptors) = &self.service {
                for pairs in pairs {
                    let Some(index) = served(descriptors, &pairs) else {
                        continue;
                    };
                    let model = Window::new(descriptors[index].most, 1_000_000_000);
                    let place = ("service".to_owned(), index, pairs);
                    let (own, next) = Model::Window(model).ask(counters.get(&place), &ask);
                    let counter = next.keep(counters.remove(&place));
                    counters.insert(place, counter);
                    if own == Said::Refuse {
                        said = own;
                    }
                }
                answers.push(said);
                continue;
            }
            let own = route.level.local.as_ref().or(host.level.local.as_ref());
            let config = own.unwrap_or(&self.filter);
            let mut buckets = Vec::new();
            for pairs in pairs {
                if let Some(index) = matched(&config.descriptors, &pairs) {
                    let most = config.descriptors[index].most;
                    buckets.push((most, (config.name.clone(), index, pairs), (most, most)));
                }
            }
            buckets.sort_by_key(|(rate, _, _)| *rate);
            if let Some(own) = config.bucket {
                buckets.push((0, (config.name.clone(), usize::MAX, Vec::new()), own));
            }
            for (_, place, (max, rate)) in buckets {
                let model = LocalBucket::new(max, rate, Nanos::from_secs(1));
                let (own, next) = Model::LocalBucket(model).ask(counters.get(&place), &ask);
                said = own;
                if own == Said::Refuse {
                    break;
                }
                let counter = next.keep(counters.remove(&place));
                counters.insert(place, counter);
            }
            answers.push(said);
        }
        answers
    }

    fn trace(&self, requests: &[Request]) -> String {
        let mut now = ORIGIN;
        let lines = requests.iter().map(|request| {
            now += request.gap_us * 1_000;
            let (host, route) = self.route(request).expect("a route");
            let mut line = json!({
                "at_ns": now, "path": request.path, "host": request.host, "source": request.address,
                "route": format!("h{host}r{route}"),
            });
            if let Some(user) = request.user {
                line["headers"] = json!({ "x-user": user });
            }
            format!("{line}\n")
        });
        lines.collect()
    }
}

fn actions() -> impl Strategy<Value = Actions> {
    select(
        &[
            Actions::Generic("g1"),
            Actions::Generic("g2"),
            Actions::User,
            Actions::User,
            Actions::Address,
            Actions::UserAndGeneric("g1"),
        ][..],
    )
}

fn descriptors() -> impl Strategy<Value = Vec<Descriptor>> {
    let user = prop_oneof![2 => Just(None), 1 => select(&USERS[..]).prop_map(Some)];
    let one = (actions(), user, 1_u64..5).prop_map(|(actions, user, most)| {
        let has_user = matches!(actions, Actions::User | Actions::UserAndGeneric(_));
        Descriptor {
            actions,
            user: user.filter(|_| has_user),
            most,
        }
    });
    prop::collection::vec(one, 1..4).prop_map(|mut all| {
        all.sort_by_key(|one| one.entries());
        all.dedup_by_key(|one| one.entries());
        all
    })
}

fn local() -> impl Strategy<Value = Local> {
    let bucket = (1_u64..5, 1_u64..5).prop_map(Some);
    let bucket = prop_oneof![4 => bucket, 1 => Just(None)];
    let descriptors = prop_oneof![2 => Just(Vec::new()), 1 => descriptors()];
    (bucket, descriptors).prop_map(|(bucket, descriptors)| Local {
        name: String::new(),
        bucket,
        descriptors,
    })
}

fn level() -> impl Strategy<Value = Level> {
    let local = prop_oneof![4 => Just(None), 1 => local().prop_map(Some)];
    let actions = prop_oneof![
        3 => Just(Vec::new()),
        3 => prop::collection::vec(actions(), 1..2),
        1 => prop::collection::vec(actions(), 2..3),
    ];
    (local, actions).prop_map(|(local, mut actions)| {
        if let [one, other] = actions.as_slice()
            && one == other
        {
            actions.pop();
        }
        Level { local, actions }
    })
}

fn envoy() -> impl Strategy<Value = Envoy> {
    let route = (select(&["/a", "/a/b", "/b"][..]), level());
    let route = route.prop_map(|(prefix, level)| Route { prefix, level });
    let routes = (prop::collection::vec(route, 0..3), level());
    let host = (level(), routes).prop_map(|(level, (mut routes, last))| {
        routes.push(Route {
            prefix: "/",
            level: last,
        });
        Host {
            domain: "*",
            level,
            routes,
        }
    });
    let hosts = prop::collection::vec(host, 1..4);
    let service = prop_oneof![1 => Just(None), 1 => descriptors().prop_map(Some)];
    (local(), hosts, service).prop_map(|(mut filter, mut hosts, service)| {
        for (host, domain) in hosts.iter_mut().zip(["*", "a.com", "*.a.com"]) {
            host.domain = domain;
        }
        "filter".clone_into(&mut filter.name);
        for (number, host) in hosts.iter_mut().enumerate() {
            if service.is_some() {
                host.level.local = None;
            }
            if let Some(local) = &mut host.level.local {
                local.name = format!("host {number}");
            }
            for (index, route) in host.routes.iter_mut().enumerate() {
                if service.is_some() {
                    route.level.local = None;
                }
                if let Some(local) = &mut route.level.local {
                    local.name = format!("route {number} {index}");
                }
            }
        }
        Envoy {
            filter,
            hosts,
            service,
        }
    })
}

fn requests() -> impl Strategy<Value = Vec<Request>> {
    let one = (
        prop_oneof![3 => 1_u64..3_000, 2 => 1_u64..400_000, 1 => 1_u64..3_000_000],
        select(&["10.0.0.1", "10.0.0.2"][..]),
        select(&["a.com", "x.a.com", "b.com"][..]),
        select(&["/", "/a", "/a/b", "/ab", "/b/x", "/c"][..]),
        prop_oneof![1 => Just(None), 2 => select(&USERS[..]).prop_map(Some)],
    );
    let one = one.prop_map(|(gap_us, address, host, path, user)| Request {
        gap_us,
        address,
        host,
        path,
        user,
    });
    prop::collection::vec(one, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rules_decide_like_envoy_or_a_warning_says_so(envoy in envoy(), requests in requests()) {
        let text = envoy.text();
        let service = envoy.service_text();
        let mut sources = vec![Source { name: "envoy.json", bytes: text.as_bytes() }];
        sources.extend(service.iter().map(|text| Source { name: "service.json", bytes: text.as_bytes() }));
        let (rules, problems) = match convert(&sources) {
            Ok(converted) => (converted.text, converted.warnings),
            Err(problems) => (String::new(), problems),
        };
        let is_difference = |message: &String| {
            let is_exact = ["no `rate_limits` in the given files make it", "no actions in the given files"];
            !is_exact.iter().any(|exact| message.contains(exact)) && !message.starts_with("no limit")
        };
        let messages = problems.into_iter().map(|problem| problem.message);
        let warnings: Vec<String> = messages.filter(is_difference).collect();
        if !warnings.is_empty() {
            return Ok(());
        }
        let ours = if rules.is_empty() {
            vec![Verdict::Admit; requests.len()]
        } else {
            replayed::verdicts(&rules, &envoy.trace(&requests))
        };
        for (index, (theirs, ours)) in envoy.answers(&requests).iter().zip(&ours).enumerate() {
            let theirs = match theirs {
                Said::Refuse => Verdict::Refuse,
                _ => Verdict::Admit,
            };
            prop_assert_eq!(theirs, *ours, "request {} of\n{:#?}\n{}\n{:?}\n{}", index, &requests[..=index], text, service, rules);
        }
    }
}
