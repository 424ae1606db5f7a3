//! Calls without an answer, and workers that get none.

use super::*;
use crate::fleet::Heartbeat;

#[test]
fn a_request_without_an_answer_is_decided_here_by_its_part() {
    let (host, mut engine, mut plane) = (host_that_knows(), Engine::default(), plane());
    assert_eq!(arrive(&host, &mut plane, 1, "alice").0, 1);
    host.pass(Nanos::from_millis(20));
    // A lost call is not an outage. The request asks again, for as long as it may wait.
    assert_eq!(engine.lose(&host, &mut plane), [(1, 1)]);
    assert_eq!(host.calls.borrow().len(), 2);
    host.pass(Nanos::from_millis(10));
    let again = plane.tick(&host);
    assert_eq!(decide_again(&host, &mut plane, again), [(1, 0)]);
    assert_eq!(host.metric("loudou.fleet.local"), 1);
    assert_eq!(host.metric("loudou.waiting"), 0);
    // No request waits for the late answer any more, so its tokens serve the next one.
    assert_eq!(engine.answer(&host, &mut plane), []);
    assert_eq!(arrive(&host, &mut plane, 2, "alice").0, 0);
}

/// Returns the verdicts on four requests after three lost calls, with these settings.
fn in_an_outage(settings: &serde_json::Value) -> (FakeHost, [u16; 4]) {
    let (host, mut engine) = (host_that_knows(), Engine::default());
    let mut plane = DataPlane::new(fleet(&[], settings), Nanos::ZERO);
    for (stream, user) in [(1, "x"), (2, "y"), (3, "z")] {
        assert_eq!(arrive(&host, &mut plane, stream, user).0, 1);
    }
    engine.lose(&host, &mut plane);
    engine.lose(&host, &mut plane);
    assert_eq!(host.metric("loudou.fleet.down"), 0);
    let decided = engine.lose(&host, &mut plane);
    assert_eq!(host.metric("loudou.fleet.down"), 1);
    // No request waits any more, not even requests whose keys were not in the last call.
    assert_eq!(decided.len(), 3);
    assert_eq!(host.metric("loudou.waiting"), 0);
    let fates = [4, 5, 6, 7].map(|stream| arrive(&host, &mut plane, stream, "alice").0);
    assert_eq!(
        host.calls.borrow().len(),
        3,
        "an open breaker makes no calls"
    );
    (host, fates)
}

#[test]
fn in_an_outage_the_settings_decide() {
    let (host, fates) = in_an_outage(&json!({}));
    assert_eq!(fates, [0, 0, 429, 429]);
    assert_eq!(host.metric("loudou.fleet.failed"), 3);
    let (_, fates) = in_an_outage(&json!({ "on_outage": "admit" }));
    assert_eq!(fates, [0; 4]);
    let (host, fates) = in_an_outage(&json!({ "on_outage": "refuse" }));
    assert_eq!(fates, [429; 4]);
    assert_eq!(host.metric("loudou.rule.per-user.refused"), 7);
}

#[test]
fn without_the_cluster_requests_wait_for_the_timer_only() {
    let (host, mut plane) = (host_that_knows(), plane());
    host.has_no_cluster.set(true);
    assert_eq!(arrive(&host, &mut plane, 1, "alice").0, 1);
    assert_eq!(host.timer_ms.get(), 1);
    for _ in 0..3 {
        host.pass(Nanos::from_millis(1));
        let again = plane.tick(&host);
        decide_again(&host, &mut plane, again);
    }
    assert_eq!(host.metric("loudou.waiting"), 0);
    assert_eq!(host.metric("loudou.rule.per-user.admitted"), 1);
    assert_eq!(host.metric("loudou.fleet.down"), 1);
}

