//! Hostile admin API calls, except their bodies. Each call gets a problem document and changes
//! nothing.

use anyhow::{Context as _, Result, ensure};
use loudou_tests::one_rule::{Scene, config, edit, play, put, unharmed};
use loudou_tests::{Envoy, Operator, Request, expect_problem};
use serde_json::json;

/// Runs all scenes on one Envoy and checks after each scene that the rule is as configured.
#[test]
fn hostile_calls_change_nothing() -> Result<()> {
    let scenes: &[Scene] = &[
        ("unknown paths are refused", unknown_paths_are_refused),
        ("wrong methods are refused", wrong_methods_are_refused),
        ("invalid queries are refused", invalid_queries_are_refused),
        ("reasons are one short line", reasons_are_one_short_line),
        ("a bare flag makes no edit", a_bare_flag_makes_no_edit),
        (
            "if match is read as a list over all lines",
            if_match_is_read_as_a_list_over_all_lines,
        ),
        (
            "head answers as get without a body",
            head_answers_as_get_without_a_body,
        ),
    ];
    play(&config(2), scenes, unharmed)
}

fn unknown_paths_are_refused(envoy: &Envoy) -> Result<()> {
    let mut ops = Operator::editor(envoy);
    let long = format!("/v1/buckets/r/{}", "k".repeat(5_000));
    let escaped = format!("/v1/buckets/r/{}", "%25".repeat(10_000));
    for path in [
        long.as_str(),
        &escaped,
        "/v1/buckets/r/%ff%fe",
        "/v1/%c3%28",
        "/v1/status?%ff=1",
    ] {
        expect_problem(&ops.send(Request::get(path))?, 400)
            .with_context(|| format!("{path:.60}"))?;
    }
    let unknown = [
        "/",
        "//",
        "/v1",
        "/v1/",
        "/v2/status",
        "/V1/status",
        "/v1/status/",
        "/v1/rules/none",
        "/v1/rules/r/x",
        "/v1/buckets/r",
        "/v1/buckets/none/k",
        "/v1/buckets/r/%zz",
        "/v1/buckets/r/%",
        "/v1/buckets/r/%00%0a%1b[31m",
        "/v1/rules/%0a%1b[2J",
        "/v1/rules/..%2f..%2fetc",
        "/v1/buckets//k",
        "/v1/buckets/r/k/reset/x",
        "/favicon.ico",
    ];
    for path in unknown {
        expect_problem(&ops.send(Request::get(path))?, 404).context(path)?;
    }
    Ok(())
}

fn wrong_methods_are_refused(envoy: &Envoy) -> Result<()> {
    let mut ops = Operator::editor(envoy);
    let cases = [
        ("POST", "/v1/status", "GET, HEAD"),
        ("DELETE", "/v1/rules", "GET, HEAD"),
        ("PATCH", "/v1/rules/r", "GET, HEAD, PUT, DELETE"),
        ("PUT", "/v1/buckets/r/k", "GET, HEAD"),
        ("GET", "/v1/buckets/r/k/reset", "POST"),
        ("OPTIONS", "/v1/events", "GET, HEAD"),
        ("TRACE", "/v1/export", "GET, HEAD"),
    ];
    for (method, path, allowed) in cases {
        let answer = ops.send(Request::new(method, path))?;
        expect_problem(&answer, 405).with_context(|| format!("{method} {path}"))?;
        ensure!(
            answer.header("allow") == Some(allowed),
            "{method} {path}: {answer:?}"
        );
    }
    Ok(())
}

/// Paths of reads with an unknown, empty or invalid parameter.
const INVALID: &[&str] = &[
    "/v1/status?x=1",
    "/v1/rules?rule=r",
    "/v1/rules/r?verbose",
    "/v1/export?format=yaml",
    "/v1/buckets?limits=3",
    "/v1/buckets?limit=0",
    "/v1/buckets?limit=501",
    "/v1/buckets?limit=-1",
    "/v1/buckets?limit=99999999999999999999999",
    "/v1/buckets?state=angry",
    "/v1/buckets?cursor=x",
    "/v1/buckets?cursor=-1",
    "/v1/buckets?cursor=1.xyz",
    "/v1/buckets?cursor=1.2.3",
    "/v1/buckets?cursor=99999999999999",
    "/v1/buckets?cursor=.",
    "/v1/events?after=x",
    "/v1/events?after=1.5",
    "/v1/events?after=-1",
    "/v1/events?after=0123456789abcdef-",
    "/v1/events?after=0123456789abcdef-1-1",
    "/v1/events?after=0123456789ABCDEFG-1",
    "/v1/buckets?state=%1b[31m",
    "/v1/buckets?rule=",
    "/v1/buckets?cursor=",
    "/v1/buckets?key",
    "/v1/top?by=",
    "/v1/events?after=",
];

