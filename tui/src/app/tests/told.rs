//! Messages about a change for all before the last result is in: nothing fails silently, and nothing that waits is called
//! off.

use super::broadcasts::{changes, failed, results};
use super::several::{poll, press, watched_at};
use super::*;
use crate::app::watched::Watched;

/// Three Envoys and a ban that is sent to all of them: the results of those that answer.
fn banned(results: [Result<(), Failure>; 3]) -> Watched {
    let mut watched = watched_at(1..4, (120, 40));
    for number in 0..3 {
        for at in 0..3 {
            poll(&mut watched, number, at);
        }
    }
    let sent = changes(press(&mut watched, "b<ret>a"));
    let now = watched.shown().now;
    for ((number, sending), result) in sent.into_iter().zip(results) {
        let result = result.map(|()| Answer::Ban(Box::default()));
        watched.update(Some(number), Msg::Changed(sending, result), now);
    }
    watched
}

fn refusal() -> Failure {
    Failure {
        problem: Some(Box::default()),
        ..failed("this token may only view")
    }
}

fn toasts(watched: &Watched) -> Vec<String> {
    let toasts = watched.shown().toasts.iter();
    toasts.map(|toast| toast.text.clone()).collect()
}

/// One refuses it and one is away for minutes: the message does not wait for that one, and so does the end of the app.
#[test]
fn a_failure_is_told_while_another_envoy_is_away() {
    let mut watched = banned([Ok(()), Err(refusal()), Err(failed("cannot reach it"))]);
    let told = "done here, FAILED at http://127.0.0.1:2, waits at 1 of 3 Envoys: http://127.0.0.1:3; 7 shows each";
    assert!(
        toasts(&watched).contains(&told.to_owned()),
        "{:?}",
        toasts(&watched)
    );
    let end = watched.unfinished().join("\n");
    assert!(
        end.contains("failed: this token may only view, at http://127.0.0.1:2"),
        "{end}"
    );
    assert!(
        end.contains("was not sent: cannot reach it, at http://127.0.0.1:3"),
        "{end}"
    );
    // Once.
    let now = watched.shown().now.saturating_add(Nanos::from_secs(20));
    watched.update(None, Msg::Tick, now);
    assert!(toasts(&watched).is_empty(), "{:?}", toasts(&watched));
}

/// The one on the screen is away: the change comes later, and so it is not said to be off.
#[test]
fn what_waits_here_is_not_said_to_be_off() {
    let watched = banned([Err(failed("cannot reach it")), Ok(()), Ok(())]);
    assert_eq!(results(&watched)[0], "waits: cannot reach it");
    let told = toasts(&watched);
    assert!(
        told.iter()
            .any(|text| text == "here: waits: cannot reach it; 7 shows each"),
        "{told:?}"
    );
    assert!(
        !told.iter().any(|text| text.contains("not applied")),
        "{told:?}"
    );
    assert!(
        told.iter()
            .any(|text| text.starts_with("done at 2, waits at 1 of 3")),
        "{told:?}"
    );
}
