//! Headers and bodies for clients: `RateLimit` and `RateLimit-Policy` if the rule enables them, and
//! problem+json on refusals.

use anyhow::{Context as _, Result, ensure};
use loudou_tests::{Config, Envoy, Request, Response};
use serde_json::{Value, json};

const TYPE: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

fn rule(name: &str, limits: &Value, more: &Value) -> Value {
    let mut rule = json!({
        "name": name,
        "key": [{ "header": "x-user-id" }],
        "limits": limits,
        "respond": { "ratelimit_headers": "draft11" },
    });
    if let (Some(rule), Some(more)) = (rule.as_object_mut(), more.as_object()) {
        rule.extend(more.clone());
    }
    rule
}

fn funnel(name: &str, capacity: u32) -> Value {
    json!({ "name": name, "algorithm": "funnel", "capacity": capacity, "rate": "1/d" })
}

fn alice() -> Request {
    Request::get("/").header("x-user-id", "alice")
}

fn header<'a>(answer: &'a Response, name: &str) -> Result<&'a str> {
    let value = answer.header(name);
    value.with_context(|| format!("no {name}: {answer:?}"))
}

fn absent(answer: &Response, name: &str) -> Result<()> {
    ensure!(answer.header(name).is_none(), "{name}: {answer:?}");
    Ok(())
}

#[test]
fn admitted_responses_carry_headers_only_where_the_rule_asks() -> Result<()> {
    let silent = json!({ "respond": { "ratelimit_headers": "none" } });
    let rules = json!([
        rule("silent", &json!([funnel("a", 100)]), &silent),
        rule(
            "shadow",
            &json!([funnel("b", 1)]),
            &json!({ "mode": "shadow" })
        ),
        rule("off", &json!([funnel("c", 1)]), &json!({ "mode": "off" })),
        rule(
            "other-path",
            &json!([funnel("d", 9)]),
            &json!({ "match": { "path": { "prefix": "/d" } } })
        ),
    ]);
    let envoy = Envoy::start(&Config::new(rules))?;
    let mut http = envoy.data();
    for _ in 0..3 {
        let answer = http.send(&alice())?;
        ensure!(answer.status == 200, "{answer:?}");
        absent(&answer, "ratelimit")?;
        absent(&answer, "ratelimit-policy")?;
    }
    ensure!(
        envoy.verdicts("shadow_refused")? == 2,
        "capacity 1, three requests"
    );
    let answer = http.send(&Request::get("/d").header("x-user-id", "alice"))?;
    ensure!(header(&answer, "ratelimit-policy")? == "\"other-path.d\";q=9;w=777600");
    // A request without a key is not limited and gets no headers.
    absent(&http.get("/d")?, "ratelimit-policy")?;
    envoy.stop()
}

#[test]
fn two_limits_are_two_policies_and_the_tighter_state() -> Result<()> {
    let limits = json!([
        { "name": "wide", "algorithm": "token_bucket", "capacity": 10, "rate": "10/h" },
        { "name": "narrow", "algorithm": "funnel", "capacity": 2, "rate": "1/h" },
    ]);
    let envoy = Envoy::start(&Config::new(json!([rule("two", &limits, &json!({}))])))?;
    let mut http = envoy.data();
    let policies = "\"two.wide\";q=10;w=3600, \"two.narrow\";q=2;w=7200";
    for left in ["1", "0"] {
        let answer = http.send(&alice())?;
        ensure!(
            header(&answer, "ratelimit-policy")? == policies,
            "{answer:?}"
        );
        let state = header(&answer, "ratelimit")?;
        ensure!(
            state.starts_with(&format!("\"two.narrow\";r={left};t=")),
            "{state}"
        );
    }
    let refused = http.send(&alice())?;
    ensure!(refused.status == 429 && header(&refused, "ratelimit-policy")? == policies);
    let state = header(&refused, "ratelimit")?;
    let wait = header(&refused, "retry-after")?;
    ensure!(
        state == format!("\"two.narrow\";r=0;t={wait}"),
        "{state}, retry-after {wait}"
    );
    ensure!(
        refused.json()?["violated-policies"] == json!(["two.narrow"]),
        "{refused:?}"
    );
    envoy.stop()
}