/// Responses that do not come from a relay, or not for this call.
#[test]
fn only_a_whole_answer_of_a_relay_counts() {
    let whole = br#"{"keys":[{"granted":1,"charged":0}]}"#;
    let two = br#"{"keys":[{"granted":1,"charged":0},{"granted":1,"charged":0}]}"#;
    let answers: [(&str, bool, &[u8]); 7] = [
        ("200", false, whole),
        ("503", true, whole),
        ("200", true, b""),
        ("200", true, b"{}"),
        ("200", true, b"{\"keys\":[{}]}"),
        ("200", true, two),
        ("200", true, &whole[..whole.len() - 1]),
    ];
    for (status, has_header, body) in answers {
        let (host, mut plane) = (host_that_knows(), plane());
        arrive(&host, &mut plane, 1, "alice");
        let mut headers = vec![(":status".to_owned(), status.as_bytes().to_vec())];
        if has_header {
            headers.push((RELAY_HEADER.to_owned(), b"1".to_vec()));
        }
        *host.called.borrow_mut() = (headers, body.to_vec());
        let again = plane.called(&host, 0, body.len());
        assert_eq!(host.metric("loudou.fleet.failed"), 1, "{status} {body:?}");
        assert_eq!(decide_again(&host, &mut plane, again), [(1, 1)]);
    }
}

#[test]
fn after_an_outage_one_call_finds_the_engine_again() {
    let (host, mut engine, mut plane) = (host_that_knows(), Engine::default(), plane());
    for (stream, user) in [(1, "x"), (2, "y"), (3, "z")] {
        arrive(&host, &mut plane, stream, user);
    }
    for _ in 0..3 {
        engine.lose(&host, &mut plane);
    }
    let events = |kind: &str| {
        let logs = host.logs.borrow();
        logs.iter().filter(|line| line.contains(kind)).count()
    };
    assert_eq!((events("fleet_down"), events("fleet_up")), (1, 0));
    // The timer wakes for the probe, which fails once more.
    let mut probes = 0;
    while probes < 2 {
        host.pass(Nanos::from_millis(host.timer_ms.get().into()));
        let _again = plane.tick(&host);
        if host.calls.borrow().len() > 3 + probes {
            probes += 1;
            let envoys = u64::from(probes == 2);
            let answer = LeaseAnswer {
                envoys,
                ..LeaseAnswer::default()
            };
            end(&host, &mut plane, &mut engine.answered, Some(&answer));
        }
        assert!(host.now() < Nanos::from_secs(3), "it never probed");
    }
    assert_eq!(host.metric("loudou.fleet.down"), 0);
    assert_eq!((events("fleet_down"), events("fleet_up")), (1, 1));
    assert_eq!(arrive(&host, &mut plane, 4, "alice").0, 1, "it asks again");
    assert_eq!(engine.answer(&host, &mut plane), [(4, 0)]);
}

#[test]
fn a_worker_that_goes_takes_its_breaker_along() {
    let (host, mut engine) = (host_that_knows(), Engine::default());
    let mut plane = plane();
    for (stream, user) in [(1, "x"), (2, "y"), (3, "z")] {
        arrive(&host, &mut plane, stream, user);
    }
    let cleanup = plane.cleanup();
    cleanup.execute(&host);
    assert_eq!(host.metric("loudou.fleet.down"), 0);
    for _ in 0..3 {
        engine.lose(&host, &mut plane);
    }
    assert_eq!(host.metric("loudou.fleet.down"), 1);
    plane.close(&host);
    assert_eq!(host.metric("loudou.fleet.down"), 0);
}

/// The engine answers for other keys. A request waits no longer if the engine does not answer for
/// its key.
#[test]
fn a_key_without_an_answer_is_decided_here_at_once() {
    let (host, mut engine, mut plane) = (host_that_knows(), Engine::default(), plane());
    for (stream, user) in [(1, "x"), (2, "y"), (3, "z")] {
        arrive(&host, &mut plane, stream, user);
    }
    engine.answer(&host, &mut plane);
    let call: LeaseRequest = serde_json::from_slice(&host.calls.borrow()[1].body).expect("a call");
    let mut answer = engine.grant(&call, Nanos::from_secs(1_000_000));
    answer.keys[0] = KeyAnswer::Failed(LeaseError::Timeout);
    let decided = end(&host, &mut plane, &mut engine.answered, Some(&answer));
    assert_eq!(decided, [(2, 0), (3, 0)]);
    assert_eq!(host.metric("loudou.fleet.local"), 1);
    assert_eq!(host.metric("loudou.fleet.failed"), 0);
    assert_eq!(asking_calls(&host), 2);
}

