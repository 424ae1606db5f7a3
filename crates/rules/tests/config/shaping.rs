//! The fields of limits that hold requests or count requests in flight, when valid, invalid, and
//! written.

use loudou_limiter::algorithm::{
    Algorithm, Concurrency, Funnel, LeakyQueue, Refill, SmoothBursty, SmoothWarmup, TokenBucket,
};
use loudou_limiter::bounds::MAX_WAIT;
use loudou_limiter::{Decimal, Nanos, Rate};
use loudou_rules::config::{Form, limit_fields, parse_limits};
use serde_json::{Value, json};

use super::wrong::no_number;

fn read(limit: &Value) -> Algorithm {
    let limits = parse_limits(&json!([limit])).expect("valid");
    limits.iter().next().expect("one").algorithm().clone()
}

/// The problems of a limit with one field changed.
fn said(limit: &Value, field: &str, value: Value) -> Vec<String> {
    let mut limit = limit.clone();
    limit[field] = value;
    match parse_limits(&json!([limit])) {
        Ok(_) => Vec::new(),
        Err(problems) => {
            let lines = problems.iter().map(ToString::to_string);
            lines
                .map(|line| line.strip_prefix("[0].").unwrap_or(&line).to_string())
                .collect()
        }
    }
}

fn rate(text: &str) -> Rate {
    Rate::parse(text).expect("a rate")
}

fn written(limit: &Value) -> Value {
    let limits = parse_limits(&json!([limit])).expect("valid");
    let written = serde_json::to_value(&limits).expect("serialises");
    assert_eq!(parse_limits(&written), Ok(limits), "{written}");
    written[0].clone()
}

fn queue() -> Value {
    json!({ "algorithm": "leaky_queue", "capacity": 20, "rate": "10/s" })
}

fn bursty() -> Value {
    json!({ "algorithm": "smooth_bursty", "rate": "5/s" })
}

fn warmup() -> Value {
    json!({ "algorithm": "smooth_warmup", "rate": "5/s", "warmup": "10s" })
}

fn flight() -> Value {
    json!({ "algorithm": "concurrency", "capacity": 20 })
}

#[test]
fn every_field_is_read() {
    let two = Nanos::from_secs(2);
    let with = |limit: Value, fields: Value| {
        let mut limit = limit;
        for (name, value) in fields.as_object().expect("an object") {
            limit[name] = value.clone();
        }
        read(&limit)
    };
    let funnel = json!({ "algorithm": "funnel", "capacity": 5, "rate": "5/s" });
    let expected = Funnel::new(5, rate("5/s")).and_then(|funnel| funnel.waiting(two));
    assert_eq!(
        Ok(with(funnel, json!({ "max_wait": "2s" }))),
        expected.map(Into::into)
    );
    let bucket = json!({ "algorithm": "token_bucket", "capacity": 5, "rate": "5/s" });
    let expected = TokenBucket::new(5, rate("5/s"), Refill::Greedy, 5);
    let expected = expected.and_then(|bucket| bucket.waiting(two));
    assert_eq!(
        Ok(with(bucket, json!({ "max_wait": "2s" }))),
        expected.map(Into::into)
    );
    let expected = LeakyQueue::new(20, rate("10/s"));
    assert_eq!(Ok(read(&queue())), expected.map(Into::into));
    let expected = expected.and_then(|queue| queue.immediate(7).waiting(two));
    assert_eq!(
        Ok(with(queue(), json!({ "immediate": 7, "max_wait": "2s" }))),
        expected.map(Into::into)
    );
    let decimal = Decimal::from_thousandths;
    let expected = SmoothBursty::new(rate("5/s"), decimal(1_000));
    assert_eq!(Ok(read(&bursty())), expected.map(Into::into));
    let expected = SmoothBursty::new(rate("5/s"), decimal(2_125));
    let expected = expected.and_then(|bursty| bursty.waiting(two));
    let fields = json!({ "burst_seconds": 2.125, "max_wait": "2s" });
    assert_eq!(Ok(with(bursty(), fields)), expected.map(Into::into));
    let ten = Nanos::from_secs(10);
    let expected = SmoothWarmup::new(rate("5/s"), ten, decimal(3_000));
    assert_eq!(Ok(read(&warmup())), expected.map(Into::into));
    let expected = SmoothWarmup::new(rate("5/s"), ten, decimal(1_100));
    let expected = expected.and_then(|smooth| smooth.waiting(two));
    let fields = json!({ "cold_factor": 1.1, "max_wait": "2s" });
    assert_eq!(Ok(with(warmup(), fields)), expected.map(Into::into));
    let expected = Concurrency::new(20, Nanos::from_secs(300));
    assert_eq!(Ok(read(&flight())), expected.map(Into::into));
    let expected = Concurrency::new(20, two);
    assert_eq!(
        Ok(with(flight(), json!({ "lease": "2s" }))),
        expected.map(Into::into)
    );
}

