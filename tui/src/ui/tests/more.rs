//! Questions with several Envoys, undo, and dialogs that wait for an answer, at every size.

use loudou_api::{BanAnswer, BanBy, BanView, BucketView};

use super::*;
use crate::app::fixture::shared;
use crate::app::running::Running;
use loudou_client::change::verb::Answer;
use serde_json::json;

/// Adds three Envoys, of which those with these numbers are marked.
fn several(state: &mut State, marked: &[usize]) {
    let target = |number: usize| TargetSummary {
        url: format!("http://10.0.0.{}:9911", number + 7),
        up: Some(true),
        is_marked: marked.contains(&number),
        ..TargetSummary::default()
    };
    state.targets = (0..3).map(target).collect();
}

#[test]
fn questions_with_several_envoys() {
    screen("ask_all", "R", |state| several(state, &[]));
    screen("ask_marked", "R", |state| several(state, &[0, 2]));
    screen("ask_others", "R", |state| several(state, &[1, 2]));
    screen("ask_edit_all", "e250<ret>", |state| several(state, &[]));
    let mut state = shared(USUAL, 20, false);
    type_keys(&mut state, "/mallory<ret>b10m<ret>");
    several(&mut state, &[]);
    compare("ask_fleet", &state, USUAL);
}

/// The question that the user confirms before the undo of a ban. If there is room, the message
/// about the ban is shown as well.
#[test]
fn the_question_before_an_undo() {
    screen("undo", "", |state| {
        let effects = type_keys(state, "b10m<ret><ret>");
        let sent = effects.into_iter().find_map(|effect| match effect {
            Effect::Change(sending) => Some(sending),
            _ => None,
        });
        let ban = BanView {
            until_ns: Some(state.server_ns() + 600_000_000_000),
            by: BanBy::Operator,
        };
        let bucket = BucketView {
            ban: Some(ban),
            ..BucketView::default()
        };
        let answer = Answer::Ban(Box::new(BanAnswer {
            now_ns: state.server_ns(),
            bucket: Some(bucket),
            changed: true,
            ..BanAnswer::default()
        }));
        let now = state.now;
        let changed = Msg::Changed(sent.expect("a ban"), Ok(answer));
        update(state, changed, now);
        type_keys(state, "u");
        assert!(crate::app::asking::is_open(&state.mode));
    });
}

#[test]
fn what_waits_for_an_answer() {
    screen("sending", "e250<s-tab>launch<ret><ret>", |_| {});
    screen("asking", "x<ret>", |_| {});
}

/// The help of screens other than the first one.
#[test]
fn help_of_other_screens() {
    for (name, keys) in [
        ("help_bucket", "<ret>?"),
        ("help_rules", "3?"),
        ("help_events", "5?"),
        ("help_envoy", "6?"),
    ] {
        let mut state = state(USUAL, 20);
        several(&mut state, &[]);
        type_keys(&mut state, keys);
        compare(name, &state, USUAL);
    }
}

#[test]
fn a_filter_with_a_mistake() {
    screen("filter_error", "/refused > x", |_| {});
}

#[test]
fn a_terminal_that_is_too_small() {
    let size = (39, 9);
    let terminal = draw(&state(size, 3), &Theme::new(false, false), size);
    insta::assert_snapshot!(terminal.backend(), @r#"
    "terminal too small (need 40x10)        "
    "                                       "
    "                                       "
    "                                       "
    "                                       "
    "                                       "
    "                                       "
    "                                       "
    "                                       "
    "#);
}

/// The description of a rule has everything that the rule matches.
#[test]
fn a_rule_for_a_host_is_not_for_every_request() {
    let mut state = state(USUAL, 20);
    let data = state.data.as_mut().expect("data");
    data.rules.rules[0].rule["match"] = json!({ "host": { "exact": "api.example.com" } });
    data.running = Running::default();
    type_keys(&mut state, "<ret>");
    let text = text(&state, (140, 40));
    assert!(
        text.contains("requests to host api.example.com; key header x-user-id"),
        "{text}"
    );
}
