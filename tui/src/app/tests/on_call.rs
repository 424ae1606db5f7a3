//! An engineer on call looks at a bucket, searches for the next one, bans and edits, and never acts
//! on the wrong one.

use loudou_api::{BucketState, Event, EventKind, Rules};

use super::*;
use crate::app::demand::Demand;
use crate::app::fixture::{INSTANCE, S, rules, snapshot};
use crate::app::form::Stage;
use crate::app::rows::Row;
use crate::app::state::Settings;
use crate::ui::tests::{drawn, look};

/// Applies a poll in which the buckets of these keys are gone.
fn without(state: &mut State, poll: u64, keys: &[&str]) {
    let mut snapshot = snapshot(poll);
    snapshot
        .buckets
        .retain(|(_, bucket)| !keys.contains(&bucket.key.as_str()));
    update(
        state,
        Msg::Polled(Ok(Box::new(snapshot))),
        Nanos::from_secs(poll),
    );
}

fn open(state: &State) -> &str {
    state.open.as_ref().map_or("", |id| id.key.as_str())
}

#[test]
fn the_next_filter_selects_its_first_row() {
    for first in ["<ret><esc>", "j", "e<esc>", "b<esc>"] {
        let mut state = state(SIZE, 3);
        type_keys(&mut state, &format!("{first}/bob<ret>"));
        assert_eq!(selected(&state), "bob", "{first}");
        type_keys(&mut state, "<ret>");
        assert_eq!(
            (state.screen, open(&state)),
            (Screen::Bucket, "bob"),
            "{first}"
        );
    }
}

/// A filter that is cancelled, or that keeps the selection visible, does not move the selection.
#[test]
fn a_filter_keeps_what_it_shows() {
    for keys in ["/bob<esc>", "/reply<ret>"] {
        let mut state = state(SIZE, 3);
        type_keys(&mut state, &format!("jj{keys}"));
        assert_eq!(selected(&state), "alice", "{keys}");
    }
}

/// The selected row disappeared. Neither Enter nor a click must open another customer's bucket in
/// its place.
#[test]
fn without_a_selection_nothing_opens() {
    let mut state = state(SIZE, 3);
    type_keys(&mut state, "<ret><esc>j");
    assert_eq!(open(&state), "mallory");
    let at = selected(&state).to_owned();
    without(&mut state, 3, &[&at]);
    type_keys(&mut state, "<ret>");
    assert_eq!(state.screen, Screen::Buckets);
    assert!(messages(&state).contains("no bucket is selected"));
    // The key of the Bucket screen opens the last bucket again. The screen shows its name.
    type_keys(&mut state, "2");
    assert_eq!((state.screen, open(&state)), (Screen::Bucket, "mallory"));
    type_keys(&mut state, "<esc>");
    let at = state.table.at;
    mouse::click(&mut state, Spot::Line(at));
    assert_eq!((state.screen, selected(&state)), (Screen::Buckets, "alice"));
}

/// An edit changes a rule, so the row of the pinned key may be missing, for example after a
/// restart.
#[test]
fn an_edit_needs_a_rule_and_no_row() {
    let mut state = state(SIZE, 3);
    type_keys(&mut state, "j");
    let at = selected(&state).to_owned();
    without(&mut state, 3, &[&at]);
    assert_eq!(selected(&state), "");
    type_keys(&mut state, "e");
    assert!(matches!(&state.mode, Mode::Edit(form) if form.base.name == "reply-per-user"));
}

/// Nothing is selected in an empty list. The edit concerns the only rule, or Rules opens.
#[test]
fn an_edit_without_a_selection_asks_for_the_rule() {
    let empty = |rules: Vec<RuleView>| {
        let mut state = State::new(state(SIZE, 0).settings, SIZE);
        update(&mut state, Msg::Tick, Nanos::ZERO);
        let mut snapshot = snapshot(0);
        snapshot.buckets.clear();
        snapshot.rules = Some(Rules {
            instance: INSTANCE.to_owned(),
            generation: 7,
            rules,
            ..Rules::default()
        });
        update(&mut state, Msg::Polled(Ok(Box::new(snapshot))), Nanos::ZERO);
        state
    };
    for (key, word) in [
        ("e", "select a rule, then press e"),
        ("D", "select a rule, then press D"),
    ] {
        let mut state = empty(rules());
        type_keys(&mut state, key);
        assert_eq!(state.screen, Screen::Rules, "{key}");
        assert!(messages(&state).contains(word), "{}", messages(&state));
    }
    let mut state = empty(vec![rules().remove(1)]);
    type_keys(&mut state, "e");
    assert!(matches!(&state.mode, Mode::Edit(form) if form.base.name == "search-per-key"));
    type_keys(&mut state, "<esc>D");
    assert!(matches!(state.mode, Mode::Confirm(_)));
}