#[test]
fn limits_are_written_as_they_are_read() {
    let mut limit = queue();
    assert_eq!(
        written(&limit),
        json!({ "name": "leaky_queue", "algorithm": "leaky_queue", "capacity": 20, "rate": "10/s", "immediate": 0 })
    );
    limit["max_wait"] = json!("1h");
    assert!(written(&limit).get("max_wait").is_none());
    limit["max_wait"] = json!("0s");
    assert_eq!(written(&limit)["max_wait"], "0s");
    for limit in [
        bursty(),
        warmup(),
        json!({ "algorithm": "funnel", "capacity": 5, "rate": "5/s" }),
        json!({ "algorithm": "token_bucket", "capacity": 5, "rate": "5/s" }),
    ] {
        let mut limit = limit;
        assert!(written(&limit).get("max_wait").is_none());
        limit["max_wait"] = json!("1ns");
        assert_eq!(written(&limit)["max_wait"], "1ns");
    }
    assert_eq!(written(&bursty())["burst_seconds"], json!(1));
    let mut limit = bursty();
    limit["burst_seconds"] = json!(0.5);
    assert_eq!(written(&limit)["burst_seconds"], json!(0.5));
    assert_eq!(written(&warmup())["cold_factor"], json!(3));
    assert_eq!(written(&flight())["lease"], json!("5m"));
}

#[test]
fn what_is_said_of_waits() {
    let form = "a whole number and a unit: 500ns, 20us, 250ms, 60s, 5m, 1h, 1d; from 0s to 1h";
    let funnel = json!({ "algorithm": "funnel", "capacity": 5, "rate": "5/s" });
    for limit in [funnel, queue(), bursty(), warmup()] {
        let line = format!("max_wait: \"61m\": out of range; allowed: {form}");
        assert_eq!(said(&limit, "max_wait", json!("61m")), [line]);
        let line = format!("max_wait: 5: invalid duration; allowed: {form}; did you mean `5s`?");
        assert_eq!(said(&limit, "max_wait", json!(5)), [line]);
        assert_eq!(said(&limit, "max_wait", json!("1h")), [""; 0]);
    }
    assert_eq!(MAX_WAIT, Nanos::from_secs(3_600));
}

#[test]
fn problems_of_queues() {
    let line = "immediate: -1: out of range; allowed: a whole number from 0 to 1000000000";
    assert_eq!(said(&queue(), "immediate", json!(-1)), [line]);
    assert_eq!(said(&queue(), "immediate", json!(1_000_000_000)), [""; 0]);
    let line = "capacity: 0: out of range; allowed: a whole number from 1 to 1000000000";
    assert_eq!(said(&queue(), "capacity", json!(0)), [line]);
    let mut slow = queue();
    slow["capacity"] = json!(10);
    assert_eq!(
        said(&slow, "rate", json!("1/366d")),
        [
            "rate: \"1/366d\": too slow for this capacity; allowed: a capacity and a rate with which a full bucket \
             empties within 3660d"
        ]
    );
    // All problems, not only the first.
    let wrong = json!({ "algorithm": "leaky_queue", "capacity": 0, "rate": "1", "immediate": "x", "max_wait": "2h" });
    assert_eq!(said(&wrong, "name", json!("q")).len(), 4);
}

