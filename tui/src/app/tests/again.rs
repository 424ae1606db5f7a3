//! Restart of Envoy while the screen runs: lost changes are reported, and can be applied again.

use loudou_api::{BanBy, BanView, BucketState, EditView, Event, EventKind, OverrideView};
use loudou_limiter::Nanos;
use serde_json::json;

use super::{SIZE, messages, send};
use crate::app::again::banner;
use crate::app::effects::Effect;
use crate::app::fixture::{S, UNIX_MS, rules, snapshot, state, type_keys};
use crate::app::msg::{Failure, Msg, Snapshot};
use crate::app::state::{Mode, State};
use loudou_client::live::apply::Done;
use loudou_client::live::{Item, Kind};

/// Turns a snapshot into the snapshot of another process, which started just before it.
pub(super) fn restart(snapshot: &mut Snapshot) {
    let other = "fedcba9876543210";
    snapshot.status.instance = other.to_owned();
    snapshot.status.started_unix_ms = snapshot.status.unix_ms - 2_000;
    let mut fresh = rules();
    for rule in &mut fresh {
        other.clone_into(&mut rule.instance);
        rule.generation = 1;
        (rule.edit, rule.edit_body) = (None, None);
    }
    snapshot.rules = Some(loudou_api::Rules {
        instance: other.to_owned(),
        now_ns: snapshot.status.now_ns,
        generation: 1,
        rules: fresh,
        next_cursor: None,
    });
    snapshot.status.generation = 1;
    snapshot.events = vec![Event {
        seq: 1,
        kind: EventKind::Configured,
        ..Event::default()
    }];
    snapshot.last_seq = 1;
}

/// Returns the data that poll number `poll` reads while mallory is banned for 100 s and bob
/// permanently, and alice and carol have overrides. Carol's override ends 5 s after the first poll.
pub(super) fn live(poll: u64) -> Snapshot {
    let mut snapshot = snapshot(poll);
    let start = snapshot.status.now_ns - poll * S;
    for (_, bucket) in &mut snapshot.buckets {
        let until_ns = match bucket.key.as_str() {
            "mallory" => Some(start + 100 * S),
            "bob" => None,
            _ => continue,
        };
        bucket.state = BucketState::Banned;
        let by = BanBy::Operator;
        bucket.ban = Some(BanView { until_ns, by });
    }
    for (_, bucket) in &mut snapshot.buckets {
        if bucket.key == "alice" {
            // A ban by a penalty is not a lost change, because the rule will impose it again.
            let (until_ns, by) = (Some(start + 100 * S), BanBy::Penalty);
            bucket.ban = Some(BanView { until_ns, by });
        }
    }
    let mut rules = rules();
    rules[0].rule["overrides"] = json!({ "alice": { "scale": 10 }, "carol": "unlimited" });
    let own = |key: &str, expires_at_ns| OverrideView {
        key: key.to_owned(),
        edit: EditView {
            by: "ops".to_owned(),
            reason: "ticket 7".to_owned(),
            expires_at_ns,
            ..EditView::default()
        },
    };
    rules[0].overrides = vec![own("alice", None), own("carol", Some(start + 5 * S))];
    snapshot.rules = Some(loudou_api::Rules {
        instance: snapshot.status.instance.clone(),
        now_ns: snapshot.status.now_ns,
        generation: 7,
        rules,
        next_cursor: None,
    });
    snapshot.events.push(Event {
        seq: 4,
        at_unix_ms: UNIX_MS,
        kind: EventKind::Ban,
        rule: Some("reply-per-user".to_owned()),
        key: Some("mallory".to_owned()),
        by: "ops".to_owned(),
        reason: "scraping".to_owned(),
        until_ns: Some(start + 100 * S),
        ..Event::default()
    });
    snapshot.last_seq = 4;
    snapshot
}

fn poll(state: &mut State, snapshot: Snapshot) {
    send(state, Msg::Polled(Ok(Box::new(snapshot))));
}

