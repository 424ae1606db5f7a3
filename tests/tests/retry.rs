//! `Retry-After` is reliable. A request after this time is admitted, and a request a second earlier
//! is refused.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use loudou_tests::{Config, Envoy, Http, Request, Response, eventually, now};
use serde_json::{Value, json};

/// Timeout, longer than any wait in these tests.
const PATIENCE: Duration = Duration::from_secs(30);

fn config(limits: &Value) -> Config {
    Config::new(json!([{ "name": "r", "key": [{ "header": "x-user-id" }], "limits": limits }]))
}

fn alice() -> Request {
    Request::get("/").header("x-user-id", "alice")
}

/// A response, with the time at which the request was sent and the time at which the response
/// arrived. The filter decided between these times.
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

/// Sends requests until one is admitted. A request that is certainly too early must be refused, and
/// a request that is certainly late enough must be admitted. Returns the number of each kind.
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

/// Uses up a new bucket of `capacity`, and sends requests without a pause until it admits again,
/// three times. The many refusals in between would reveal any units that a refusal takes.
fn constant_requests_wait_for_retry_after(limits: &Value, capacity: u32) -> Result<()> {
    let envoy = Envoy::start(&config(limits))?;
    let mut http = envoy.data();
    for _ in 0..capacity {
        ensure!(http.send(&alice())?.status == 200);
    }
    let mut early_in_all = 0;
    for _ in 0..3 {
        let mut refused = probe(&mut http, &alice())?;
        // A refill may return several tokens at once. Use up the rest.
        while refused.answer.status == 200 {
            refused = probe(&mut http, &alice())?;
        }
        let (early, _) = ask_until_admitted(&mut http, &refused)?;
        early_in_all += early;
    }
    // The first wait may be short, because refills come at fixed multiples of the period and the
    // test can start at any time. Later waits begin right after a refill, so they last a whole
    // period.
    ensure!(early_in_all > 10, "only {early_in_all} requests came early");
    envoy.stop()
}

/// Waits for the time in `Retry-After` without requests. The next request must be admitted.
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
