//! Random routes of Spring Cloud Gateway with random requests. The converted rules decide like
//! Spring, or a warning says that they do not.
//!
//! The test chooses routes and filters as `RouteDefinitionRouteLocator` and `RedisRateLimiter` do.
#![cfg(test)]

use std::collections::HashMap;
use std::fmt::Write as _;

use loudou_convert::model::spring::Limiter;
use loudou_convert::model::{Ask, Counter, Model, Said};
use loudou_convert::{Source, convert};
use loudou_limiter::{Nanos, Verdict};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::json;

mod replayed;

/// Start of the trace.
const ORIGIN_MS: u64 = 1_700_000_000_000;

#[derive(Clone, Debug)]
struct Filter {
    rate: u64,
    burst: u64,
    tokens: u64,
    /// False for a filter without numbers of its own.
    has_numbers: bool,
    bean: &'static str,
}

#[derive(Clone, Debug)]
struct Route {
    order: i64,
    path: &'static str,
    method: Option<&'static str>,
    filters: Vec<Filter>,
}

#[derive(Clone, Debug)]
struct Request {
    gap_ms: u64,
    address: &'static str,
    method: &'static str,
    path: &'static str,
}

impl Filter {
    fn write(&self, out: &mut String, indent: &str) {
        writeln!(out, "{indent}- name: RequestRateLimiter").expect("writes");
        writeln!(out, "{indent}  args:").expect("writes");
        writeln!(out, "{indent}    key-resolver: '#{{@{}}}'", self.bean).expect("writes");
        if self.has_numbers {
            for (name, number) in [
                ("replenishRate", self.rate),
                ("burstCapacity", self.burst),
                ("requestedTokens", self.tokens),
            ] {
                writeln!(out, "{indent}    redis-rate-limiter.{name}: {number}").expect("writes");
            }
        }
    }
}