#[test]
fn two_rules_are_reported_side_by_side() -> Result<()> {
    let rules = json!([
        rule("one", &json!([funnel("a", 5)]), &json!({})),
        rule("two", &json!([funnel("b", 3)]), &json!({})),
    ]);
    let envoy = Envoy::start(&Config::new(rules))?;
    let answer = envoy.data().send(&alice())?;
    let policies = header(&answer, "ratelimit-policy")?;
    ensure!(
        policies == "\"one.a\";q=5;w=432000, \"two.b\";q=3;w=259200",
        "{policies}"
    );
    let states = header(&answer, "ratelimit")?;
    ensure!(
        states == "\"one.a\";r=4;t=86400, \"two.b\";r=2;t=86400",
        "{states}"
    );
    envoy.stop()
}

#[test]
fn a_refusal_is_a_problem_document() -> Result<()> {
    let limits = json!([funnel("a", 1), funnel("b", 1)]);
    let envoy = Envoy::start(&Config::new(json!([rule("r", &limits, &json!({}))])))?;
    let mut http = envoy.data();
    ensure!(http.send(&alice())?.status == 200);
    let refused = http.send(&alice())?;
    ensure!(
        refused.status == 429 && header(&refused, "content-type")? == "application/problem+json"
    );
    let body = refused.json()?;
    ensure!(body["type"] == TYPE && body["status"] == 429, "{body}");
    ensure!(body["violated-policies"] == json!(["r.a", "r.b"]), "{body}");
    let wait = header(&refused, "retry-after")?;
    let detail = body["detail"].as_str().unwrap_or_default();
    ensure!(
        detail.contains("r.a and r.b") && detail.contains(&format!("{wait} s")),
        "{body}"
    );
    for foreign in ["problems", "current"] {
        ensure!(
            body.get(foreign).is_none(),
            "an empty field of the admin API: {body}"
        );
    }
    // A HEAD request gets the same headers without a body, and the connection stays open.
    let head = http.send(&Request::new("HEAD", "/").header("x-user-id", "alice"))?;
    ensure!(
        head.status == 429 && head.header("retry-after").is_some(),
        "{head:?}"
    );
    ensure!(http.send(&alice())?.status == 429);
    envoy.stop()
}

#[test]
fn requests_that_never_fit_get_no_retry_after() -> Result<()> {
    let dear = rule("dear", &json!([funnel("a", 3)]), &json!({ "cost": 5 }));
    let envoy = Envoy::start(&Config::new(json!([dear])))?;
    let refused = envoy.data().send(&alice())?;
    ensure!(refused.status == 429, "{refused:?}");
    absent(&refused, "retry-after")?;
    ensure!(
        header(&refused, "ratelimit")? == "\"dear.a\";r=3",
        "{refused:?}"
    );
    ensure!(
        refused.json()?["violated-policies"] == json!(["dear.a"]),
        "{refused:?}"
    );
    ensure!(
        envoy.log()?.contains("no request is ever admitted"),
        "the log warns"
    );
    envoy.stop()
}

