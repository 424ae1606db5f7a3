//! Changes lost in a restart: `export --live`, `import`, and followers of events.

use loudou_api::{
    BanBy, BanView, BucketsPage, EditAnswer, Event, EventKind, Events, ProblemAnswer, RuleView,
    Rules, Status,
};
use serde_json::{Value, json};

use super::canned::{self, INSTANCE, NOW, S, UNIX_MS, ok};
use super::edits::{asked, body};
use super::*;

pub(super) const OTHER: &str = "fedcba9876543210";

pub(super) fn events(instance: &str, events: Vec<Event>) -> Events {
    Events {
        instance: instance.to_owned(),
        started_unix_ms: UNIX_MS,
        now_ns: NOW,
        last_seq: events.last().map_or(3, |event| event.seq),
        events,
        ..Events::default()
    }
}

pub(super) fn ban_event() -> Event {
    Event {
        seq: 3,
        at_ns: NOW,
        at_unix_ms: UNIX_MS - 5_000,
        kind: EventKind::Ban,
        rule: Some("per-user".to_owned()),
        key: Some("mallory".to_owned()),
        by: "ops".to_owned(),
        reason: "scraping".to_owned(),
        until_ns: Some(NOW + 60 * S),
        ..Event::default()
    }
}

fn bans(instance: &str) -> BucketsPage {
    let mut hidden = canned::banned(BanBy::Override, None);
    hidden.key = "eve".to_owned();
    hidden.hidden_ban = Some(BanView {
        until_ns: None,
        by: BanBy::Operator,
    });
    let mut penalty = canned::banned(BanBy::Penalty, None);
    penalty.key = "bob".to_owned();
    let mut nameless = canned::banned(BanBy::Operator, None);
    nameless.key = "#0123456789abcdef".to_owned();
    BucketsPage {
        instance: instance.to_owned(),
        now_ns: NOW,
        buckets: vec![
            canned::banned(BanBy::Operator, Some(NOW + 60 * S)),
            hidden,
            penalty,
            nameless,
        ],
        ..BucketsPage::default()
    }
}

fn rules() -> Rules {
    let mut rules = canned::rules();
    rules.rules[0] = canned::rule_with_overrides();
    rules
}

/// Returns the answers to `export --live`.
pub(super) fn live() -> Vec<Answer> {
    let mut first = bans(INSTANCE);
    let mut rest = first.clone();
    rest.buckets = first.buckets.split_off(1);
    first.next_cursor = Some("1".to_owned());
    vec![
        ok(&canned::status()),
        ok(&events(INSTANCE, vec![ban_event()])),
        ok(&rules()),
        ok(&first),
        ok(&rest),
    ]
}

fn exported() -> String {
    Loudou::answers(live()).run("export --live").out
}

/// Returns the answers of a filter that has just started, `late_s` after the export.
pub(super) fn fresh(late_s: u64) -> Vec<Answer> {
    let mut status: Status = canned::status();
    status.instance = OTHER.to_owned();
    status.unix_ms += late_s * 1_000;
    status.now_ns = 5 * S;
    let mut rules = canned::rules();
    OTHER.clone_into(&mut rules.instance);
    for rule in &mut rules.rules {
        OTHER.clone_into(&mut rule.instance);
        rule.generation = 1;
        (rule.rule, rule.edit, rule.edit_body) = (rule.base.clone(), None, None);
    }
    vec![ok(&status), ok(&rules)]
}

/// Returns the answer to an edit or an override, or to its dry run.
pub(super) fn made(generation: u64, change: &str) -> Answer {
    let after = RuleView {
        instance: OTHER.to_owned(),
        generation,
        ..canned::rule()
    };
    ok(&EditAnswer {
        after,
        change: change.to_owned(),
        ..canned::edit_answer(false)
    })
}

pub(super) fn import(answers: Vec<Answer>, file: &str, line: &str) -> Ran {
    let loudou = Loudou {
        input: file,
        ..Loudou::answers(answers)
    };
    loudou.run(&format!("import - {line}"))
}

