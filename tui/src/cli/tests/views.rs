//! Read-only commands, in every output format.

use loudou_api::{BucketState, BucketView, BucketsPage, Events, Top, TopBy};
use serde_json::Value;

use super::canned::{self, HOSTILE, ok};
use super::*;

#[test]
fn status() {
    let answer = || Loudou::answers(vec![ok(&canned::status())]);
    assert_snapshot!("status", answer().run("status").seen());
    assert_snapshot!("status_csv", answer().run("status -o csv").seen());
    let json = answer().run("status --output json").out;
    assert_eq!(
        serde_json::from_str::<loudou_api::Status>(&json).expect("the contract"),
        canned::status()
    );
}

#[test]
fn rules() {
    let answer = || Loudou::answers(vec![ok(&canned::rules())]);
    assert_snapshot!("rules", answer().run("rules").seen());
    assert_snapshot!("rules_csv", answer().run("rules -o csv").seen());
    assert_snapshot!("rules_jsonl", answer().run("rules -o jsonl").seen());
}

/// Upstreams of rules with `when`.
#[test]
fn upstreams() {
    let view = |cluster: &str, errors, applies| loudou_api::UpstreamView {
        cluster: cluster.to_owned(),
        responses: 40,
        errors,
        applies,
        since_ns: canned::NOW - 12_000_000_000,
    };
    let seen = vec![view("quiet", 1, false), view(HOSTILE, 12, true)];
    let mut status = canned::status();
    status.rules[0].upstreams = Some(seen.clone());
    status.rules[1].upstreams = Some(Vec::new());
    let state_lines = |text: &str| {
        let lines = text.lines().filter(|line| line.contains("appl"));
        lines.map(str::to_owned).collect::<Vec<_>>().join("\n")
    };
    let out = Loudou::answers(vec![ok(&status)]).run("status").out;
    assert_snapshot!("status_upstreams", state_lines(&out));
    let mut rules = canned::rules();
    rules.rules[0].totals.upstreams = Some(seen);
    let out = Loudou::answers(vec![ok(&rules)]).run("rules").out;
    assert_snapshot!("rules_upstreams", state_lines(&out));
    let answers = vec![ok(&rules.rules[0]), ok(&status)];
    let out = Loudou::answers(answers).run("rules per-user").out;
    assert_snapshot!("rule_upstreams", state_lines(&out));
}

#[test]
fn one_rule() {
    let answers = vec![ok(&canned::rule()), ok(&canned::status())];
    assert_snapshot!(
        "rule",
        Loudou::answers(answers).run("rules per-user").seen()
    );
}

#[test]
fn buckets() {
    let answer = || Loudou::answers(vec![ok(&canned::buckets())]);
    assert_snapshot!("buckets", answer().run("buckets").seen());
    assert_snapshot!(
        "buckets_ascii",
        answer().run("buckets --ascii --sort key").seen()
    );
    assert_snapshot!("buckets_json", answer().run("buckets -o json").seen());
    assert_snapshot!("buckets_csv", answer().run("buckets -o csv").seen());
    assert_snapshot!("buckets_limit", answer().run("buckets --limit 1").seen());
    let colored = answer().run("buckets --color always").out;
    assert_snapshot!("buckets_color", colored.replace('\u{1b}', "ESC"));
}

#[test]
fn top_prints_once_where_there_is_no_terminal() {
    for line in ["", "top"] {
        let ran = Loudou::answers(vec![ok(&canned::top(0))]).run(line);
        assert_eq!(ran.code, 0, "{}", ran.seen());
        assert_eq!(ran.lines(), ["GET /v1/top HTTP/1.1"]);
        let row = ran.out.lines().nth(2).expect("a row");
        assert!(row.contains("bob:/reply"), "{}", ran.out);
    }
}

#[test]
fn top_lists_in_every_form() {
    let answer = |missing| Loudou::answers(vec![ok(&canned::top(missing))]);
    assert_snapshot!("top", answer(0).run("top").seen());
    assert_snapshot!("top_inexact", answer(5).run("top").seen());
    assert_snapshot!("top_json", answer(5).run("top -o json").seen());
    assert_snapshot!("top_jsonl", answer(5).run("top -o jsonl").seen());
    assert_snapshot!("top_csv", answer(5).run("top -o csv").seen());
    let none = Top {
        by: TopBy::Admitted,
        window_ns: 7_200_000_000,
        ..Top::default()
    };
    assert_snapshot!(
        "top_none",
        Loudou::answers(vec![ok(&none)]).run("top").seen()
    );
}

