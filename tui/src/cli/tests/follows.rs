//! `loudou events --follow` across a restart of Envoy.

use loudou_api::{Event, EventKind};
use serde_json::Value;

use super::canned::{INSTANCE, NOW, S, UNIX_MS, ok};
use super::live::{OTHER, ban_event, events, fresh, live};
use super::*;
/// Follows an Envoy with live changes of all kinds, which then restarts.
fn followed(answers: Vec<Answer>) -> Ran {
    let mut all = vec![ok(&events(INSTANCE, vec![ban_event()]))];
    all.extend(live());
    all.extend(answers);
    Loudou::answers(all).run("events --follow")
}

#[test]
fn a_follower_reports_the_losses_of_a_restart() {
    let unban = Event {
        seq: 4,
        kind: EventKind::Unban,
        key: Some("eve".to_owned()),
        at_ns: NOW,
        at_unix_ms: UNIX_MS,
        ..ban_event()
    };
    let configured = Event {
        seq: 1,
        kind: EventKind::Configured,
        at_ns: 5 * S,
        at_unix_ms: UNIX_MS + 10_000,
        by: "loudou".to_owned(),
        ..Event::default()
    };
    let mut after = events(OTHER, vec![configured]);
    after.restarted = true;
    let mut fresh_rules = fresh(0);
    let ran = followed(vec![
        ok(&events(INSTANCE, vec![unban])),
        ok(&after),
        fresh_rules.remove(1),
    ]);
    assert_snapshot!(ran.seen(), @r#"
    SEQ  TIME                  KIND  RULE      KEY      BY   DETAIL  REASON
      3  2026-11-21 14:03:02Z  ban   per-user  mallory  ops  -       scraping
      4  2026-11-21 14:03:07Z  unban  per-user  eve  ops  -       scraping
      1  2026-11-21 14:03:17Z  configured  -     -    loudou  -       -
    --- standard error
    Envoy restarted at 2026-11-21 14:03:07Z: 1 ban, 1 edit, 1 override of the previous instance are lost
    to apply them again, run:

    loudou --url http://127.0.0.1:9911 import - <<'END'
    {"live_version":1,"instance":"0f1e2d3c4b5a6978","exported_unix_ms":1795269787000,"edits":[{"rule":"per-user","change":{"limits":[{"name":"burst","algorithm":"funnel","capacity":30,"rate":"30/m"},{"name":"steady","algorithm":"token_bucket","capacity":1000,"rate":"1000/d","refill":"interval"}]},"by":"ops","reason":"launch day","made_unix_ms":1795269787000,"ends_unix_ms":1795270867000}],"overrides":[{"rule":"per-user","key":"alice","gives":{"scale":10},"by":"ops","reason":"ticket 7","made_unix_ms":1795269787000,"ends_unix_ms":1795270867000}],"bans":[{"rule":"per-user","key":"mallory","by":"ops","reason":"scraping","made_unix_ms":1795269782000,"ends_unix_ms":1795269847000}]}
    END

    loudou: cannot reach http://127.0.0.1:9911: Connection refused (os error 111); is Envoy running, and is this its admin listener for Loudou? (--url or LOUDOU_URL)
    --- exit code 3
    "#);
    assert!(
        ran.lines()[6].contains("after=0f1e2d3c4b5a6978-3"),
        "{:?}",
        ran.lines()
    );
    assert!(
        ran.lines()[7].contains("after=0f1e2d3c4b5a6978-4"),
        "{:?}",
        ran.lines()
    );
    // `import` reads the printed document.
    let document = ran
        .err
        .lines()
        .find(|line| line.starts_with('{'))
        .expect("a document");
    let document: Value = serde_json::from_str(document).expect("JSON");
    let read = loudou_client::live::document::read(&document).expect("valid");
    assert_eq!(read.len(), 3);
}

#[test]
fn a_restart_since_the_last_event_is_reported() {
    let mut after = events(OTHER, vec![ban_event()]);
    after.restarted = true;
    let ran = Loudou::answers(vec![ok(&after)]).run(&format!("events --after {INSTANCE}-120"));
    assert!(ran.lines()[0].contains("after=0f1e2d3c4b5a6978-120"));
    assert_eq!(
        ran.err,
        "Envoy restarted at 2026-11-21 14:03:07Z: all its events follow\n"
    );
    assert_eq!(Loudou::default().run("events --after x").code, 2);
    // A number without an instance may be a mistake.
    let ran = Loudou::answers(vec![ok(&after)]).run("events --after 120");
    assert_eq!(
        ran.err,
        "Envoy, started at 2026-11-21 14:03:07Z, has counted no event 120 yet: all its events follow\n"
    );
}

/// A long list has several pages. A follower of one source also reads the other events, to know
/// which changes are in effect.
#[test]
fn events_are_read_page_by_page_and_by_source() {
    let configured = Event {
        seq: 4,
        kind: EventKind::Configured,
        ..ban_event()
    };
    let mut first = events(INSTANCE, vec![ban_event()]);
    first.more = true;
    let mut rest = events(INSTANCE, vec![configured.clone()]);
    rest.lost = 7;
    let ran = Loudou::answers(vec![ok(&first), ok(&rest)]).run("events --of operators -o jsonl");
    assert_eq!(ran.out.lines().count(), 2, "{}", ran.out);
    assert!(ran.err.contains("7 older events"), "{}", ran.err);
    let place = |seq| format!("GET /v1/events?after={seq}&of=operators HTTP/1.1");
    let pages = [place("0".to_owned()), place(format!("{INSTANCE}-3"))];
    assert_eq!(ran.lines(), pages);

    let mut answers = vec![ok(&first), ok(&events(INSTANCE, vec![ban_event()]))];
    answers.extend(live());
    answers.push(ok(&events(INSTANCE, vec![configured])));
    answers.push(live().swap_remove(2));
    let ran = Loudou::answers(answers).run("events --follow --of operators -o jsonl");
    assert!(!ran.out.contains("configured"), "{}", ran.out);
    assert_eq!(Loudou::default().run("events --of all").code, 2);
}
