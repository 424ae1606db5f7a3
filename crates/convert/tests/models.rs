//! The models against recordings of the real programs, which `crates/rules` also compares with
//! Loudou's limits.
#![cfg(test)]

use loudou_convert::model::envoy::LocalBucket;
use loudou_convert::model::kong::{Period, Plugin};
use loudou_convert::model::nginx::LimitReq;
use loudou_convert::model::redis_cell::Throttle;
use loudou_convert::model::spring::Limiter;
use loudou_convert::model::{Ask, Counter, Model, Said};
use loudou_limiter::Nanos;
use serde_json::Value;

const NGINX: &str = include_str!("../../rules/tests/conformance/vectors/nginx_limit_req.json");
const REDIS_CELL: &str = include_str!("../../rules/tests/conformance/vectors/redis_cell_pure.json");
const SPRING: &str = include_str!("../../rules/tests/conformance/vectors/spring_gateway_lua.json");

const SECOND: u64 = 1_000_000_000;
/// The recordings of nginx and of redis-cell start at 0, which no clock shows.
const ORIGIN: u64 = 1_000_000 * SECOND;

fn whole(value: &Value, name: &str) -> u64 {
    let number = value[name].as_u64();
    number.unwrap_or_else(|| panic!("no number {name} in {value}"))
}

