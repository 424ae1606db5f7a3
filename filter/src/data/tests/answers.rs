//! The headers of responses, and the answers to refused requests.

use serde_json::{Value, json};

use super::*;

/// Returns the headers for alice's requests. The third request is refused.
fn headers_with(respond: &Value) -> Vec<Vec<String>> {
    let host = FakeHost::default();
    let configured = rules("enforce", &[("respond", respond.clone())]);
    let mut plane = DataPlane::new(file(&configured), Nanos::ZERO);
    let mut answers = Vec::new();
    for _ in 0..3 {
        host.request("GET", "/", &[("x-user-id", b"alice")]);
        let line = |name: &str, value: &str| format!("{name}: {value}");
        let lines: Vec<String> = match plane.decide(&host, 1, false).0 {
            RequestOutcome::Refuse(reply) => {
                reply.headers.iter().map(|(n, v)| line(n, v)).collect()
            }
            RequestOutcome::Pass(headers) | RequestOutcome::Hold(headers) => {
                headers.iter().map(|(n, v)| line(n, v)).collect()
            }
        };
        let lines = lines.into_iter();
        answers.push(lines.filter(|line| !line.starts_with("content-")).collect());
    }
    answers
}

/// Returns the headers of a response, for the tokens left and the seconds to wait.
type Expected<'a> = &'a dyn Fn(u32, u32) -> Vec<String>;

#[test]
fn each_word_has_its_headers() {
    let draft = |left: u32, t: u32| {
        vec![
            "ratelimit-policy: \"per-user.burst\";q=2;w=20".to_owned(),
            format!("ratelimit: \"per-user.burst\";r={left};t={t}"),
        ]
    };
    let legacy = |left: u32, t: u32| {
        vec![
            "x-ratelimit-limit: 2".to_owned(),
            format!("x-ratelimit-remaining: {left}"),
            format!("x-ratelimit-reset: {t}"),
        ]
    };
    let openai = |left: u32, t: u32| {
        vec![
            "x-ratelimit-limit-tokens: 2".to_owned(),
            format!("x-ratelimit-remaining-tokens: {left}"),
            format!("x-ratelimit-reset-tokens: {t}s"),
        ]
    };
    let nothing = |_: u32, _: u32| Vec::new();
    let both = |left: u32, t: u32| {
        let mut all = [legacy(left, t), draft(left, t)].concat();
        if let Some(state) = all.last_mut() {
            *state = format!("{state};limit=2;remaining={left};reset={t}");
        }
        all
    };
    let cases: [(&str, [Expected<'_>; 2]); 6] = [
        ("refused", [&nothing, &draft]),
        ("draft11", [&draft, &draft]),
        ("legacy", [&legacy, &legacy]),
        ("both", [&both, &both]),
        ("openai", [&openai, &openai]),
        ("none", [&nothing, &nothing]),
    ];
    for (word, [admitted, refused]) in cases {
        let mut last = refused(0, 10);
        last.push("retry-after: 10".to_owned());
        // The next token comes ten seconds after the first request, even if others were taken
        // since.
        let expected = [admitted(1, 10), admitted(0, 10), last];
        assert_eq!(
            headers_with(&json!({ "ratelimit_headers": word })),
            expected,
            "{word}"
        );
    }
    assert_eq!(
        headers_with(&json!({})),
        headers_with(&json!({ "ratelimit_headers": "refused" }))
    );
}

#[test]
fn jitter_makes_the_wait_longer_only_in_retry_after() {
    let all = headers_with(&json!({ "retry_after_jitter": 1 }));
    let refused = all.last().expect("three");
    assert!(refused[1].ends_with(";t=10"), "{refused:?}");
    let wait: u32 = refused[2]
        .strip_prefix("retry-after: ")
        .expect("it")
        .parse()
        .expect("number");
    assert!((10..=20).contains(&wait), "{wait}");
}

#[test]
fn list_headers_of_an_upstream_stay() {
    let host = FakeHost::default();
    host.add_response_header("ratelimit", "\"upstream\";r=1");
    host.add_response_header("x-ratelimit-limit", "77");
    let ours = vec![
        ("ratelimit".into(), "\"r.l\";r=2".to_owned()),
        ("x-ratelimit-limit".into(), "3".to_owned()),
    ];
    put(&host, ours);
    let headers = host.response_headers.borrow();
    let of = |name: &str| headers.iter().filter(|(other, _)| other == name).count();
    assert_eq!((of("ratelimit"), of("x-ratelimit-limit")), (2, 1));
}

#[test]
fn admitted_headers_only_where_configured() {
    let host = FakeHost::default();
    let configured = rules(
        "enforce",
        &[("respond", json!({ "ratelimit_headers": "draft11" }))],
    );
    let mut plane = DataPlane::new(file(&configured), Nanos::ZERO);
    host.request("GET", "/", &[("x-user-id", b"alice")]);
    let RequestOutcome::Pass(headers) = plane.decide(&host, 1, false).0 else {
        panic!("passes")
    };
    assert_eq!(
        headers[0],
        (
            "ratelimit-policy".into(),
            "\"per-user.burst\";q=2;w=20".to_owned()
        )
    );
    assert_eq!(
        headers[1],
        ("ratelimit".into(), "\"per-user.burst\";r=1;t=10".to_owned())
    );
}

/// Returns the response to alice, whose bucket is empty.
fn refused(rule: &[(&str, Value)], headers: &[(&str, &[u8])]) -> Reply {
    let host = FakeHost::default();
    let mut plane = DataPlane::new(file(&rules("enforce", rule)), Nanos::ZERO);
    let headers = [&[("x-user-id", &b"alice"[..])], headers].concat();
    host.request("POST", "/", &headers);
    for _ in 0..2 {
        plane.decide(&host, 1, false);
    }
    match plane.decide(&host, 1, false).0 {
        RequestOutcome::Refuse(reply) => reply,
        outcome => panic!("{outcome:?}"),
    }
}

fn header<'a>(reply: &'a Reply, name: &str) -> Option<&'a str> {
    let mut named = reply.headers.iter().filter(|(other, _)| other == name);
    let value = named.next().map(|(_, value)| value.as_str());
    assert_eq!(named.next(), None, "{name} twice");
    value
}

