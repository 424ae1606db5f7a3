//! Explains a request on the screen. The form is filled with data from the bucket, and wrong values
//! are marked.

use serde_json::{Value, json};

use super::*;
use crate::app::effects::Effect;
use crate::app::explain::Stage;
use crate::app::fixture::explained;
use crate::app::state::Mode;

/// Returns the request to be explained.
fn asked(effects: &[Effect]) -> Option<Value> {
    effects.iter().find_map(|effect| match effect {
        Effect::Explain(request) => Some(request.as_ref().clone()),
        _ => None,
    })
}

/// Returns the texts of the fields, as `name text`.
fn fields(state: &State) -> Vec<String> {
    let Mode::Explain(explain) = &state.mode else {
        panic!("{:?}", state.mode)
    };
    let fields = explain.fields.iter();
    fields
        .map(|field| format!("{} {}", field.name(), field.line.text()))
        .collect()
}

#[test]
fn a_selected_bucket_fills_the_form() {
    let mut state = state(SIZE, 3);
    type_keys(&mut state, "x");
    assert_eq!(
        fields(&state),
        [
            "method POST",
            "path /reply",
            "host ",
            "header x-user-id: mallory",
            "header ",
            "source ",
            "cost ",
        ]
    );
    let effects = type_keys(&mut state, "<ret>");
    let request = json!({
        "method": "POST", "path": "/reply", "headers": { "x-user-id": ["mallory"] },
    });
    assert_eq!(asked(&effects), Some(request));
    assert!(type_keys(&mut state, "<ret>").is_empty(), "not asked twice");
}

/// The overlay shows current data while it is open, not data from when it was opened.
#[test]
fn the_age_of_the_last_refusal_is_that_of_now() {
    let mut state = state(SIZE, 3);
    let now_ns = state.server_ns();
    let rows = state.data.as_mut().map(|data| &mut data.rows);
    for row in rows.into_iter().flatten() {
        row.view.refused_at_ns = Some(now_ns);
    }
    type_keys(&mut state, "x");
    let later = state.now.saturating_add(Nanos::from_secs(90));
    let before = crate::ui::tests::text(&state, SIZE);
    update(&mut state, Msg::Tick, later);
    let after = crate::ui::tests::text(&state, SIZE);
    let told = |text: &str| {
        let mut lines = text.lines();
        let line = lines.find(|line| line.contains("last refused"));
        line.map(ToOwned::to_owned).expect("a line")
    };
    assert_ne!(told(&before), told(&after));
    assert!(told(&after).contains("1m30s"), "{after}");
}

/// A typed request may have several headers, each on a separate line. Errors are shown under their
/// fields.
#[test]
fn a_request_is_typed() {
    let mut state = state(SIZE, 3);
    type_keys(&mut state, "5x");
    assert_eq!(fields(&state)[..2], ["method ", "path "]);
    let typed = "GET<tab>search<tab><tab>x-plan: free<tab>x-user-id: a<ret>";
    assert_eq!(asked(&type_keys(&mut state, typed)), None);
    let Mode::Explain(explain) = &state.mode else {
        panic!("{:?}", state.mode)
    };
    let problem = explain.fields[1].problem.as_deref().expect("no slash");
    assert!(problem.contains("/search"), "{problem}");
    assert_eq!(explain.focus, 1, "the cursor is where the problem is");
    let effects = type_keys(&mut state, "<home>/<ret>");
    let request = json!({
        "method": "GET", "path": "/search",
        "headers": { "x-plan": ["free"], "x-user-id": ["a"] },
    });
    assert_eq!(asked(&effects), Some(request));
    let Mode::Explain(explain) = &mut state.mode else {
        panic!("{:?}", state.mode)
    };
    assert_eq!(
        explain.command(None).as_deref(),
        Some("loudou explain -X GET --path /search -H 'x-plan: free' -H 'x-user-id: a'")
    );
}

#[test]
fn the_answer_leads_back_to_the_request() {
    let mut state = state(SIZE, 3);
    type_keys(&mut state, "x<ret>");
    send(&mut state, Msg::Explained(Ok(Box::new(explained()))));
    type_keys(&mut state, "jjG");
    let Mode::Explain(explain) = &state.mode else {
        panic!("{:?}", state.mode)
    };
    assert!(matches!(explain.stage, Stage::Answered(_, 1..)));
    type_keys(&mut state, "<esc>");
    assert!(fields(&state).contains(&"header x-user-id: mallory".to_owned()));
    type_keys(&mut state, "<esc>");
    assert!(matches!(state.mode, Mode::Browse));
    // If nothing is selected, the form has the last request.
    type_keys(&mut state, "5x");
    assert!(fields(&state).contains(&"header x-user-id: mallory".to_owned()));
}

/// An answer that arrives after the overlay was closed, and a failure.
#[test]
fn late_answers_and_failures_are_no_answers() {
    let mut state = state(SIZE, 3);
    type_keys(&mut state, "x<ret><esc>");
    send(&mut state, Msg::Explained(Ok(Box::new(explained()))));
    assert!(matches!(state.mode, Mode::Browse));
    type_keys(&mut state, "x<ret>");
    let failure = Failure {
        text: "cannot reach it".to_owned(),
        ..Failure::default()
    };
    send(&mut state, Msg::Explained(Err(failure)));
    assert_eq!(fields(&state).len(), 7, "the form is open");
    let toasts = &state.toasts;
    assert!(
        toasts
            .iter()
            .any(|toast| toast.text == "not explained: cannot reach it")
    );
}

/// The filter shows events with all the words and without the words after `!`. The selection
/// restarts, and Esc clears the filter first.
#[test]
fn events_are_filtered_by_words() {
    let mut state = state(SIZE, 3);
    let shown = |state: &State| {
        let events = crate::app::event_lines::visible(state);
        events.iter().map(|event| event.seq).collect::<Vec<_>>()
    };
    type_keys(&mut state, "5");
    assert_eq!(shown(&state), [3, 2, 1]);
    for (typed, seqs) in [
        ("/OPS<ret>", vec![3, 2]),
        ("/<C-u>ops !launch<ret>", vec![3]),
        ("/<C-u>reset bo<ret>", vec![3]),
        ("/<C-u>nothing<ret>", vec![]),
        ("/<C-u>ops<esc>", vec![]),
    ] {
        type_keys(&mut state, typed);
        assert_eq!(shown(&state), seqs, "{typed}");
    }
    type_keys(&mut state, "<esc>");
    assert_eq!(
        (shown(&state), state.screen),
        (vec![3, 2, 1], Screen::Events)
    );
    type_keys(&mut state, "j<ret>");
    let Mode::Event(event) = &state.mode else {
        panic!("{:?}", state.mode)
    };
    assert_eq!(event.seq, 2);
    type_keys(&mut state, "<esc><esc>");
    assert_eq!(state.screen, Screen::HOME);
}