#[test]
fn everything_that_a_restart_would_lose_is_exported() {
    let ran = Loudou::answers(live()).run("export --live");
    assert_snapshot!("export_live", ran.seen());
    assert_eq!(
        ran.lines(),
        [
            "GET /v1/status HTTP/1.1",
            "GET /v1/events?after=0f1e2d3c4b5a6978-0 HTTP/1.1",
            "GET /v1/rules HTTP/1.1",
            "GET /v1/buckets?state=banned&limit=500 HTTP/1.1",
            "GET /v1/buckets?state=banned&cursor=1&limit=500 HTTP/1.1",
        ]
    );
    let mut mixed = live();
    mixed[3] = ok(&bans(OTHER));
    let ran = Loudou::answers(mixed).run("export --live");
    assert_eq!((ran.code, ran.out.as_str()), (6, ""));
    assert!(
        ran.err.contains("restarted in the meantime; try again"),
        "{}",
        ran.err
    );
    let old = Loudou::answers(vec![ok(&Status::default())]).run("export --live");
    assert!(old.err.contains("too old"), "{}", old.err);
}

#[test]
fn exports_are_imported_for_the_rest_of_their_time() {
    let mut answers = fresh(30);
    answers.extend([
        canned::not_found(),
        ok(&loudou_api::BanAnswer::default()),
        canned::not_found(),
        ok(&loudou_api::BanAnswer::default()),
        made(1, "burst: capacity 15 → 30"),
        made(2, "burst: capacity 15 → 30"),
        made(2, "override of alice: scale 10"),
        made(3, "override of alice: scale 10"),
    ]);
    let ran = import(answers, &exported(), "");
    assert_eq!(ran.code, 0, "{}", ran.seen());
    let lines = ran.lines();
    let starts = |at: usize, line: &str| assert!(lines[at].starts_with(line), "{}", lines[at]);
    // 1080 s were left at the time of the export, and a call takes some milliseconds.
    let left = |line: &str| -> u64 {
        let span = line.split("for=").nth(1).expect("an end");
        let span = span.split('&').next().expect("an end");
        Nanos::parse(span).expect("a time").as_millis()
    };
    starts(2, "GET /v1/buckets/per-user/eve");
    assert_eq!(
        lines[3],
        "POST /v1/buckets/per-user/eve/ban?reason=%28imported%29 HTTP/1.1"
    );
    // The time is in whole seconds.
    starts(5, "POST /v1/buckets/per-user/mallory/ban?for=30s&");
    starts(6, "PUT /v1/rules/per-user?carry=keep&for=");
    assert!(lines[6].ends_with("&reason=launch%20day%20%28imported%29&dry_run=true HTTP/1.1"));
    assert!(
        (1_000_000..=1_050_000).contains(&left(lines[7])),
        "{}",
        lines[7]
    );
    assert!(ran.requests[7].contains("if-match: \"fedcba9876543210-1\"\r\n"));
    assert_eq!(
        body(&ran.requests[7]),
        json!({"limits": canned::with_burst(30)["limits"]}).to_string()
    );
    starts(9, "PUT /v1/overrides/per-user/alice?for=");
    // The generation after the previous edit.
    assert!(ran.requests[9].contains("if-match: \"fedcba9876543210-2\"\r\n"));
    assert!(ran.out.ends_with("4 applied\n"), "{}", ran.out);
}

