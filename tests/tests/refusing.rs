//! A rule's `refuse` decides what refused clients get, field by field.

use anyhow::{Context as _, Result, ensure};
use loudou_tests::{Config, Envoy, Request, Response};
use serde_json::{Value, json};

/// The second request of a user is refused, by a rule with this `refuse`.
fn start(refuse: &Value) -> Result<Envoy> {
    Envoy::start(&Config::new(json!([{
        "name": "r",
        "key": [{ "header": "x-user-id" }],
        "limits": [{ "name": "l", "algorithm": "funnel", "capacity": 1, "rate": "1/d" }],
        "refuse": refuse,
    }])))
}

fn refused(envoy: &Envoy, method: &str) -> Result<Response> {
    let mut http = envoy.data();
    let request = Request::new(method, "/").header("x-user-id", method);
    ensure!(http.send(&request)?.status == 200);
    let answer = http.send(&request)?;
    // The connection stays open, and the next answer is intact.
    ensure!(http.send(&request)?.status == answer.status);
    let mut names: Vec<&String> = answer.headers.iter().map(|(name, _)| name).collect();
    let count = names.len();
    names.sort();
    names.dedup();
    ensure!(names.len() == count, "a header twice: {answer:?}");
    Ok(answer)
}

fn header<'a>(answer: &'a Response, name: &str) -> Result<&'a str> {
    let value = answer.header(name);
    value.with_context(|| format!("no {name}: {answer:?}"))
}

#[test]
fn the_status_is_the_rules() -> Result<()> {
    let envoy = start(&json!({ "status": 503 }))?;
    let answer = refused(&envoy, "GET")?;
    ensure!(
        answer.status == 503 && answer.json()?["status"] == 503,
        "{answer:?}"
    );
    ensure!(
        header(&answer, "retry-after")?.parse::<u32>()? > 80_000,
        "{answer:?}"
    );
    envoy.stop()
}

#[test]
fn the_body_may_be_a_text() -> Result<()> {
    let text = "<h1>Later — später</h1>\n";
    let body = json!({ "text": text, "content_type": "text/html; charset=utf-8" });
    let envoy = start(&json!({ "body": body }))?;
    let answer = refused(&envoy, "POST")?;
    ensure!(answer.status == 429 && answer.text() == text, "{answer:?}");
    ensure!(header(&answer, "content-type")? == "text/html; charset=utf-8");
    // HEAD: the headers of a GET, no body.
    let head = refused(&envoy, "HEAD")?;
    ensure!(head.status == 429 && head.body.is_empty(), "{head:?}");
    ensure!(header(&head, "content-type")? == "text/html; charset=utf-8");
    ensure!(head.header("retry-after").is_some(), "{head:?}");
    envoy.stop()
}

#[test]
fn there_may_be_no_body() -> Result<()> {
    let envoy = start(&json!({ "body": "none" }))?;
    let answer = refused(&envoy, "GET")?;
    ensure!(answer.status == 429 && answer.body.is_empty(), "{answer:?}");
    ensure!(answer.header("content-type").is_none(), "{answer:?}");
    ensure!(
        header(&answer, "ratelimit-policy")? == "\"r.l\";q=1;w=86400",
        "{answer:?}"
    );
    envoy.stop()
}

#[test]
fn there_may_be_more_headers() -> Result<()> {
    let headers = json!({ "X-Refused-By": "loudou", "cache-control": "no-store" });
    let envoy = start(&json!({ "headers": headers }))?;
    let answer = refused(&envoy, "GET")?;
    ensure!(header(&answer, "x-refused-by")? == "loudou", "{answer:?}");
    ensure!(
        header(&answer, "cache-control")? == "no-store",
        "{answer:?}"
    );
    ensure!(header(&answer, "content-type")? == "application/problem+json");
    let admitted = envoy.data().get("/")?;
    ensure!(admitted.header("x-refused-by").is_none(), "{admitted:?}");
    envoy.stop()
}
