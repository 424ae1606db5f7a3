//! Tests of the edit form.

use loudou_api::EditView;
use loudou_limiter::algorithm::Algorithm;
use loudou_rules::config;
use loudou_rules::config::{limit_fields, parse_limits};
use serde_json::json;

use super::*;
use crate::app::press::keys;

/// The server's clock.
const NOW: u64 = 1_000_000_000_000;

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
    let mut form = Form::new(view(), NOW);
    for press in keys(presses) {
        match press.code {
            Code::Tab => form.step(1),
            Code::BackTab => form.step(-1),
            _ => assert!(form.press(press), "{press}"),
        }
    }
    form
}

#[test]
fn untouched_changes_nothing() {
    let form = Form::new(view(), NOW);
    assert_eq!(form.problem_count(), 0);
    assert!(!form.does_something());
    // Defaults are left out, which does not change the meaning.
    let limits = |limits: &Value| parse_limits(limits).expect("valid");
    assert_eq!(
        limits(&form.body()["limits"]),
        limits(&view().rule["limits"])
    );
    assert_eq!(form.body()["limits"][1].get("initial"), None);
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
    let form = typed("<tab><tab><tab>50");
    assert_eq!(form.problem_count(), 0, "{form:?}");
    let limits = parse_limits(&form.body()["limits"]).expect("valid");
    let written = serde_json::to_value(&limits).expect("serialises");
    assert_eq!(written[1]["initial"], 50);
}

#[test]
fn problems_stand_under_their_fields() {
    let form = typed("0<tab>x");
    let problem = |index: usize| form.fields[index].problem.clone().unwrap_or_default();
    assert!(problem(0).contains("allowed"), "{form:?}");
    assert!(problem(1).contains("invalid rate"), "{form:?}");
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
    let mode = "<tab>".repeat(9);
    for (presses, mode_after) in [("<right>", "shadow"), ("o", "off"), ("<left><left>", "off")] {
        let form = typed(&format!("{mode}{presses}"));
        assert_eq!(form.body()["mode"], mode_after);
    }
    assert_eq!(typed(&format!("{mode}<tab>k")).carry(), Carry::Keep);
}

/// The default and the bounds of a number that comes with each request are fields. Its path stays.
#[test]
fn parts_of_numbers_from_metadata_are_fields() {
    let mut sourced = view();
    let quota = json!({ "metadata": ["jwt", "quota"], "default": 15, "max": 100 });
    let pace = json!({ "metadata": ["jwt", "pace"], "default": 30, "max": 60 });
    sourced.rule["limits"][0]["capacity"] = quota.clone();
    sourced.rule["limits"][0]["rate"] = json!({ "amount": pace, "per": "1m" });
    let mut form = Form::new(sourced.clone(), NOW);
    assert_eq!(form.problem_count(), 0, "{form:?}");
    assert_eq!(form.body()["limits"][0], sourced.rule["limits"][0]);
    let names: Vec<&str> = form.fields.iter().take(6).map(Field::name).collect();
    let parts = [
        "capacity default",
        "capacity max",
        "rate default",
        "rate max",
        "rate per",
    ];
    assert_eq!(names, [&parts[..], &["max_wait"]].concat());
    for (steps, value) in [(1, "200"), (2, "90"), (1, "2m")] {
        (0..steps).for_each(|_| form.step(1));
        form.paste(value);
    }
    assert_eq!(form.problem_count(), 0, "{form:?}");
    assert_eq!(
        form.change_lines(),
        [
            "burst capacity max 100 → 200",
            "burst rate max 60 → 90",
            "burst rate per 1m → 2m"
        ]
    );
    let limit = &form.body()["limits"][0];
    assert_eq!(limit["capacity"]["max"], 200);
    assert_eq!(limit["capacity"]["metadata"], quota["metadata"]);
    assert_eq!(
        (&limit["rate"]["amount"]["max"], &limit["rate"]["per"]),
        (&json!(90), &json!("2m"))
    );
    form.focus_on(1);
    form.paste("3");
    let problem = form.fields[1].problem.clone().unwrap_or_default();
    assert!(problem.contains("15 to"), "{problem}");
}

