//! An engineer on call: looks at one bucket, searches the next, bans, edits, and never acts on another one.

use loudou_api::{BucketState, Rules};

use super::*;
use crate::app::fixture::{INSTANCE, S, rules, snapshot};
use crate::app::rows::Row;

/// A poll in which buckets of these keys are gone.
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

/// A filter that is cancelled, or leaves the selection visible, is no motion.
#[test]
fn a_filter_keeps_what_it_shows() {
    for keys in ["/bob<esc>", "/reply<ret>"] {
        let mut state = state(SIZE, 3);
        type_keys(&mut state, &format!("jj{keys}"));
        assert_eq!(selected(&state), "alice", "{keys}");
    }
}

/// Its row went by itself: another customer's bucket must not open in its place, neither by Enter nor by a click.
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
    // The key of the screen opens the last one again, whose name it shows.
    type_keys(&mut state, "2");
    assert_eq!((state.screen, open(&state)), (Screen::Bucket, "mallory"));
    type_keys(&mut state, "<esc>");
    let at = state.table.at;
    mouse::click(&mut state, Spot::Line(at));
    assert_eq!((state.screen, selected(&state)), (Screen::Buckets, "alice"));
}

/// An edit is about a rule: the row of the pinned key may be missing, as after a restart.
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

/// Nothing is selected in an empty list: the only rule is meant, or Rules opens.
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

/// A slip of 3 must not open the form that edits a rule for every key.
#[test]
fn four_is_no_key() {
    let mut state = state(SIZE, 3);
    type_keys(&mut state, "4");
    assert!(matches!(state.mode, Mode::Browse), "{:?}", state.mode);
}

/// Why a key did nothing is of no interest beside the result of the next one.
#[test]
fn a_hint_lasts_until_the_next_key() {
    let mut state = state(SIZE, 3);
    type_keys(&mut state, "u");
    assert!(messages(&state).contains("nothing to undo"));
    type_keys(&mut state, "j");
    assert_eq!(messages(&state), "");
}

/// Each rate is right in the first poll after the screen was elsewhere, and so is the order.
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
    // 20 s in which nobody read the buckets.
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

/// `refusing` is said only while it is true: after an override there is room again.
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
    // As the API and its search name it, too.
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

/// Of two limits, the row shows the one that is used up most, and its name.
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
            // It has fewer units left, but all of them.
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

/// Filters that cannot find anything say why.
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

/// The command line of a question goes to the Envoy of the screen, wherever it is pasted.
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

/// The searches go on at once after lost changes were applied: their bans are buckets that nobody has listed.
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

/// The buckets of one rule are shown, and there are none: an edit is about that rule.
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
