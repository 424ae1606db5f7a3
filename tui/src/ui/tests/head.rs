//! The header contains the essential parts at every width.

use super::*;

/// Refusals, refusals in shadow mode, and the number of warnings are always shown.
#[test]
fn refusals_and_warnings_are_always_in_the_head() {
    for columns in 40..=130 {
        let size = (columns, 24);
        for busy in [1, 30_000] {
            let mut state = state(size, 0);
            for poll in 0..20 {
                let mut snapshot = crate::app::fixture::snapshot(poll);
                for rule in &mut snapshot.status.rules {
                    rule.admitted *= busy;
                    rule.refused *= busy;
                    rule.shadow_refused *= busy;
                }
                let msg = Msg::Polled(Ok(Box::new(snapshot)));
                update(&mut state, msg, Nanos::from_secs(poll));
            }
            let text = text(&state, size);
            let line = text.lines().nth(1).expect("the totals");
            let (refused, would) = if busy == 1 {
                ("12/s", "1.0")
            } else {
                ("360k/s", "30.0k")
            };
            let is_full = line.contains(&format!("would refuse {would}/s"));
            let is_short = line.contains(&format!("{refused} ({would})"));
            assert!(line.contains(refused) && (is_full || is_short), "{line}");
            assert!(line.contains("⚠ 2"), "{line}");
        }
    }
}

/// An engineer with several terminals must see at which Envoy a key would act.
#[test]
fn the_address_is_always_in_the_head() {
    for columns in 66..=130 {
        let state = state((columns, 24), 3);
        let text = text(&state, (columns, 24));
        let line = text.lines().next().expect("the head");
        assert!(line.contains("127.0.0.1:9911"), "{columns}: {line}");
    }
    for (columns, shown) in [
        (80, "● envoy-admin.pro…"),
        (
            140,
            "connected http://envoy-admin.prod-eu-west.internal:9911",
        ),
    ] {
        let mut state = state((columns, 24), 3);
        state.settings.url = "http://envoy-admin.prod-eu-west.internal:9911".to_owned();
        let text = text(&state, (columns, 24));
        let line = text.lines().next().expect("the head");
        assert!(line.contains(shown), "{columns}: {line}");
    }
}

/// Outdated numbers are dim like the body. Warnings are not, because one of them shows the age of
/// the numbers.
#[test]
fn old_totals_are_dim() {
    let theme = Theme::new(true, false);
    for size in [(80, 24), (140, 40)] {
        let mut state = state(size, 20);
        let colours = |state: &State| {
            let terminal = draw(state, &theme, size);
            let buffer = terminal.backend().buffer().clone();
            let cells = (0..size.0).map(move |x| buffer[(x, 1)].clone());
            let seen = cells.filter(|cell| cell.symbol() != " ");
            seen.map(|cell| cell.fg).collect::<Vec<_>>()
        };
        let (good, bad, warn) = (theme.good.fg, theme.bad.fg, theme.warn.fg);
        let has = |state: &State, colour: Option<_>| {
            colours(state).into_iter().any(|fg| Some(fg) == colour)
        };
        assert!(has(&state, good) && has(&state, bad) && has(&state, warn));
        update(&mut state, Msg::Tick, Nanos::from_secs(60));
        assert!(state.is_stale());
        assert!(!has(&state, good) && !has(&state, bad), "{size:?}");
        assert!(has(&state, warn), "{size:?}");
    }
}

/// A rule's share of refusals in shadow mode covers only requests that arrived while it was in
/// shadow mode.
#[test]
fn an_enforced_rule_is_not_compared_with_the_one_that_it_shadowed() {
    let size = (120, 40);
    let mut state = banned(size, 3);
    type_keys(&mut state, "3");
    let compared = |state: &State| text(state, size).contains("%, reply-per-user ");
    assert!(compared(&state));
    let data = state.data.as_mut().expect("read");
    for rule in &mut data.status.rules {
        rule.mode = "enforce".to_owned();
    }
    assert!(!compared(&state));
}