/// Returns a state that saw these changes, and then a restart before poll number 9.
pub(crate) fn restarted(size: (u16, u16)) -> State {
    let mut state = state(size, 1);
    poll(&mut state, live(1));
    let mut after = snapshot(9);
    restart(&mut after);
    poll(&mut state, after);
    state
}

fn asked(effects: Vec<Effect>) -> Vec<Item> {
    let again = effects.into_iter().find_map(|effect| match effect {
        Effect::Again(items) => Some(items),
        _ => None,
    });
    again.expect("it is sent")
}

#[test]
fn a_restart_is_reported_once_with_the_lost_changes() {
    let mut state = restarted(SIZE);
    // Carol's override has ended anyway.
    let line = "Envoy restarted at 2026-11-21 14:03:14Z: 2 bans, 1 edit, 1 override of the previous \
                instance are lost";
    assert_eq!(messages(&state), line);
    let shown = banner(&state).expect("an offer");
    let expected = "RESTARTED at 14:03:14Z, gone: 2 bans, 1 edit, 1 override - a: apply again";
    assert_eq!(shown, expected);
    state.toasts.clear();
    let mut next = snapshot(10);
    restart(&mut next);
    poll(&mut state, next);
    assert_eq!(messages(&state), "");
    assert_eq!(banner(&state), Some(shown));
    assert!(state.undos.is_empty());
    let events = &state.data.as_ref().expect("data").events;
    assert_eq!(events.len(), 1, "those of the process before are gone");
}

#[test]
fn what_is_gone_is_applied_again_with_reasons_and_ends() {
    let mut state = restarted(SIZE);
    assert!(type_keys(&mut state, "a").is_empty());
    let Mode::Confirm(pending) = &state.mode else {
        panic!("no question")
    };
    assert!(
        pending.question.ends_with("are lost. Apply again?"),
        "{pending:?}"
    );
    assert_eq!(
        pending.detail,
        [
            "search-per-key: edit to search 100 at 20/s, 25m left",
            "reply-per-user: override of alice: scale 10",
            "reply-per-user: ban of bob",
            "reply-per-user: ban of mallory, 1m31s left",
        ]
    );
    let items = asked(type_keys(&mut state, "<ret>"));
    let kinds: Vec<Kind> = items.iter().map(Item::kind).collect();
    assert_eq!(kinds, [Kind::Edit, Kind::Override, Kind::Ban, Kind::Ban]);
    assert_eq!(items[1].reason, "ticket 7");
    assert_eq!(
        (items[3].by.as_str(), items[3].reason.as_str()),
        ("ops", "scraping")
    );
    assert_eq!(items[3].ends_unix_ms, Some(UNIX_MS + 100_000));
    assert_eq!(items[2].ends_unix_ms, None);
    assert_eq!(banner(&state), None);
    let done = |item: Item| (item, Done::Applied("so".to_owned()));
    let answer = items.into_iter().map(done).collect();
    send(&mut state, Msg::Again(Ok(answer)));
    assert!(
        messages(&state).contains("applied: 2 bans, 1 edit, 1 override"),
        "{}",
        messages(&state)
    );
    // The next poll shows that the changes are in effect.
    let mut next = live(10);
    let rules = next.rules.take();
    restart(&mut next);
    next.rules = rules;
    poll(&mut state, next);
    type_keys(&mut state, "a");
    assert!(
        messages(&state).contains("nothing to reapply"),
        "{}",
        messages(&state)
    );
}

