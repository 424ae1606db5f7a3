//! Messages about changes for all. No failure is silent.

use super::broadcasts::{changes, failed};
use super::several::{poll, press, watched_at};
use super::*;
use crate::app::watched::Watched;

/// Sends a ban to three Envoys, which have these results.
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

/// One Envoy refuses the ban and one is disconnected. The message names both, once.
#[test]
fn every_failure_is_told() {
    let mut watched = banned([Ok(()), Err(refusal()), Err(failed("cannot reach it"))]);
    let told = "done at 1 of 3 Envoys, FAILED at http://127.0.0.1:2, http://127.0.0.1:3; 7 shows each, a offers what \
                one lacks";
    let all = toasts(&watched);
    assert!(all.contains(&told.to_owned()), "{all:?}");
    let now = watched.shown().now.saturating_add(Nanos::from_secs(20));
    watched.update(None, Msg::Tick, now);
    assert!(toasts(&watched).is_empty(), "{:?}", toasts(&watched));
}
