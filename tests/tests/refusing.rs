//! The fields of a rule's `refuse` set the response to refused requests.

use anyhow::{Context as _, Result, ensure};
use loudou_tests::one_rule::{Scene, play};
use loudou_tests::{Config, Envoy, Request, Response};
use serde_json::{Value, json};

const TEXT: &str = "<h1>Later — später</h1>\n";

/// Each scene tests one field, with a separate rule and path.
#[test]
fn each_field_of_refuse() -> Result<()> {
    let scenes: &[Scene] = &[
        ("status", the_status_is_the_rules),
        ("text", the_body_may_be_a_text),
        ("none", there_may_be_no_body),
        ("headers", there_may_be_more_headers),
    ];
    let text = json!({ "text": TEXT, "content_type": "text/html; charset=utf-8" });
    let headers = json!({ "X-Refused-By": "loudou", "cache-control": "no-store" });
    let rules = json!([
        rule("status", &json!({ "status": 503 })),
        rule("text", &json!({ "body": text })),
        rule("none", &json!({ "body": "none" })),
        rule("headers", &json!({ "headers": headers })),
    ]);
    play(&Config::new(rules), scenes, |_envoy| Ok(()))
}

/// Returns a rule that refuses the second request of a user, with this `refuse`.
fn rule(name: &str, refuse: &Value) -> Value {
    json!({
        "name": name,
        "match": { "path": { "exact": format!("/{name}") } },
        "key": [{ "header": "x-user-id" }],
        "limits": [{ "name": "l", "algorithm": "funnel", "capacity": 1, "rate": "1/d" }],
        "refuse": refuse,
    })
}

fn refused(envoy: &Envoy, method: &str, path: &str) -> Result<Response> {
    let mut http = envoy.data();
    let request = Request::new(method, path).header("x-user-id", method);
    ensure!(http.send(&request)?.status == 200);
    let answer = http.send(&request)?;
    // The connection stays open, and the next response is intact.
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

fn the_status_is_the_rules(envoy: &Envoy) -> Result<()> {
    let answer = refused(envoy, "GET", "/status")?;
    ensure!(
        answer.status == 503 && answer.json()?["status"] == 503,
        "{answer:?}"
    );
    ensure!(
        header(&answer, "retry-after")?.parse::<u32>()? > 80_000,
        "{answer:?}"
    );
    Ok(())
}

fn the_body_may_be_a_text(envoy: &Envoy) -> Result<()> {
    let answer = refused(envoy, "POST", "/text")?;
    ensure!(answer.status == 429 && answer.text() == TEXT, "{answer:?}");
    ensure!(header(&answer, "content-type")? == "text/html; charset=utf-8");
    // A HEAD request gets the same headers as a GET request, without a body.
    let head = refused(envoy, "HEAD", "/text")?;
    ensure!(head.status == 429 && head.body.is_empty(), "{head:?}");
    ensure!(header(&head, "content-type")? == "text/html; charset=utf-8");
    ensure!(head.header("retry-after").is_some(), "{head:?}");
    Ok(())
}

fn there_may_be_no_body(envoy: &Envoy) -> Result<()> {
    let answer = refused(envoy, "GET", "/none")?;
    ensure!(answer.status == 429 && answer.body.is_empty(), "{answer:?}");
    ensure!(answer.header("content-type").is_none(), "{answer:?}");
    ensure!(
        header(&answer, "ratelimit-policy")? == "\"none.l\";q=1;w=86400",
        "{answer:?}"
    );
    Ok(())
}

fn there_may_be_more_headers(envoy: &Envoy) -> Result<()> {
    let answer = refused(envoy, "GET", "/headers")?;
    ensure!(header(&answer, "x-refused-by")? == "loudou", "{answer:?}");
    ensure!(
        header(&answer, "cache-control")? == "no-store",
        "{answer:?}"
    );
    ensure!(header(&answer, "content-type")? == "application/problem+json");
    let admitted = envoy.data().get("/headers")?;
    ensure!(admitted.header("x-refused-by").is_none(), "{admitted:?}");
    Ok(())
}
