//! `Retry-After` is reliable: a request that waits for it is admitted, and one a second earlier is
//! refused.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use loudou_tests::{Config, Envoy, Http, Request, Response, eventually, now};
use serde_json::{Value, json};

/// Longer than any wait in these tests.
const PATIENCE: Duration = Duration::from_secs(30);

fn config(limits: &Value) -> Config {
    Config::new(json!([{ "name": "r", "key": [{ "header": "x-user-id" }], "limits": limits }]))
}

fn alice() -> Request {
    Request::get("/").header("x-user-id", "alice")
}

/// An answer, with the instants at which the request went out and the answer arrived. The filter decided
/// between them.
struct Probe {
    answer: Response,
    sent: Instant,
    got: Instant,
}

fn probe(http: &mut Http, request: &Request) -> Result<Probe> {
    let sent = now();
    let answer = http.send(request)?;
    let got = now();
    Ok(Probe { answer, sent, got })
}

fn retry_after(answer: &Response) -> Result<u64> {
    let value = answer.header("retry-after");
    let value = value.with_context(|| format!("no retry-after: {answer:?}"))?;
    value.parse().context("retry-after in whole seconds")
}

/// Sends requests until one is admitted. A request that is certainly too early must be refused, and one
/// that is certainly late enough must be admitted; returns how many of each there were.
fn ask_until_admitted(http: &mut Http, refused: &Probe) -> Result<(u32, u32)> {
    let wait = Duration::from_secs(retry_after(&refused.answer)?);
    let (mut early, mut late) = (0, 0);
    eventually(PATIENCE, "a request to be admitted", || {
        let again = probe(http, &alice())?;
        let admitted = again.answer.status == 200;
        ensure!(admitted || again.answer.status == 429, "{:?}", again.answer);
        if again.got + Duration::from_secs(1) <= refused.sent + wait {
            early += 1;
            ensure!(!admitted, "admitted a second before retry-after: {wait:?}");
        }
        if again.sent >= refused.got + wait {
            late += 1;
            ensure!(admitted, "refused after retry-after: {wait:?}");
        }
        Ok(admitted.then_some(()))
    })?;
    Ok((early, late))
}

/// Empties a new bucket of `capacity`, and sends requests without pause until it admits again, three times.
/// The refusals in between are many, so that any consumption by them would show.
fn constant_requests_wait_for_retry_after(limits: &Value, capacity: u32) -> Result<()> {
    let envoy = Envoy::start(&config(limits))?;
    let mut http = envoy.data();
    for _ in 0..capacity {
        ensure!(http.send(&alice())?.status == 200);
    }
    let mut early_in_all = 0;
    for _ in 0..3 {
        let mut refused = probe(&mut http, &alice())?;
        // A lump of several: the rest of it is used at once.
        while refused.answer.status == 200 {
            refused = probe(&mut http, &alice())?;
        }
        let (early, _) = ask_until_admitted(&mut http, &refused)?;
        early_in_all += early;
    }
    // The first wait may be short: lumps come at multiples of the period, whenever the test starts. The
    // others begin right after a lump, and are whole.
    ensure!(early_in_all > 10, "only {early_in_all} requests came early");
    envoy.stop()
}

/// Waits for `Retry-After` without requests; then one request must be admitted, and no other.
fn patience_is_rewarded(limits: &Value) -> Result<()> {
    let envoy = Envoy::start(&config(limits))?;
    let mut http = envoy.data();
    let mut refused = probe(&mut http, &alice())?;
    while refused.answer.status == 200 {
        refused = probe(&mut http, &alice())?;
    }
    let wait = Duration::from_secs(retry_after(&refused.answer)?);
    eventually(PATIENCE, "the time to try again", || {
        Ok((now() >= refused.got + wait).then_some(()))
    })?;
    let answer = http.send(&alice())?;
    ensure!(answer.status == 200, "{wait:?}: {answer:?}");
    envoy.stop()
}

#[test]
fn a_funnel_keeps_its_retry_after() -> Result<()> {
    let limits = json!([{ "algorithm": "funnel", "capacity": 2, "rate": "1/3s" }]);
    constant_requests_wait_for_retry_after(&limits, 2)?;
    patience_is_rewarded(&limits)
}

#[test]
fn a_greedy_token_bucket_keeps_its_retry_after() -> Result<()> {
    let limits = json!([{ "algorithm": "token_bucket", "capacity": 2, "rate": "1/3s" }]);
    constant_requests_wait_for_retry_after(&limits, 2)?;
    patience_is_rewarded(&limits)
}

#[test]
fn a_token_bucket_in_lumps_keeps_its_retry_after() -> Result<()> {
    let limits = json!([{
        "algorithm": "token_bucket", "capacity": 3, "rate": "2/3s", "refill": "interval",
    }]);
    constant_requests_wait_for_retry_after(&limits, 3)?;
    patience_is_rewarded(&limits)
}

#[test]
fn two_limits_wait_for_the_slower() -> Result<()> {
    let limits = json!([
        { "name": "fast", "algorithm": "funnel", "capacity": 2, "rate": "1/2s" },
        { "name": "slow", "algorithm": "token_bucket", "capacity": 2, "rate": "1/3s" },
    ]);
    constant_requests_wait_for_retry_after(&limits, 2)?;
    patience_is_rewarded(&limits)
}