/// Options for a list print the list, on a terminal too.
#[test]
fn top_sends_its_options() {
    for (line, request) in [
        ("top --by refused", "/v1/top?by=refused"),
        (
            "top --by admitted --rule per-user",
            "/v1/top?rule=per-user&by=admitted",
        ),
        ("top --limit 10", "/v1/top?limit=10"),
        ("top --output table", "/v1/top"),
        ("--output csv", "/v1/top"),
    ] {
        let loudou = Loudou {
            terminal: Some(80),
            ..Loudou::answers(vec![ok(&canned::top(0))])
        };
        let ran = loudou.run(line);
        assert_eq!(ran.code, 0, "{line}: {}", ran.seen());
        assert_eq!(ran.lines(), [format!("GET {request} HTTP/1.1")]);
    }
}

#[test]
fn a_terminal_has_colours_unless_the_environment_forbids_them() {
    let run = |env: Env, line: &str| {
        let loudou = Loudou {
            answers: vec![ok(&canned::buckets())],
            terminal: Some(70),
            env,
            ..Loudou::default()
        };
        loudou.run(line).out
    };
    let color = run(Env::default(), "buckets");
    assert!(color.contains('\u{1b}'), "{color}");
    let no_color = Env {
        no_color: Some("1".into()),
        ..Env::default()
    };
    assert_snapshot!("buckets_narrow", run(no_color, "buckets"));
    let dumb = Env {
        term: Some("dumb".into()),
        ..Env::default()
    };
    assert!(!run(dumb, "buckets -o table").contains('\u{1b}'));
    assert!(!run(Env::default(), "buckets --color never").contains('\u{1b}'));
}

/// Refusals of a rule in shadow mode, which passed, never look like refusals.
#[test]
fn refusals_of_a_shadow_rule_are_in_parentheses() {
    let mut page = canned::buckets();
    let mut top = canned::top(0);
    for bucket in &mut page.buckets {
        bucket.shadow = bucket.key == "bob:/reply";
    }
    for entry in &mut top.top {
        entry.shadow = entry.key == "bob:/reply";
    }
    let ran = Loudou::answers(vec![ok(&page)]).run("buckets");
    assert_snapshot!("buckets_shadow", ran.seen());
    let ran = Loudou::answers(vec![ok(&top)]).run("top");
    assert_snapshot!("top_shadow", ran.seen());
    let bucket = page.buckets.remove(1);
    let ran = Loudou::answers(vec![ok(&bucket), ok(&canned::status())]).run("get r k");
    assert!(ran.out.contains("would refuse"), "{}", ran.out);
}

#[test]
fn cursors_are_followed_to_the_end() {
    let page = |key: &str, next: Option<&str>| {
        ok(&BucketsPage {
            buckets: vec![canned::bucket(key, 1, BucketState::Busy)],
            next_cursor: next.map(str::to_owned),
            ..canned::buckets()
        })
    };
    let ran = Loudou::answers(vec![
        page("a", Some("5")),
        page("b", Some("9")),
        page("c", None),
    ])
    .run("buckets --rule per-user --key a --state busy --sort key");
    let keys: Vec<&str> = ran
        .out
        .lines()
        .filter_map(|line| line.split_whitespace().nth(1))
        .collect();
    assert_eq!(keys, ["KEY", "a", "b", "c"]);
    assert_eq!(
        ran.lines(),
        [
            "GET /v1/buckets?rule=per-user&key=a&state=busy&limit=500 HTTP/1.1",
            "GET /v1/buckets?rule=per-user&key=a&state=busy&cursor=5&limit=500 HTTP/1.1",
            "GET /v1/buckets?rule=per-user&key=a&state=busy&cursor=9&limit=500 HTTP/1.1",
        ]
    );
    let ran = Loudou::answers(vec![page("a", Some("5")), page("b", Some("5"))]).run("buckets");
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("the same cursor twice"), "{}", ran.err);
}

