//! The shortest end-to-end test. Envoy runs the filter, and the filter limits requests and reports
//! the limit in the standard headers.

use anyhow::{Result, ensure};
use loudou_tests::{Config, Envoy, Request, Response};
use serde_json::{Value, json};

fn rules() -> Value {
    json!([{
        "name": "per-user",
        "match": { "path": { "prefix": "/reply" } },
        "key": [{ "header": "x-user-id" }],
        "limits": [{ "name": "burst", "algorithm": "funnel", "capacity": 3, "rate": "1/h" }],
        "respond": { "ratelimit_headers": "draft11" },
    }])
}

fn header<'a>(answer: &'a Response, name: &str) -> &'a str {
    answer.header(name).unwrap_or("(absent)")
}

#[test]
fn the_fourth_request_is_refused() -> Result<()> {
    let envoy = Envoy::start(&Config::new(rules()))?;
    let mut http = envoy.data();
    let alice = Request::get("/reply/1").header("x-user-id", "alice");
    for left in ["2", "1", "0"] {
        let answer = http.send(&alice)?;
        ensure!(
            answer.status == 200 && answer.text() == "ok\n",
            "{answer:?}"
        );
        let limit = header(&answer, "ratelimit");
        ensure!(
            limit.starts_with("\"per-user.burst\"") && limit.contains(&format!("r={left}")),
            "{limit}"
        );
    }

    let refused = http.send(&alice)?;
    ensure!(refused.status == 429, "{refused:?}");
    let retry_after: u32 = header(&refused, "retry-after").parse()?;
    ensure!(
        (3_500..=3_600).contains(&retry_after),
        "one unit leaks in an hour: {retry_after}"
    );
    ensure!(header(&refused, "ratelimit").contains("r=0"), "{refused:?}");
    let policy = header(&refused, "ratelimit-policy");
    ensure!(
        policy.starts_with("\"per-user.burst\"") && policy.contains("q=3"),
        "{policy}"
    );
    ensure!(
        header(&refused, "content-type") == "application/problem+json",
        "{refused:?}"
    );
    ensure!(
        refused.json()?.to_string().contains("burst"),
        "names the limit: {}",
        refused.text()
    );

    let bob = http.send(&Request::get("/reply/1").header("x-user-id", "bob"))?;
    ensure!(
        bob.status == 200,
        "another user has a bucket of his own: {bob:?}"
    );
    let elsewhere = http.send(&Request::get("/").header("x-user-id", "alice"))?;
    ensure!(
        elsewhere.status == 200,
        "the rule matches /reply only: {elsewhere:?}"
    );
    ensure!(
        envoy.verdicts("refused")? == 1,
        "{:?}",
        envoy.stats("loudou")?
    );
    envoy.stop()
}
