//! The Targets screen shows all Envoys with their sums, and the results of changes for all.

use super::several::{of_process, poll, press, watched, watched_at};
use super::*;
use crate::app::fixture::snapshot;
use crate::app::watched::Watched;
use crate::ui::tests::text;

/// The sizes of snapshots.
const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (40, 10)];

fn away(watched: &mut Watched, number: usize, now: Nanos) {
    let failure = Failure {
        text: "cannot reach it".to_owned(),
        ..Failure::default()
    };
    watched.update(Some(number), Msg::Polled(Err(failure)), now);
}

/// Returns the first rate after a name on the screen.
fn admitted(watched: &Watched, size: (u16, u16), name: &str) -> Option<f64> {
    let text = text(watched.shown(), size);
    let (_, behind) = text.lines().find_map(|line| line.split_once(name))?;
    let word = behind.split_whitespace().next()?;
    let (number, unit) = word
        .strip_suffix('k')
        .map_or((word, 1.0), |number| (number, 1e3));
    Some(number.parse::<f64>().ok()? * unit)
}

/// The numbers of a disconnected Envoy are outdated and not included.
#[test]
fn the_sums_are_of_all_that_answer() {
    let size = (120, 40);
    let mut watched = watched();
    for number in [0, 1] {
        for at in 0..3 {
            poll(&mut watched, number, at);
        }
    }
    press(&mut watched, "7");
    let one = admitted(&watched, size, "http://127.0.0.1:2").expect("a rate");
    assert_eq!(admitted(&watched, size, "sum of 2"), Some(2.0 * one));
    press(&mut watched, "1");
    away(&mut watched, 1, Nanos::from_secs(2));
    press(&mut watched, "7");
    assert_eq!(watched.shown().screen, Screen::Targets);
    assert_eq!(admitted(&watched, size, "sum of 1 of 2"), Some(one));
    // Enter shows the selected Envoy.
    press(&mut watched, "j<ret>");
    assert_eq!(watched.shown().settings.url, "http://127.0.0.1:2");
    assert_eq!(watched.shown().screen, Screen::Buckets);
}

/// With more Envoys than lines, the sums still include all, and each Envoy can be selected.
#[test]
fn many_envoys_scroll_below_their_sums() {
    for size in SIZES {
        let ports = 9_901..9_965;
        let mut watched = watched_at(ports.clone(), size);
        for number in 0..ports.len() {
            for at in 0..3 {
                poll(&mut watched, number, at);
            }
        }
        press(&mut watched, "7gj");
        let one = admitted(&watched, size, ":9902 ").expect("a rate");
        let sum = admitted(&watched, size, "sum of 64").expect("a sum");
        // The screen shows two digits of it.
        assert!((sum / (64.0 * one) - 1.0).abs() < 0.01, "{sum} {one}");
        assert!(!text(watched.shown(), size).contains(":9964"));
        press(&mut watched, "G");
        let screen = text(watched.shown(), size);
        assert!(
            screen.contains(":9964") && screen.contains("sum of 64"),
            "{screen}"
        );
        press(&mut watched, "<ret>");
        assert_eq!(watched.shown().settings.url, "http://127.0.0.1:9964");
    }
}

/// Failed results are on screen, even if many Envoys succeeded.
#[test]
fn failures_are_on_top_of_results() {
    for size in SIZES {
        let mut watched = watched_at(9_901..9_931, size);
        for number in 0..30 {
            for at in 0..3 {
                poll(&mut watched, number, at);
            }
        }
        away(&mut watched, 29, Nanos::from_secs(2));
        press(&mut watched, "b<ret>a7");
        let screen = text(watched.shown(), size);
        let result = screen.lines().find(|line| line.contains("FAILED"));
        let result = result.unwrap_or_else(|| panic!("{screen}"));
        assert!(result.contains(":9930"), "{screen}");
        // The last line shows how many results did not fit.
        assert_eq!(screen.contains("more"), size.1 > 10, "{screen}");
    }
}

#[test]
fn the_screen_at_three_sizes() {
    for (columns, rows) in SIZES {
        let mut watched = watched_at(1..4, (columns, rows));
        for number in 0..3 {
            for at in 0..3 {
                poll(&mut watched, number, at);
            }
        }
        press(&mut watched, "7m");
        let screen = text(watched.shown(), (columns, rows));
        insta::assert_snapshot!(format!("targets_{columns}x{rows}"), screen);
        press(&mut watched, "1");
        away(&mut watched, 2, Nanos::from_secs(2));
        press(&mut watched, "7m1b<ret>a7");
        let screen = text(watched.shown(), (columns, rows));
        insta::assert_snapshot!(format!("targets_results_{columns}x{rows}"), screen);
    }
}

/// Whichever Envoy is shown, the header names other Envoys that are disconnected or lost changes in
/// a restart.
#[test]
fn the_head_names_an_envoy_that_nobody_looks_at() {
    for size in SIZES {
        let mut watched = watched_at(9_901..9_904, size);
        for number in 0..3 {
            for at in 0..3 {
                poll(&mut watched, number, at);
            }
        }
        let head = |watched: &Watched| {
            let text = text(watched.shown(), size);
            text.lines().nth(1).unwrap_or_default().to_owned()
        };
        let quiet = head(&watched);
        assert!(!quiet.contains(":990"), "{quiet}");
        away(&mut watched, 1, Nanos::from_secs(2));
        let alarm = head(&watched);
        assert!(alarm.contains(":9902 is away"), "{alarm}");
        assert!(alarm.contains("refuse"), "{alarm}");
        away(&mut watched, 2, Nanos::from_secs(2));
        let alarm = head(&watched);
        assert!(
            alarm.contains("2 other Envoys") || alarm.contains("and 1 more"),
            "{alarm}"
        );
        // For the shown Envoy, the connection already shows it.
        press(&mut watched, "t");
        let alarm = head(&watched);
        assert!(
            alarm.contains(":9903 is away") && !alarm.contains(":9902"),
            "{alarm}"
        );
    }
}

/// On a frozen screen, all numbers are from one point in time. A disconnected Envoy is still
/// reported.
#[test]
fn a_frozen_list_stands_still() {
    let mut watched = watched();
    for number in [0, 1] {
        for at in 0..3 {
            poll(&mut watched, number, at);
        }
    }
    press(&mut watched, "7 ");
    let rows = |watched: &Watched| -> Vec<String> {
        let text = text(watched.shown(), (120, 40));
        text.lines()
            .skip(3)
            .take(3)
            .map(ToOwned::to_owned)
            .collect()
    };
    let before = rows(&watched);
    let mut later = of_process(snapshot(9), 1);
    for rule in &mut later.status.rules {
        rule.admitted += 9_000;
    }
    later.status.generation += 1;
    watched.update(
        Some(1),
        Msg::Polled(Ok(Box::new(later))),
        Nanos::from_secs(9),
    );
    watched.update(None, Msg::Tick, Nanos::from_secs(10));
    assert_eq!(rows(&watched), before);
    away(&mut watched, 1, Nanos::from_secs(11));
    assert!(
        rows(&watched)[1].contains("cannot reach it"),
        "{:?}",
        rows(&watched)
    );
    press(&mut watched, " ");
    poll(&mut watched, 1, 12);
    assert_ne!(rows(&watched), before);
}