/// Those that a ban refuses, too; and none of a rule in shadow mode, which refuses nobody.
#[test]
fn refusing_lists_keys_that_are_refused() {
    let page = |buckets: Vec<BucketView>| {
        ok(&BucketsPage {
            buckets,
            ..canned::buckets()
        })
    };
    let bucket = |key: &str, state, shadow| BucketView {
        shadow,
        ..canned::bucket(key, 1, state)
    };
    let (refusing, banned) = (BucketState::Refusing, BucketState::Banned);
    let ran = Loudou::answers(vec![
        page(vec![
            bucket("a", refusing, false),
            bucket("b", refusing, true),
            bucket("moved", refusing, false),
        ]),
        page(vec![
            bucket("c", banned, false),
            bucket("d", banned, true),
            bucket("moved", banned, false),
        ]),
    ])
    .run("buckets --rule per-user --state refusing --sort key");
    let keys: Vec<&str> = ran
        .out
        .lines()
        .filter_map(|line| line.split_whitespace().nth(1))
        .collect();
    assert_eq!(keys, ["KEY", "a", "c", "moved"], "{}", ran.seen());
    assert_eq!(
        ran.lines(),
        [
            "GET /v1/buckets?rule=per-user&state=refusing&limit=500 HTTP/1.1",
            "GET /v1/buckets?rule=per-user&state=banned&limit=500 HTTP/1.1",
        ]
    );
}

#[test]
fn one_bucket() {
    let bucket = canned::buckets().buckets.remove(1);
    let answers = vec![ok(&bucket), ok(&canned::status())];
    let ran = Loudou::answers(answers).run("get per-user bob:/reply");
    assert_snapshot!("get", ran.seen());
    assert_eq!(
        ran.lines()[0],
        "GET /v1/buckets/per-user/bob%3A%2Freply HTTP/1.1"
    );
    let ran = Loudou::answers(vec![canned::not_found()]).run("get per-user nobody");
    assert_snapshot!("get_none", ran.seen());
}

#[test]
fn events() {
    let answer = || Loudou::answers(vec![ok(&canned::events())]);
    assert_snapshot!("events", answer().run("events").seen());
    assert!(answer().run("events --ascii").out.is_ascii());
    assert_snapshot!("events_csv", answer().run("events -o csv").seen());
    assert_snapshot!(
        "events_jsonl",
        answer().run("events -o jsonl --after 0").seen()
    );
    let lost = Events {
        lost: 9,
        ..Events::default()
    };
    assert_snapshot!(
        "events_lost",
        Loudou::answers(vec![ok(&lost)]).run("events").seen()
    );
}

#[test]
fn following_continues_until_the_server_stops() {
    let more = Events {
        events: canned::events().events.split_off(2),
        ..canned::events()
    };
    let ran = Loudou::answers(vec![ok(&canned::events()), ok(&more)]).run("events --follow");
    assert_eq!(ran.lines().len(), 2);
    assert!(ran.lines()[1].contains("after=3"), "{:?}", ran.lines());
    assert_eq!(ran.out.matches("SEQ").count(), 1, "{}", ran.out);
    assert_eq!(ran.out.lines().count(), 5, "{}", ran.out);
    assert_eq!(ran.code, 3);
}

#[test]
fn export_is_what_check_reads() {
    let file = serde_json::json!({"version": 1, "rules": []});
    let ran = Loudou::answers(vec![ok(&file)]).run("export");
    assert_eq!(serde_json::from_str::<Value>(&ran.out).expect("JSON"), file);
}

#[test]
fn answers_are_escaped_before_the_terminal() {
    let mut page = canned::buckets();
    let mut events = canned::events();
    let mut status = canned::status();
    let mut rules = canned::rules();
    let mut top = canned::top(5);
    page.buckets[1].key = HOSTILE.to_owned();
    page.buckets[1].limits[0].rate = HOSTILE.to_owned();
    events.events[0].reason = HOSTILE.to_owned();
    events.events[0].detail = HOSTILE.to_owned();
    status.warnings = vec![HOSTILE.to_owned()];
    status.git = HOSTILE.to_owned();
    rules.rules[0].rule["limits"][0]["name"] = HOSTILE.into();
    top.top[0].key = HOSTILE.to_owned();
    top.top[1].rule = HOSTILE.to_owned();
    for form in ["table", "json", "jsonl", "csv"] {
        for (line, answer) in [
            ("buckets", ok(&page)),
            ("events", ok(&events)),
            ("status", ok(&status)),
            ("rules", ok(&rules)),
            ("top", ok(&top)),
        ] {
            let ran = Loudou::answers(vec![answer]).run(&format!("{line} -o {form}"));
            assert_eq!(ran.code, 0, "{}", ran.seen());
            let bad = ran.out.replace("\r\n", "\n");
            let bad = bad.chars().find(|c| *c != '\n' && is_unsafe(*c));
            assert_eq!(bad, None, "{line} {form}: {:?}", ran.out);
        }
    }
    assert_snapshot!(
        "buckets_hostile",
        Loudou::answers(vec![ok(&page)]).run("buckets").out
    );
}