#[test]
fn failures_are_reported_and_stay_on_offer() {
    let mut state = restarted(SIZE);
    let items = asked(type_keys(&mut state, "ay"));
    let mut results: Vec<_> = items
        .into_iter()
        .map(|item| (item, Done::SoAlready))
        .collect();
    results[0].1 = Done::Failed("409 no".to_owned());
    send(&mut state, Msg::Again(Ok(results)));
    let text = "still missing: 1 edit; search-per-key: edit to search 100 at 20/s: failed: 409 no; press a \
                to try again";
    assert!(messages(&state).contains(text), "{}", messages(&state));
    // The next poll shows that the other changes are in effect.
    let mut next = live(10);
    let rules = next.rules.take();
    restart(&mut next);
    next.rules = rules;
    for rule in next.rules.iter_mut().flat_map(|rules| &mut rules.rules) {
        rule.edit = None;
    }
    poll(&mut state, next);
    let gone = "RESTARTED at 14:03:14Z, gone: 1 edit - a: apply again";
    assert_eq!(banner(&state).as_deref(), Some(gone));
    let items = asked(type_keys(&mut state, "ay"));
    let failure = Failure {
        text: "no answer".to_owned(),
        ..Failure::default()
    };
    send(&mut state, Msg::Again(Err(failure)));
    assert!(messages(&state).contains("not applied: no answer"));
    assert!(banner(&state).is_some());
    assert_eq!(items.len(), 1);
}

#[test]
fn a_declined_offer_is_hidden_but_can_be_opened_again() {
    let mut state = restarted(SIZE);
    assert!(type_keys(&mut state, "a<esc>").is_empty());
    assert_eq!(banner(&state), None);
    assert_eq!(asked(type_keys(&mut state, "ay")).len(), 4);
}

#[test]
fn a_frozen_screen_keeps_its_data_but_reports_the_restart() {
    let mut state = state(SIZE, 1);
    type_keys(&mut state, " ");
    poll(&mut state, live(1));
    let mut after = snapshot(2);
    restart(&mut after);
    poll(&mut state, after);
    assert!(
        messages(&state).contains("2 bans, 1 edit, 2 overrides"),
        "{}",
        messages(&state)
    );
    type_keys(&mut state, " ");
    let data = state.data.as_ref().expect("data");
    assert_eq!((data.rules.generation, data.events.len()), (1, 1));
    assert!(data.rules.rules.iter().all(|rule| rule.edit.is_none()));
}

#[test]
fn a_viewer_gets_the_report_without_an_offer() {
    let mut state = restarted(SIZE);
    state.settings.read_only = true;
    let shown = banner(&state).expect("the line");
    assert!(shown.ends_with("1 edit, 1 override"), "{shown}");
    assert!(type_keys(&mut state, "a").is_empty());
    assert!(matches!(state.mode, Mode::Browse));
}

#[test]
fn the_next_poll_requests_the_data_of_the_new_instance() {
    let mut state = state(SIZE, 1);
    let now = state.now.saturating_add(Nanos::from_secs(2));
    let effects = crate::app::update::update(&mut state, Msg::Tick, now);
    let Some(Effect::Poll(request)) = effects.into_iter().next() else {
        panic!("no poll")
    };
    assert_eq!(request.instance, crate::app::fixture::INSTANCE);
    assert_eq!((request.generation, request.after_seq), (Some(7), 3));
}

/// A restart without lost changes is shown, too, for a minute.
#[test]
fn a_restart_without_losses_is_shown_for_a_while() {
    let mut state = state(SIZE, 0);
    let mut before = snapshot(0);
    before.events.clear();
    for rule in before.rules.iter_mut().flat_map(|rules| &mut rules.rules) {
        rule.edit = None;
    }
    poll(&mut state, before);
    assert_eq!(banner(&state), None);
    let mut after = snapshot(1);
    restart(&mut after);
    after.rules = None;
    poll(&mut state, after);
    let shown = "RESTARTED at 14:03:06Z, buckets and penalties were reset; no changes were lost";
    assert_eq!(banner(&state).as_deref(), Some(shown));
    let later = state.now.saturating_add(Nanos::from_secs(61));
    crate::app::update::update(&mut state, Msg::Tick, later);
    assert_eq!(banner(&state), None);
}
