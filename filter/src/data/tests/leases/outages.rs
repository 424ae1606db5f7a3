//! Calls without an answer, and workers that get none.

use super::*;
use crate::fleet::Pulse;

#[test]
fn a_request_without_an_answer_is_decided_here_by_its_part() {
    let (host, mut engine, mut plane) = (FakeHost::default(), Engine::default(), plane());
    assert_eq!(arrive(&host, &mut plane, 1, "alice").0, 1);
    host.pass(Nanos::from_millis(20));
    // One lost call is no outage: it asks again, for as long as it may wait.
    assert_eq!(engine.lose(&host, &mut plane), [(1, 1)]);
    assert_eq!(host.calls.borrow().len(), 2);
    host.pass(Nanos::from_millis(10));
    let again = plane.tick(&host);
    assert_eq!(decide_again(&host, &mut plane, again), [(1, 0)]);
    assert_eq!(host.metric("loudou.fleet.local"), 1);
    assert_eq!(host.metric("loudou.waiting"), 0);
    // The late answer is for nobody, and brings tokens for the next one.
    assert_eq!(engine.answer(&host, &mut plane), []);
    assert_eq!(arrive(&host, &mut plane, 2, "alice").0, 0);
}

/// What three lost calls lead to, with these settings: the fates of four requests after that.
fn in_an_outage(settings: &serde_json::Value) -> (FakeHost, [u16; 4]) {
    let (host, mut engine) = (FakeHost::default(), Engine::default());
    let mut plane = DataPlane::new(fleet(&[], settings), Nanos::ZERO);
    for (stream, user) in [(1, "x"), (2, "y"), (3, "z")] {
        assert_eq!(arrive(&host, &mut plane, stream, user).0, 1);
    }
    engine.lose(&host, &mut plane);
    engine.lose(&host, &mut plane);
    assert_eq!(host.metric("loudou.fleet.down"), 0);
    let decided = engine.lose(&host, &mut plane);
    assert_eq!(host.metric("loudou.fleet.down"), 1);
    // Nobody waits any more, not even those who were not asked for in the last call.
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
    let (host, mut plane) = (FakeHost::default(), plane());
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

/// Answers that are not a relay's, or not to this call.
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
        let (host, mut plane) = (FakeHost::default(), plane());
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
    let (host, mut engine, mut plane) = (FakeHost::default(), Engine::default(), plane());
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
    let (host, mut engine) = (FakeHost::default(), Engine::default());
    let mut plane = plane();
    for (stream, user) in [(1, "x"), (2, "y"), (3, "z")] {
        arrive(&host, &mut plane, stream, user);
    }
    let will = plane.will();
    will.execute(&host);
    assert_eq!(host.metric("loudou.fleet.down"), 0);
    for _ in 0..3 {
        engine.lose(&host, &mut plane);
    }
    assert_eq!(host.metric("loudou.fleet.down"), 1);
    plane.close(&host);
    assert_eq!(host.metric("loudou.fleet.down"), 0);
}

/// The engine answers for other keys: a request of the one that it does not answer waits no longer.
#[test]
fn a_key_without_an_answer_is_decided_here_at_once() {
    let (host, mut engine, mut plane) = (FakeHost::default(), Engine::default(), plane());
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

/// The event of its outage ends, too, with the first answer to another worker.
#[test]
fn a_worker_that_dies_takes_its_breaker_along() {
    let host = FakeHost::default();
    let [mut other, mut plane] = told_to_another(&host);
    let will = plane.will();
    host.has_no_cluster.set(true);
    for (stream, user) in [(1, "x"), (2, "y"), (3, "z")] {
        arrive(&host, &mut plane, stream, user);
    }
    assert_eq!(host.metric("loudou.fleet.down"), 1);
    let is_down = || Pulse::find(&host, "loudou").map(|pulse| pulse.view().is_down);
    assert_eq!(is_down(), Some(true));
    will.execute(&host);
    assert_eq!(host.metric("loudou.fleet.down"), 0);
    drop(plane);
    will.execute(&host);
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

/// One that is still well when it dies changes nothing.
#[test]
fn a_worker_that_dies_well_leaves_the_gauge() {
    let host = FakeHost::default();
    let [_, mut plane] = told_to_another(&host);
    assert_eq!(arrive(&host, &mut plane, 1, "alice").0, 1);
    plane.will().execute(&host);
    assert_eq!(host.metric("loudou.fleet.down"), 0);
}

/// Two workers of two Envoys. The engine has answered the first of them that it knows both; the second has
/// made no call since.
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

/// A worker that made no calls knows how many Envoys there are when it first decides alone.
#[test]
fn an_outage_soon_after_the_start_divides_the_limits() {
    let host = FakeHost::default();
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
    let host = FakeHost::default();
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
    let host = FakeHost::default();
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

/// A worker whose keys are all denied asks nothing, and so would not notice that the engine is gone.
#[test]
fn a_denial_does_not_outlive_the_engine() {
    let (host, mut engine) = (FakeHost::default(), Engine::default());
    let mut workers = [plane(), plane()];
    host.pass(Nanos::from_secs(1));
    for stream in 1..=3 {
        arrive(&host, &mut workers[1], stream, "alice");
        if engine.answered < host.calls.borrow().len() {
            engine.answer(&host, &mut workers[1]);
        }
    }
    assert_eq!(arrive(&host, &mut workers[1], 4, "alice").0, 429, "denied");
    // The other worker says that this Envoy lives; its calls have no answers.
    let begun = host.now();
    while arrive(&host, &mut workers[1], 5, "alice").0 == 429 {
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

/// Each answer counts as one, not only those to calls without keys: some times a second it is shared.
#[test]
fn the_last_answer_is_known_to_all() {
    let (host, mut engine, mut plane) = (FakeHost::default(), Engine::default(), plane());
    let answered_at = || Pulse::find(&host, "loudou").map(|pulse| pulse.answered_at);
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
