//! Requests that are almost right: each is refused, or does nothing and reports so.

use super::*;

const RULE: &str = "/v1/rules/per-user";
const ALICE: &str = "/v1/overrides/per-user/alice";
const AT_2: &str = "\"0707070707070707-2\"";

impl Bench {
    /// A call of an editor with these `If-Match` lines.
    fn put_if(&mut self, lines: &[&str], body: &Value) -> (u16, Value) {
        self.edit_if("PUT", RULE, lines, Some(body))
    }

    fn edit_if(
        &mut self,
        method: &str,
        path: &str,
        lines: &[&str],
        body: Option<&Value>,
    ) -> (u16, Value) {
        let mut headers: Vec<(&str, &[u8])> = vec![
            ("authorization", b"Bearer edit-token"),
            ("content-type", b"application/json"),
        ];
        headers.extend(lines.iter().map(|line| ("if-match", line.as_bytes())));
        self.call(method, path, &headers, body)
    }

    fn generation(&mut self) -> Value {
        self.get("/v1/status")["generation"].clone()
    }

    fn count_of_events(&mut self) -> usize {
        let events = self.get("/v1/events");
        events["events"].as_array().expect("list").len()
    }

    /// The answer to a body that is sent as it is.
    fn put_text(&mut self, path: &str, body: &str) -> (u16, Value) {
        let headers: [(&str, &[u8]); 3] = [
            ("authorization", b"Bearer edit-token"),
            ("content-type", b"application/json"),
            ("if-match", b"*"),
        ];
        self.host.request("PUT", path, &headers);
        *self.host.body.borrow_mut() = body.as_bytes().to_vec();
        let reply = match self.admin.begin(&self.host, true) {
            Begin::Answer(reply) => reply,
            Begin::AwaitBody(call) => self.admin.finish(&self.host, call),
        };
        let body = serde_json::from_slice(&reply.body).expect("JSON");
        (reply.status, body)
    }
}

pub(super) fn detail(answer: &Value) -> &str {
    answer["detail"].as_str().unwrap_or_default()
}

#[test]
fn a_flag_without_a_value_is_set() {
    let mut bench = Bench::new();
    for query in ["dry_run", "dry_run=true", "reason=x&dry_run", "%64ry_run"] {
        let path = format!("{RULE}?{query}");
        let (status, answer) = bench.edit("PUT", &path, "*", Some(&capacity(9)));
        assert_eq!((status, &answer["dry_run"]), (200, &json!(true)), "{query}");
        assert_eq!(answer["changed"], true, "{query}: it would be a change");
        assert_eq!(bench.generation(), 1, "{query}");
    }
    for query in ["dry_run=", "dry_run=1", "dry_run=TRUE", "dry_run=false%20"] {
        let path = format!("{RULE}?{query}");
        let (status, answer) = bench.edit("PUT", &path, "*", Some(&capacity(9)));
        assert_eq!(status, 400, "{query}: {answer}");
        assert!(detail(&answer).contains("true, false"), "{answer}");
        assert_eq!(bench.generation(), 1, "{query}");
    }
    let path = format!("{RULE}?dry_run=false");
    let (status, answer) = bench.edit("PUT", &path, "*", Some(&capacity(9)));
    assert_eq!((status, &answer["dry_run"]), (200, &json!(false)));
}

#[test]
fn other_parameters_need_a_value() {
    let mut bench = Bench::new();
    for query in ["reason=", "reason", "carry=", "carry", "for=", "for"] {
        let path = format!("{RULE}?{query}");
        let (status, answer) = bench.edit("PUT", &path, "*", Some(&capacity(9)));
        assert_eq!(status, 400, "{query}: {answer}");
        assert!(detail(&answer).contains("is empty"), "{answer}");
    }
    let view: [(&str, &[u8]); 1] = [("authorization", b"Bearer view-token")];
    for path in [
        "/v1/buckets?rule=",
        "/v1/buckets?key=",
        "/v1/buckets?state",
        "/v1/buckets?cursor=",
        "/v1/buckets?limit=",
        "/v1/top?rule=",
        "/v1/top?by=",
        "/v1/events?after=",
    ] {
        assert_eq!(bench.call("GET", path, &view, None).0, 400, "{path}");
    }
    assert_eq!(bench.generation(), 1);
}