impl Route {
    fn has(&self, request: &Request) -> bool {
        let is_inside = match self.path.strip_suffix("/**") {
            Some(prefix) => {
                let rest = request.path.strip_prefix(prefix);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
            None => request.path == self.path,
        };
        is_inside && self.method.is_none_or(|method| method == request.method)
    }
}

fn text(defaults: &[Filter], routes: &[Route]) -> String {
    let mut out = "spring:\n  cloud:\n    gateway:\n".to_owned();
    if !defaults.is_empty() {
        out.push_str("      default-filters:\n");
    }
    for filter in defaults {
        filter.write(&mut out, "      ");
    }
    out.push_str("      routes:\n");
    for (number, route) in routes.iter().enumerate() {
        let Route { order, path, .. } = route;
        writeln!(out, "      - id: r{number}\n        order: {order}").expect("writes");
        writeln!(out, "        predicates:\n        - Path={path}").expect("writes");
        if let Some(method) = route.method {
            writeln!(out, "        - Method={method}").expect("writes");
        }
        if !route.filters.is_empty() {
            out.push_str("        filters:\n");
        }
        for filter in &route.filters {
            filter.write(&mut out, "        ");
        }
    }
    out
}

/// Answers all requests as Spring does.
fn answers(defaults: &[Filter], routes: &[Route], requests: &[Request]) -> Vec<Said> {
    let mut ordered: Vec<(usize, &Route)> = routes.iter().enumerate().collect();
    ordered.sort_by_key(|(_, route)| route.order);
    let mut counters: HashMap<(usize, &str, &str), Counter> = HashMap::new();
    let mut now = ORIGIN_MS;
    let answer = |request: &Request| {
        now += request.gap_ms;
        let Some((number, route)) = ordered.iter().find(|(_, route)| route.has(request)) else {
            return Said::Pass;
        };
        let all: Vec<&Filter> = defaults.iter().chain(&route.filters).collect();
        // Each filter with numbers replaces the numbers of the route.
        let Some(numbers) = all.iter().rfind(|filter| filter.has_numbers) else {
            return Said::Pass;
        };
        let model = Model::Limiter(Limiter {
            rate: numbers.rate,
            capacity: numbers.burst,
            filters: 1,
        });
        let ask = Ask {
            now: Nanos::from_millis(now),
            cost: numbers.tokens,
            end: None,
        };
        for filter in &all {
            let place = (*number, filter.bean, request.address);
            let (said, next) = model.ask(counters.get(&place), &ask);
            let counter = next.keep(counters.remove(&place));
            counters.insert(place, counter);
            if said == Said::Refuse {
                return said;
            }
        }
        Said::Pass
    };
    requests.iter().map(answer).collect()
}

fn filter() -> impl Strategy<Value = Filter> {
    let numbers = (1_u64..4, 0_u64..6, 1_u64..3, prop::bool::weighted(0.9));
    (numbers, select(&["ip", "ip", "user"][..])).prop_map(|(numbers, bean)| {
        let (rate, more, tokens, has_numbers) = numbers;
        Filter {
            rate,
            burst: rate + more,
            tokens,
            has_numbers,
            bean,
        }
    })
}

fn routes() -> impl Strategy<Value = Vec<Route>> {
    let route = (
        0_i64..2,
        select(&["/**", "/a/**", "/a/b/**", "/a", "/b/**", "/ab/**"][..]),
        prop_oneof![3 => Just(None), 1 => select(&["GET", "POST"][..]).prop_map(Some)],
        prop_oneof![1 => Just(Vec::new()), 6 => prop::collection::vec(filter(), 1..2), 1 => prop::collection::vec(filter(), 2..3)],
    );
    let route = route.prop_map(|(order, path, method, filters)| Route {
        order,
        path,
        method,
        filters,
    });
    prop::collection::vec(route, 1..4)
}

fn requests() -> impl Strategy<Value = Vec<Request>> {
    let one = (
        prop_oneof![3 => 0_u64..3, 2 => 0_u64..400, 1 => 0_u64..3_000],
        select(&["10.0.0.1", "10.0.0.2"][..]),
        select(&["GET", "POST"][..]),
        select(&["/", "/a", "/a/", "/a/b", "/a/b/c", "/ab", "/b/x", "/c"][..]),
    );
    let one = one.prop_map(|(gap_ms, address, method, path)| Request {
        gap_ms,
        address,
        method,
        path,
    });
    prop::collection::vec(one, 1..100)
}

fn trace(requests: &[Request]) -> String {
    let mut now = ORIGIN_MS;
    let lines = requests.iter().map(|request| {
        now += request.gap_ms;
        let line = json!({
            "at_ns": now * 1_000_000, "method": request.method, "path": request.path, "source": request.address,
        });
        format!("{line}\n")
    });
    lines.collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rules_decide_like_spring_or_a_warning_says_so(
        defaults in prop_oneof![4 => Just(Vec::new()), 1 => prop::collection::vec(filter(), 1..2)],
        routes in routes(),
        requests in requests(),
    ) {
        let text = text(&defaults, &routes);
        let converted = convert(&[Source { name: "spring.yaml", bytes: text.as_bytes() }]);
        let (rules, problems) = match converted {
            Ok(converted) => (converted.text, converted.warnings),
            Err(problems) => (String::new(), problems),
        };
        // Both sides use the address as the key.
        let is_difference = |message: &String| {
            !message.contains("the key is the client address") && !message.starts_with("no limit") && !message.contains("no filter")
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
        for (index, (theirs, ours)) in answers(&defaults, &routes, &requests).iter().zip(&ours).enumerate() {
            let theirs = match theirs {
                Said::Refuse => Verdict::Refuse,
                _ => Verdict::Admit,
            };
            prop_assert_eq!(theirs, *ours, "request {} of\n{:#?}\n{}\n{}", index, &requests[..=index], text, rules);
        }
    }
}