/// A user who aims for 3 and hits 4 must not open the form that edits a rule for every key.
#[test]
fn four_is_no_key() {
    let mut state = state(SIZE, 3);
    type_keys(&mut state, "4");
    assert!(matches!(state.mode, Mode::Browse), "{:?}", state.mode);
}

/// The reason why a key did nothing disappears when the next key is pressed.
#[test]
fn a_hint_lasts_until_the_next_key() {
    let mut state = state(SIZE, 3);
    type_keys(&mut state, "u");
    assert!(messages(&state).contains("nothing to undo"));
    type_keys(&mut state, "j");
    assert_eq!(messages(&state), "");
}

/// Each rate is right in the first poll after another screen was shown, and so is the order.
#[test]
fn rates_stay_over_a_look_at_another_screen() {
    let mut state = state(SIZE, 10);
    let order = |state: &State| -> Vec<String> {
        let rows = (0..4).filter_map(|index| state.row(index));
        rows.map(|row| row.id.key.clone()).collect()
    };
    let refused = |state: &State| state.row(0).map_or(0.0, Row::refused);
    let (before, rate) = (order(&state), refused(&state));
    for poll in 10..30 {
        without(&mut state, poll, &[]);
    }
    assert_eq!(order(&state), before);
    // The buckets are not read for 20 s.
    for poll in 30..50 {
        let mut away = snapshot(poll);
        away.buckets.clear();
        away.truncated = true;
        update(
            &mut state,
            Msg::Polled(Ok(Box::new(away))),
            Nanos::from_secs(poll),
        );
    }
    feed(&mut state, 50);
    feed(&mut state, 51);
    assert_eq!(order(&state), before);
    assert!(
        (refused(&state) - rate).abs() < 1.5,
        "{} {rate}",
        refused(&state)
    );
}

/// `refusing` is only shown while it is true. After an override, there is room again.
#[test]
fn the_past_is_no_present() {
    let mut state = state((120, 40), 3);
    let mut fixed = snapshot(3);
    for (at_ns, bucket) in &mut fixed.buckets {
        if bucket.key == "mallory" {
            assert_eq!(bucket.state, BucketState::Refusing);
            bucket.limits[0].capacity = 150;
            bucket.limits[0].remaining = 142;
            bucket.limits[0].retry_after_ns = None;
            bucket.refused_at_ns = Some(*at_ns - 5 * S);
        }
    }
    update(
        &mut state,
        Msg::Polled(Ok(Box::new(fixed))),
        Nanos::from_secs(3),
    );
    let row = state.row(0).expect("a row");
    assert_eq!(
        (row.id.key.as_str(), row.state(Nanos::ZERO).as_str()),
        ("mallory", "refused 5s ago")
    );
    // The filter also accepts the names in the API.
    for filter in ["state = refusing", "state = refused", "refused"] {
        type_keys(&mut state, &format!("/<C-u>{filter}<ret>"));
        assert_eq!(selected(&state), "mallory", "{filter}");
    }
    type_keys(&mut state, "/<C-u>state = banned<ret>");
    assert_eq!(selected(&state), "");
}

/// A key with requests is not idle, however fast its bucket drains.
#[test]
fn a_key_with_requests_is_not_idle() {
    let mut state = state((120, 40), 3);
    let mut fast = snapshot(3);
    for (_, bucket) in &mut fast.buckets {
        if bucket.key == "alice" {
            bucket.state = BucketState::Idle;
        }
    }
    update(
        &mut state,
        Msg::Polled(Ok(Box::new(fast))),
        Nanos::from_secs(3),
    );
    let word = |key: &str| {
        let rows = &state.data.as_ref().expect("data").rows;
        let row = rows.iter().find(|row| row.id.key == key);
        row.expect("a row").state(Nanos::ZERO)
    };
    assert_eq!(
        (word("alice").as_str(), word("carol").as_str()),
        ("ok", "idle")
    );
}