/// A trial of the rule with another first capacity, which another user changed.
fn trial(capacity: u32) -> RuleView {
    let mut trial = view();
    trial.name = "replies~trial".to_owned();
    trial.generation = 12;
    trial.rule["mode"] = json!("shadow");
    trial.rule["limits"][0]["capacity"] = json!(capacity);
    trial
}

#[test]
fn limits_are_tried_beside_the_rule() {
    let mode = "<tab>".repeat(9);
    let unchanged = typed(&format!("{mode}t"));
    assert_eq!(unchanged.problem_count(), 1, "there is nothing to try");
    let form = typed(&format!("10{mode}t"));
    assert_eq!(form.problem_count(), 0);
    assert_eq!(
        form.change_lines(),
        ["burst capacity 15 → 10"],
        "the mode of the rule stays"
    );
    let edit = form.edit();
    assert_eq!(edit.rule, "replies~trial");
    assert_eq!(edit.seen.name, "replies", "which exists already");
    assert_eq!(form.body().get("mode"), None);
    assert_eq!(
        edit.command(None).as_deref(),
        Some("loudou set replies capacity=10 --trial --limit burst")
    );
}

/// Another trial replaces the running one, and its undo brings the replaced limits back.
#[test]
fn another_trial_shows_the_limits_that_it_replaces() {
    let mut form = typed(&format!("10{}t", "<tab>".repeat(9)));
    let mut running = trial(7);
    running.edit = Some(EditView {
        by: "mia".to_owned(),
        ..EditView::default()
    });
    form.running = Some(Box::new(running));
    assert_eq!(
        form.change_lines(),
        [
            "replaces the running trial by mia:",
            "burst capacity 7 → 10"
        ]
    );
    let edit = form.edit();
    assert_eq!(edit.rule, "replies~trial");
    assert_eq!(
        (edit.seen.name.as_str(), edit.seen.generation),
        ("replies~trial", 12)
    );
}

/// Another user changes or starts a trial of the rule meanwhile. The form stays a form of the rule, and its next edit
/// replaces that trial.
#[test]
fn a_conflict_about_a_trial_keeps_the_rule() {
    for is_known in [true, false] {
        let mut form = typed(&format!("10{}t", "<tab>".repeat(9)));
        form.running = is_known.then(|| {
            Box::new(RuleView {
                generation: 9,
                ..trial(7)
            })
        });
        form.rebase(trial(7), NOW);
        assert_eq!(form.base.name, "replies");
        let edit = form.edit();
        assert_eq!(
            (
                edit.rule.as_str(),
                edit.seen.name.as_str(),
                edit.seen.generation
            ),
            ("replies~trial", "replies~trial", 12)
        );
        assert_eq!(form.body()["limits"][0]["capacity"], 10);
    }
}

/// The limits of a trial are enforced by an edit of its rule; the rule's other numbers do not matter.
#[test]
fn tried_limits_are_enforced_by_an_edit_of_the_rule() {
    let trial = trial(10);
    let mut form = Form::new(trial, NOW);
    form.tried = Some(Box::new(view()));
    assert!(!form.does_something());
    assert_eq!(form.edit().rule, "replies~trial");
    form.turn_mode();
    form.check();
    assert_eq!(form.problem_count(), 0);
    assert_eq!(form.change_lines(), ["burst capacity 15 → 10"]);
    let edit = form.edit();
    assert_eq!(
        (edit.rule.as_str(), edit.seen.name.as_str()),
        ("replies", "replies")
    );
    assert_eq!(form.body()["mode"], "enforce");
    assert_eq!(
        edit.command(None).as_deref(),
        Some("loudou set replies capacity=10 --limit burst")
    );
}