#[test]
fn a_refusal_is_as_configured() {
    let refuse = json!({
        "status": 503,
        "body": { "text": "<b>later</b>", "content_type": "text/html" },
        "headers": { "X-Refused-By": "loudou" },
    });
    let reply = refused(&[("refuse", refuse)], &[]);
    assert_eq!(
        (reply.status, reply.body.as_slice()),
        (503, &b"<b>later</b>"[..])
    );
    assert_eq!(header(&reply, "content-type"), Some("text/html"));
    assert_eq!(header(&reply, "x-refused-by"), Some("loudou"));
    assert_eq!(header(&reply, "retry-after"), Some("10"));
    assert_eq!(reply.grpc_status, None);

    let problem = refused(&[("refuse", json!({ "status": 503 }))], &[]);
    let body: Value = serde_json::from_slice(&problem.body).expect("JSON");
    assert_eq!((problem.status, &body["status"]), (503, &json!(503)));

    let none = refused(&[("refuse", json!({ "body": "none" }))], &[]);
    assert_eq!((none.body.len(), header(&none, "content-type")), (0, None));
}

#[test]
fn a_grpc_call_gets_the_time_to_wait() {
    let grpc = [("content-type", &b"application/grpc+proto"[..])];
    let reply = refused(
        &[("refuse", json!({ "body": { "text": "<b>no</b>" } }))],
        &grpc,
    );
    assert_eq!(reply.grpc_status, Some(8));
    let message = String::from_utf8(reply.body.clone()).expect("text");
    assert_eq!(
        message,
        "over the limit of per-user.burst: try again in 10 s"
    );
    assert_eq!(header(&reply, "grpc-retry-pushback-ms"), Some("10000"));
    assert!(header(&reply, "grpc-status-details-bin").is_some());
    assert_eq!(header(&reply, "content-type"), None, "Envoy's");

    let quiet = json!({ "body": "none", "grpc": "unavailable" });
    let reply = refused(&[("refuse", quiet)], &grpc);
    assert_eq!((reply.grpc_status, reply.body.len()), (Some(14), 0));

    // The time at which a slot is free again is unknown.
    let places =
        json!([{ "name": "burst", "algorithm": "concurrency", "capacity": 2, "lease": "1m" }]);
    let reply = refused(&[("limits", places)], &grpc);
    assert_eq!(header(&reply, "grpc-retry-pushback-ms"), None);
    assert_eq!(header(&reply, "retry-after"), None);
    // A cost above the capacity never fits.
    let reply = refused(&[("cost", json!(5))], &grpc);
    assert_eq!(header(&reply, "grpc-retry-pushback-ms"), Some("-1"));
}

