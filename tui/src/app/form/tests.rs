//! Tests of the edit form.

use super::*;
use crate::app::press::keys;
use serde_json::json;

fn view() -> RuleView {
    RuleView {
        name: "replies".to_owned(),
        generation: 7,
        rule: json!({
            "name": "replies",
            "limits": [
                {"name": "burst", "algorithm": "funnel", "capacity": 15, "rate": "30/m"},
                {
                    "name": "steady", "algorithm": "token_bucket", "capacity": 100,
                    "rate": "10/s", "refill": "greedy", "initial": 100
                },
            ],
            "mode": "enforce",
        }),
        ..RuleView::default()
    }
}

fn typed(presses: &str) -> Form {
    let mut form = Form::new(view());
    for press in keys(presses) {
        match press.code {
            crate::app::press::Code::Tab => form.step(1),
            crate::app::press::Code::BackTab => form.step(-1),
            _ => assert!(form.press(press), "{press}"),
        }
    }
    form
}

#[test]
fn untouched_changes_nothing() {
    let form = Form::new(view());
    assert_eq!(form.problem_count(), 0);
    assert!(!form.does_something());
    assert_eq!(form.body()["limits"], view().rule["limits"]);
}

#[test]
fn typing_replaces_the_selected_number() {
    let form = typed("250");
    assert_eq!(form.body()["limits"][0]["capacity"], 250);
    assert_eq!(form.problem_count(), 0);
    assert_eq!(form.changes().count(), 1);
}

#[test]
fn a_bucket_that_starts_full_keeps_starting_full() {
    let form = typed("<tab><tab>50");
    assert_eq!(form.body()["limits"][1]["initial"], 50);
    assert_eq!(form.problem_count(), 0, "{form:?}");
}

#[test]
fn problems_stand_under_their_fields() {
    let form = typed("0<tab>x");
    let problem = |index: usize| form.fields[index].problem.clone().unwrap_or_default();
    assert!(problem(0).contains("allowed"), "{form:?}");
    assert!(problem(1).contains("not a rate"), "{form:?}");
    assert_eq!(form.problem_count(), 2);
    let form = typed("<s-tab><s-tab>1 day");
    assert_eq!(form.problem_count(), 1);
    let form = typed("<s-tab><s-tab>30m");
    assert_eq!(form.expires_after(), Some(Nanos::from_secs(1800)));
    assert_eq!(form.problem_count(), 0);
    assert!(form.does_something());
}

#[test]
fn the_same_rate_in_other_words_is_no_change() {
    assert_eq!(typed("<tab>30/60s").changes().count(), 0);
    assert_eq!(typed("<tab>31/60s").changes().count(), 1);
}

#[test]
fn choices_are_chosen() {
    let mode = "<tab><tab><tab><tab>";
    for (presses, mode_after) in [("<right>", "shadow"), ("<left>", "off"), ("o", "off")] {
        let form = typed(&format!("{mode}{presses}"));
        assert_eq!(form.body()["mode"], mode_after);
    }
    assert_eq!(typed(&format!("{mode}<tab>k")).carry(), Carry::Keep);
}

#[test]
fn going_on_from_theirs_keeps_what_was_typed() {
    let mut form = typed("250");
    let mut theirs = view();
    theirs.generation = 9;
    theirs.rule["limits"][0]["capacity"] = json!(40);
    theirs.rule["limits"][0]["rate"] = json!("60/m");
    let versus = form.versus(&theirs);
    assert_eq!(
        versus[0],
        ["burst capacity", "15", "40", "250"].map(ToOwned::to_owned)
    );
    assert_eq!(
        versus[1],
        ["burst rate", "30/m", "60/m", "30/m"].map(ToOwned::to_owned)
    );
    form.rebase(theirs);
    assert_eq!(form.base.generation, 9);
    assert_eq!(form.body()["limits"][0]["capacity"], 250);
    assert_eq!(form.body()["limits"][0]["rate"], "60/m");
    assert_eq!(form.fields[0].before, "40");
}