/// Another user changes the rule before its trial is enforced. The limits of the trial are sent, not the limits of the
/// other user.
#[test]
fn a_conflict_keeps_the_tried_limits() {
    let trial = trial(10);
    let mut form = Form::new(trial, NOW);
    form.tried = Some(Box::new(view()));
    form.turn_mode();
    let mut theirs = view();
    theirs.generation = 9;
    theirs.rule["limits"][0]["capacity"] = json!(40);
    form.rebase(theirs, NOW);
    assert_eq!(form.body()["limits"][0]["capacity"], 10);
    assert_eq!(form.change_lines(), ["burst capacity 40 → 10"]);
    let edit = form.edit();
    assert_eq!((edit.rule.as_str(), edit.seen.generation), ("replies", 9));
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
    form.rebase(theirs, NOW);
    assert_eq!(form.base.generation, 9);
    assert_eq!(form.body()["limits"][0]["capacity"], 250);
    assert_eq!(form.body()["limits"][0]["rate"], "60/m");
    assert_eq!(form.fields[0].before, "40");
}

#[test]
fn typing_replaces_what_was_read_meanwhile() {
    let mut form = Form::new(view(), NOW);
    let mut theirs = view();
    theirs.rule["limits"][0]["capacity"] = json!(40);
    form.rebase(theirs, NOW);
    for press in keys("8") {
        assert!(form.press(press));
    }
    assert_eq!(form.body()["limits"][0]["capacity"], 8);
}

/// Returns a rule with one limit of every algorithm, with only the required fields.
fn every() -> RuleView {
    let limits = Algorithm::NAMES.iter().map(|name| {
        let mut limit = json!({ "name": format!("a-{name}").replace('_', "-"), "algorithm": name });
        let needed = limit_fields(name).iter().filter(|f| f.default.is_none());
        for field in needed {
            limit[field.name] = match field.name {
                "capacity" => json!(5),
                "rate" => json!("1/s"),
                _ => json!("1m"),
            };
        }
        limit
    });
    RuleView {
        rule: json!({ "name": "every", "limits": limits.take(8).collect::<Vec<_>>() }),
        ..RuleView::default()
    }
}

#[test]
fn every_field_of_every_algorithm_is_there() {
    let form = Form::new(every(), NOW);
    assert_eq!(form.problem_count(), 0);
    for (index, name) in Algorithm::NAMES.iter().take(8).enumerate() {
        assert_eq!(
            form.limit(index).map(|limit| (limit.1, limit.2)),
            Some((*name, true))
        );
        for field in limit_fields(name) {
            let kind = Kind::Limit(index, field);
            let found = form.fields.iter().find(|field| field.kind == kind);
            let found = found.unwrap_or_else(|| panic!("{name} {}", field.name));
            let is_choice = matches!(found.input, Input::Choice(..));
            let chosen = matches!(field.form, config::Form::Word(_) | config::Form::Boolean);
            assert_eq!(is_choice, chosen, "{name} {}", field.name);
        }
    }
    assert!(!form.does_something());
    let limits = |limits: &Value| parse_limits(limits).expect("valid");
    assert_eq!(
        limits(&form.body()["limits"]),
        limits(&every().rule["limits"])
    );
}

fn one(limit: &Value, presses: &str) -> Form {
    let view = RuleView {
        rule: json!({ "name": "one", "limits": [limit] }),
        ..RuleView::default()
    };
    let mut form = Form::new(view, NOW);
    for press in keys(presses) {
        match press.code {
            Code::Tab => form.step(1),
            _ => assert!(form.press(press), "{press}"),
        }
    }
    form
}

