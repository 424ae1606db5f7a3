//! Bodies of admin API calls. A body arrives complete, and the answer reports every problem of an
//! invalid body.

use anyhow::{Context as _, Result, ensure};
use loudou_tests::one_rule::{Scene, config, edit, play, put, unharmed};
use loudou_tests::{Envoy, Operator, Request, VIEW_TOKEN, expect_problem};
use serde_json::json;

/// Maximum body size of the admin API, in bytes.
const MAX_BODY: usize = 64 * 1024;

/// Runs all scenes on one Envoy and checks after each scene that the rule is as configured.
#[test]
fn bad_bodies_change_nothing() -> Result<()> {
    let scenes: &[Scene] = &[
        ("bodies that are not edits", bodies_that_are_not_edits),
        (
            "every problem of a body is reported",
            every_problem_of_a_body_is_reported,
        ),
        (
            "bodies of the wrong type are refused",
            bodies_of_the_wrong_type_are_refused,
        ),
        ("larger bodies are refused", larger_bodies_are_refused),
        (
            "a duplicate field is reported at its place",
            a_duplicate_field_is_reported_at_its_place,
        ),
        (
            "the problems of a hostile body are bounded",
            the_problems_of_a_hostile_body_are_bounded,
        ),
    ];
    play(&config(2), scenes, unharmed)
}

fn bodies_that_are_not_edits(envoy: &Envoy) -> Result<()> {
    let deep = format!("{}{}", "[".repeat(30_000), "]".repeat(30_000));
    let nested = format!("{}1{}", "{\"limits\":".repeat(5_000), "}".repeat(5_000));
    let bodies: [&[u8]; 18] = [
        b"",
        b"{",
        b"null",
        b"[]",
        b"\"x\"",
        b"{}",
        b"{\"limits\":[]}",
        b"{\"mode\":\"enforce\"",
        b"\xff\xfe",
        b"{\"mode\":1e999}",
        b"{\"mode\":\"\\ud800\"}",
        b"{\"limits\":{}}",
        b"{\"cost\":3}",
        b"{\"mode\":\"off\",\"mode\":\"shadow\"}",
        b"{\"overrides\":{\"k\":{\"scale\":2,\"\\u0073cale\":3}}}",
        deep.as_bytes(),
        nested.as_bytes(),
        b"{\"limits\":[{\"algorithm\":\"funnel\",\"capacity\":0,\"rate\":\"0/s\"}]}",
    ];
    for body in bodies {
        let request = put("/v1/rules/r")
            .header("content-type", "application/json")
            .body(body);
        let shown = String::from_utf8_lossy(body.get(..body.len().min(60)).unwrap_or_default())
            .into_owned();
        expect_problem(&envoy.admin().send(&request)?, 400).context(shown)?;
    }
    Ok(())
}

fn every_problem_of_a_body_is_reported(envoy: &Envoy) -> Result<()> {
    let body = json!({ "mode": "enforced", "limits": [
        { "algorithm": "funel", "capacity": 1, "rate": "1/s" },
        { "algorithm": "funnel", "capacity": 0, "rate": "0/s" },
    ] });
    let answer = envoy.admin().send(&put("/v1/rules/r").json(&body))?;
    expect_problem(&answer, 400)?;
    let problems = answer.json()?["problems"].clone();
    let paths: Vec<&str> = problems
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|p| p["path"].as_str())
        .collect();
    for path in [
        "limits[0].algorithm",
        "limits[1].capacity",
        "limits[1].rate",
        "mode",
    ] {
        ensure!(paths.contains(&path), "{path} is not among {paths:?}");
    }
    let meant = problems
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|p| p["suggestion"].as_str());
    ensure!(meant.eq(["funnel", "enforce"]), "{problems}");
    let ours = loudou_rules::config::parse_edit(&body)
        .err()
        .context("no edit")?;
    let ours: Vec<String> = ours
        .iter()
        .map(|problem| problem.path.to_string())
        .collect();
    ensure!(ours == paths, "{ours:?} {paths:?}");
    Ok(())
}

fn bodies_of_the_wrong_type_are_refused(envoy: &Envoy) -> Result<()> {
    let types = [
        None,
        Some("text/plain"),
        Some("application/x-www-form-urlencoded"),
        Some("multipart/form-data"),
        Some(""),
        Some("application/jsonx"),
        Some("text/plain, application/json"),
        Some("\u{e9}"),
    ];
    for kind in types {
        let mut request = put("/v1/rules/r").body(edit(9).to_string());
        if let Some(kind) = kind {
            request = request.header("content-type", kind);
        }
        expect_problem(&envoy.admin().send(&request)?, 415).with_context(|| format!("{kind:?}"))?;
    }
    let form = Request::post("/v1/buckets/r/k/reset")
        .header("content-type", "text/plain")
        .body("{}");
    expect_problem(&Operator::editor(envoy).send(form)?, 415)?;
    for kind in ["application/json; charset=utf-8", "Application/JSON"] {
        let request = put("/v1/rules/r?dry_run")
            .header("content-type", kind)
            .body(edit(9).to_string());
        ensure!(envoy.admin().send(&request)?.status == 200, "{kind}");
    }
    Ok(())
}

