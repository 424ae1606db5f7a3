//! Changes for all where an Envoy restarts before it gets them: what it lost is not called done.

use super::again::{live, restart};
use super::broadcasts::{changes, failed, results};
use super::several::{poll, press, watched};
use super::*;
use crate::app::fixture::snapshot;
use crate::app::state::Toast;
use crate::app::watched::Watched;

/// Both Envoys, of which the second has two bans, an edit and an override.
fn with_changes() -> Watched {
    let mut watched = watched();
    for at in 0..3 {
        poll(&mut watched, 0, at);
    }
    let msg = Msg::Polled(Ok(Box::new(live(1))));
    watched.update(Some(1), msg, Nanos::from_secs(2));
    watched
}

/// Sends these to both: the first Envoy answers, the second is away.
fn half_sent(watched: &mut Watched, keys: &str) {
    let now = watched.shown().now;
    for (number, sending) in changes(press(watched, keys)) {
        let result = match (number, &sending.change) {
            (0, Change::Ban(_)) => Ok(Answer::Ban(Box::default())),
            (0, _) => Ok(Answer::Edit(Box::default())),
            _ => Err(failed("cannot reach it")),
        };
        watched.update(Some(number), Msg::Changed(sending, result), now);
    }
}

/// What is sent to the second Envoy when that is back as another process.
fn back_as_another(watched: &mut Watched) -> Vec<(usize, Box<Sending>)> {
    let mut after = snapshot(9);
    restart(&mut after);
    let msg = Msg::Polled(Ok(Box::new(after)));
    changes(watched.update(Some(1), msg, Nanos::from_secs(9)))
}

fn last(watched: &Watched) -> &Toast {
    watched.shown().toasts.last().expect("a message")
}

/// "Nothing changed" is right of the mode, but the bans and the override of the same rule are gone.
#[test]
fn a_change_of_a_rule_that_lost_something_fails() {
    for keys in ["e250<ret>a", "b<ret>a", "o<ret>a"] {
        let mut watched = with_changes();
        half_sent(&mut watched, keys);
        assert_eq!(results(&watched)[1], "waits: cannot reach it", "{keys}");
        assert!(back_as_another(&mut watched).is_empty(), "{keys}");
        let failed = "FAILED: restarted, a applies again what it lost, then repeat this: 2 bans, 1 override of \
                      reply-per-user";
        assert_eq!(results(&watched)[1], failed, "{keys}");
        let summary = "done at 1 of 2 Envoys, FAILED at http://127.0.0.1:2; http://127.0.0.1:2 restarted and lost \
                       2 bans, 1 edit, 1 override; 7 shows each";
        let last = last(&watched);
        assert_eq!((last.text.as_str(), last.is_bad), (summary, true), "{keys}");
    }
}

/// The edit of another rule is gone: the change is made, and the rest is named.
#[test]
fn a_change_of_a_rule_that_lost_nothing_is_sent_after_a_restart() {
    let mut watched = watched();
    for number in [0, 1] {
        for at in 0..3 {
            poll(&mut watched, number, at);
        }
    }
    half_sent(&mut watched, "e250<ret>a");
    let sent = back_as_another(&mut watched);
    let [(1, sending)] = &sent[..] else {
        panic!("{sent:?}")
    };
    assert_eq!(edit_of(sending).seen.instance, "fedcba9876543210");
    let answer = Answer::Edit(Box::default());
    let msg = Msg::Changed(sending.clone(), Ok(answer));
    watched.update(Some(1), msg, Nanos::from_secs(9));
    let summary =
        "done at 2 of 2 Envoys; http://127.0.0.1:2 restarted and lost 1 edit; 7 shows each";
    let last = last(&watched);
    assert_eq!((last.text.as_str(), last.is_bad), (summary, true));
}

/// What the old process may have made says nothing about the new one.
#[test]
fn an_undo_for_all_of_what_is_in_doubt_fails_after_a_restart() {
    let mut watched = with_changes();
    let now = watched.shown().now;
    for (number, sending) in changes(press(&mut watched, "e250<ret>a")) {
        let result = match number {
            0 => Ok(Answer::Edit(Box::new(made(edit_of(&sending))))),
            _ => Err(Failure {
                in_doubt: true,
                ..failed("no answer")
            }),
        };
        watched.update(Some(number), Msg::Changed(sending, result), now);
    }
    let undo = changes(press(&mut watched, "ua"));
    let numbers: Vec<usize> = undo.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [0, 1]);
    for (number, sending) in undo {
        let msg = Msg::Changed(sending, Err(failed("cannot reach it")));
        watched.update(Some(number), msg, now);
    }
    assert!(back_as_another(&mut watched).is_empty());
    let unknown = "FAILED: Envoy restarted since, so it is not known what to undo";
    assert_eq!(results(&watched)[1], unknown);
}

/// "sent" alone would say that it is in force.
#[test]
fn a_change_for_all_that_waits_says_where() {
    let mut watched = with_changes();
    half_sent(&mut watched, "e250<ret>a");
    let text = "done here, waits at 1 of 2 Envoys: http://127.0.0.1:2; 7 shows each";
    let last = last(&watched);
    assert_eq!((last.text.as_str(), last.is_bad), (text, true));
    // Once, and not with each poll.
    watched.update(None, Msg::Tick, Nanos::from_secs(20));
    poll(&mut watched, 0, 20);
    assert!(!messages(watched.shown()).contains("waits"));
}

/// The one on the screen lost nothing: the key shows the one that did, with its question.
#[test]
fn one_key_applies_again_what_another_envoy_lost() {
    let mut watched = with_changes();
    press(&mut watched, "a");
    let nothing = "nothing to reapply, here or at another Envoy";
    assert_eq!(messages(watched.shown()), nothing);
    back_as_another(&mut watched);
    assert!(press(&mut watched, "a").is_empty());
    assert_eq!(watched.shown().settings.url, "http://127.0.0.1:2");
    let Mode::Confirm(pending) = &watched.shown().mode else {
        panic!("no question")
    };
    assert!(
        pending.question.ends_with("are lost. Apply again?"),
        "{pending:?}"
    );
    assert_eq!(pending.detail[0], "At http://127.0.0.1:2:");
    let effects = press(&mut watched, "<ret>");
    let [(1, Effect::Again(items))] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!(items.len(), 4);
}

/// Each Envoy lost changes of its own.
#[test]
fn applying_again_is_not_offered_at_all() {
    let mut watched = with_changes();
    back_as_another(&mut watched);
    press(&mut watched, "a");
    let text = crate::ui::tests::text(watched.shown(), (120, 40));
    let footer = text.lines().last().expect("a footer");
    assert!(footer.contains("Esc no  C-y copy"), "{footer}");
    assert!(press(&mut watched, "a").is_empty());
    assert!(matches!(watched.shown().mode, Mode::Confirm(_)));
    assert_eq!(last(&watched).text, "each Envoy lost changes of its own");
}