fn invalid_queries_are_refused(envoy: &Envoy) -> Result<()> {
    let mut ops = Operator::editor(envoy);
    for path in INVALID {
        expect_problem(&ops.send(Request::get(path))?, 400).context(*path)?;
    }
    expect_problem(&ops.send(Request::get("/v1/buckets?rule=none"))?, 404)?;
    // A cursor far beyond the end counts as the end.
    let beyond = ops.get("/v1/buckets?cursor=4294967295.ffffffffffffffff")?;
    ensure!(
        beyond["buckets"] == json!([]) && beyond.get("next_cursor").is_none(),
        "{beyond}"
    );
    let none = ops.get("/v1/events?after=18446744073709551615")?;
    ensure!(none["restarted"] == true && none["lost"] == 0, "{none}");
    for query in [
        "carry=most",
        "for=0s",
        "for=1",
        "for=never",
        "for=-1s",
        "dry_run=maybe",
        "dry_run=",
        "dry_run=1",
        "reason=",
        "carry=",
        "because=x",
        "for=99999999999d",
    ] {
        let request = put(&format!("/v1/rules/r?{query}")).json(&edit(9));
        expect_problem(&envoy.admin().send(&request)?, 400).context(query)?;
    }
    Ok(())
}

fn reasons_are_one_short_line(envoy: &Envoy) -> Result<()> {
    let long = "x".repeat(201);
    for reason in ["a%0Ab", "%00", "%1B[31mred", "%7F", "%C2%85", long.as_str()] {
        let request = put(&format!("/v1/rules/r?reason={reason}")).json(&edit(9));
        expect_problem(&envoy.admin().send(&request)?, 400).context(reason.to_owned())?;
        let reset = Request::post(&format!("/v1/buckets/r/k/reset?reason={reason}"));
        expect_problem(&Operator::editor(envoy).send(reset)?, 400).context(reason.to_owned())?;
    }
    let longest = "%C3%BC".repeat(100);
    let request = put(&format!("/v1/rules/r?dry_run&reason={longest}")).json(&edit(9));
    ensure!(
        envoy.admin().send(&request)?.status == 200,
        "200 bytes are allowed"
    );
    Ok(())
}

/// A flag without a value counts as set, so a bare `dry_run` must not make the edit.
fn a_bare_flag_makes_no_edit(envoy: &Envoy) -> Result<()> {
    let request = put("/v1/rules/r?dry_run").json(&edit(9));
    let answer = envoy.admin().send(&request)?;
    ensure!(answer.status == 200, "{}", answer.text());
    let answer = answer.json()?;
    ensure!(
        answer["dry_run"] == true && answer["changed"] == true,
        "{answer}"
    );
    Ok(())
}

fn if_match_is_read_as_a_list_over_all_lines(envoy: &Envoy) -> Result<()> {
    let mut ops = Operator::editor(envoy);
    let right = ops.etag()?;
    let try_with = |ops: &mut Operator, lines: &[&str]| {
        let request = Request::new("PUT", "/v1/rules/r?dry_run").json(&edit(9));
        let with = |request: Request, line: &&str| request.header("if-match", line);
        ops.send(lines.iter().fold(request, with))
    };
    let list = format!("\"x\", {right}");
    let weak = format!("W/{right}");
    for lines in [
        &[list.as_str()][..],
        &["\"x\"", &right],
        &[&weak, &right],
        &["*"],
    ] {
        let answer = try_with(&mut ops, lines)?;
        ensure!(answer.status == 200, "{lines:?}: {}", answer.text());
    }
    for lines in [&[weak.as_str()][..], &["\"x\"", "\"y\""]] {
        expect_problem(&try_with(&mut ops, lines)?, 412).with_context(|| format!("{lines:?}"))?;
    }
    let unquoted = right.trim_matches('"');
    for lines in [&[unquoted][..], &[&right, unquoted], &["*", &right], &[""]] {
        expect_problem(&try_with(&mut ops, lines)?, 400).with_context(|| format!("{lines:?}"))?;
    }
    Ok(())
}

fn head_answers_as_get_without_a_body(envoy: &Envoy) -> Result<()> {
    let mut ops = Operator::viewer(envoy);
    envoy.data().send(&loudou_tests::one_rule::user("k"))?;
    for path in [
        "/v1/rules",
        "/v1/rules/r",
        "/v1/export",
        "/v1/buckets/r/k",
        "/v1/buckets/r/none",
        "/v1/none",
    ] {
        let get = ops.send(Request::get(path))?;
        let head = ops.send(Request::new("HEAD", path))?;
        ensure!(
            head.status == get.status && head.body.is_empty(),
            "{path}: {head:?}"
        );
        for name in ["content-type", "etag", "cache-control"] {
            ensure!(
                head.header(name) == get.header(name),
                "{path}: {head:?} {get:?}"
            );
        }
    }
    for path in ["/v1/status", "/v1/buckets", "/v1/top", "/v1/events"] {
        let head = ops.send(Request::new("HEAD", path))?;
        ensure!(
            head.status == 200 && head.body.is_empty(),
            "{path}: {head:?}"
        );
    }
    expect_problem_of_head(&ops.send(Request::new("HEAD", "/v1/explain"))?)?;
    Ok(())
}

fn expect_problem_of_head(answer: &loudou_tests::Response) -> Result<()> {
    ensure!(
        answer.status == 405 && answer.header("allow") == Some("POST"),
        "{answer:?}"
    );
    Ok(())
}