/// Returns a valid edit of exactly `bytes` bytes.
fn sized(capacity: u32, bytes: usize) -> String {
    let text = edit(capacity).to_string();
    let padding = " ".repeat(bytes.saturating_sub(text.len()));
    format!("{text}{padding}")
}

#[test]
fn bodies_arrive_whole_up_to_the_largest() -> Result<()> {
    let envoy = Envoy::start(&config(2))?;
    let mut ops = Operator::editor(&envoy);
    let json = |body: String| {
        put("/v1/rules/r")
            .header("content-type", "application/json")
            .body(body)
    };
    let mut capacity = 10;
    let mut expect_taken = |request: Request, capacity: u32, what: &str| -> Result<()> {
        let answer = envoy.admin().send(&request)?;
        ensure!(
            answer.status == 200,
            "{what}: {} {}",
            answer.status,
            answer.text()
        );
        let rule = ops.get("/v1/rules/r")?;
        ensure!(
            rule["rule"]["limits"][0]["capacity"] == capacity,
            "{what}: {rule}"
        );
        Ok(())
    };
    for size in [100, 16 * 1024, MAX_BODY - 1, MAX_BODY] {
        capacity += 1;
        expect_taken(
            json(sized(capacity, size)),
            capacity,
            &format!("{size} bytes"),
        )?;
        for chunk in [size, 4096, 7 * 1024 + 1] {
            capacity += 1;
            let request = json(sized(capacity, size)).chunked(chunk);
            expect_taken(
                request,
                capacity,
                &format!("{size} bytes in chunks of {chunk}"),
            )?;
        }
    }
    capacity += 1;
    expect_taken(
        json(sized(capacity, 100)).chunked(1),
        capacity,
        "byte by byte",
    )?;
    envoy.stop()
}

fn larger_bodies_are_refused(envoy: &Envoy) -> Result<()> {
    let json = |body: String| {
        put("/v1/rules/r")
            .header("content-type", "application/json")
            .body(body)
    };
    for size in [MAX_BODY + 1, 1024 * 1024, 3 * 1024 * 1024] {
        let answer = envoy.admin().send(&json(sized(9, size)))?;
        expect_problem(&answer, 413).with_context(|| format!("{size} bytes"))?;
        // Above Envoy's own buffer limit (1 MiB), Envoy may answer first, with its own body.
        let answer = envoy.admin().send(&json(sized(9, size)).chunked(4096))?;
        ensure!(answer.status == 413, "{size} bytes in chunks: {answer:?}");
    }
    // The filter checks the permission to edit before it checks the size of the body.
    let answer = envoy.admin().send(
        &Request::new("PUT", "/v1/rules/r")
            .token(VIEW_TOKEN)
            .header("content-type", "application/json")
            .body("x".repeat(MAX_BODY)),
    )?;
    expect_problem(&answer, 403)?;
    Ok(())
}

fn a_duplicate_field_is_reported_at_its_place(envoy: &Envoy) -> Result<()> {
    let body =
        r#"{"limits":[{"name":"l","algorithm":"funnel","capacity":9,"capacity":8,"rate":"1/d"}]}"#;
    let request = put("/v1/rules/r").header("content-type", "application/json");
    let answer = envoy.admin().send(&request.body(body))?;
    expect_problem(&answer, 400)?;
    let problem = answer.json()?["problems"][0].clone();
    ensure!(problem["path"] == "limits[0].capacity", "{problem}");
    ensure!(problem["message"] == "duplicate field", "{problem}");
    Ok(())
}

fn the_problems_of_a_hostile_body_are_bounded(envoy: &Envoy) -> Result<()> {
    let fields: Vec<String> = (0..5_000).map(|n| format!("\"f{n}\":0,")).collect();
    let fields = fields.concat();
    let request = put("/v1/rules/r").header("content-type", "application/json");
    let request = request.body(format!("{{{fields}\"mode\":\"off\"}}"));
    let answer = envoy.admin().send(&request)?;
    expect_problem(&answer, 400)?;
    ensure!(answer.body.len() < 64 * 1024, "{} bytes", answer.body.len());
    let answer = answer.json()?;
    let shown = answer["problems"].as_array().context("problems")?.len();
    ensure!(answer["problems_left_out"] == 5_000 - shown, "{shown}");
    Ok(())
}
