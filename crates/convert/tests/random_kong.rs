//! Random declarative files of Kong with random requests. The converted rules decide like Kong, or a
//! warning says that they do not.
//!
//! The test chooses routes as Kong does, by `get_priority` in `kong/router/transform.lua`, and
//! configurations by `lookup_cfg` in `kong/runloop/plugins_iterator.lua`.
#![cfg(test)]

use std::collections::HashMap;

use loudou_convert::model::kong::{Period, Plugin as Numbers};
use loudou_convert::model::{Ask, Counter, Model, Said};
use loudou_convert::{Source, convert};
use loudou_limiter::{Nanos, Verdict};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Map, Value, json};

mod replayed;

const SERVICES: usize = 2;
const PATHS: [&str; 6] = ["/", "/a", "/a/", "/ab", "/a/b", "/b"];
const CONSUMERS: [&str; 2] = ["alice", "bob"];
/// Start of the trace, in the last minutes of a month of 30 days.
const ORIGIN_MS: u64 = 1_700_000_000_000;

#[derive(Clone, Debug)]
struct Route {
    service: usize,
    paths: Vec<&'static str>,
    methods: Vec<&'static str>,
    hosts: Vec<&'static str>,
}

#[derive(Clone, Debug)]
struct Plugin {
    route: Option<usize>,
    service: Option<usize>,
    consumer: Option<usize>,
    limit_by: &'static str,
    limits: Vec<(usize, u64)>,
    policy: &'static str,
}

#[derive(Clone, Debug)]
struct Request {
    gap_ms: u64,
    address: &'static str,
    host: &'static str,
    method: &'static str,
    path: &'static str,
    user: Option<&'static str>,
    consumer: Option<usize>,
}

#[derive(Clone, Debug)]
struct File {
    routes: Vec<Route>,
    plugins: Vec<Plugin>,
}

impl Route {
    /// Returns the priority of the best path that a request has, and `None` without one.
    fn priority(&self, request: &Request) -> Option<(usize, bool, usize)> {
        let fits = |list: &[&str], value: &str| list.is_empty() || list.contains(&value);
        let fits_host = |pattern: &&&str| {
            let suffix = pattern.strip_prefix('*');
            suffix.map_or(**pattern == request.host, |suffix| {
                request.host.ends_with(suffix)
            })
        };
        if !fits(&self.methods, request.method)
            || !self.hosts.is_empty() && !self.hosts.iter().any(|host| fits_host(&host))
        {
            return None;
        }
        let kinds = [
            !self.paths.is_empty(),
            !self.methods.is_empty(),
            !self.hosts.is_empty(),
        ];
        let kinds = kinds.iter().filter(|kind| **kind).count();
        let is_plain = !self.hosts.is_empty() && !self.hosts.iter().any(|host| host.contains('*'));
        if self.paths.is_empty() {
            return Some((kinds, is_plain, 0));
        }
        let paths = self
            .paths
            .iter()
            .filter(|path| request.path.starts_with(**path));
        paths.map(|path| (kinds, is_plain, path.len())).max()
    }
}

impl File {
    fn text(&self) -> String {
        let plugins = |is: &dyn Fn(&Plugin) -> bool| -> Vec<Value> {
            let plugins = self.plugins.iter().filter(|plugin| is(plugin));
            plugins.map(Plugin::json).collect()
        };
        let services: Vec<Value> = (0..SERVICES)
            .map(|service| {
                let all = self.routes.iter().enumerate();
                let routes = all.filter(|(_, route)| route.service == service);
                let routes: Vec<Value> = routes
                    .map(|(number, route)| {
                        let own = plugins(&|one: &Plugin| {
                            (one.route, one.consumer) == (Some(number), None)
                        });
                        json!({
                            "name": format!("r{number}"), "paths": route.paths, "methods": route.methods,
                            "hosts": route.hosts, "plugins": own,
                        })
                    })
                    .collect();
                json!({ "name": format!("s{service}"), "url": "http://s", "routes": routes })
            })
            .collect();
        let consumers = CONSUMERS.iter().map(|name| json!({ "username": name }));
        let consumers: Vec<Value> = consumers.collect();
        let plugins = plugins(&|one: &Plugin| one.route.is_none() || one.consumer.is_some());
        json!({
            "_format_version": "3.0", "services": services, "consumers": consumers, "plugins": plugins,
        })
        .to_string()
    }

