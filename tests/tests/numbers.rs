//! Limits whose numbers come with each request, in a real Envoy.

use anyhow::{Context as _, Result, ensure};
use loudou_tests::filters::headers_to_claims;
use loudou_tests::{Config, Envoy, Operator, Request, Response, expect};
use serde_json::{Value, json};

const TENANTS: u64 = 5_000;
const CONNECTIONS: usize = 64;
const CLAIMS: &str = "envoy.filters.http.jwt_authn";

fn sourced(claim: &str, default: u32, max: u32) -> Value {
    json!({ "metadata": [CLAIMS, claim], "default": default, "max": max })
}

fn rules() -> Value {
    json!([{
        "name": "tenants",
        "key": [{ "header": "x-tenant" }],
        "limits": [{
            "name": "burst",
            "algorithm": "funnel",
            "capacity": sourced("quota", 4, 100),
            "rate": { "amount": sourced("pace", 1, 20), "per": "1d" },
        }],
        "respond": { "ratelimit_headers": "draft11" },
    }])
}

fn config() -> Config {
    let claim =
        |header: &'static str, name: &'static str| (header, name, json!({ "type": "NUMBER" }));
    let text = ("x-quota-text", "quota", json!({ "type": "STRING" }));
    let claims = [claim("x-quota", "quota"), claim("x-pace", "pace"), text];
    Config::new(rules()).filter_before(headers_to_claims(&claims))
}

fn of_tenant(tenant: &str) -> Request {
    Request::get("/").header("x-tenant", tenant)
}

fn with_quota(tenant: &str, quota: u64) -> Request {
    of_tenant(tenant).header("x-quota", quota.to_string())
}

/// Returns the capacity and the remaining units that an answer states.
fn stated(answer: &Response) -> Result<(u64, u64)> {
    let number = |header: &str, name: &str| -> Result<u64> {
        let line = answer
            .header(header)
            .with_context(|| format!("no {header}"))?;
        let mut parts = line.split(';');
        let part = parts.find_map(|part| part.strip_prefix(name));
        Ok(part.context("no such number")?.parse()?)
    };
    Ok((
        number("ratelimit-policy", "q=")?,
        number("ratelimit", "r=")?,
    ))
}

/// Every tenant is admitted exactly as often as its own token states, without an override.
#[test]
fn each_tenant_has_the_numbers_of_its_token() -> Result<()> {
    let envoy = Envoy::start(&config().concurrency(4))?;
    let quota = |tenant: u64| 1 + tenant % 7;
    let request = |number: u64| {
        let tenant = number % TENANTS;
        with_quota(&tenant.to_string(), quota(tenant))
    };
    let admitted = envoy.load(TENANTS * 8, CONNECTIONS, request)?.of(200);
    let expected: u64 = (0..TENANTS).map(quota).sum();
    ensure!(admitted == expected, "{admitted}, {expected}");
    let mut ops = Operator::viewer(&envoy);
    let bucket = ops.bucket("tenants", "6")?.context("a bucket")?;
    let capacity = bucket.pointer("/limits/0/capacity").and_then(Value::as_u64);
    ensure!(capacity == Some(7), "{bucket}");
    let brought = bucket.get("numbers");
    ensure!(
        brought == Some(&json!([{ "limit": "burst", "capacity": 7 }])),
        "{bucket}"
    );
    let odd = envoy.verdicts("invalid_numbers")?;
    ensure!(odd == TENANTS * 8, "{odd}: no request brought a pace");
    envoy.stop()
}

/// Requests of one key with different numbers, on all workers at once, gain nothing beyond the largest number.
#[test]
fn alternating_numbers_gain_nothing_beyond_the_largest() -> Result<()> {
    let envoy = Envoy::start(&config().concurrency(4))?;
    for key in ["a", "b", "c"] {
        let quotas = [5, 50, 20];
        let request = |number: u64| {
            let place = usize::try_from(number % 3).unwrap_or(0);
            with_quota(key, quotas.get(place).copied().unwrap_or(1))
        };
        let admitted = envoy.load(3_000, CONNECTIONS, request)?.of(200);
        ensure!(admitted == 50, "{key}: {admitted}");
    }
    envoy.stop()
}