#[test]
fn duplicate_fields_are_refused_at_their_place() {
    let mut bench = Bench::new();
    let limit = r#"{"name":"burst","algorithm":"funnel","capacity":9,"capacity":8,"rate":"1/d"}"#;
    for (path, body, place) in [
        (RULE, r#"{"mode":"off","mode":"shadow"}"#, "mode"),
        (
            RULE,
            &format!(r#"{{"limits":[{limit}]}}"#),
            "limits[0].capacity",
        ),
        (
            RULE,
            r#"{"overrides":{"a":"banned","a":"unlimited"}}"#,
            "overrides.a",
        ),
        (ALICE, r#"{"scale":1,"scale":2}"#, "scale"),
    ] {
        let (status, answer) = bench.put_text(path, body);
        assert_eq!(status, 400, "{body}: {answer}");
        assert_eq!(answer["problems"][0]["path"], place, "{answer}");
        assert_eq!(answer["problems"][0]["message"], "duplicate field");
    }
    let headers: [(&str, &[u8]); 2] = [
        ("authorization", b"Bearer view-token"),
        ("content-type", b"application/json"),
    ];
    bench.host.request("POST", "/v1/explain", &headers);
    *bench.host.body.borrow_mut() = br#"{"path":"/a","path":"/b"}"#.to_vec();
    let Begin::AwaitBody(call) = bench.admin.begin(&bench.host, true) else {
        panic!("a body")
    };
    assert_eq!(bench.admin.finish(&bench.host, call).status, 400);
    assert_eq!(bench.generation(), 1);
}

#[test]
fn if_match_is_a_list_of_strong_tags() {
    let mut bench = Bench::new();
    let other = "\"0808080808080808-1\"";
    for lines in [
        &["\"0707070707070707-9\", \"0707070707070707-1\""][..],
        &[other, AT_1],
        &[",, \"x,y\" ,\"0707070707070707-1\","],
        &["W/\"1\"", AT_1],
        &["*"],
        &[" * "],
    ] {
        let path = format!("{RULE}?dry_run");
        let (status, answer) = bench.edit_if("PUT", &path, lines, Some(&capacity(9)));
        assert_eq!(status, 200, "{lines:?}: {answer}");
    }
    // A weak tag never matches, and the tags of others do not.
    for lines in [
        &["W/\"0707070707070707-1\""][..],
        &[other, "\"1\""],
        &["\"\""],
        &["\"0707070707070707-1,\""],
    ] {
        let (status, answer) = bench.put_if(lines, &capacity(9));
        assert_eq!(status, 412, "{lines:?}: {answer}");
        assert_eq!(answer["current"]["generation"], 1);
    }
    let (_, answer) = bench.put_if(&["\"1\"", other], &capacity(9));
    assert!(detail(&answer).contains("Envoy restarted"), "{answer}");
    for lines in [
        &[""][..],
        &[" , "],
        &["0707070707070707-1"],
        &["\"0707070707070707-1"],
        &["0707070707070707-1\""],
        &["\"a\"\"b\""],
        &["\"a\" \"b\""],
        &["'a'"],
        &["w/\"a\""],
        &["*, \"a\""],
        &["*", AT_1],
        &["**"],
        &["\"a\", *"],
        &["\"0707070707070707-1 \""],
        &["\"\u{1}\""],
    ] {
        let (status, answer) = bench.put_if(lines, &capacity(9));
        assert_eq!(status, 400, "{lines:?}: {answer}");
        assert!(detail(&answer).contains("If-Match"), "{answer}");
    }
    assert_eq!(bench.generation(), 1);
    let headers: [(&str, &[u8]); 3] = [
        ("authorization", b"Bearer edit-token"),
        ("content-type", b"application/json"),
        ("if-match", b"\"\xff\""),
    ];
    let (status, _) = bench.call("PUT", RULE, &headers, Some(&capacity(9)));
    assert_eq!(status, 412, "bytes above 0x7f are allowed in a tag");
}

#[test]
fn what_changes_nothing_leaves_no_trace() {
    let mut bench = Bench::new();
    let events = bench.count_of_events();
    let announced = bench.host.metric("loudou.generation");
    // The configuration's own numbers, its mode, and no edit to drop.
    for (method, path, body) in [
        ("PUT", RULE, Some(capacity(2))),
        ("PUT", RULE, Some(json!({ "mode": "enforce" }))),
        ("PUT", "/v1/rules/per-user?for=60s", Some(capacity(2))),
        ("DELETE", RULE, None),
    ] {
        let (status, answer) = bench.edit(method, path, AT_1, body.as_ref());
        assert_eq!(status, 200, "{answer}");
        assert_eq!(
            (&answer["changed"], &answer["change"]),
            (&json!(false), &json!(""))
        );
        assert_eq!(answer["after"]["generation"], 1, "{method} {path}");
    }
    assert_eq!(bench.host.metric("loudou.generation"), announced);
    assert_eq!(bench.count_of_events(), events);

    // Again what is in force.
    let (_, answer) = bench.edit("PUT", RULE, AT_1, Some(&capacity(5)));
    assert_eq!(
        (&answer["changed"], bench.generation()),
        (&json!(true), json!(2))
    );
    let (status, answer) = bench.edit("PUT", RULE, AT_2, Some(&capacity(5)));
    assert_eq!((status, &answer["changed"]), (200, &json!(false)));
    let scale = json!({ "scale": 2 });
    bench.edit("PUT", ALICE, AT_2, Some(&scale));
    assert_eq!(bench.generation(), 3);
    let (status, answer) = bench.edit("PUT", ALICE, "*", Some(&scale));
    assert_eq!((status, &answer["changed"]), (200, &json!(false)));
    assert_eq!(
        (bench.generation(), bench.count_of_events()),
        (json!(3), events + 2)
    );
}

#[test]
fn another_end_and_a_reset_of_levels_are_changes() {
    let mut bench = Bench::new();
    for (path, change) in [
        ("/v1/rules/per-user?for=60s", true),
        ("/v1/rules/per-user?for=90s", true),
        (RULE, true),
        (RULE, false),
        // The numbers are equal, but the levels are reset.
        ("/v1/rules/per-user?carry=reset", true),
    ] {
        bench.host.pass(Nanos::from_secs(1));
        let before = bench.generation();
        let (status, answer) = bench.edit("PUT", path, "*", Some(&capacity(5)));
        assert_eq!(
            (status, &answer["changed"]),
            (200, &json!(change)),
            "{path}: {answer}"
        );
        assert_eq!(bench.generation() != before, change, "{path}");
    }
    let scale = json!({ "scale": 2 });
    for (query, change) in [("?for=60s", true), ("", true), ("", false)] {
        bench.host.pass(Nanos::from_secs(1));
        let path = format!("{ALICE}{query}");
        let (status, answer) = bench.edit("PUT", &path, "*", Some(&scale));
        assert_eq!(
            (status, &answer["changed"]),
            (200, &json!(change)),
            "{path}"
        );
    }
}

#[test]
fn head_is_get_without_a_body() {
    let mut bench = Bench::new();
    bench.passes("alice");
    let view: [(&str, &[u8]); 1] = [("authorization", b"Bearer view-token")];
    for (path, status) in [
        ("/v1/status", 200),
        ("/v1/rules", 200),
        (RULE, 200),
        ("/v1/buckets", 200),
        ("/v1/buckets/per-user/alice", 200),
        ("/v1/buckets/per-user/nobody", 404),
        ("/v1/top", 200),
        ("/v1/events", 200),
        ("/v1/export", 200),
        ("/v1/none", 404),
        ("/v1/explain", 405),
        ("/v1/buckets/per-user/alice/ban", 405),
    ] {
        assert_eq!(bench.call("HEAD", path, &view, None).0, status, "{path}");
    }
    let token = ("authorization", &b"Bearer view-token"[..]);
    bench.host.request("OPTIONS", RULE, &[token]);
    let Begin::Answer(reply) = bench.admin.begin(&bench.host, false) else {
        panic!("an answer")
    };
    let allow = reply.headers.iter().find(|(name, _)| name == "allow");
    assert_eq!(
        allow.map(|(_, value)| value.as_str()),
        Some("GET, HEAD, PUT, DELETE")
    );
}

/// Returns a body with this number of unknown fields.
fn fields(count: usize, name: &str) -> String {
    let fields: Vec<String> = (0..count).map(|n| format!("\"{name}{n}\":0")).collect();
    format!("{{\"mode\":\"off\",{}}}", fields.join(","))
}

#[test]
fn the_problems_of_a_body_are_bounded() {
    let mut bench = Bench::new();
    let (status, answer) = bench.put_text(RULE, &fields(5_000, "f"));
    assert_eq!(status, 400);
    let shown = answer["problems"].as_array().expect("list").len();
    assert!((1..=100).contains(&shown), "{shown}");
    assert_eq!(answer["problems_left_out"], 5_000 - shown, "{answer:.200}");
    // Also in bytes.
    let long = fields(60, &"\\u0001".repeat(160));
    let (status, answer) = bench.put_text(RULE, &long);
    let size = answer.to_string().len();
    assert!(status == 400 && size < 32 * 1024, "{size}");
    let shown = answer["problems"].as_array().expect("list").len();
    assert_eq!(answer["problems_left_out"], 60 - shown);
}