#[test]
fn what_is_said_of_smooth_limits() {
    let form = "allowed: a number from 0 to 86400 with at most 3 decimals";
    for (value, shown) in [
        (json!(-1), "-1"),
        (json!(0.1234), "0.1234"),
        (json!(86_400.001), "86400.001"),
        (json!(1e300), "1e+300"),
        (json!("one"), "\"one\""),
        (json!([1]), "[1]"),
        (json!(true), "true"),
    ] {
        let line = format!("burst_seconds: {shown}: {}; {form}", no_number(&value));
        assert_eq!(said(&bursty(), "burst_seconds", value), [line]);
    }
    for value in [
        json!(0),
        json!(0.0),
        json!(0.001),
        json!(86_400.0),
        Value::Null,
    ] {
        assert_eq!(said(&bursty(), "burst_seconds", value), [""; 0]);
    }
    assert_eq!(
        said(&bursty(), "rate", json!("1000000000/s")),
        [
            "burst_seconds: too much for this rate; allowed: numbers with which at most 1000000000 \
             pass at once"
        ]
    );
    let form = "out of range; allowed: a number from 1 to 1000 with at most 3 decimals";
    for (value, shown) in [(json!(0.999), "0.999"), (json!(1_000.001), "1000.001")] {
        let line = format!("cold_factor: {shown}: {form}");
        assert_eq!(said(&warmup(), "cold_factor", value), [line]);
    }
    for value in [json!(1), json!(1_000)] {
        assert_eq!(said(&warmup(), "cold_factor", value), [""; 0]);
    }
    let form = "a whole number and a unit: 500ns, 20us, 250ms, 60s, 5m, 1h, 1d; from 1ns to 366d";
    let line = format!("warmup: \"0s\": out of range; allowed: {form}");
    assert_eq!(said(&warmup(), "warmup", json!("0s")), [line]);
    let line = format!("[0]: `warmup` is missing; allowed: {form}");
    assert_eq!(said(&warmup(), "warmup", Value::Null), [line]);
    let wrong = json!({ "algorithm": "smooth_warmup", "rate": "1", "warmup": 1, "cold_factor": 0, "max_wait": "2h" });
    assert_eq!(said(&wrong, "name", json!("w")).len(), 4);
    let wrong =
        json!({ "algorithm": "smooth_bursty", "rate": "1", "burst_seconds": -1, "max_wait": "2h" });
    assert_eq!(said(&wrong, "name", json!("b")).len(), 3);
}

#[test]
fn what_is_said_of_requests_in_flight() {
    let form = "a whole number and a unit: 500ns, 20us, 250ms, 60s, 5m, 1h, 1d; from 1ns to 366d";
    let line = format!("lease: \"0s\": out of range; allowed: {form}");
    assert_eq!(said(&flight(), "lease", json!("0s")), [line]);
    assert_eq!(
        said(&flight(), "rate", json!("1/s")),
        ["rate: unknown field; allowed: name, algorithm, capacity, lease; did you mean `name`?"]
    );
    let wrong = json!({ "algorithm": "concurrency", "capacity": 0, "lease": 5 });
    assert_eq!(said(&wrong, "name", json!("c")).len(), 2);
}

/// The table of fields has the defaults that the reader uses.
#[test]
fn defaults_are_as_they_are_told() {
    for limit in [queue(), bursty(), warmup(), flight()] {
        let fields = limit_fields(limit["algorithm"].as_str().expect("a name"));
        for field in fields {
            let Some(default) = field.default else {
                assert!(limit.get(field.name).is_some(), "{}", field.name);
                continue;
            };
            let value = match field.form {
                Form::Integer(..) | Form::Decimal(..) => {
                    serde_json::from_str(default).expect("a number")
                }
                _ => Value::from(default),
            };
            let mut told = limit.clone();
            told[field.name] = value;
            assert_eq!(read(&told), read(&limit), "{}", field.name);
        }
    }
}