#[test]
fn another_number_applies_from_the_next_request_on() -> Result<()> {
    let envoy = Envoy::start(&config().concurrency(1))?;
    let (mut http, mut ops) = (envoy.data(), Operator::editor(&envoy));
    let text = |quota: &str| of_tenant("alice").header("x-quota-text", quota);
    let mut used = 0;
    for (request, capacity) in [
        (with_quota("alice", 10), 10),
        (with_quota("alice", 30), 30),
        (of_tenant("alice"), 4),
        (with_quota("alice", 1_000), 100),
        (text("20"), 20),
    ] {
        used += 1;
        let answer = http.send(&request)?;
        let left = u64::saturating_sub(capacity, used);
        ensure!(
            stated(&answer)? == (capacity, left),
            "{answer:?}, {capacity}, {left}"
        );
    }
    // A wrong number counts as the default, of which more is used already.
    for wrong in ["-1", "2.5", "many", "20 "] {
        let answer = http.send(&text(wrong))?;
        let status = if wrong == "20 " { 200 } else { 429 };
        ensure!(answer.status == status, "{wrong}: {answer:?}");
    }
    used += 1;

    // The numbers of an operator: a scale, a smaller maximum, and fixed limits.
    ops.set_override("tenants", "alice", "", &json!({ "scale": 2 }))?;
    used += 1;
    let answer = http.send(&with_quota("alice", 10))?;
    ensure!(stated(&answer)? == (20, 20 - used), "{answer:?}");
    let mut smaller = rules();
    let limits = smaller.pointer_mut("/0/limits").context("limits")?;
    if let Some(max) = limits.pointer_mut("/0/capacity/max") {
        *max = json!(15);
    }
    ops.edit("tenants", "", &json!({ "limits": limits }))?;
    used += 1;
    let answer = http.send(&with_quota("alice", 100))?;
    ensure!(stated(&answer)? == (30, 30 - used), "{answer:?}");
    let answer = ops.drop_override("tenants", "alice")?;
    ensure!(answer.status == 200, "{answer:?}");
    used += 1;
    let answer = http.send(&with_quota("alice", 100))?;
    ensure!(stated(&answer)? == (15, 15 - used), "{answer:?}");
    envoy.stop()
}

#[test]
fn an_explanation_states_where_the_numbers_come_from() -> Result<()> {
    let envoy = Envoy::start(&config().concurrency(1))?;
    let mut ops = Operator::editor(&envoy);
    for (quota, number, origin) in [
        (json!(30), 30, "request"),
        (json!("30"), 30, "request"),
        (json!(1_000), 100, "too_large"),
        (json!(0), 1, "too_small"),
        (json!(-1), 4, "invalid"),
        (json!(true), 4, "invalid"),
        (json!([5, 100]), 4, "invalid"),
        (json!({ "a": 5 }), 4, "invalid"),
        (Value::Null, 4, "missing"),
    ] {
        let call = json!({
            "headers": { "x-tenant": "alice" },
            "metadata": { CLAIMS: { "quota": quota, "pace": 2 } },
        });
        let explained = expect(&ops.send(Request::post("/v1/explain").json(&call))?, 200)?;
        let rule = explained.pointer("/rules/0").context("a rule")?;
        let numbers = json!([
            { "limit": "burst", "field": "capacity", "metadata": [CLAIMS, "quota"], "number": number, "origin": origin },
            { "limit": "burst", "field": "amount", "metadata": [CLAIMS, "pace"], "number": 2, "origin": "request" },
        ]);
        ensure!(rule.get("numbers") == Some(&numbers), "{call}: {rule:#}");
        let capacity = rule
            .pointer("/limits/0/now/capacity")
            .and_then(Value::as_u64);
        ensure!(capacity == Some(number), "{call}: {rule:#}");
        let rate = rule.pointer("/limits/0/now/rate").and_then(Value::as_str);
        ensure!(rate == Some("2/d"), "{call}: {rule:#}");
    }
    envoy.stop()
}