    /// Returns the route that Kong chooses. `Err` if two routes have the same priority, of which Kong
    /// may choose either.
    fn route(&self, request: &Request) -> Result<Option<usize>, ()> {
        let all = self.routes.iter().enumerate();
        let mut found: Vec<_> = all
            .filter_map(|(index, route)| Some((route.priority(request)?, index)))
            .collect();
        found.sort_unstable();
        match found.as_slice() {
            [.., (one, _), (other, _)] if one == other => Err(()),
            [.., (_, index)] => Ok(Some(*index)),
            [] => Ok(None),
        }
    }

    /// Returns the configuration for a request.
    fn plugin(&self, route: usize, consumer: Option<usize>) -> Option<&Plugin> {
        let service = self.routes[route].service;
        let (route, service) = (Some(route), Some(service));
        let mut orders = Vec::new();
        if consumer.is_some() {
            orders.extend([
                (route, service, consumer),
                (route, None, consumer),
                (None, service, consumer),
            ]);
        }
        orders.push((route, service, None));
        if consumer.is_some() {
            orders.push((None, None, consumer));
        }
        orders.extend([
            (route, None, None),
            (None, service, None),
            (None, None, None),
        ]);
        orders.iter().find_map(|of| {
            let mut all = self.plugins.iter();
            all.find(|plugin| (plugin.route, plugin.service, plugin.consumer) == *of)
        })
    }

    /// Answers all requests as Kong does.
    fn answers(&self, requests: &[Request]) -> Vec<Said> {
        let mut counters: HashMap<String, Counter> = HashMap::new();
        let mut now = ORIGIN_MS;
        let mut answers = Vec::new();
        for request in requests {
            now += request.gap_ms;
            let Ok(Some(route)) = self.route(request) else {
                panic!("a request without a route");
            };
            let Some(plugin) = self.plugin(route, request.consumer) else {
                answers.push(Said::Pass);
                continue;
            };
            let address = request.address.to_owned();
            let identifier = match plugin.limit_by {
                "consumer" => request.consumer.map(|one| CONSUMERS[one].to_owned()),
                "header" => request.user.map(str::to_owned),
                "path" => Some(request.path.to_owned()).filter(|path| path == "/a/b"),
                "service" => Some(format!("service {}", self.routes[route].service)),
                _ => None,
            };
            let place = format!(
                "{} {:?} {:?} {}",
                plugin.policy,
                plugin.route,
                plugin.service,
                identifier.unwrap_or(address)
            );
            let ask = Ask {
                now: Nanos::from_millis(now),
                cost: 1,
                end: None,
            };
            let limits = plugin.limits.iter();
            let model = Model::Plugin(Numbers {
                limits: limits
                    .map(|(period, most)| (Period::ALL[*period].1, *most))
                    .collect(),
                counts_refused: plugin.policy == "redis",
            });
            let (said, next) = model.ask(counters.get(&place), &ask);
            let counter = next.keep(counters.remove(&place));
            counters.insert(place, counter);
            answers.push(said);
        }
        answers
    }
}

impl Plugin {
    fn json(&self) -> Value {
        let mut config = Map::new();
        for (period, most) in &self.limits {
            config.insert(Period::ALL[*period].0.to_owned(), json!(most));
        }
        config.insert("limit_by".to_owned(), json!(self.limit_by));
        config.insert("policy".to_owned(), json!(self.policy));
        match self.limit_by {
            "header" => config.insert("header_name".to_owned(), json!("x-user")),
            "path" => config.insert("path".to_owned(), json!("/a/b")),
            _ => None,
        };
        let mut plugin = json!({ "name": "rate-limiting", "config": config });
        let name = |kind: &str, number: usize| json!(format!("{kind}{number}"));
        // A plugin in its route has no reference to it.
        if let (Some(route), Some(_)) = (self.route, self.consumer) {
            plugin["route"] = name("r", route);
        }
        if let Some(service) = self.service {
            plugin["service"] = json!({ "name": name("s", service) });
        }
        if let Some(consumer) = self.consumer {
            plugin["consumer"] = json!(CONSUMERS[consumer]);
        }
        plugin
    }
}