#[test]
fn fields_of_every_form_are_checked_as_they_are_typed() {
    let log = json!({ "name": "l", "algorithm": "sliding_log", "capacity": 5, "window": "1m" });
    let form = one(&log, "<tab>2m<tab><right>");
    assert_eq!(form.problem_count(), 0, "{form:?}");
    let limit = &form.body()["limits"][0];
    assert_eq!(
        (&limit["window"], &limit["count_refused"]),
        (&json!("2m"), &json!(true))
    );
    let form = one(&log, "300<tab>soon");
    let problem = |index: usize| form.fields[index].problem.clone().unwrap_or_default();
    assert!(problem(0).contains("from 1 to 256"), "{form:?}");
    assert!(problem(1).contains("invalid duration"), "{form:?}");

    let bursty = json!({ "name": "b", "algorithm": "smooth_bursty", "rate": "1/s", "burst_seconds": 1,
        "max_wait": "5s" });
    let form = one(&bursty, "<tab>2.5<tab><bs>");
    assert_eq!(form.problem_count(), 0, "{form:?}");
    let limit = &form.body()["limits"][0];
    assert_eq!(
        (&limit["burst_seconds"], limit.get("max_wait")),
        (&json!(2.5), None)
    );
    let changed: Vec<String> = form.changes().map(|f| f.shown(f.value())).collect();
    assert_eq!(changed, ["2.5", "0s"]);
    // Typing the default value explicitly is not a change.
    assert!(!one(&bursty, "<tab>1.0").does_something());
    // A required field cannot be emptied.
    let form = one(&log, "<tab><bs>");
    assert!(form.fields[1].problem.is_some(), "{form:?}");
}

#[test]
fn a_limit_of_a_newer_filter_stays_as_it_is() {
    let newer = json!({ "name": "n", "algorithm": "newer", "width": 3 });
    let form = one(&newer, "<right>");
    assert_eq!(form.limit(0), Some(("n", "newer", false)));
    assert_eq!(form.body(), json!({ "mode": "shadow" }));
    assert_eq!(form.problem_count(), 0);
}

/// Returns the rule with an edit that ends this many seconds from now, or never.
fn edited(left_s: Option<u64>) -> RuleView {
    RuleView {
        edit: Some(EditView {
            expires_at_ns: left_s.map(|left| NOW + left * 1_000_000_000 - 1),
            ..EditView::default()
        }),
        ..view()
    }
}

#[test]
fn an_edit_with_an_end_keeps_one() {
    for (left_s, begins) in [
        (1, "1s"),
        (90, "90s"),
        (1_200, "20m"),
        (1_201, "21m"),
        (7_200, "2h"),
        (360_001, "101h"),
    ] {
        let form = Form::new(edited(Some(left_s)), NOW);
        assert_eq!(
            form.expires_after().map(|span| span.to_string()).as_deref(),
            Some(begins)
        );
        assert!(!form.does_something() && form.other_end().is_none());
    }
    let end_of = |left_s, text: &str| {
        let mut form = Form::new(edited(left_s), NOW);
        let at = form.fields.iter().position(is_end).expect("a field");
        form.focus_on(at);
        for press in keys(text) {
            form.press(press);
        }
        assert_eq!(form.does_something(), form.other_end().is_some(), "{text}");
        form.other_end()
    };
    let told = |text: &str| Some(text.to_owned());
    assert_eq!(end_of(Some(1_200), "1h"), told("expires after 20m → 1h"));
    assert_eq!(
        end_of(Some(1_200), "<bs>"),
        told("expires after 20m → never")
    );
    assert_eq!(end_of(None, "30m"), told("expires after never → 30m"));
    // The end is equal, but written in other units.
    assert_eq!(end_of(Some(1_200), "1200s"), None);
}

#[test]
fn the_end_follows_an_edit_by_another_user_unless_it_was_typed() {
    let mut form = Form::new(edited(Some(1_200)), NOW);
    form.rebase(edited(Some(60)), NOW);
    assert_eq!(form.expires_after(), Some(Nanos::from_secs(60)));
    let at = form.fields.iter().position(is_end).expect("a field");
    form.focus_on(at);
    for press in keys("5m") {
        form.press(press);
    }
    form.rebase(edited(None), NOW);
    assert_eq!(
        form.other_end().as_deref(),
        Some("expires after never → 5m")
    );
}