/// With two limits, the row shows the one with the highest level, and its name.
#[test]
fn the_row_is_of_the_limit_with_the_highest_level() {
    let mut state = state((120, 40), 3);
    let mut daily = snapshot(3);
    for (_, bucket) in &mut daily.buckets {
        if bucket.key == "alice" {
            bucket.limits[0].reset_after_ns = 0;
            bucket.limits[0].remaining = 15;
            bucket.limits[1].reset_after_ns = 86_000 * S;
            bucket.limits[1].remaining = 5;
            // It has fewer units left, but all of its capacity.
            bucket.reported = 0;
        }
    }
    update(
        &mut state,
        Msg::Polled(Ok(Box::new(daily))),
        Nanos::from_secs(3),
    );
    let rows = &state.data.as_ref().expect("data").rows;
    let limit = |key: &str| {
        let row = rows.iter().find(|row| row.id.key == key).expect("a row");
        row.limit().expect("a limit").name.as_str()
    };
    assert_eq!((limit("alice"), limit("mallory")), ("daily", "burst"));
}

/// Filters that cannot find anything show why.
#[test]
fn filters_are_checked() {
    let mut state = state(SIZE, 3);
    for (filter, wrong) in [
        (
            "rule = reply",
            "no rule `reply`; rules: reply-per-user, search-per-key, by-source",
        ),
        ("state = refusd", "unknown state `refusd`; states: "),
        (
            "alice or bob",
            "terms are joined by `and`; there is no `or`",
        ),
        (
            "refused > 5 or bob",
            "terms are joined by `and`; there is no `or`",
        ),
        ("key ~ b.*", "there is no `~`"),
    ] {
        type_keys(
            &mut state,
            &format!("/<C-u>{}<ret>", filter.replace('<', "<lt>")),
        );
        assert!(
            messages(&state).contains(wrong),
            "{filter}: {}",
            messages(&state)
        );
        type_keys(&mut state, "<esc>");
    }
    type_keys(&mut state, "/<C-u>rule != Reply-Per-User<ret>");
    assert!(matches!(state.mode, Mode::Browse));
}

/// The command line of a question names the Envoy on the screen, so that it can be run in any
/// shell.
#[test]
fn a_question_names_its_envoy() {
    let mut state = state(SIZE, 3);
    state.settings.url = "http://10.0.0.7:9911".to_owned();
    let text = |state: &State| crate::ui::tests::text(state, SIZE);
    type_keys(&mut state, "b<ret>");
    assert!(text(&state).contains("at http://10.0.0.7:9911"));
    assert!(!text(&state).contains("--url"));
    state.settings.is_usual = false;
    let copied = type_keys(&mut state, "<C-y>");
    let copied = copied.iter().find_map(|effect| match effect {
        Effect::Copy(text) => Some(text.as_str()),
        _ => None,
    });
    let line = "loudou ban reply-per-user mallory --for 10m --url http://10.0.0.7:9911";
    assert_eq!(copied, Some(line));
}

/// After lost changes were applied, the searches restart at once, because the bans are buckets that
/// have not been listed.
#[test]
fn searches_begin_again_after_changes_were_applied_again() {
    let mut state = state(SIZE, 3);
    let again = update(&mut state, Msg::Again(Ok(Vec::new())), Nanos::from_secs(3));
    let mut effects = again;
    for second in [4, 7] {
        effects.extend(feed(&mut state, second));
        effects.extend(update(&mut state, Msg::Tick, Nanos::from_secs(second + 2)));
    }
    let polls = effects.iter().filter_map(|effect| match effect {
        Effect::Poll(request) => Some(request.anew),
        _ => None,
    });
    let polls: Vec<bool> = polls.collect();
    assert_eq!(polls.first(), Some(&true), "{polls:?}");
    assert!(
        polls.len() > 1 && !polls.iter().skip(1).any(|anew| *anew),
        "{polls:?}"
    );
}

/// A rule without buckets is selected by the filter, and an edit concerns that rule.
#[test]
fn an_edit_needs_no_row_of_the_rule() {
    let mut state = state(SIZE, 3);
    type_keys(&mut state, "/rule = by-source<ret>");
    assert_eq!(state.table.visible.len(), 0);
    type_keys(&mut state, "e");
    let Mode::Edit(form) = &state.mode else {
        panic!("{:?} {}", state.mode, messages(&state))
    };
    assert_eq!(form.base.name, "by-source");
}