fn property(host: &FakeHost) -> Option<String> {
    let value = host.property("wasm.loudou")?;
    Some(String::from_utf8(value).expect("text"))
}

#[test]
fn a_rule_with_explain_header_shows_its_decision() {
    let host = FakeHost::default();
    let mut configured = rules("enforce", &[("respond", json!({ "explain_header": true }))]);
    let held =
        json!([{ "name": "slow", "algorithm": "leaky_queue", "capacity": 9, "rate": "1/2s" }]);
    configured.as_array_mut().expect("rules").extend([
        json!({ "name": "silent", "key": [], "limits": [{ "algorithm": "funnel", "capacity": 9, "rate": "1/s" }] }),
        json!({
            "name": "queue", "key": [], "limits": held, "match": { "path": { "exact": "/slow" } },
            "respond": { "explain_header": true },
        }),
    ]);
    let mut plane = DataPlane::new(file(&configured), Nanos::ZERO);
    let alice = format!("{:016x}", loudou_limiter::fingerprint("alice"));
    let forged = [
        ("x-user-id", &b"alice"[..]),
        ("x-loudou-decision", b"forged"),
    ];
    host.request("GET", "/slow", &forged);
    assert_eq!(
        plane.decide(&host, 1, false).0,
        RequestOutcome::Pass(Vec::new())
    );
    let decision = host.request_header("x-loudou-decision").expect("set");
    assert_eq!(decision, b"per-user;burst;admit, queue;slow;admit");
    host.request("GET", "/slow", &forged);
    let headers = vec![("x-loudou-wait-ms".into(), "2000".to_owned())];
    assert_eq!(
        plane.decide(&host, 2, false).0,
        RequestOutcome::Hold(headers)
    );
    let decision = host.request_header("x-loudou-decision").expect("set");
    assert_eq!(decision, b"per-user;burst;admit, queue;slow;hold");
    let logged = property(&host).expect("set");
    let expected = format!("per-user;burst;admit;0;{alice}, queue;slow;hold;2000;");
    assert!(logged.starts_with(&expected), "{logged}");
    host.request("GET", "/", &forged);
    assert!(matches!(
        plane.decide(&host, 3, false).0,
        RequestOutcome::Refuse(_)
    ));
    assert_eq!(
        property(&host),
        Some(format!("per-user;burst;refuse;10000;{alice}"))
    );
    // A request without the key, and a request that matches no such rule.
    host.request("GET", "/", &[]);
    plane.decide(&host, 4, false);
    assert_eq!(
        host.request_header("x-loudou-decision").as_deref(),
        Some(&b"per-user;-;skip"[..])
    );
}

#[test]
fn where_no_rule_explains_only_refusals_are_logged() {
    let host = FakeHost::default();
    let mut plane = DataPlane::new(file(&rules("enforce", &[])), Nanos::ZERO);
    let mut logged = Vec::new();
    for _ in 0..3 {
        host.request(
            "GET",
            "/",
            &[("x-user-id", b"alice"), ("x-loudou-decision", b"mine")],
        );
        plane.decide(&host, 1, false);
        assert_eq!(
            host.request_header("x-loudou-decision").as_deref(),
            Some(&b"mine"[..])
        );
        logged.push(property(&host).is_some());
    }
    assert_eq!(logged, [false, false, true]);
}