/// The event of its outage also ends with the first answer to another worker.
#[test]
fn a_worker_that_dies_takes_its_breaker_along() {
    let host = host_that_knows();
    let [mut other, mut plane] = told_to_another(&host);
    let cleanup = plane.cleanup();
    host.has_no_cluster.set(true);
    for (stream, user) in [(1, "x"), (2, "y"), (3, "z")] {
        arrive(&host, &mut plane, stream, user);
    }
    assert_eq!(host.metric("loudou.fleet.down"), 1);
    let is_down = || Heartbeat::find(&host, "loudou").map(|heartbeat| heartbeat.view().is_down);
    assert_eq!(is_down(), Some(true));
    cleanup.execute(&host);
    assert_eq!(host.metric("loudou.fleet.down"), 0);
    drop(plane);
    cleanup.execute(&host);
    assert_eq!(host.metric("loudou.fleet.down"), 0, "only once");
    host.has_no_cluster.set(false);
    host.pass(Nanos::from_secs(2));
    let _again = other.tick(&host);
    let mut call = host.calls.borrow().len() - 1;
    end(
        &host,
        &mut other,
        &mut call,
        Some(&LeaseAnswer {
            envoys: 2,
            ..LeaseAnswer::default()
        }),
    );
    assert_eq!(is_down(), Some(false));
}

/// A healthy worker that dies changes nothing.
#[test]
fn a_worker_that_dies_well_leaves_the_gauge() {
    let host = host_that_knows();
    let [_, mut plane] = told_to_another(&host);
    assert_eq!(arrive(&host, &mut plane, 1, "alice").0, 1);
    plane.cleanup().execute(&host);
    assert_eq!(host.metric("loudou.fleet.down"), 0);
}

/// It has no request and no turn to call, because the other worker is always a little earlier.
#[test]
fn an_idle_worker_hears_from_another_that_the_engine_is_back() {
    let host = host_that_knows();
    let [mut other, mut plane] = told_to_another(&host);
    for (stream, user) in [(1, "x"), (2, "y"), (3, "z")] {
        arrive(&host, &mut plane, stream, user);
        let mut call = host.calls.borrow().len() - 1;
        let lost = LeaseAnswer {
            keys: vec![KeyAnswer::Failed(LeaseError::Unreachable)],
            ..LeaseAnswer::default()
        };
        end(&host, &mut plane, &mut call, Some(&lost));
    }
    assert_eq!(host.metric("loudou.fleet.down"), 1);
    let begun = host.now();
    while host.metric("loudou.fleet.down") > 0 {
        host.pass(Nanos::from_millis(100));
        let mut call = host.calls.borrow().len();
        let _again = other.tick(&host);
        if host.calls.borrow().len() > call {
            let answer = LeaseAnswer {
                envoys: 2,
                ..LeaseAnswer::default()
            };
            end(&host, &mut other, &mut call, Some(&answer));
        }
        let calls = host.calls.borrow().len();
        let _again = plane.tick(&host);
        assert_eq!(host.calls.borrow().len(), calls, "it is the other's turn");
        let waited = host.now().since(begun);
        assert!(waited < Nanos::from_secs(2), "it still counts as alone");
    }
    let logs = host.logs.borrow();
    assert!(logs.iter().any(|line| line.contains("fleet_up")));
}

/// Two workers of two Envoys. The engine has answered the first worker that it knows both. The
/// second worker has made no call since.
fn told_to_another(host: &FakeHost) -> [DataPlane; 2] {
    let mut workers = [plane(), plane()];
    for plane in &mut workers {
        let _again = plane.tick(host);
    }
    let answer = LeaseAnswer {
        envoys: 2,
        ..LeaseAnswer::default()
    };
    end(host, &mut workers[0], &mut 0, Some(&answer));
    host.pass(Nanos::from_millis(10));
    workers
}

/// A worker that made no calls knows the number of Envoys when it first decides alone.
#[test]
fn an_outage_soon_after_the_start_divides_the_limits() {
    let host = host_that_knows();
    let [_, mut plane] = told_to_another(&host);
    host.has_no_cluster.set(true);
    for (stream, user) in [(1, "x"), (2, "y"), (3, "z")] {
        arrive(&host, &mut plane, stream, user);
    }
    assert_eq!(host.metric("loudou.fleet.down"), 1);
    let fates = [4, 5].map(|stream| arrive(&host, &mut plane, stream, "alice").0);
    assert_eq!(fates, [0, 429], "half of the capacity");
}