#[test]
fn a_missing_key_is_skipped_refused_or_shared() -> Result<()> {
    let policy = |name: &str, policy: &str| {
        let path = format!("/{name}");
        let more = json!({ "on_missing_key": policy, "match": { "path": { "prefix": path } } });
        rule(name, &json!([funnel("a", 1)]), &more)
    };
    let rules = json!([
        policy("skip", "skip"),
        policy("refuse", "refuse"),
        policy("share", "share")
    ]);
    let envoy = Envoy::start(&Config::new(rules))?;
    let mut http = envoy.data();
    for _ in 0..3 {
        ensure!(http.get("/skip")?.status == 200);
        let refused = http.get("/refuse")?;
        ensure!(refused.status == 429, "{refused:?}");
        absent(&refused, "retry-after")?;
        let body = refused.json()?;
        ensure!(
            body["type"] == "tag:loudou,2026:key-missing"
                && body["title"] == "Rate-limit key missing",
            "{body}"
        );
        ensure!(
            refused.json()?["violated-policies"] == json!(["refuse"]),
            "{refused:?}"
        );
    }
    // An empty header counts as a missing header, and both requests share one bucket.
    let empty = Request::get("/share").header("x-user-id", "");
    ensure!(http.get("/share")?.status == 200);
    ensure!(http.send(&empty)?.status == 429);
    ensure!(
        http.send(&Request::get("/share").header("x-user-id", "alice"))?
            .status
            == 200
    );
    envoy.stop()
}

/// A rule can refuse requests without a key with a different status than requests over the limit.
#[test]
fn a_missing_key_has_a_status_of_its_own() -> Result<()> {
    let more = json!({ "on_missing_key": "refuse", "refuse": { "status_without_key": 400 } });
    let rules = json!([rule("r", &json!([funnel("a", 1)]), &more)]);
    let envoy = Envoy::start(&Config::new(rules))?;
    let mut http = envoy.data();
    let refused = http.get("/")?;
    ensure!(
        refused.status == 400 && refused.json()?["status"] == 400,
        "{refused:?}"
    );
    ensure!(http.send(&alice())?.status == 200);
    let refused = http.send(&alice())?;
    ensure!(
        refused.status == 429 && refused.json()?["type"] == TYPE,
        "{refused:?}"
    );
    envoy.stop()
}

/// Parses the `RateLimit` header into the remaining requests (`r`) and the seconds until more are
/// available (`t`).
fn state(answer: &Response) -> Result<(u64, Option<u64>)> {
    let text = header(answer, "ratelimit")?;
    let number = |name: &str| -> Option<u64> {
        let part = text.split(';').find_map(|part| part.strip_prefix(name))?;
        part.parse().ok()
    };
    Ok((number("r=").context("r")?, number("t=")))
}

/// A concurrency limit reports no reset, because a slot becomes free when a request ends. The lease
/// of a slot is only an upper bound.
#[test]
fn places_have_no_reset() -> Result<()> {
    let limits = json!([{ "name": "a", "algorithm": "concurrency", "capacity": 2 }]);
    let both = json!({ "respond": { "ratelimit_headers": "both" } });
    let envoy = Envoy::start(&Config::new(json!([rule("r", &limits, &both)])))?;
    let answer = envoy.data().send(&alice())?;
    ensure!(answer.status == 200, "{answer:?}");
    ensure!(state(&answer)? == (1, None), "{answer:?}");
    absent(&answer, "x-ratelimit-reset")?;
    ensure!(
        header(&answer, "x-ratelimit-remaining")? == "1",
        "{answer:?}"
    );
    envoy.stop()
}

/// With `both`, the item of the tightest limit also has the parameters of draft 7. Parsers of newer
/// drafts ignore those parameters.
#[test]
fn both_serves_parsers_of_earlier_drafts() -> Result<()> {
    let both = json!({ "respond": { "ratelimit_headers": "both" } });
    let rules = json!([
        rule("wide", &json!([funnel("a", 50)]), &both),
        rule("tight", &json!([funnel("b", 3)]), &both),
        rule("draft", &json!([funnel("c", 1)]), &json!({})),
    ]);
    let envoy = Envoy::start(&Config::new(rules))?;
    let answer = envoy.data().send(&alice())?;
    ensure!(
        header(&answer, "ratelimit")?
            == "\"wide.a\";r=49;t=86400, \"tight.b\";r=2;t=86400;limit=3;remaining=2;reset=86400, \
                \"draft.c\";r=0;t=86400",
        "{answer:?}"
    );
    ensure!(header(&answer, "x-ratelimit-limit")? == "3", "{answer:?}");
    envoy.stop()
}