#[test]
fn items_in_effect_and_ended_items_are_skipped() {
    let banned = |until_ns| ok(&canned::banned(BanBy::Operator, until_ns));
    // All changes are in effect: an equal edit with an equal end, and an equal override of alice.
    let mut rules = rules();
    rules.rules[0].edit.as_mut().expect("edited").expires_at_ns = Some(NOW + 1081 * S);
    let answers = vec![
        ok(&canned::status()),
        ok(&rules),
        banned(None),
        banned(Some(NOW + 62 * S)),
        made(1, ""),
        made(1, ""),
    ];
    let ran = import(answers, &exported(), "-o jsonl");
    assert_snapshot!(ran.seen(), @r#"
    {"kind":"edit","rule":"per-user","outcome":"so_already"}
    {"kind":"override","rule":"per-user","key":"alice","outcome":"so_already"}
    {"kind":"ban","rule":"per-user","key":"eve","outcome":"so_already"}
    {"kind":"ban","rule":"per-user","key":"mallory","outcome":"so_already"}
    --- exit code 0
    "#);
    assert!(
        ran.lines()
            .iter()
            .all(|line| line.starts_with("GET") || line.contains("dry_run"))
    );
    // Two hours later, only the permanent ban is left to apply.
    let mut answers = fresh(7_200);
    answers.extend([canned::not_found(), ok(&loudou_api::BanAnswer::default())]);
    let mut document: Value = serde_json::from_str(&exported()).expect("JSON");
    document["overrides"] = json!([]);
    let ran = import(answers, &document.to_string(), "-o jsonl");
    assert_eq!(ran.code, 0, "{}", ran.seen());
    let outcomes: Vec<Value> = ran
        .out
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["outcome"].clone())
        .collect();
    assert_eq!(outcomes, ["ended", "applied", "ended"]);
}

