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
fn hold(plane: &mut DataPlane, host: &FakeHost, user: &[u8], stream: u32) -> HoldState {
    host.request("GET", "/", &[("x-user-id", user)]);
    let (outcome, hold_state) = plane.decide(host, stream, false);
    assert!(matches!(outcome, RequestOutcome::Hold(_)), "{outcome:?}");
    hold_state
}

/// Lets the timer flush counts; returns how long it sleeps after that.
fn flush(plane: &mut DataPlane, host: &FakeHost) -> u32 {
    host.pass(Nanos::from_millis(250));
    plane.tick(host);
    host.timer_ms.get()
}

#[test]
fn the_time_held_is_recorded_when_a_request_passes() {
    let host = FakeHost::default();
    let mut plane = plane(&host, &line("1/m"));
    assert_eq!(send(&mut plane, &host, Some(b"alice")), 0);
    hold(&mut plane, &host, b"alice", 7);
    let left = hold(&mut plane, &host, b"alice", 8);
    let held = |host: &FakeHost| {
        let records = host.records.borrow();
        let of_waits = records.iter().filter(|(name, _)| name == "loudou.wait_ms");
        of_waits.map(|(_, ms)| *ms).collect::<Vec<_>>()
    };
    assert!(held(&host).is_empty(), "they still wait");
    // The timer of a busy worker runs late.
    host.pass(Nanos::from_millis(60_040));
    plane.tick(&host);
    assert_eq!(held(&host), [60_040]);
    plane.end(&host, &left);
    host.pass(Nanos::from_secs(60));
    plane.tick(&host);
    assert_eq!(held(&host), [60_040], "one that left did not pass");
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
    assert_eq!(host.timer_ms.get(), 20, "it looks for edits");
    assert_eq!(flush(&mut plane, &host), 20);
    hold(&mut plane, &host, b"alice", 8);
    host.pass(Nanos::from_millis(59_490));
    plane.tick(&host);
    assert_eq!(host.timer_ms.get(), 10, "one is due");
    assert!(host.resumed.borrow().is_empty());
    host.pass(Nanos::from_millis(10));
    plane.tick(&host);
    assert_eq!(*host.resumed.borrow(), [7]);
    assert_eq!(host.timer_ms.get(), 20);
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
    flush(&mut plane, &host);
    let alice = hold(&mut plane, &host, b"alice", 2);
    host.pass(Nanos::from_millis(49_745));
    plane.tick(&host);
    assert_eq!(host.timer_ms.get(), 5, "until alice is due");

    plane.end(&host, &alice);
    host.pass(Nanos::from_millis(5));
    plane.tick(&host);
    assert!(host.resumed.borrow().is_empty(), "she left");
    host.pass(Nanos::from_millis(9_990));
    plane.tick(&host);
    assert_eq!(host.timer_ms.get(), 10, "the rest of bob's wait");
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
    let cleanup = dying.cleanup();
    send(&mut dying, &host, Some(b"alice"));
    for stream in 1..=3 {
        hold(&mut dying, &host, b"alice", stream);
    }
    hold(&mut other, &host, b"alice", 4);
    assert_eq!(host.metric("loudou.waiting"), 4);

    cleanup.execute(&host);
    let statuses: Vec<u16> = host.replies.borrow().iter().map(|r| r.status).collect();
    assert_eq!(statuses, [503; 3]);
    assert_eq!(*host.resumed.borrow(), [1, 2, 3]);
    assert_eq!(host.metric("loudou.waiting"), 1, "those of others wait on");

    assert!(!cleanup.is_void());
    drop(dying);
    assert!(cleanup.is_void(), "its queue no longer exists");
    cleanup.execute(&host);
    assert_eq!(host.replies.borrow().len(), 3);
}

/// Returns the level of alice's queue, without taking tokens.
fn wait_of_next(plane: &mut DataPlane, host: &FakeHost) -> Nanos {
    host.request("GET", "/", &[("x-user-id", b"alice")]);
    let (_, hold_state) = plane.decide(host, 99, false);
    let due = plane
        .waiting
        .due()
        .map_or(Nanos::ZERO, |due| due.since(Nanos::new(host.now.get())));
    plane.end(host, &hold_state);
    due
}