/// Four keys lead from the list to the question that enforces a rule in shadow mode. Esc leads to
/// the form with all modes.
#[test]
fn a_rule_is_enforced_with_four_keys() {
    let mut state = state(SIZE, 3);
    type_keys(&mut state, "3GM");
    let shown = drawn::text(&state, SIZE);
    assert!(shown.contains("mode shadow → enforce"), "{shown}");
    let sending = sending_of(type_keys(&mut state, "<ret>"));
    let edit = edit_of(&sending);
    assert_eq!(edit.rule, "by-source");
    let EditTo::Put { body, .. } = &edit.to else {
        panic!("{edit:?}");
    };
    assert_eq!(body["mode"], "enforce");
    // For an enforced rule, the key offers shadow mode.
    type_keys(&mut state, "<esc>gM");
    assert!(drawn::text(&state, SIZE).contains("mode enforce → shadow"));
    type_keys(&mut state, "<esc>");
    assert!(matches!(&state.mode, Mode::Edit(form) if form.stage == Stage::Editing));
}

/// The forms show the demand of a refused key. An override begins with a sufficient factor.
#[test]
fn forms_begin_with_what_is_asked_for() {
    let mut state = state(SIZE, 3);
    assert_eq!(selected(&state), "mallory");
    let row = state.selected_row().expect("a row");
    let demand = Demand::of(&state, row).expect("it is refused");
    type_keys(&mut state, "o");
    let Mode::OfKey(form) = &state.mode else {
        panic!("{:?}", state.mode);
    };
    assert_eq!(form.fields[1].value(), demand.factor);
    type_keys(&mut state, "<esc>e");
    let shown = drawn::text(&state, (80, 40));
    assert!(
        shown.contains(&format!("mallory {}", demand.words())),
        "{shown}"
    );
    // For a key that is not refused, the form suggests ten times its limits.
    type_keys(&mut state, "<esc>jo");
    let Mode::OfKey(form) = &state.mode else {
        panic!("{:?}", state.mode);
    };
    assert_eq!(form.fields[1].value(), "10");
}

/// For a screen that others can see, no key is shown anywhere, and no dialog opens that would name
/// one.
#[test]
fn keys_can_be_hidden() {
    let mut state = state((220, 60), 3);
    type_keys(&mut state, "H");
    let keys = ["mallory", "alice", "bob", "carol", "a-key-that", "key-17"];
    for screen in [
        "1",
        "<ret>",
        "<esc>3",
        "5",
        "5<ret>",
        "<esc>6",
        "1/x<ret><esc>",
        ":mal",
    ] {
        type_keys(&mut state, screen);
        let shown = drawn::text(&state, (220, 60));
        let named = keys.iter().find(|key| shown.contains(**key));
        assert_eq!(named, None, "{screen}: {shown}");
    }
    type_keys(&mut state, "<esc>");
    for key in ["b", "o", "R", "e", "M", "x", "y", "Y"] {
        type_keys(&mut state, key);
        assert!(matches!(state.mode, Mode::Browse), "{key}");
        assert!(
            messages(&state).contains("keys are hidden; H shows them"),
            "{key}"
        );
    }
    // The answer to a change that was sent earlier.
    state.toast(false, "mallory: banned for 10m");
    assert!(messages(&state).ends_with(": banned for 10m"));
    assert!(!messages(&state).contains("mallory"));
    // A row keeps the pseudonym that replaces its key.
    let name = state.shown_key("mallory").into_owned();
    assert!(drawn::text(&state, (220, 60)).contains(&name));
    feed(&mut state, 4);
    assert_eq!(state.shown_key("mallory"), name);
    type_keys(&mut state, "H");
    assert!(drawn::text(&state, (220, 60)).contains("mallory"));
}

/// The end of a change is reported once. Changes that ended before the app started are not
/// reported.
#[test]
fn the_end_of_a_change_is_said() {
    let ended = |seq, kind, rule: &str, key: Option<&str>| Event {
        seq,
        kind,
        rule: Some(rule.to_owned()),
        key: key.map(str::to_owned),
        ..Event::default()
    };
    let poll = |state: &mut State, poll, events: Vec<Event>| {
        let mut snapshot = snapshot(poll);
        snapshot.last_seq = events.last().map_or(3, |event| event.seq);
        snapshot.events = events;
        update(
            state,
            Msg::Polled(Ok(Box::new(snapshot))),
            Nanos::from_secs(poll),
        );
    };
    let mut state = State::new(Settings::default(), SIZE);
    poll(
        &mut state,
        0,
        vec![ended(3, EventKind::BanExpired, "r", Some("old"))],
    );
    assert_eq!(messages(&state), "");
    let now = vec![
        ended(4, EventKind::BanExpired, "reply-per-user", Some("mallory")),
        ended(5, EventKind::EditExpired, "search-per-key", None),
    ];
    poll(&mut state, 1, now.clone());
    let said = messages(&state);
    assert!(
        said.contains("the ban of mallory in reply-per-user ended"),
        "{said}"
    );
    assert!(said.contains("the edit of search-per-key ended"), "{said}");
    state.toasts.clear();
    poll(&mut state, 2, now);
    assert_eq!(messages(&state), "");
    let many = (6..16).map(|seq| ended(seq, EventKind::BanExpired, "r", Some("k")));
    poll(&mut state, 3, many.collect());
    assert_eq!(messages(&state), "10 changes ended; 5 shows them");
}