#[test]
fn a_time_out_soon_after_the_start_divides_the_limits() {
    let host = host_that_knows();
    let [_, mut plane] = told_to_another(&host);
    for stream in [1, 2] {
        assert_eq!(arrive(&host, &mut plane, stream, "alice").0, 1);
    }
    host.pass(Nanos::from_millis(30));
    let again = plane.tick(&host);
    let decided = decide_again(&host, &mut plane, again);
    assert_eq!(decided, [(1, 0), (2, 429)], "half of the capacity");
}

#[test]
fn a_key_that_fails_soon_after_the_start_has_divided_limits() {
    let host = host_that_knows();
    let [_, mut plane] = told_to_another(&host);
    assert_eq!(arrive(&host, &mut plane, 1, "bob").0, 1);
    let mut call = host.calls.borrow().len() - 1;
    for (stream, user) in [(2, "alice"), (3, "alice"), (4, "carol")] {
        assert_eq!(arrive(&host, &mut plane, stream, user).0, 1);
    }
    end(&host, &mut plane, &mut call, None);
    let granted = Lease {
        granted: 1,
        ..Lease::default()
    };
    let lost = KeyAnswer::Failed(LeaseError::Timeout);
    let asked: LeaseRequest =
        serde_json::from_slice(&host.calls.borrow()[call].body).expect("a call");
    let answers = asked.keys.iter().map(|asked| match asked.key.as_str() {
        "alice" => lost.clone(),
        _ => KeyAnswer::Lease(granted.clone()),
    });
    let answer = LeaseAnswer {
        keys: answers.collect(),
        ..LeaseAnswer::default()
    };
    let decided = end(&host, &mut plane, &mut call, Some(&answer));
    let of_alice = decided.iter().filter(|(stream, _)| matches!(stream, 2 | 3));
    let of_alice: Vec<_> = of_alice.copied().collect();
    assert_eq!(of_alice, [(2, 0), (3, 429)], "half of the capacity");
}

/// A worker whose keys are all denied makes no calls, so it would not notice an engine outage. Its
/// share then decides, and used tokens stay used.
#[test]
fn a_denial_does_not_outlive_the_engine() {
    let (host, mut engine) = (host_that_knows(), Engine::default());
    let mut workers = [plane(), plane()];
    host.pass(Nanos::from_secs(1));
    for stream in 1..=3 {
        arrive(&host, &mut workers[1], stream, "alice");
        if engine.answered < host.calls.borrow().len() {
            engine.answer(&host, &mut workers[1]);
        }
    }
    assert_eq!(arrive(&host, &mut workers[1], 4, "alice").0, 429, "denied");
    // The other worker reports that this Envoy is alive, but its calls have no answers.
    let begun = host.now();
    while host.metric("loudou.fleet.local") == 0 {
        assert_eq!(arrive(&host, &mut workers[1], 5, "alice").0, 429);
        host.pass(Nanos::from_millis(100));
        for plane in &mut workers {
            let _again = plane.tick(&host);
        }
        let call = u32::try_from(host.calls.borrow().len() - 1).expect("few");
        *host.called.borrow_mut() = (vec![(":status".to_owned(), b"504".to_vec())], Vec::new());
        let _again = workers[0].called(&host, call, 0);
        assert!(
            host.now().since(begun) < Nanos::from_secs(9),
            "it still denies"
        );
    }
    assert!(host.now().since(begun) >= Nanos::from_secs(2));
    assert_eq!(host.metric("loudou.fleet.local"), 1);
}

/// Each answer counts, not only answers to calls without keys. It is shared a few times per second.
#[test]
fn the_last_answer_is_known_to_all() {
    let (host, mut engine, mut plane) = (host_that_knows(), Engine::default(), plane());
    let answered_at = || Heartbeat::find(&host, "loudou").map(|heartbeat| heartbeat.answered_at);
    for (stream, second) in [(1, 5), (2, 7)] {
        host.now.set(Nanos::from_secs(second).get());
        assert_eq!(arrive(&host, &mut plane, stream, "alice").0, 1);
        engine.answer(&host, &mut plane);
        assert_eq!(answered_at(), Some(Nanos::from_secs(second)));
    }
    host.pass(Nanos::from_millis(349));
    assert_eq!(arrive(&host, &mut plane, 3, "bob").0, 1);
    engine.answer(&host, &mut plane);
    assert_eq!(answered_at(), Some(Nanos::from_secs(7)));
}