#[test]
fn places_come_back_when_the_last_one_has_left_or_passed() {
    for one_passes in [false, true] {
        let host = FakeHost::default();
        let rules = line("1/s");
        // Two workers, which share the bucket.
        let mut planes = [plane(&host, &rules), plane(&host, &rules)];
        assert_eq!(send(&mut planes[0], &host, Some(b"alice")), 0);
        let stays: Vec<(usize, HoldState)> = (0..50)
            .map(|n: u32| {
                let worker = usize::from(n.is_multiple_of(3));
                (worker, hold(&mut planes[worker], &host, b"alice", n))
            })
            .collect();
        if one_passes {
            host.pass(Nanos::from_secs(1));
            planes[1].tick(&host);
            assert_eq!(*host.resumed.borrow(), [0]);
        }
        // From the front, so that none of them is the last request.
        for (worker, hold_state) in &stays {
            planes[*worker].end(&host, hold_state);
        }
        assert_eq!(host.metric("loudou.waiting"), 0);
        assert_eq!(wait_of_next(&mut planes[0], &host), Nanos::from_secs(1));
    }
}

#[test]
fn headers_with_deadlines_are_read_only_by_who_would_wait() {
    let host = FakeHost::default();
    let rules = line("1/s");
    let mut plane = plane(&host, &rules);
    let late: [(&str, &[u8]); 3] = [
        ("x-user-id", b"alice"),
        ("grpc-timeout", b"1S"),
        ("x-envoy-expected-rq-timeout-ms", b"60000"),
    ];
    host.request("GET", "/", &late);
    assert!(matches!(
        plane.decide(&host, 1, false).0,
        RequestOutcome::Pass(_)
    ));
    assert!(!host.has_read("grpc-timeout"));
    host.request("GET", "/", &late);
    let RequestOutcome::Refuse(reply) = plane.decide(&host, 2, false).0 else {
        panic!("its turn comes at its deadline, not before it");
    };
    assert_eq!(reply.details, "loudou_deadline{line.leaky_queue}");
    assert!(host.has_read("grpc-timeout"));
    assert_eq!(host.metric("loudou.not_held_deadline"), 1);
    // It took nothing, and a request with more time is held.
    host.request(
        "GET",
        "/",
        &[("x-user-id", b"alice"), ("grpc-timeout", b"1001m")],
    );
    assert!(matches!(
        plane.decide(&host, 3, false).0,
        RequestOutcome::Hold(_)
    ));
    host.request(
        "GET",
        "/",
        &[
            ("x-user-id", b"alice"),
            ("x-envoy-expected-rq-timeout-ms", b"1999"),
        ],
    );
    assert!(matches!(
        plane.decide(&host, 4, false).0,
        RequestOutcome::Refuse(_)
    ));
}

#[test]
fn what_does_not_fit_is_refused_instead_of_held() {
    let host = FakeHost::default();
    let mut file = file(&line("1/s"));
    file.store.waiting.memory_mib = 1;
    let mut plane = DataPlane::new(file, Nanos::ZERO);
    plane.tick(&host);
    assert_eq!(send(&mut plane, &host, Some(b"alice")), 0);
    host.request("GET", "/", &[("x-user-id", b"alice")]);
    let RequestOutcome::Refuse(reply) = plane.decide(&host, 1, true).0 else {
        panic!("its body may be as large as the memory");
    };
    assert_eq!(reply.details, "loudou_waiting_full{line.leaky_queue}");
    host.request(
        "GET",
        "/",
        &[("x-user-id", b"alice"), ("content-length", b"9")],
    );
    let (outcome, hold_state) = plane.decide(&host, 2, true);
    assert!(matches!(outcome, RequestOutcome::Hold(_)));
    host.request(
        "GET",
        "/",
        &[("x-user-id", b"alice"), ("content-length", b"700000")],
    );
    let (outcome, large) = plane.decide(&host, 3, true);
    assert!(matches!(outcome, RequestOutcome::Hold(_)));
    assert!(
        matches!(plane.decide(&host, 4, true).0, RequestOutcome::Refuse(_)),
        "two do not fit"
    );
    plane.end(&host, &large);
    assert!(matches!(
        plane.decide(&host, 5, true).0,
        RequestOutcome::Hold(_)
    ));
    plane.end(&host, &hold_state);
    assert_eq!(host.metric("loudou.not_held_full"), 2);
}

/// A refusal for lack of room or time is no strike, because another client may be the cause.
#[test]
fn a_request_that_cannot_be_held_is_no_strike() {
    let host = FakeHost::default();
    let mut rules = line("1/m");
    rules[0]["penalty"] = json!({ "after": 2, "within": "10m", "ban": "1h" });
    let mut plane = plane(&host, &rules);
    assert_eq!(send(&mut plane, &host, Some(b"alice")), 0);
    for _ in 0..5 {
        let late: [(&str, &[u8]); 2] = [("x-user-id", b"alice"), ("grpc-timeout", b"1S")];
        host.request("GET", "/", &late);
        let (outcome, _) = plane.decide(&host, 3, false);
        assert!(matches!(outcome, RequestOutcome::Refuse(_)), "{outcome:?}");
    }
    hold(&mut plane, &host, b"alice", 4);
}
