//! Access to the admin API: tokens and their permissions.

use anyhow::{Context as _, Result, ensure};
use loudou_tests::one_rule::{Scene, config, play};
use loudou_tests::{EDIT_TOKEN, Envoy, Operator, Request, VIEW_TOKEN, expect, expect_problem};
use serde_json::{Value, json};

const LOOKS: [&str; 6] = [
    "/v1/status",
    "/v1/rules",
    "/v1/rules/r",
    "/v1/buckets",
    "/v1/events",
    "/v1/export",
];

/// One request for each call that changes something, with all headers and bodies that the call
/// needs.
fn changes() -> [Request; 7] {
    let if_match = |method: &str, path: &str| Request::new(method, path).header("if-match", "*");
    [
        if_match("PUT", "/v1/rules/r").json(&json!({ "mode": "off" })),
        if_match("DELETE", "/v1/rules/r"),
        Request::post("/v1/buckets/r/alice/reset"),
        Request::post("/v1/buckets/r/alice/ban"),
        Request::post("/v1/buckets/r/alice/unban"),
        if_match("PUT", "/v1/overrides/r/alice").json(&json!("banned")),
        if_match("DELETE", "/v1/overrides/r/alice"),
    ]
}

fn unchanged(envoy: &Envoy) -> Result<()> {
    let mut ops = Operator::editor(envoy);
    ensure!(
        ops.generation()? == 1 && ops.events(0)?.len() == 1,
        "{:?}",
        ops.events(0)?
    );
    Ok(())
}

/// Runs all scenes on one Envoy and checks after each scene that nothing changed. The scene with
/// wrong tokens comes last, because a worker answers further wrong tokens with 429.
#[test]
fn calls_without_access_change_nothing() -> Result<()> {
    let scenes: &[Scene] = &[
        ("two tokens count as none", two_tokens_count_as_none),
        (
            "a viewer may read and not change",
            a_viewer_may_read_and_not_change,
        ),
        ("web pages are refused", web_pages_are_refused),
        (
            "without a known token nothing is disclosed",
            without_a_known_token_nothing_is_disclosed,
        ),
    ];
    play(&config(2), scenes, unchanged)
}

fn without_a_known_token_nothing_is_disclosed(envoy: &Envoy) -> Result<()> {
    let mut http = envoy.admin();
    let long = format!("Bearer {}", "x".repeat(50_000));
    let upper = format!("Bearer {}", EDIT_TOKEN.to_uppercase());
    let more = format!("Bearer {EDIT_TOKEN}x");
    let basic = format!("Basic {EDIT_TOKEN}");
    let joined = format!("Bearer{EDIT_TOKEN}");
    let wrong: [Option<&[u8]>; 12] = [
        None,
        Some(b""),
        Some(b"Bearer"),
        Some(b"Bearer "),
        Some(b"Bearer   "),
        Some(b"Bearer \xff\xfe"),
        Some(b"Bearer unknown"),
        Some(basic.as_bytes()),
        Some(long.as_bytes()),
        Some(upper.as_bytes()),
        Some(more.as_bytes()),
        Some(joined.as_bytes()),
    ];
    for authorization in wrong {
        let with = |request: Request| match authorization {
            Some(value) => request.header("authorization", value),
            None => request,
        };
        let looks = LOOKS.iter().map(|path| Request::get(path));
        let elsewhere = [Request::get("/"), Request::get("/v1/buckets/r/alice")];
        for request in looks.chain(elsewhere).chain(changes()) {
            let answer = http.send(&with(request.clone()))?;
            // After several wrong tokens, a worker answers further wrong tokens with 429.
            if answer.status == 429 {
                ensure!(authorization.is_some(), "{request:?}");
                expect_problem(&answer, 429)?;
                continue;
            }
            expect_problem(&answer, 401).with_context(|| format!("{request:?}"))?;
            let challenge = answer.header("www-authenticate").unwrap_or_default();
            ensure!(challenge.starts_with("Bearer"), "{answer:?}");
        }
    }
    let told = envoy.log()?.to_lowercase();
    ensure!(
        told.contains("admin: 401") && !told.contains(&EDIT_TOKEN.to_lowercase()),
        "a token is not for the log"
    );
    Ok(())
}

