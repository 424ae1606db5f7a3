//! Commands that make changes: requests, output and confirmation.

use loudou_api::ResetAnswer;
use serde_json::{Value, json};

use super::canned::{self, ok};
use super::*;

pub(super) fn asked(answers: Vec<Answer>, input: &str, line: &str) -> Ran {
    let loudou = Loudou {
        answers,
        input,
        terminal: Some(100),
        env: Env {
            no_color: Some("1".into()),
            ..Env::default()
        },
        ..Loudou::default()
    };
    loudou.run(line)
}

pub(super) fn body(request: &str) -> &str {
    request.split_once("\r\n\r\n").expect("a body").1
}

#[test]
fn set_sends_all_limits_with_the_changed_one() {
    let answers = vec![ok(&canned::rule()), ok(&canned::edit_answer(false))];
    let line = "set per-user --limit burst --capacity 60 --for 30m --carry keep --reason launch";
    let ran = Loudou::answers(answers).run(line);
    assert_snapshot!(ran.seen(), @r"
    per-user: burst: capacity 30 → 60

    LIMIT   BEFORE                                        AFTER
    burst   30 at 30/m                                    60 at 30/m
    steady  token_bucket 1000 at 1000/d, refill interval  token_bucket 1000 at 1000/d, refill interval

    in effect with generation 8, for 30m
    on its way to the other Envoys of the fleet
    --- exit code 0
    ");
    let line = "PUT /v1/rules/per-user?carry=keep&for=30m&reason=launch HTTP/1.1";
    assert_eq!(ran.lines()[1], line);
    assert!(
        ran.requests[1].contains("if-match: \"0f1e2d3c4b5a6978-7\"\r\n"),
        "{}",
        ran.requests[1]
    );
    let sent = json!({"limits": canned::with_burst(60)["limits"]});
    assert_eq!(body(&ran.requests[1]), sent.to_string());
}

#[test]
fn the_only_limit_needs_no_name() {
    let answers = vec![
        ok(&canned::one_limit_rule()),
        ok(&canned::edit_answer(true)),
    ];
    let ran = Loudou::answers(answers).run("set per-path --rate 20/60s --mode enforce --dry-run");
    assert_snapshot!(ran.seen(), @r"
    per-user: burst: capacity 30 → 60

    LIMIT   BEFORE                                        AFTER
    burst   30 at 30/m                                    60 at 30/m
    steady  token_bucket 1000 at 1000/d, refill interval  token_bucket 1000 at 1000/d, refill interval

    dry run: nothing was changed
    --- exit code 0
    ");
    let line = "PUT /v1/rules/per-path?carry=keep&dry_run=true HTTP/1.1";
    assert_eq!(ran.lines()[1], line);
    let sent = "{\"limits\":[{\"name\":\"all\",\"algorithm\":\"funnel\",\"capacity\":5,\
                \"rate\":\"20/m\"}],\"mode\":\"enforce\"}";
    assert_eq!(body(&ran.requests[1]), sent);
}

/// Returns the run of `line` for a rule with only this limit, and the request body that it sends.
fn set_one(limit: &Value, line: &str) -> (Ran, Value) {
    let mut rule = canned::one_limit_rule();
    rule.rule["limits"] = json!([limit]);
    let answers = vec![ok(&rule), ok(&canned::edit_answer(false))];
    let ran = Loudou::answers(answers).run(&format!("set per-path {line}"));
    let body = ran.requests.get(1).map(|request| body(request));
    let body = body.and_then(|body| serde_json::from_str(body).ok());
    let limit = body.map(|body: Value| body["limits"][0].clone());
    (ran, limit.unwrap_or_default())
}

#[test]
fn the_initial_level_follows_the_capacity() {
    for (initial, capacity, sent) in [
        (10, 20, None),
        (10, 5, None),
        (4, 20, Some(4)),
        (4, 3, None),
    ] {
        let limit = json!({"name": "t", "algorithm": "token_bucket", "capacity": 10,
            "rate": "1/s", "refill": "greedy", "initial": initial});
        let (_, limit) = set_one(&limit, &format!("--capacity {capacity}"));
        assert_eq!(limit["capacity"], json!(capacity));
        assert_eq!(limit.get("initial"), sent.map(|n| json!(n)).as_ref());
        assert_eq!(limit.get("refill"), None);
    }
}

#[test]
fn every_field_can_be_set() {
    let window = json!({"name": "w", "algorithm": "sliding_window", "capacity": 60, "window": "1m",
        "slots": 10, "slot_capacity": 12});
    let (_, limit) = set_one(&window, "window=2m slots=6");
    let sent = json!({"name": "w", "algorithm": "sliding_window", "capacity": 60, "window": "2m",
        "slots": 6});
    assert_eq!(limit, sent);
    let (_, limit) = set_one(&sent, "slots=");
    assert_eq!(limit.get("slots"), None);
    let bursty =
        json!({"name": "b", "algorithm": "smooth_bursty", "rate": "1/s", "burst_seconds": 1});
    let (_, limit) = set_one(&bursty, "burst_seconds=2.5 --rate 3/s max_wait=5s");
    assert_eq!(
        limit,
        json!({"name": "b", "algorithm": "smooth_bursty", "rate": "3/s", "burst_seconds": 2.5,
            "max_wait": "5s"})
    );
    let log = json!({"name": "l", "algorithm": "sliding_log", "capacity": 5, "window": "1m"});
    let (_, limit) = set_one(&log, "count_refused=true");
    assert_eq!(limit["count_refused"], json!(true));
}

#[test]
fn invalid_fields_are_never_sent() {
    let log = json!({"name": "l", "algorithm": "sliding_log", "capacity": 5, "window": "1m"});
    let newer = json!({"name": "n", "algorithm": "newer", "width": 5});
    for (name, limit, line, code) in [
        ("set_field_value", &log, "window=soon capacity=300", 2),
        ("set_field_unknown", &log, "rate=1/s", 2),
        ("set_field_twice", &log, "--capacity 3 capacity=4", 2),
        ("set_field_newer", &newer, "width=4", 2),
    ] {
        let (ran, sent) = set_one(limit, line);
        assert_eq!((ran.code, sent), (code, Value::Null));
        assert_snapshot!(name, ran.seen());
    }
}

#[test]
fn an_ambiguous_limit_is_wrong_usage() {
    let set = |line: &str| Loudou::answers(vec![ok(&canned::rule())]).run(line).seen();
    assert_snapshot!(set("set per-user --capacity 60"), @r"
    --- standard error
    loudou: the rule has several limits; choose one with --limit: burst, steady
    --- exit code 2
    ");
    assert_snapshot!(set("set per-user --capacity 60 --limit brust"), @r"
    --- standard error
    loudou: the rule has no limit `brust`; it has burst, steady; did you mean `burst`?
    --- exit code 2
    ");
    let ran = Loudou::answers(vec![ok(&canned::rule())]).run("set per-user --mode off --limit x");
    assert_eq!(ran.code, 2, "{}", ran.seen());
}

#[test]
fn invalid_numbers_are_never_sent() {
    let ran = Loudou::answers(vec![ok(&canned::one_limit_rule())]).run("set per-path --capacity 0");
    assert_snapshot!(ran.seen(), @r"
    --- standard error
    error: limits[0].capacity: 0: out of range; allowed: a whole number from 1 to 1000000000
    --- exit code 2
    ");
    assert_eq!(ran.requests.len(), 1);
}

#[test]
fn limits_come_from_a_file() {
    let file = "- { name: burst, algorithm: funnel, capacity: 60, rate: 30/60s }\n";
    let loudou = Loudou {
        input: file,
        ..Loudou::answers(vec![ok(&canned::rule()), ok(&canned::edit_answer(false))])
    };
    let ran = loudou.run("set per-user --file -");
    assert_eq!(ran.code, 0, "{}", ran.seen());
    let sent = "{\"limits\":[{\"name\":\"burst\",\"algorithm\":\"funnel\",\"capacity\":60,\
                \"rate\":\"30/60s\"}]}";
    assert_eq!(body(&ran.requests[1]), sent);

    let wrong = |input| {
        let loudou = Loudou {
            input,
            ..Loudou::answers(vec![ok(&canned::rule())])
        };
        loudou.run("set per-user --file -").seen()
    };
    let list = "- { algorithm: funnel, capacity: 60, rate: 0/s }\n- { algorithm: funel }\n";
    assert_snapshot!(wrong(list), @r#"
    --- standard error
    (standard input):1:44: error: limits[0].rate: "0/s": a rate of zero never admits; allowed: an amount per period: 30/60s, 10/s, 5/m, 1000/d, 1/250ms; at most 1000000000 per 366d
      1 | - { algorithm: funnel, capacity: 60, rate: 0/s }
        |                                            ^
    (standard input):2:16: error: limits[1].algorithm: "funel": unknown algorithm; allowed: funnel, token_bucket, fixed_window, sliding_window, sliding_log, sliding_counter, leaky_queue, smooth_bursty, smooth_warmup, concurrency; did you mean `funnel`?
      2 | - { algorithm: funel }
        |                ^
    --- exit code 2
    "#);
    let object = "mode: shaddow\nlimits:\n  - algorithm: funnel\n    capacity: 5\n    rate: 1/s\n";
    assert_snapshot!(wrong(object), @r#"
    --- standard error
    (standard input):1:7: error: mode: "shaddow": unknown value; allowed: enforce, shadow, off; did you mean `shadow`?
      1 | mode: shaddow
        |       ^
    --- exit code 2
    "#);
    assert_snapshot!(wrong("limits: [\n"), @r"
    --- standard error
    (standard input):2:1: error: invalid syntax: while parsing a node, did not find expected node content
    --- exit code 2
    ");
}

#[test]
fn a_terminal_is_asked_for_confirmation() {
    let line = "set per-user --limit burst --capacity 60";
    let answers = vec![
        ok(&canned::rule()),
        ok(&canned::edit_answer(true)),
        ok(&canned::edit_answer(false)),
    ];
    let ran = asked(answers, "y\n", line);
    assert_snapshot!(ran.seen(), @r"
    per-user: burst: capacity 30 → 60
    in effect with generation 8
    on its way to the other Envoys of the fleet
    --- standard error
    LIMIT   BEFORE                                        AFTER
    burst   30 at 30/m                                    60 at 30/m
    steady  token_bucket 1000 at 1000/d, refill interval  token_bucket 1000 at 1000/d, refill interval

    Change per-user? [y/N] the earlier edit had an end; this one has none (see --for)
    --- exit code 0
    ");
    assert!(ran.lines()[1].contains("dry_run=true"), "{:?}", ran.lines());
    assert!(!ran.lines()[2].contains("dry_run"), "{:?}", ran.lines());

    for answer in ["n\n", "\n", "", "yess\n"] {
        let answers = vec![ok(&canned::rule()), ok(&canned::edit_answer(true))];
        let ran = asked(answers, answer, line);
        assert_eq!(ran.code, 1, "{}", ran.seen());
        assert!(ran.err.ends_with("nothing was changed\n"), "{}", ran.err);
    }
    let answers = vec![ok(&canned::rule()), ok(&canned::edit_answer(false))];
    let ran = asked(answers, "", &format!("{line} --yes"));
    assert_eq!(ran.code, 0, "{}", ran.seen());
}

#[test]
fn a_faster_editor_is_shown() {
    let mut seen = canned::rule();
    seen.rule["mode"] = json!("shadow");
    let answers = vec![ok(&seen), canned::stale()];
    let ran = Loudou::answers(answers).run("set per-user --limit burst --capacity 60");
    assert_snapshot!(ran.seen(), @r"
    --- standard error
    loudou: another operator changed the rule in the meantime; nothing was changed. The rule is now:

    rule        per-user
    generation  9
    mode        enforce
    match       requests to /reply and below
    key         header x-user-id : path
    so far      10234 admitted, 0 held, 811 refused, 0 refused in shadow, 12 skipped, 0 errors
    edit        by ops, temporary, made 2026-11-21 14:03:07Z: launch day

    LIMIT   BASE                                          IN FORCE
    burst   15 at 30/m                                    30 at 30/m
    steady  token_bucket 1000 at 1000/d, refill interval  token_bucket 1000 at 1000/d, refill interval

    run the command again to change it
    --- exit code 6
    ");
}

#[test]
fn a_moved_generation_is_no_conflict() {
    for (line, method) in [
        ("set per-user --limit burst --capacity 60", "PUT /v1/rules"),
        ("unset per-user", "DELETE /v1/rules"),
        ("override per-user alice scale=10", "PUT /v1/overrides"),
        ("override per-user alice --remove", "DELETE /v1/overrides"),
    ] {
        let answers = vec![
            ok(&canned::rule()),
            canned::stale(),
            ok(&canned::edit_answer(false)),
        ];
        let ran = Loudou::answers(answers).run(line);
        assert_eq!(ran.code, 0, "{}", ran.seen());
        for (request, generation) in [(1, 7), (2, 9)] {
            let request = &ran.requests[request];
            let etag = format!("if-match: \"0f1e2d3c4b5a6978-{generation}\"\r\n");
            assert!(request.starts_with(method), "{request}");
            assert!(request.contains(&etag), "{request}");
        }
    }
}

#[test]
fn unset_restores_the_base() {
    let answers = || vec![ok(&canned::rule()), ok(&canned::edit_answer(false))];
    let ran = Loudou::answers(answers()).run("unset per-user --carry reset");
    assert_eq!(
        ran.lines()[1],
        "DELETE /v1/rules/per-user?carry=reset HTTP/1.1"
    );
    assert!(
        ran.requests[1].contains("if-match: \"0f1e2d3c4b5a6978-7\"\r\n"),
        "{}",
        ran.requests[1]
    );
    let ran = asked(answers(), "yes\n", "unset per-user");
    assert_snapshot!(ran.seen(), @r"
    per-user: burst: capacity 30 → 60
    in effect with generation 8
    on its way to the other Envoys of the fleet
    --- standard error
    LIMIT   BEFORE                                        AFTER
    burst   30 at 30/m                                    15 at 30/m
    steady  token_bucket 1000 at 1000/d, refill interval  token_bucket 1000 at 1000/d, refill interval

    Drop the edit of per-user? [y/N] --- exit code 0
    ");
    let dry = vec![ok(&canned::rule()), ok(&canned::edit_answer(true))];
    let ran = Loudou::answers(dry).run("--read-only unset per-user --dry-run");
    let line = "DELETE /v1/rules/per-user?carry=keep&dry_run=true HTTP/1.1";
    assert_eq!(ran.lines()[1], line);
    assert!(
        ran.out.contains("dry run: nothing was changed"),
        "{}",
        ran.seen()
    );
}

#[test]
fn reset_prints_the_previous_bucket() {
    let was = ResetAnswer {
        existed: true,
        before: Some(canned::buckets().buckets.remove(1)),
    };
    let ran = Loudou::answers(vec![ok(&was)]).run("reset per-user bob:/reply --reason ticket");
    assert_snapshot!(ran.seen(), @r"
    the bucket of bob:/reply of per-user was reset; it was:

    RULE      KEY         STATE     ADMITTED  REFUSED  SEEN
    per-user  bob:/reply  refusing       420       17     -

    LIMIT   ALGORITHM  RATE  LEVEL       LEFT  RETRY  RESET
    burst   funnel     30/m  ██████████  0/15   1.2s    30s
    steady  funnel     30/m  ████████··  3/15      -    24s
    --- exit code 0
    ");
    let line = "POST /v1/buckets/per-user/bob%3A%2Freply/reset?reason=ticket HTTP/1.1";
    assert_eq!(ran.lines(), [line]);
    let ran = Loudou::answers(vec![ok(&ResetAnswer::default())]).run("reset per-user nobody");
    assert_snapshot!(ran.seen(), @r"
    nobody of per-user has no bucket: nothing to reset
    --- exit code 0
    ");
    assert_eq!(asked(vec![], "no\n", "reset per-user bob").code, 1);
}

#[test]
fn answers_of_changes_can_be_json() {
    let answers = vec![ok(&canned::rule()), ok(&canned::edit_answer(false))];
    let ran = Loudou::answers(answers).run("set per-user --mode off -o jsonl");
    let answer: loudou_api::EditAnswer = serde_json::from_str(&ran.out).expect("the contract");
    assert_eq!(answer, canned::edit_answer(false));
}

#[test]
fn read_only_changes_nothing() {
    for line in ["set r --mode off", "unset r", "reset r k"] {
        let ran = Loudou::default().run(&format!("--read-only {line}"));
        assert_eq!(ran.code, 2, "{}", ran.seen());
        assert_eq!(ran.err, "loudou: --read-only forbids changes\n");
    }
    let answers = vec![ok(&canned::rule()), ok(&canned::edit_answer(true))];
    let ran = Loudou::answers(answers).run("--read-only set per-user --mode off --dry-run");
    assert_eq!(ran.code, 0, "{}", ran.seen());
}