/// If there is room, the selected bucket is drawn to the right of the list.
#[test]
fn a_wide_screen_shows_the_selected_bucket() {
    let mut state = state((220, 60), 3);
    for key in ["mallory", "a-key-that"] {
        let shown = drawn::text(&state, (220, 60));
        let title = shown.lines().nth(2).expect("a line");
        assert!(
            title.contains(&format!("reply-per-user › {key}")),
            "{shown}"
        );
        type_keys(&mut state, "j");
    }
    assert!(!drawn::text(&state, (199, 60)).contains(" › "));
}

/// A click on the warnings opens the findings.
#[test]
fn the_warnings_lead_to_the_findings() {
    let mut state = state(SIZE, 3);
    let theme = crate::ui::Theme::new(false, false);
    let shown = drawn::text(&state, SIZE);
    let line = shown.lines().nth(1).expect("the totals");
    let before = line.split_once('⚠').expect("warnings").0;
    // Lines of the text begin with a quote.
    let x = u16::try_from(before.chars().count() - 1).expect("a column");
    let spot = look::spots(&state, &theme, SIZE).at(x, 1);
    assert_eq!(spot, Some(Spot::Tab(Screen::Envoy)));
    mouse::click(&mut state, Spot::Tab(Screen::Envoy));
    assert_eq!(state.screen, Screen::Envoy);
}

/// The palette accepts words: a verb and a key open the question.
#[test]
fn the_palette_takes_words() {
    let mut state = state(SIZE, 3);
    type_keys(&mut state, ":ban bob<ret>");
    let shown = drawn::text(&state, SIZE);
    assert!(
        matches!(state.mode, Mode::OfKey(_)) && shown.contains("ban bob"),
        "{shown}"
    );
    type_keys(&mut state, "<esc>:key-17<ret>");
    assert_eq!((state.screen, open(&state)), (Screen::Bucket, "key-17"));
    type_keys(&mut state, ":customer-000<ret>");
    assert_eq!(state.screen, Screen::Buckets);
    assert_eq!(state.table.filter_text, "customer-000");
    type_keys(&mut state, ":rule = nobody<ret>");
    assert_eq!(state.table.filter_text, "customer-000");
    assert!(
        messages(&state).contains("no rule `nobody`"),
        "{}",
        messages(&state)
    );
    let effects = type_keys(&mut state, ":export<ret>");
    assert!(
        matches!(&effects[..], [Effect::Copy(line)] if line == "loudou export"),
        "{effects:?}"
    );
}

/// A key that was refused within the minute of its sparkline is sorted above keys that were never
/// refused.
#[test]
fn a_burst_that_is_over_stays_above_calm_keys() {
    let mut state = State::new(Settings::default(), SIZE);
    for poll in 0..40 {
        let mut snapshot = snapshot(poll);
        snapshot
            .buckets
            .retain(|(_, bucket)| ["alice", "bob"].contains(&bucket.key.as_str()));
        for (_, bucket) in &mut snapshot.buckets {
            if bucket.key == "alice" {
                // Twenty refusals in the fifth second, and no request since.
                bucket.admitted = 5;
                bucket.refused = if poll < 5 { 0 } else { 20 };
                bucket.refused_at_ns = (poll >= 5).then(|| snapshot.status.now_ns - (poll - 5) * S);
            }
        }
        update(
            &mut state,
            Msg::Polled(Ok(Box::new(snapshot))),
            Nanos::from_secs(poll),
        );
    }
    let row = state.row(0).expect("a row");
    assert_eq!((row.id.key.as_str(), row.refused()), ("alice", 0.0));
    assert!(state.row(1).expect("a row").admitted() > row.admitted());
}
