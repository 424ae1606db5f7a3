//! Exact counts across four Envoys with two workers each, even at the first requests of a key.

use anyhow::{Context as _, Result, bail, ensure};
use loudou_tests::filters::headers_to_claims;
use loudou_tests::{Config, Fleet, Operator, Request};
use serde_json::{Value, json};

const ENVOYS: usize = 4;
/// Number of requests that each Envoy receives per key.
const REQUESTS: u64 = 1_000;
const CONNECTIONS: usize = 16;
const KEYS: u32 = 20;

fn rule(name: &str, limits: &Value) -> Value {
    json!({
        "name": name, "scope": "fleet", "key": [{ "header": "x-user-id" }], "limits": limits,
        "match": { "path": { "prefix": format!("/{name}") } },
    })
}

/// Exactly a hundred requests of each new key must pass, with one limit, with two limits together
/// and in a clock-aligned window. Timeout and lease are long, so that a busy machine causes no
/// outage and no token expires before its request.
#[test]
fn fresh_keys_admit_their_capacity_across_the_fleet() -> Result<()> {
    let funnel = json!([{ "algorithm": "funnel", "capacity": 100, "rate": "1/d" }]);
    let two = json!([
        { "name": "wide", "algorithm": "token_bucket", "capacity": 150, "rate": "1/d" },
        { "name": "narrow", "algorithm": "funnel", "capacity": 100, "rate": "1/d" },
    ]);
    let window = json!([
        { "algorithm": "fixed_window", "capacity": 100, "window": "1d", "align": "clock" },
    ]);
    let rules = [("one", funnel), ("two", two), ("window", window)];
    let settings = json!({ "credit": 0, "timeout": "1s", "lease": "10s" });
    let all = rules.each_ref().map(|(name, limits)| rule(name, limits));
    let fleet = Fleet::start(ENVOYS, &json!(all), &settings)?;
    for (name, _) in &rules {
        for key in 0..KEYS {
            let key = format!("user-{key}");
            let counts = fleet.load(REQUESTS, CONNECTIONS, |_| {
                Request::get(&format!("/{name}")).header("x-user-id", &key)
            })?;
            let all = REQUESTS * u64::try_from(ENVOYS)?;
            ensure!(
                counts.of(200) == 100 && counts.of(429) == all - 100,
                "{name} {key}: {counts:?}"
            );
        }
    }
    for nothing in ["fleet.local", "fleet.failed", "store.cas_give_ups"] {
        let count = fleet.counter(&format!("wasmcustom.loudou.{nothing}"))?;
        ensure!(count == 0, "{nothing}: {count}");
    }
    fleet.stop()
}

/// The numbers of a limit travel in the lease call. Exactly the number in its token must pass for each key. With
/// alternating numbers, exactly the largest number passes.
#[test]
fn keys_have_the_numbers_of_their_tokens_across_the_fleet() -> Result<()> {
    let quota = json!({ "metadata": ["envoy.filters.http.jwt_authn", "quota"], "default": 5, "max": 1_000 });
    let limits = json!([{ "algorithm": "funnel", "capacity": quota, "rate": "1/d" }]);
    let claims = [("x-quota", "quota", json!({ "type": "NUMBER" }))];
    let config =
        Config::new(json!([rule("own", &limits)])).filter_before(headers_to_claims(&claims));
    let settings = json!({ "credit": 0, "timeout": "1s", "lease": "10s" });
    let fleet = Fleet::of(ENVOYS, config, &settings)?;
    for quota in [1_u64, 30, 100, 700] {
        let key = format!("quota-{quota}");
        let counts = fleet.load(REQUESTS, CONNECTIONS, |_| {
            let request = Request::get("/own").header("x-user-id", &key);
            request.header("x-quota", quota.to_string())
        })?;
        ensure!(counts.of(200) == quota, "{quota}: {counts:?}");
        for envoy in &fleet.envoys {
            let bucket = Operator::viewer(envoy)
                .bucket("own", &key)?
                .context("no bucket")?;
            let capacity = bucket.pointer("/limits/0/capacity");
            ensure!(capacity == Some(&json!(quota)), "{bucket:#}");
        }
    }
    let counts = fleet.load(250, CONNECTIONS, |number| {
        let request = Request::get("/own").header("x-user-id", "both");
        request.header("x-quota", if number % 2 == 0 { "30" } else { "100" })
    })?;
    ensure!(counts.of(200) == 100, "{counts:?}");
    fleet.stop()
}

/// Headers and views must show the remaining units of each limit. In this setup, `fast` is full
/// again before the next request, and `wide` has the smaller share of its capacity from the third
/// request on. An admitted response has no reset time, because only a refusal reports it.
#[test]
fn each_limit_shows_its_own_remaining() -> Result<()> {
    let limits = json!([
        { "name": "fast", "algorithm": "funnel", "capacity": 4, "rate": "1000000/s" },
        { "name": "wide", "algorithm": "token_bucket", "capacity": 10, "rate": "1/d" },
    ]);
    let mut rules = json!([rule("per-user", &limits)]);
    rules[0]["respond"] = json!({ "ratelimit_headers": "draft11" });
    let fleet = Fleet::start(2, &rules, &json!({ "credit": 0, "timeout": "1s" }))?;
    let [one, two] = fleet.envoys.as_slice() else {
        bail!("two Envoys");
    };
    let nina = Request::get("/per-user").header("x-user-id", "nina");
    for (used, envoy) in (1..=10).zip([one, two].into_iter().cycle()) {
        let answer = envoy.data().send(&nina)?;
        let state = answer.header("ratelimit").context("no header")?;
        let expected = if used < 3 {
            "\"per-user.fast\";r=3".to_owned()
        } else {
            format!("\"per-user.wide\";r={}", 10 - used)
        };
        ensure!(
            answer.status == 200 && state == expected,
            "{used}: {state} instead of {expected}"
        );
    }
    let refused = one.data().send(&nina)?;
    let state = refused.header("ratelimit").context("no header")?;
    ensure!(
        refused.status == 429 && state.starts_with("\"per-user.wide\";r=0;t="),
        "{refused:?}"
    );
    let violated = refused.json()?["violated-policies"].clone();
    ensure!(violated == json!(["per-user.wide"]), "{violated}");
    for (envoy, fast) in [(one, 4), (two, 3)] {
        let bucket = Operator::viewer(envoy).bucket("per-user", "nina")?;
        let bucket = bucket.context("no bucket")?;
        let remaining = |limit| bucket.pointer(&format!("/limits/{limit}/remaining"));
        ensure!(remaining(0) == Some(&json!(fast)), "{bucket:#}");
        ensure!(remaining(1) == Some(&json!(0)), "{bucket:#}");
        let left = bucket.pointer("/lease/left");
        ensure!(left == Some(&json!([fast, 0])), "{bucket:#}");
    }
    fleet.stop()
}
