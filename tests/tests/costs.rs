//! Costs of requests in a real Envoy, taken from a header, from metadata, or from the length of the body.

use anyhow::{Context as _, Result, ensure};
use loudou_tests::filters::headers_to_claims;
use loudou_tests::{Config, Envoy, Request};
use serde_json::{Value, json};

fn rule(name: &str, cost: &Value) -> Value {
    json!({
        "name": name,
        "match": { "path": { "exact": format!("/{name}") } },
        "key": [],
        "cost": cost,
        "limits": [{ "name": "l", "algorithm": "funnel", "capacity": 1_000, "rate": "1/d" }],
        "respond": { "ratelimit_headers": "draft11" },
    })
}

#[test]
fn headers_and_bodies_set_the_cost_of_a_request() -> Result<()> {
    let rules = json!([
        rule(
            "header",
            &json!({ "header": "x-cost", "default": 2, "max": 50 })
        ),
        rule("body", &json!({ "request_bytes": 1024 })),
        rule(
            "metadata",
            &json!({ "metadata": ["envoy.filters.http.jwt_authn", "weight"], "default": 2, "max": 50 }),
        ),
    ]);
    let weights = headers_to_claims(&[("x-weight", "weight", json!({ "type": "NUMBER" }))]);
    let config = Config::new(rules).concurrency(1).filter_before(weights);
    let envoy = Envoy::start(&config)?;
    let named = |cost: &[u8]| Request::get("/header").header("x-cost", cost);
    let weighed = |weight: &[u8]| Request::get("/metadata").header("x-weight", weight);
    let sent = |bytes: usize| Request::post("/body").body(vec![b'x'; bytes]);
    let mut http = envoy.data();
    let mut left = [1_000, 1_000, 1_000];
    for (rule, request, cost) in [
        (0, Request::get("/header"), 2),
        (0, named(b"7"), 7),
        (0, named(b"51"), 50),
        (0, named(b"99999999999999999999999"), 50),
        // An invalid value costs the default, and is counted.
        (0, named(b"0"), 2),
        (0, named(b"-5"), 2),
        (0, named(b"\xff\xfe"), 2),
        (1, Request::get("/body"), 1),
        (1, sent(0), 1),
        (1, sent(1024), 1),
        (1, sent(1025), 2),
        (1, sent(10 * 1024), 10),
        // A body without a content length.
        (1, sent(10 * 1024).chunked(1024), 1),
        (2, Request::get("/metadata"), 2),
        (2, weighed(b"7"), 7),
        (2, weighed(b"51.0"), 50),
        (2, weighed(b"1e300"), 2),
        (2, weighed(b"-5"), 2),
        (2, weighed(b"1.5"), 2),
    ] {
        let answer = http.send(&request)?;
        let state = answer.header("ratelimit").context("no RateLimit")?;
        let left = left.get_mut(rule).context("a rule")?;
        *left -= cost;
        ensure!(
            state.contains(&format!(";r={left}")),
            "{state}, not {left}: {request:?}"
        );
    }
    let odd = envoy.verdicts("invalid_costs")?;
    ensure!(odd == 6, "{odd} invalid costs");
    ensure!(!envoy.log()?.contains("panicked"));
    envoy.stop()
}
