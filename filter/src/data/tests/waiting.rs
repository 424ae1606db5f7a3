//! Held requests, and the timer that resumes them.

use serde_json::{Value, json};

use super::*;

/// A queue of 100 for each user.
fn line(rate: &str) -> Value {
    json!([{
        "name": "line",
        "key": [{ "header": "x-user-id" }],
        "limits": [{ "algorithm": "leaky_queue", "capacity": 100, "rate": rate }],
    }])
}

fn plane(host: &FakeHost, rules: &Value) -> DataPlane {
    let mut plane = DataPlane::new(file(rules), Nanos::ZERO);
    plane.tick(host);
    plane
}

/// Holds a request of `user` as `stream`.
fn hold(plane: &mut DataPlane, host: &FakeHost, user: &[u8], stream: u32) -> Stay {
    host.request("GET", "/", &[("x-user-id", user)]);
    let (fate, stay) = plane.decide(host, stream);
    assert!(matches!(fate, Fate::Hold(_)), "{fate:?}");
    stay
}

/// Lets the timer flush counts; returns how long it sleeps after that.
fn flush(plane: &mut DataPlane, host: &FakeHost) -> u32 {
    assert_eq!(host.timer_ms.get(), 250);
    host.pass(Nanos::from_millis(250));
    plane.tick(host);
    host.timer_ms.get()
}

#[test]
fn the_timer_sleeps_until_the_next_is_due() {
    let host = FakeHost::default();
    let rules = line("1/m");
    let mut plane = plane(&host, &rules);
    assert_eq!(host.timer_ms.get(), 0, "no request is held");
    assert_eq!(send(&mut plane, &host, Some(b"alice")), 0);
    assert_eq!(flush(&mut plane, &host), 0, "nor does she");

    hold(&mut plane, &host, b"alice", 7);
    assert_eq!(flush(&mut plane, &host), 59_500);
    hold(&mut plane, &host, b"alice", 8);
    assert_eq!(
        flush(&mut plane, &host),
        59_250,
        "a later one changes nothing"
    );
    host.pass(Nanos::from_millis(59_250));
    plane.tick(&host);
    assert_eq!(*host.resumed.borrow(), [7]);
    assert_eq!(host.timer_ms.get(), 60_000);
    assert_eq!(host.metric("loudou.waiting"), 1);
    host.pass(Nanos::from_secs(60));
    plane.tick(&host);
    assert_eq!(*host.resumed.borrow(), [7, 8]);
    assert_eq!(host.timer_ms.get(), 0);
    assert_eq!(host.metric("loudou.waiting"), 0);
}

#[test]
fn an_earlier_due_time_wakes_the_timer_earlier() {
    let host = FakeHost::default();
    let mut plane = plane(&host, &line("1/m"));
    send(&mut plane, &host, Some(b"alice"));
    host.pass(Nanos::from_secs(10));
    send(&mut plane, &host, Some(b"bob"));
    let bob = hold(&mut plane, &host, b"bob", 1);
    assert_eq!(flush(&mut plane, &host), 59_750);
    let alice = hold(&mut plane, &host, b"alice", 2);
    assert_eq!(flush(&mut plane, &host), 49_500);

    plane.end(&host, &alice);
    host.pass(Nanos::from_millis(49_500));
    plane.tick(&host);
    assert!(host.resumed.borrow().is_empty(), "she left");
    assert_eq!(host.timer_ms.get(), 10_000, "the rest of bob's wait");
    assert!(plane.waits(&bob));
}

#[test]
fn a_crowd_that_is_due_is_released_in_parts() {
    let host = FakeHost::default();
    let mut plane = plane(&host, &line("1000/s"));
    send(&mut plane, &host, Some(b"alice"));
    for stream in 1..=80 {
        hold(&mut plane, &host, b"alice", stream);
    }
    host.pass(Nanos::from_secs(1));
    for released in [32, 64, 80] {
        plane.tick(&host);
        assert_eq!(host.resumed.borrow().len(), released);
        assert_eq!(host.timer_ms.get(), u32::from(released < 80));
    }
    assert!(host.resumed.borrow().is_sorted(), "in order");
    assert_eq!(host.metric("loudou.waiting"), 0);
}

#[test]
fn a_sandbox_that_dies_answers_held_requests() {
    let host = FakeHost::default();
    let mut dying = plane(&host, &line("1/m"));
    let mut other = plane(&host, &line("1/m"));
    let will = dying.will();
    send(&mut dying, &host, Some(b"alice"));
    for stream in 1..=3 {
        hold(&mut dying, &host, b"alice", stream);
    }
    hold(&mut other, &host, b"alice", 4);
    assert_eq!(host.metric("loudou.waiting"), 4);

    will.execute(&host);
    let statuses: Vec<u16> = host.replies.borrow().iter().map(|r| r.status).collect();
    assert_eq!(statuses, [503; 3]);
    assert_eq!(*host.resumed.borrow(), [1, 2, 3]);
    assert_eq!(host.metric("loudou.waiting"), 1, "those of others wait on");

    assert!(!will.is_void());
    drop(dying);
    assert!(will.is_void(), "its queue no longer exists");
    will.execute(&host);
    assert_eq!(host.replies.borrow().len(), 3);
}