/// Compares the answers to all calls, and returns their number.
fn compare(
    recording: &str,
    model: impl Fn(&Value) -> Model,
    ask: impl Fn(&Value) -> Ask,
    answer: impl Fn(&Value) -> Said,
) -> usize {
    let recording: Value = serde_json::from_str(recording).expect("a recording");
    let (mut calls, mut wrong) = (0, Vec::new());
    for trace in recording["traces"].as_array().expect("traces") {
        // Spring passes no time, and then its script reads whole seconds.
        let is_whole = |call: &Value| !call["now_s"].is_f64();
        if !trace["calls"]
            .as_array()
            .expect("calls")
            .iter()
            .all(is_whole)
        {
            continue;
        }
        let model = model(trace);
        let mut counter: Option<Counter> = None;
        for call in trace["calls"].as_array().expect("calls") {
            calls += 1;
            let (said, next) = model.ask(counter.as_ref(), &ask(call));
            // Only the kind of the answer is recorded.
            let kind = match said {
                Said::Delay(_) => Said::Delay(Nanos::ZERO),
                said => said,
            };
            if kind != answer(call) {
                wrong.push(format!("{}: {call}: {said:?}", trace["name"]));
            }
            if said != Said::Refuse {
                counter = Some(next.keep(counter));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    calls
}

#[test]
fn nginx() {
    let model = |trace: &Value| {
        let (rate, burst) = (whole(trace, "rate"), whole(trace, "burst"));
        let delay = match trace["mode"].as_str() {
            Some("delay") => 0,
            Some("delay3") => 3,
            _ => burst,
        };
        let scale = if trace["per"] == "m" { 60 } else { 1 };
        Model::LimitReq(LimitReq::new(rate * 1_000 / scale, burst, delay))
    };
    let ask = |call: &Value| Ask {
        now: Nanos::new(ORIGIN + whole(call, "t_ms") * 1_000_000),
        cost: 1,
        end: None,
    };
    let answer = |call: &Value| match call["status"].as_str() {
        Some("PASSED") => Said::Pass,
        Some("DELAYED") => Said::Delay(Nanos::ZERO),
        _ => Said::Refuse,
    };
    assert_eq!(compare(NGINX, model, ask, answer), 1_380);
}

#[test]
fn redis_cell() {
    let model = |trace: &Value| {
        Model::Throttle(Throttle::new(
            whole(trace, "max_burst"),
            whole(trace, "count_per_period"),
            whole(trace, "period_s"),
        ))
    };
    let ask = |call: &Value| Ask {
        now: Nanos::new(ORIGIN + whole(call, "t_ns")),
        cost: whole(call, "quantity"),
        end: None,
    };
    let answer = |call: &Value| match call["limited"].as_bool() {
        Some(false) => Said::Pass,
        _ => Said::Refuse,
    };
    assert_eq!(compare(REDIS_CELL, model, ask, answer), 1_336);
}

#[test]
fn spring() {
    let model = |trace: &Value| {
        Model::Limiter(Limiter {
            rate: whole(trace, "replenish_rate"),
            capacity: whole(trace, "burst_capacity"),
            filters: 1,
        })
    };
    let ask = |call: &Value| Ask {
        now: Nanos::new(whole(call, "now_s") * SECOND),
        cost: whole(call, "requested"),
        end: None,
    };
    let answer = |call: &Value| match call["allowed"].as_bool() {
        Some(true) => Said::Pass,
        _ => Said::Refuse,
    };
    assert_eq!(compare(SPRING, model, ask, answer), 865);
}

/// A new bucket is full at any time, whatever a time in floating-point seconds can express.
#[test]
fn a_new_bucket_of_envoy_is_full() {
    let bucket = LocalBucket::new(1, 10, Nanos::from_secs(1));
    for second in 0..1_000 {
        let now = Nanos::new(1_700_000_000 * SECOND + second * 123_456_789);
        let ask = Ask {
            now,
            cost: 1,
            end: None,
        };
        let (said, since) = bucket.ask(None, &ask);
        assert_eq!(said, Said::Pass, "{now:?}");
        assert_eq!(bucket.ask(Some(since), &ask).0, Said::Refuse, "{now:?}");
    }
}

/// Envoy counts seconds from the start of the machine, and a log from 1970. With the larger numbers,
/// floating-point seconds would miss a token.
#[test]
fn a_bucket_of_envoy_counts_as_precisely_in_a_log() {
    let bucket = LocalBucket::new(1, 512, Nanos::from_secs(1));
    let mut filled = None;
    for number in 0..1_000 {
        let ask = Ask {
            now: Nanos::new(1_700_000_000_123_456_789 + number * SECOND / 512),
            cost: 1,
            end: None,
        };
        let (said, next) = bucket.ask(filled, &ask);
        assert_eq!(said, Said::Pass, "request {number}");
        filled = Some(next);
    }
}

/// Answers a plugin of Kong at times in seconds.
fn kong(plugin: &Plugin, seconds: &[u64]) -> Vec<Said> {
    let mut usage = None;
    let answers = seconds.iter().map(|second| {
        let ask = Ask {
            now: Nanos::from_secs(*second),
            cost: 1,
            end: None,
        };
        let (said, next) = plugin.ask(usage.as_ref(), &ask);
        usage = Some(next);
        said
    });
    answers.collect()
}

/// 2026-12-01 is a day of UTC, whose month has 31 days.
const DECEMBER: u64 = 1_796_083_200;
const DAY: u64 = 86_400;

#[test]
fn months_and_years_of_kong_are_calendar_periods() {
    use Said::{Pass, Refuse};
    let once = |period| Plugin {
        limits: vec![(period, 1)],
        counts_refused: false,
    };
    let times = [
        DECEMBER - 1,
        DECEMBER,
        DECEMBER + 30 * DAY - 1,
        DECEMBER + 31 * DAY,
    ];
    assert_eq!(
        kong(&once(Period::Month), &times),
        [Pass, Pass, Refuse, Pass]
    );
    assert_eq!(
        kong(&once(Period::Year), &times),
        [Pass, Refuse, Refuse, Pass]
    );
    // Kong forgets the count after 30 days.
    let times = [DECEMBER, DECEMBER + 30 * DAY];
    assert_eq!(kong(&once(Period::Month), &times), [Pass, Pass]);
}

#[test]
fn only_a_shared_counter_of_kong_counts_refused_requests() {
    use Said::{Pass, Refuse};
    let times = [DECEMBER, DECEMBER, DECEMBER + 1, DECEMBER + 2];
    let plugin = |counts_refused| Plugin {
        limits: vec![(Period::Second, 1), (Period::Minute, 3)],
        counts_refused,
    };
    assert_eq!(kong(&plugin(false), &times), [Pass, Refuse, Pass, Pass]);
    assert_eq!(kong(&plugin(true), &times), [Pass, Refuse, Pass, Refuse]);
}