#[test]
fn failed_items_are_reported_with_their_place() {
    let document = json!({
        "live_version": 1,
        "edits": [{ "rule": "per-usr", "change": { "mode": "off" } }],
        "bans": [{ "rule": "per-user", "key": "k" }, { "rule": "per-user", "key": "l" }],
    });
    let text = serde_json::to_string_pretty(&document).expect("JSON");
    let full: ProblemAnswer = ProblemAnswer {
        title: "Not available".to_owned(),
        status: 503,
        detail: "there is no room".to_owned(),
        ..ProblemAnswer::default()
    };
    let mut answers = fresh(0);
    answers.extend([
        canned::not_found(),
        Answer::json("503 Not available", &full),
        canned::not_found(),
        ok(&loudou_api::BanAnswer::default()),
        canned::not_found(),
        Answer::json("503 Not available", &full),
    ]);
    let ran = import(answers, &text, "");
    assert_snapshot!(ran.seen(), @r#"
    RULE      CHANGE            FOR     OUTCOME
    per-usr   edit to mode off  no end  failed: unknown rule
    per-user  ban of k          no end  failed: 503 Not available: there is no room
    per-user  ban of l          no end  applied: banned until unbanned
    1 applied, 2 failed
    --- standard error
    (standard input):5:15: error: edits[0].rule: "per-usr": unknown rule in this Envoy; allowed: per-user, per-path; did you mean `per-user`?
      5 |       "rule": "per-usr",
        |               ^
    (standard input):12:5: error: bans[0]: "ban of k": 503 Not available: there is no room
      12 |     {
         |     ^
    --- exit code 1
    "#);
}

/// An edit to shadow mode is applied after the ban, because the ban would be refused otherwise. An
/// edit that enforces the rule is applied first, because the ban needs it.
#[test]
fn the_order_of_edits_and_bans_does_not_matter() {
    let document = |mode: &str| {
        let document = json!({
            "live_version": 1,
            "edits": [{ "rule": "per-user", "change": { "mode": mode } }],
            "bans": [{ "rule": "per-user", "key": "k" }],
        });
        document.to_string()
    };
    let ban = || [canned::not_found(), ok(&loudou_api::BanAnswer::default())];
    let edit = || [made(1, "mode"), made(2, "mode")];
    let mut answers = fresh(0);
    answers.extend(ban());
    answers.extend(edit());
    let ran = import(answers, &document("shadow"), "");
    assert!(ran.out.ends_with("2 applied\n"), "{}", ran.seen());
    let refused: ProblemAnswer = ProblemAnswer {
        title: "Bad request".to_owned(),
        status: 400,
        detail: "a ban bans nobody while the rule is in mode shadow".to_owned(),
        ..ProblemAnswer::default()
    };
    let mut answers = fresh(0);
    answers.push(canned::not_found());
    answers.push(Answer::json("400 Bad request", &refused));
    answers.extend(edit());
    answers.extend(ban());
    let ran = import(answers, &document("enforce"), "");
    assert!(ran.out.ends_with("2 applied\n"), "{}", ran.seen());
}

#[test]
fn an_invalid_file_changes_nothing() {
    let text = "live_version: 1\nbans:\n  - { rule: per-user, key: mallory, until: 7 }\n  - { rule: per-user }\n";
    let ran = import(vec![], text, "");
    assert_snapshot!(ran.seen(), @r"
    --- standard error
    (standard input):3:37: error: bans[0].until: unknown field; allowed: rule, by, reason, made_unix_ms, ends_unix_ms, key
      3 |   - { rule: per-user, key: mallory, until: 7 }
        |                                     ^
    (standard input):4:5: error: bans[1]: `key` is missing; allowed: a key as `loudou buckets` prints it
      4 |   - { rule: per-user }
        |     ^
    --- exit code 1
    ");
    let ran = import(vec![], "version: 1\nrules: []\n", "");
    assert_snapshot!(ran.seen(), @r"
    --- standard error
    (standard input):1:1: error: (the whole file): no live_version: this is a rule file, which belongs in Envoy's configuration; allowed: the output of `loudou export --live`
      1 | version: 1
        | ^
    --- exit code 1
    ");
    for line in [
        "import",
        "import - -o csv",
        "--read-only import -",
        "export --live -o csv",
    ] {
        let ran = Loudou::default().run(line);
        assert_eq!(ran.code, 2, "{line}: {}", ran.seen());
    }
}

#[test]
fn a_dry_run_and_a_no_change_nothing() {
    let document = json!({
        "live_version": 1,
        "overrides": [{ "rule": "per-user", "key": "alice", "gives": { "scale": 10 }, "by": "ops" }],
        "bans": [{ "rule": "per-user", "key": "mallory" }],
    });
    let answers = |more: Vec<Answer>| {
        let mut answers = fresh(0);
        answers.extend([canned::not_found(), made(1, "override of alice: scale 10")]);
        answers.extend(more);
        answers
    };
    let ran = import(
        answers(vec![]),
        &document.to_string(),
        "--dry-run --read-only",
    );
    assert_snapshot!(ran.seen(), @r"
    RULE      CHANGE                       FOR     OUTCOME
    per-user  override of alice: scale 10  no end  would apply: override of alice: scale 10
    per-user  ban of mallory               no end  would apply: banned until unbanned
    2 would be applied; dry run: nothing was changed
    --- exit code 0
    ");
    assert!(
        ran.lines()
            .iter()
            .all(|line| line.starts_with("GET") || line.contains("dry_run=true"))
    );
    let path = std::env::temp_dir().join(format!("loudou-import-{}.json", std::process::id()));
    std::fs::write(&path, document.to_string()).expect("a file");
    let line = format!("import {}", path.display());
    let ran = asked(answers(vec![]), "n\n", &line);
    assert_eq!(ran.code, 1);
    assert!(
        ran.err
            .ends_with("Apply 2 changes to http://127.0.0.1:9911? [y/N] nothing was changed\n"),
        "{}",
        ran.err
    );
    let done = vec![
        canned::not_found(),
        ok(&loudou_api::BanAnswer::default()),
        made(1, "override of alice: scale 10"),
        made(2, "override of alice: scale 10"),
    ];
    let ran = asked(answers(done), "y\n", &line);
    std::fs::remove_file(&path).expect("removed");
    assert_eq!(ran.code, 0, "{}", ran.seen());
    assert!(ran.out.ends_with("2 applied\n"), "{}", ran.out);
}