fn a_viewer_may_read_and_not_change(envoy: &Envoy) -> Result<()> {
    let mut viewer = Operator::viewer(envoy);
    for path in LOOKS {
        viewer.get(path)?;
    }
    ensure!(viewer.get("/v1/status")?["access"] == "view");
    for request in changes() {
        let detail = expect_problem(&viewer.send(request)?, 403)?;
        ensure!(detail.contains("wall"), "names the token: {detail}");
    }
    // A dry run, another path or another method needs the same permission.
    let dry = Request::new("PUT", "/v1/rules/r?dry_run=true").json(&json!({ "mode": "off" }));
    expect_problem(&viewer.send(dry)?, 403)?;
    expect_problem(&viewer.send(Request::new("DELETE", "/v1/export"))?, 403)?;
    ensure!(Operator::editor(envoy).get("/v1/status")?["access"] == "edit");
    Ok(())
}

fn web_pages_are_refused(envoy: &Envoy) -> Result<()> {
    let mut http = envoy.admin();
    for origin in ["https://evil.example", "null", "", "http://127.0.0.1:9911"] {
        for request in changes().into_iter().chain([Request::get("/v1/status")]) {
            let request = request.token(EDIT_TOKEN).header("origin", origin);
            expect_problem(&http.send(&request)?, 403)
                .with_context(|| format!("origin {origin:?}"))?;
        }
    }
    Ok(())
}

fn two_tokens_count_as_none(envoy: &Envoy) -> Result<()> {
    let [put, ..] = changes();
    let answer = envoy
        .admin()
        .send(&put.token(VIEW_TOKEN).token(EDIT_TOKEN))?;
    // Envoy joins the two headers into one value, which is not a valid token.
    expect_problem(&answer, 401)?;
    // The name of the scheme is case-insensitive, and spaces around a token are ignored.
    let dry = Request::new("PUT", "/v1/rules/r?dry_run").json(&json!({ "mode": "off" }));
    let odd = dry.header("if-match", "*");
    let odd = odd.header("authorization", format!("bEaReR  {EDIT_TOKEN}  "));
    expect(&envoy.admin().send(&odd)?, 200)?;
    Ok(())
}

#[test]
fn without_tokens_this_machine_may_edit_and_gets_a_notice() -> Result<()> {
    let envoy = Envoy::start(&config(2).tokens(json!([])))?;
    let mut http = envoy.admin();
    let get = |path: &str| Request::get(path).header("host", "localhost");
    let status = expect(&http.send(&get("/v1/status"))?, 200)?;
    ensure!(status["access"] == "edit", "{status}");
    let warned = |warning: &Value| warning.as_str().is_some_and(|text| text.contains("token"));
    ensure!(
        status["warnings"]
            .as_array()
            .into_iter()
            .flatten()
            .any(warned),
        "{status}"
    );
    let [put, ..] = changes();
    expect(&http.send(&put.header("host", "localhost"))?, 200)?;
    let events = expect(&http.send(&get("/v1/events"))?, 200)?;
    ensure!(
        events["events"].to_string().contains("\"by\":\"loopback\""),
        "{events}"
    );
    // The filter still refuses a web page on this machine, and does not trust an address in a
    // header.
    expect_problem(
        &http.send(&get("/v1/status").header("origin", "null"))?,
        403,
    )?;
    let forwarded = get("/v1/status").header("x-forwarded-for", "192.0.2.7");
    let answer = http.send(&forwarded)?;
    ensure!(matches!(answer.status, 200 | 403), "{answer:?}");
    envoy.stop()
}

/// Without tokens, the host must name this listener, because a web page can rebind its own name to
/// this machine (DNS rebinding).
#[test]
fn without_tokens_the_host_must_be_this_listener() -> Result<()> {
    let settings = |hosts: Value| config(2).tokens(json!([])).hosts(hosts);
    let envoy = Envoy::start(&settings(json!(["loudou.internal"])))?;
    let mut http = envoy.admin();
    let mut with = |host: &str| http.send(&Request::get("/v1/status").header("host", host));
    for host in [
        "evil.example",
        "evil.example:9911",
        "localhost.evil.example",
        "0.0.0.0",
        "a@localhost",
    ] {
        let detail = expect_problem(&with(host)?, 403).context(host)?;
        ensure!(detail.contains("admin.hosts"), "{detail}");
    }
    for host in [
        "localhost",
        "127.0.0.1:1",
        "[::1]:9911",
        "Loudou.Internal:80",
    ] {
        expect(&with(host)?, 200).context(host)?;
    }
    envoy.stop()?;
    // With tokens, every host is accepted, because a browser does not send the token automatically.
    let envoy = Envoy::start(&config(2))?;
    let named = Request::get("/v1/status").header("host", "loudou-admin.ns.svc:9902");
    expect(&Operator::viewer(&envoy).send(named)?, 200)?;
    envoy.stop()
}