/// The handwritten body equals the serialized API type, for every cause of a refusal.
#[test]
fn a_problem_is_one_of_the_api() {
    let body = |rule: &Value, headers: &[(&str, &[u8])]| {
        let host = FakeHost::default();
        let mut plane = DataPlane::new(file(rule), Nanos::ZERO);
        for _ in 0..3 {
            host.request("GET", "/", headers);
            if let RequestOutcome::Refuse(reply) = plane.decide(&host, 1, false).0 {
                return reply.body;
            }
        }
        panic!("not refused");
    };
    let alice: &[(&str, &[u8])] = &[("x-user-id", b"alice")];
    let banned = json!({ "alice": "banned" });
    let two = json!([
        { "name": "one", "algorithm": "funnel", "capacity": 1, "rate": "1/m" },
        { "name": "other", "algorithm": "funnel", "capacity": 1, "rate": "1/h" },
    ]);
    let bodies = [
        body(&rules("enforce", &[]), alice),
        body(&rules("enforce", &[("limits", two)]), alice),
        body(&rules("enforce", &[("overrides", banned)]), alice),
        body(
            &rules("enforce", &[("on_missing_key", json!("refuse"))]),
            &[],
        ),
    ];
    let mut details = Vec::new();
    for body in bodies {
        let problem: loudou_api::ProblemAnswer = serde_json::from_slice(&body).expect("a problem");
        let written = serde_json::to_string(&problem).expect("JSON");
        assert_eq!(
            String::from_utf8(body).expect("UTF-8"),
            format!("{written}\n")
        );
        details.push(problem.detail);
    }
    assert_eq!(
        details,
        [
            "over the limit of per-user.burst: try again in 10 s",
            "over the limit of per-user.one and per-user.other: try again in 3600 s",
            "banned by rule per-user until further notice",
            "the request has no key for rule per-user",
        ]
    );
}

/// Berlin's month from the 15th, over its end, on two workers. The wall clock of the fake host
/// starts at 2023-11-14 23:13:20 in Berlin, and October had an hour more.
#[test]
fn a_billing_month_ends_for_all_workers() {
    const NANOS: u64 = 1_000_000_000;
    const DAY: u64 = 86_400;
    const LEFT: u64 = 46 * 60 + 40;
    let host = FakeHost::default();
    let limit = json!({
        "name": "billed", "algorithm": "fixed_window", "capacity": 2, "window": "month",
        "zone": "CET-1CEST,M3.5.0,M10.5.0/3", "starts": { "day": 15 },
    });
    let configured = rules(
        "enforce",
        &[
            ("limits", json!([limit])),
            ("respond", json!({ "ratelimit_headers": "both" })),
        ],
    );
    let file = file(&configured);
    let mut workers = [0; 2].map(|_| DataPlane::new(file.clone(), Nanos::ZERO));
    let (october, november, december) = (31 * DAY + 3_600, 30 * DAY, 31 * DAY);
    for (step, (at, remaining, window, end)) in [
        (0, Some(1), october, LEFT),
        (60 * NANOS, Some(0), october, LEFT),
        (60 * NANOS, None, october, LEFT),
        (LEFT * NANOS - 1_000_000, None, october, LEFT),
        (LEFT * NANOS, Some(1), november, LEFT + november),
        (LEFT * NANOS + 1, Some(0), november, LEFT + november),
        (
            (LEFT + november) * NANOS - 1_000_000,
            None,
            november,
            LEFT + november,
        ),
        (
            (LEFT + november) * NANOS,
            Some(1),
            december,
            LEFT + november + december,
        ),
    ]
    .into_iter()
    .enumerate()
    {
        host.now.set(at);
        host.request("GET", "/", &[("x-user-id", b"alice")]);
        let (is_refused, headers) = match workers[step % 2].decide(&host, 1, false).0 {
            RequestOutcome::Refuse(reply) => (true, reply.headers),
            RequestOutcome::Pass(headers) | RequestOutcome::Hold(headers) => (false, headers),
        };
        let header = |wanted: &str| {
            let mut all = headers.iter().filter(|(name, _)| name == wanted);
            all.next().map(|(_, value)| value.as_str())
        };
        let left = (end * NANOS - at).div_ceil(NANOS);
        let policy = format!("\"per-user.billed\";q=2;w={window}");
        assert_eq!(is_refused, remaining.is_none(), "step {step}");
        assert_eq!(
            header("ratelimit-policy"),
            Some(policy.as_str()),
            "step {step}"
        );
        assert_eq!(
            header("x-ratelimit-reset"),
            Some(left.to_string().as_str()),
            "step {step}"
        );
        let retry_after = is_refused.then(|| left.to_string());
        assert_eq!(header("retry-after"), retry_after.as_deref(), "step {step}");
        let remaining = remaining.unwrap_or(0).to_string();
        assert_eq!(
            header("x-ratelimit-remaining"),
            Some(remaining.as_str()),
            "step {step}"
        );
    }
}