/// Ends the last call with this answer for each of its keys.
fn end_with(host: &FakeHost, plane: &mut DataPlane, answer: &KeyAnswer) -> Vec<(u32, u16)> {
    let mut call = host.calls.borrow().len() - 1;
    let asked = host.calls.borrow()[call].body.clone();
    let asked: LeaseRequest = serde_json::from_slice(&asked).expect("a call");
    let answer = LeaseAnswer {
        keys: vec![answer.clone(); asked.keys.len()],
        ..LeaseAnswer::default()
    };
    end(host, plane, &mut call, Some(&answer))
}

/// Errors of some keys never make a worker decide other keys alone, even if there are many.
#[test]
fn errors_of_keys_leave_the_breaker_closed() {
    let (host, mut plane) = (host_that_knows(), plane());
    let errors = [
        LeaseError::Timeout,
        LeaseError::Unreachable,
        LeaseError::Refused,
    ];
    for (stream, error) in (1..).zip(errors.into_iter().cycle().take(9)) {
        let user = format!("lost-{stream}");
        assert_eq!(arrive(&host, &mut plane, stream, &user).0, 1);
        let decided = end_with(&host, &mut plane, &KeyAnswer::Failed(error));
        assert_eq!(decided, [(stream, 0)], "decided here");
        // It owes the tokens of passed requests, and makes no call for them at first.
        let calls = host.calls.borrow().len();
        assert_eq!(arrive(&host, &mut plane, 100 + stream, &user).0, 0);
        assert_eq!(host.calls.borrow().len(), calls);
    }
    assert_eq!(host.metric("loudou.fleet.local"), 18);
    assert_eq!(
        host.metric("loudou.fleet.down"),
        1,
        "the engine answered nothing"
    );
    // Another key is requested, and its answer ends the outage event.
    assert_eq!(arrive(&host, &mut plane, 20, "alice").0, 1);
    let granted = KeyAnswer::Lease(Lease {
        granted: 1,
        left: vec![1],
        ..Lease::default()
    });
    assert_eq!(end_with(&host, &mut plane, &granted), [(20, 0)]);
    assert_eq!(host.metric("loudou.fleet.down"), 0);
}

/// An Envoy that starts without an engine divides limits by the number in its settings, and later
/// by the engine's number, even if that is smaller.
#[test]
fn without_a_number_of_the_engine_the_settings_count() {
    for (settings, reported, passes) in [
        (json!({}), None, 8),
        (json!({ "envoys": 4 }), None, 2),
        (json!({ "envoys": 4 }), Some([8, 2]), 4),
    ] {
        let limits = json!([{ "algorithm": "funnel", "capacity": 8, "rate": "1/d" }]);
        let host = host_that_knows();
        host.pass(Nanos::from_secs(1));
        let mut plane = DataPlane::new(fleet(&[("limits", limits)], &settings), Nanos::ZERO);
        let mut call = 0;
        if reported.is_none() {
            let _again = plane.tick(&host);
            host.pass(Nanos::from_millis(20));
        }
        for envoys in reported.into_iter().flatten() {
            host.pass(Nanos::from_secs(1));
            let _again = plane.tick(&host);
            let answer = LeaseAnswer {
                envoys,
                ..LeaseAnswer::default()
            };
            end(&host, &mut plane, &mut call, Some(&answer));
        }
        host.has_no_cluster.set(true);
        // Until the breaker is open.
        for stream in 1..=3 {
            arrive(&host, &mut plane, stream, "bob");
        }
        assert_eq!(host.metric("loudou.fleet.down"), 1);
        let passed = (10..30).filter(|stream| arrive(&host, &mut plane, *stream, "alice").0 == 0);
        assert_eq!(passed.count(), passes, "{settings}, {reported:?}");
        // The admin API shows the share as well.
        let view = Heartbeat::find(&host, "loudou").map(Heartbeat::view);
        let envoys = 8 / u32::try_from(passes).expect("few");
        assert!(view.is_none_or(|view| view.envoys == envoys));
    }
}