fn file() -> impl Strategy<Value = File> {
    let route = (
        0..SERVICES,
        prop_oneof![4 => subsequence(&PATHS[..], 1..3), 1 => Just(Vec::new())],
        prop_oneof![3 => Just(Vec::new()), 1 => subsequence(&["GET", "POST"][..], 1)],
        prop_oneof![3 => Just(Vec::new()), 1 => subsequence(&["a.com", "*.a.com", "b.com"][..], 1..3)],
    );
    let route = route.prop_map(|(service, paths, methods, hosts)| Route {
        service,
        paths,
        methods,
        hosts,
    });
    let is_valid = |route: &Route| {
        !(route.paths.is_empty() && route.methods.is_empty() && route.hosts.is_empty())
    };
    let routes = prop::collection::vec(route.prop_filter("no test", is_valid), 1..5);
    let limits = prop_oneof![
        3 => (0_usize..3, 1_u64..4).prop_map(|limit| vec![limit]),
        1 => (1_u64..3, 2_u64..6).prop_map(|(one, other)| vec![(0, one), (1, other.max(one))]),
    ];
    let plugin = (
        prop_oneof![1 => Just(None), 3 => (0_usize..4).prop_map(Some)],
        prop_oneof![2 => Just(None), 1 => (0..SERVICES).prop_map(Some)],
        prop_oneof![4 => Just(None), 1 => (0..CONSUMERS.len()).prop_map(Some)],
        select(&["ip", "ip", "consumer", "header", "path", "service"][..]),
        limits,
        select(&["local", "local", "redis"][..]),
    );
    let plugin = plugin.prop_map(
        |(route, service, consumer, limit_by, limits, policy)| Plugin {
            route,
            service,
            consumer,
            limit_by,
            limits,
            policy,
        },
    );
    let plugins = prop::collection::vec(plugin, 1..5);
    (routes, plugins).prop_map(|(routes, mut plugins)| {
        for plugin in &mut plugins {
            plugin.route = plugin.route.filter(|route| *route < routes.len());
            // A plugin of a route and a service is for the route's own service.
            if let Some(route) = plugin.route {
                plugin.service = plugin.service.map(|_| routes[route].service);
            }
        }
        let of = |plugin: &Plugin| (plugin.route, plugin.service, plugin.consumer);
        // Kong refuses two configurations for the same entities.
        plugins.sort_by_key(of);
        plugins.dedup_by_key(|plugin| of(plugin));
        File { routes, plugins }
    })
}

fn requests() -> impl Strategy<Value = Vec<Request>> {
    let one = (
        prop_oneof![3 => 0_u64..3, 2 => 0_u64..400, 1 => 0_u64..30_000],
        select(&["10.0.0.1", "10.0.0.2"][..]),
        select(&["a.com", "x.a.com", "b.com", "c.com"][..]),
        select(&["GET", "POST"][..]),
        select(&["/", "/a", "/a/", "/a/b", "/a/b/c", "/abc", "/b", "/c"][..]),
        prop_oneof![Just(None), select(&["u1", "u2"][..]).prop_map(Some)],
        prop_oneof![2 => Just(None), 1 => (0..CONSUMERS.len()).prop_map(Some)],
    );
    let one = one.prop_map(
        |(gap_ms, address, host, method, path, user, consumer)| Request {
            gap_ms,
            address,
            host,
            method,
            path,
            user,
            consumer,
        },
    );
    prop::collection::vec(one, 1..100)
}

fn trace(requests: &[Request]) -> String {
    let mut now = ORIGIN_MS;
    let lines = requests.iter().map(|request| {
        now += request.gap_ms;
        let mut line = json!({
            "at_ns": now * 1_000_000, "method": request.method, "path": request.path, "host": request.host,
            "source": request.address,
        });
        if let Some(user) = request.user {
            line["headers"] = json!({ "x-user": user });
        }
        if let Some(consumer) = request.consumer {
            let claims = json!({ "payload": { "sub": CONSUMERS[consumer] } });
            line["metadata"] = json!({ "envoy.filters.http.jwt_authn": claims });
        }
        format!("{line}\n")
    });
    lines.collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rules_decide_like_kong_or_a_warning_says_so(file in file(), requests in requests()) {
        // Kong answers other requests with 404.
        let requests: Vec<Request> = requests
            .into_iter()
            .filter(|request| matches!(file.route(request), Ok(Some(_))))
            .collect();
        let text = file.text();
        let converted = convert(&[Source { name: "kong.json", bytes: text.as_bytes() }]);
        let (rules, problems) = match converted {
            Ok(converted) => (converted.text, converted.warnings),
            Err(problems) => (String::new(), problems),
        };
        // Warnings that are no differences for these requests.
        let is_difference = |message: &String| {
            let is_exact = ["normalize_path", "subject of a JWT", "without a route"];
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
            replayed::verdicts(&rules, &trace(&requests))
        };
        for (index, (theirs, ours)) in file.answers(&requests).iter().zip(&ours).enumerate() {
            let theirs = match theirs {
                Said::Refuse => Verdict::Refuse,
                _ => Verdict::Admit,
            };
            prop_assert_eq!(theirs, *ours, "request {} of\n{:#?}\n{}\n{}", index, &requests[..=index], text, rules);
        }
    }
}