/// A key is denied for its cost, and then has errors. A cheaper request asks once, and is decided
/// here.
#[test]
fn a_request_below_a_denial_does_not_ask_again_and_again() {
    let host = host_that_knows();
    host.pass(Nanos::from_secs(1));
    let cost = json!({ "header": "x-cost", "max": 2 });
    let mut plane = DataPlane::new(fleet(&[("cost", cost)], &json!({})), Nanos::ZERO);
    let arrive = |plane: &mut DataPlane, stream: u32, cost: &str| {
        let headers = [("x-user-id", &b"alice"[..]), ("x-cost", cost.as_bytes())];
        host.request("GET", "/", &headers);
        let headers = host.headers.borrow().clone();
        host.paused.borrow_mut().insert(stream, headers);
        status(&plane.decide(&host, stream, false).0)
    };
    assert_eq!(arrive(&mut plane, 1, "2"), 1);
    let denied = Lease {
        wait_us: 60_000_000,
        left: vec![1],
        ..Lease::default()
    };
    let decided = end_with(&host, &mut plane, &KeyAnswer::Lease(denied));
    assert_eq!(decided, [(1, 429)]);
    assert_eq!(arrive(&mut plane, 2, "1"), 1);
    let calls = host.calls.borrow().len();
    let lost = KeyAnswer::Failed(LeaseError::Refused);
    assert_eq!(end_with(&host, &mut plane, &lost), [(2, 0)]);
    assert_eq!(host.calls.borrow().len(), calls);
    // The denied cost stays denied.
    assert_eq!(arrive(&mut plane, 3, "2"), 429);
}

/// A full engine answers that a key is empty, and refuses writes when tokens have come back.
#[test]
fn an_empty_key_of_a_full_engine_has_no_bucket_here() {
    let (host, mut engine, mut plane) = (host_that_knows(), Engine::default(), plane());
    for stream in 1..=3 {
        assert_eq!(arrive(&host, &mut plane, stream, "alice").0, 1);
        while engine.answered < host.calls.borrow().len() {
            engine.answer(&host, &mut plane);
        }
        host.pass(Nanos::from_millis(201));
    }
    host.pass(Nanos::from_secs(1));
    let mut admitted = 0;
    for stream in 10..20 {
        let (mut outcome, _stay) = arrive(&host, &mut plane, stream, "alice");
        if outcome == 1 {
            let refused = KeyAnswer::Failed(LeaseError::Refused);
            outcome = end_with(&host, &mut plane, &refused)[0].1;
        }
        admitted += u64::from(outcome == 0);
        host.pass(Nanos::from_millis(100));
    }
    assert_eq!(admitted, 0);
}

/// Requests admitted here are charged once, by the next answered call.
#[test]
fn requests_that_were_admitted_alone_are_charged() {
    let (host, mut plane) = (host_that_knows(), plane());
    assert_eq!(arrive(&host, &mut plane, 1, "alice").0, 1);
    let lost = KeyAnswer::Failed(LeaseError::Timeout);
    assert_eq!(end_with(&host, &mut plane, &lost), [(1, 0)]);
    let debt = || {
        let calls = host.calls.borrow();
        let sent = calls.last().expect("a call");
        let call: LeaseRequest = serde_json::from_slice(&sent.body).expect("a call");
        call.keys.iter().map(|key| key.debt).sum::<u64>()
    };
    host.pass(Nanos::from_millis(300));
    assert_eq!(arrive(&host, &mut plane, 2, "alice").0, 1);
    assert_eq!(debt(), 1);
    let denied = KeyAnswer::Lease(Lease {
        charged: 1,
        wait_us: 1_000,
        left: vec![0],
        ..Lease::default()
    });
    assert_eq!(end_with(&host, &mut plane, &denied), [(2, 429)]);
    host.pass(Nanos::from_millis(300));
    assert_eq!(arrive(&host, &mut plane, 3, "alice").0, 1);
    assert_eq!(debt(), 0);
}

/// A relay that grants more than requested creates no tokens.
#[test]
fn a_relay_that_lies_mints_nothing() {
    let (host, mut plane) = (host_that_knows(), plane());
    assert_eq!(arrive(&host, &mut plane, 1, "alice").0, 1);
    let lie = KeyAnswer::Lease(Lease {
        granted: 1_000,
        charged: 1_000,
        left: vec![u64::MAX],
        ..Lease::default()
    });
    assert_eq!(end_with(&host, &mut plane, &lie), [(1, 0)]);
    assert_eq!(host.metric("loudou.fleet.granted"), 1);
    assert_eq!(arrive(&host, &mut plane, 2, "alice").0, 1, "it has no more");
}
