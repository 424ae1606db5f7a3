//! Leases of a fleet on the fake host, tested against the core's model of the engine.

use std::collections::BTreeMap;

use loudou_api::{
    KeyAnswer, Lease, LeaseAnswer, LeaseError, LeaseLimit, LeaseRequest, RELAY_HEADER,
};
use loudou_limiter::Rate;
use loudou_limiter::lease::{Central, Demand, LeaseSettings, Shared, Terms};
use loudou_store::{LiveRule, StoreStats};

use super::*;
use crate::fleet::know_changes;
use crate::host::HostStore;
use crate::host::fake::Sent;

mod early;
mod outages;

/// The relay with its engine, on one host.
#[derive(Default)]
struct Engine {
    keys: BTreeMap<(String, String), Central>,
    /// Calls that were answered.
    answered: usize,
}

fn shared(limit: LeaseLimit) -> Shared {
    let rate = |amount: u64, period| {
        let amount = u32::try_from(amount).expect("small");
        Rate::new(amount, Nanos::new(period)).expect("a rate")
    };
    match limit {
        LeaseLimit::Leak {
            capacity,
            amount,
            period_ns,
        } => Shared::Leak {
            capacity,
            rate: rate(amount, period_ns),
        },
        LeaseLimit::Interval {
            capacity,
            amount,
            interval_ns,
        } => Shared::Interval {
            capacity,
            rate: rate(amount, interval_ns),
        },
        LeaseLimit::Window {
            capacity,
            window_ns,
        } => Shared::Window {
            capacity,
            window: Nanos::new(window_ns),
        },
    }
}

impl Engine {
    fn grant(&mut self, request: &LeaseRequest, now: Nanos) -> LeaseAnswer {
        let settings = LeaseSettings {
            lease: Nanos::from_millis(200),
            timeout: Nanos::from_millis(30),
            credit: 0,
        };
        let keys = request.keys.iter().map(|key| {
            let limits: Vec<Shared> = key.limits.iter().copied().map(shared).collect();
            let terms = Terms::new(&limits, &settings).expect("valid");
            let demand = Demand {
                want: key.want,
                need: key.need,
                debt: key.debt,
            };
            let central = self.keys.entry((key.rule.clone(), key.key.clone()));
            let grant = central.or_default().grant(&terms, demand, now);
            KeyAnswer::Lease(Lease {
                granted: grant.granted,
                charged: grant.charged,
                wait_us: grant.wait.get().div_ceil(1_000),
                left: (0..limits.len())
                    .map(|place| grant.left.at(place))
                    .collect(),
                ends_us: grant.ends_in.get() / 1_000,
            })
        });
        LeaseAnswer {
            keys: keys.collect(),
            ..LeaseAnswer::default()
        }
    }

    /// Answers the oldest unanswered call. Returns the verdicts on the requests that it resumed.
    fn answer(&mut self, host: &FakeHost, plane: &mut DataPlane) -> Vec<(u32, u16)> {
        let again = self.answer_call(host, plane);
        decide_again(host, plane, again)
    }

    /// Answers the oldest unanswered call. Returns the requests to decide again.
    fn answer_call(&mut self, host: &FakeHost, plane: &mut DataPlane) -> Vec<Redecision> {
        let Sent { path, body, .. } = host.calls.borrow()[self.answered].clone();
        assert_eq!(path, "/v1/leases");
        let request: LeaseRequest = serde_json::from_slice(&body).expect("a request");
        let answer = self.grant(
            &request,
            host.now().saturating_add(Nanos::from_secs(1_000_000)),
        );
        end_call(host, plane, &mut self.answered, Some(&answer))
    }

    fn lose(&mut self, host: &FakeHost, plane: &mut DataPlane) -> Vec<(u32, u16)> {
        end(host, plane, &mut self.answered, None)
    }
}

/// Ends a call with an answer, or with a response from Envoy itself.
fn end(
    host: &FakeHost,
    plane: &mut DataPlane,
    call: &mut usize,
    answer: Option<&LeaseAnswer>,
) -> Vec<(u32, u16)> {
    let again = end_call(host, plane, call, answer);
    decide_again(host, plane, again)
}

fn end_call(
    host: &FakeHost,
    plane: &mut DataPlane,
    call: &mut usize,
    answer: Option<&LeaseAnswer>,
) -> Vec<Redecision> {
    let status = if answer.is_some() { "200" } else { "504" };
    let mut headers = vec![(":status".to_owned(), status.as_bytes().to_vec())];
    if answer.is_some() {
        headers.push((RELAY_HEADER.to_owned(), b"1".to_vec()));
    }
    let body = answer.map_or_else(Vec::new, |answer| serde_json::to_vec(answer).expect("JSON"));
    let size = body.len();
    *host.called.borrow_mut() = (headers, body);
    let number = u32::try_from(*call).expect("few");
    *call += 1;
    plane.called(host, number, size)
}

fn decide_again(host: &FakeHost, plane: &mut DataPlane, again: Vec<Redecision>) -> Vec<(u32, u16)> {
    let decided = again.into_iter().map(|again| {
        assert!(host.focus(again.stream));
        let (outcome, _stay) = plane.decide_again(host, again, false);
        (again.stream, status(&outcome))
    });
    decided.collect()
}

fn status(outcome: &RequestOutcome) -> u16 {
    match outcome {
        RequestOutcome::Pass(_) => 0,
        RequestOutcome::Hold(_) => 1,
        RequestOutcome::Refuse(reply) => reply.status,
    }
}

/// Returns a host whose Envoy knows its fleet's changes, so no request waits for them.
fn host_that_knows() -> FakeHost {
    let host = FakeHost::default();
    know_changes(&host, "loudou");
    host
}

/// Sends a request of `user` on a new stream.
fn arrive(host: &FakeHost, plane: &mut DataPlane, stream: u32, user: &str) -> (u16, HoldState) {
    host.request("GET", "/", &[("x-user-id", user.as_bytes())]);
    let headers = host.headers.borrow().clone();
    host.paused.borrow_mut().insert(stream, headers);
    let (outcome, hold_state) = plane.decide(host, stream, false);
    (status(&outcome), hold_state)
}

fn fleet(extra: &[(&str, serde_json::Value)], settings: &serde_json::Value) -> RuleFile {
    let mut fields = vec![("scope", json!("fleet"))];
    fields.extend(extra.iter().cloned());
    let mut whole = json!({ "version": 1, "rules": rules("enforce", &fields) });
    whole["fleet"] = json!({ "cluster": "relay" });
    for (field, value) in settings.as_object().into_iter().flatten() {
        whole["fleet"][field] = value.clone();
    }
    let parsed = config::parse(&whole);
    parsed
        .file
        .unwrap_or_else(|| panic!("{:?}", parsed.problems))
}

/// Returns the number of calls that ask for a key.
fn asking_calls(host: &FakeHost) -> usize {
    let calls = host.calls.borrow();
    calls.iter().filter(|call| asks_for_a_key(call)).count()
}

fn asks_for_a_key(sent: &Sent) -> bool {
    let call: LeaseRequest = serde_json::from_slice(&sent.body).expect("a call");
    !call.keys.is_empty()
}

/// Lets 400 ms pass, in which refills that wait for others become due. The relay answers heartbeats at once.
fn tick_often(host: &FakeHost, plane: &mut DataPlane) {
    for _ in 0..20 {
        host.pass(Nanos::from_millis(20));
        let before = host.calls.borrow().len();
        let _again = plane.tick(host);
        let calls = host.calls.borrow().clone();
        for (mut call, sent) in calls.iter().enumerate().skip(before) {
            if !asks_for_a_key(sent) {
                let answer = LeaseAnswer {
                    envoys: 1,
                    ..LeaseAnswer::default()
                };
                end(host, plane, &mut call, Some(&answer));
            }
        }
    }
}

fn plane() -> DataPlane {
    DataPlane::new(fleet(&[], &json!({})), Nanos::ZERO)
}

#[test]
fn first_requests_wait_for_one_call_and_are_decided_by_its_answer() {
    let (host, mut engine, mut plane) = (host_that_knows(), Engine::default(), plane());
    assert_eq!(arrive(&host, &mut plane, 1, "alice").0, 1);
    // A call is in flight, so these keys are in the next call.
    assert_eq!(arrive(&host, &mut plane, 2, "alice").0, 1);
    assert_eq!(arrive(&host, &mut plane, 3, "alice").0, 1);
    assert_eq!(host.calls.borrow().len(), 1);
    assert_eq!(host.metric("loudou.waiting"), 3);
    assert_eq!(engine.answer(&host, &mut plane), [(1, 0)]);
    assert_eq!(engine.answer(&host, &mut plane), [(2, 0), (3, 429)]);
    assert_eq!(host.metric("loudou.waiting"), 0);
    assert_eq!(host.metric("loudou.rule.per-user.admitted"), 2);
    assert_eq!(host.metric("loudou.rule.per-user.refused"), 1);
    // The key is denied, so no request asks for it.
    let calls = host.calls.borrow().len();
    assert_eq!(arrive(&host, &mut plane, 4, "alice").0, 429);
    assert_eq!(host.calls.borrow().len(), calls);
}

#[test]
fn a_client_that_leaves_while_it_waits_takes_nothing() {
    let (host, mut engine, mut plane) = (host_that_knows(), Engine::default(), plane());
    let (outcome, hold_state) = arrive(&host, &mut plane, 1, "alice");
    assert_eq!(outcome, 1);
    assert!(plane.waits(&hold_state));
    plane.end(&host, &hold_state);
    assert_eq!(host.metric("loudou.waiting"), 0);
    assert_eq!(engine.answer(&host, &mut plane), []);
    assert_eq!(host.metric("loudou.rule.per-user.admitted"), 0);
    // A token for it is still here.
    assert_eq!(arrive(&host, &mut plane, 2, "alice").0, 0);
    assert_eq!(host.calls.borrow().len(), 1);
}

#[test]
fn other_rules_take_nothing_while_a_request_waits() {
    let (host, mut engine) = (host_that_knows(), Engine::default());
    let whole = json!({
        "version": 1,
        "fleet": { "cluster": "relay" },
        "rules": [
            { "name": "here", "key": [], "limits": [{ "algorithm": "funnel", "capacity": 2, "rate": "1/d" }] },
            { "name": "all", "scope": "fleet", "key": [{ "header": "x-user-id" }],
              "limits": [{ "algorithm": "funnel", "capacity": 1, "rate": "1/d" }] },
        ],
    });
    let file = config::parse(&whole).file.expect("valid");
    let mut plane = DataPlane::new(file, Nanos::ZERO);
    for (stream, user) in [(1, "a"), (2, "b"), (3, "c"), (4, "d")] {
        // Under the earlier rule, only two of them fit.
        assert_eq!(arrive(&host, &mut plane, stream, user).0, 1);
    }
    assert_eq!(engine.answer(&host, &mut plane), [(1, 0)]);
    assert_eq!(
        engine.answer(&host, &mut plane),
        [(2, 0), (3, 429), (4, 429)],
        "the rule before decides anew"
    );
    assert_eq!(host.metric("loudou.rule.here.admitted"), 2);
    assert_eq!(host.metric("loudou.rule.here.refused"), 2);
    assert_eq!(host.metric("loudou.rule.all.admitted"), 2);
}

/// A request is decided again after it waited. A rule in shadow mode counts it only once.
#[test]
fn a_shadow_rule_notes_a_request_that_waits_once() {
    let (host, mut engine) = (host_that_knows(), Engine::default());
    let watch = |name: &str| {
        json!({
            "name": name, "mode": "shadow", "key": [{ "header": "x-user-id" }],
            "penalty": { "after": 100, "within": "1h", "ban": "1m" },
            "limits": [{ "algorithm": "funnel", "capacity": 1, "rate": "1/d" }],
        })
    };
    let all = json!({
        "name": "all", "scope": "fleet", "key": [{ "header": "x-user-id" }],
        "limits": [{ "algorithm": "funnel", "capacity": 3, "rate": "1/d" }],
    });
    let rules = [watch("before"), all, watch("behind")];
    let whole = json!({ "version": 1, "fleet": { "cluster": "relay" }, "rules": rules });
    let file = config::parse(&whole).file.expect("valid");
    let mut plane = DataPlane::new(file, Nanos::ZERO);
    for (stream, refused) in [(1, 0), (2, 1), (3, 2)] {
        assert_eq!(arrive(&host, &mut plane, stream, "alice").0, 1);
        assert_eq!(engine.answer(&host, &mut plane), [(stream, 0)]);
        let active = plane.active.as_ref().expect("active");
        for (place, name) in [(0, "before"), (2, "behind")] {
            let tag = active.rules().get(place).expect("a rule").tag();
            let id = active.table.id(tag, "alice");
            let slot = active
                .table
                .get(&mut HostStore(&host), id)
                .expect("readable");
            let slot = slot.expect("a bucket");
            let noted = (
                slot.admitted,
                slot.refused,
                u64::from(slot.ban_history.strikes),
            );
            assert_eq!(noted, (1, refused, refused), "{name}, request {stream}");
            let metric = |what: &str| host.metric(&format!("loudou.rule.{name}.{what}"));
            let counted = (metric("admitted"), metric("shadow_refused"));
            assert_eq!(counted, (1, refused.try_into().expect("few")), "{name}");
        }
    }
    assert_eq!(arrive(&host, &mut plane, 4, "alice").0, 1);
    assert_eq!(engine.answer(&host, &mut plane), [(4, 429)]);
    // The key is denied. The refusal names the rule that refused, not a rule in shadow mode.
    let (outcome, _stay) = plane.decide(&host, 5, false);
    let RequestOutcome::Refuse(reply) = outcome else {
        panic!("it passed")
    };
    let body = String::from_utf8_lossy(&reply.body).into_owned();
    assert!(body.contains("\"all"), "{body}");
    assert_eq!(host.metric("loudou.rule.all.refused"), 2);
}

/// The enforced rule makes each request wait for a lease. A rule in shadow mode beside it, whose leases are separate,
/// admits its capacity of these requests and would refuse the others.
#[test]
fn a_shadow_rule_of_the_fleet_counts_requests_that_another_rule_held() {
    let (host, mut engine) = (host_that_knows(), Engine::default());
    let rule = |name: &str, mode: &str, capacity: u64| {
        json!({
            "name": name, "mode": mode, "scope": "fleet", "key": [{ "header": "x-user-id" }],
            "limits": [{ "algorithm": "funnel", "capacity": capacity, "rate": "1/d" }],
        })
    };
    let rules = [rule("all", "enforce", 20), rule("tighter", "shadow", 5)];
    let whole = json!({ "version": 1, "fleet": { "cluster": "relay" }, "rules": rules });
    let file = config::parse(&whole).file.expect("valid");
    let mut plane = DataPlane::new(file, Nanos::ZERO);
    for stream in 1..=15 {
        let (held, _) = arrive(&host, &mut plane, stream, "alice");
        while engine.answered < host.calls.borrow().len() {
            engine.answer(&host, &mut plane);
        }
        host.pass(Nanos::from_millis(250));
        let _again = plane.tick(&host);
        while engine.answered < host.calls.borrow().len() {
            engine.answer(&host, &mut plane);
        }
        assert!(held <= 1);
    }
    let metric = |name: &str| host.metric(&format!("loudou.rule.{name}"));
    assert_eq!((metric("all.admitted"), metric("all.refused")), (15, 0));
    // The sixth passes on credit, before the engine reports that the bucket is empty.
    assert_eq!(
        (metric("tighter.admitted"), metric("tighter.shadow_refused")),
        (6, 9)
    );
}

#[test]
fn a_callback_releases_no_more_than_a_sandbox_bears() {
    let (host, mut engine, mut plane) = (host_that_knows(), Engine::default(), plane());
    let users: Vec<String> = (0..100).map(|n| format!("user-{n}")).collect();
    for (stream, user) in (1..).zip(&users) {
        assert_eq!(arrive(&host, &mut plane, stream, user).0, 1);
    }
    assert_eq!(engine.answer(&host, &mut plane).len(), 1);
    let mut released = engine.answer(&host, &mut plane);
    assert_eq!(released.len(), MAX_RELEASED);
    while released.len() < 99 {
        assert_eq!(host.timer_ms.get(), 1);
        let again = plane.tick(&host);
        assert!(!again.is_empty() && again.len() <= MAX_RELEASED);
        released.extend(decide_again(&host, &mut plane, again));
    }
    assert!(released.iter().all(|(_, status)| *status == 0));
    assert_eq!(host.metric("loudou.waiting"), 0);
    assert_eq!(asking_calls(&host), 2);
}

/// A slow relay gets more calls at once, but not one call for each request.
#[test]
fn a_slow_relay_does_not_delay_the_next_call() {
    let (host, mut plane) = (host_that_knows(), plane());
    for stream in 1..=40 {
        arrive(&host, &mut plane, stream, &format!("user-{stream}"));
        host.pass(Nanos::from_millis(1));
        let _again = plane.tick(&host);
    }
    assert_eq!(
        asking_calls(&host),
        3,
        "and the one that says that it lives"
    );
}

#[test]
fn one_worker_at_a_time_calls_to_be_counted() {
    let host = host_that_knows();
    host.pass(Nanos::from_millis(1));
    let mut workers = [plane(), plane()];
    for _ in 0..30 {
        for plane in &mut workers {
            let _again = plane.tick(&host);
        }
        host.pass(Nanos::from_millis(100));
    }
    let calls = host.calls.borrow().clone();
    assert_eq!(calls.len(), 8, "each 400 ms");
    let call: LeaseRequest = serde_json::from_slice(&calls[0].body).expect("a call");
    assert_eq!((call.instance.len(), call.keys.len()), (16, 0));
    // The engine answers with the number of Envoys. In an outage, each Envoy decides by its share.
    let mut call = 0;
    let answer = LeaseAnswer {
        envoys: 2,
        ..LeaseAnswer::default()
    };
    for plane in &mut workers {
        let sent = plane.fleet.as_ref().is_some_and(Fleet::is_calling);
        if sent {
            end(&host, plane, &mut call, Some(&answer));
        }
        host.pass(Nanos::from_millis(1_000));
    }
    for plane in &mut workers {
        let _again = plane.tick(&host);
        host.has_no_cluster.set(true);
    }
    let passed = (1..=9).filter(|stream| {
        let (mut outcome, _stay) = arrive(&host, &mut workers[1], *stream, "alice");
        for _ in 0..3 {
            host.pass(Nanos::from_millis(1));
            let again = workers[1].tick(&host);
            let decided = decide_again(&host, &mut workers[1], again);
            outcome = decided.first().map_or(outcome, |(_, outcome)| *outcome);
        }
        outcome == 0
    });
    assert_eq!(passed.count(), 1, "half of the capacity");
}

#[test]
fn a_rule_in_shadow_mode_holds_nobody_and_settles_afterwards() {
    let (host, mut engine) = (host_that_knows(), Engine::default());
    let file = fleet(&[("mode", json!("shadow"))], &json!({}));
    let mut plane = DataPlane::new(file, Nanos::ZERO);
    // The engine settles requests that passed on credit, and refuses once it is overdrawn.
    for (calls, stream) in (1..=3).enumerate() {
        assert_eq!(arrive(&host, &mut plane, stream, "alice").0, 0);
        assert_eq!(asking_calls(&host), calls, "it may leave with others");
        host.pass(Nanos::from_millis(15));
        let _again = plane.tick(&host);
        while engine.answered < host.calls.borrow().len() {
            engine.answer(&host, &mut plane);
        }
    }
    assert_eq!(host.metric("loudou.rule.per-user.shadow_refused"), 0);
    for stream in 4..=9 {
        assert_eq!(arrive(&host, &mut plane, stream, "alice").0, 0);
    }
    assert_eq!(host.metric("loudou.rule.per-user.shadow_refused"), 6);
    assert_eq!(host.metric("loudou.fleet.held"), 0);
}

/// A debt that arises while the call for the debt before is in flight is charged by a call after it, although the key
/// never comes back here.
#[test]
fn a_debt_during_a_call_is_charged_by_the_next_call() {
    let settle = json!({ "response_header": "x-cost" });
    let cost = json!({ "reserve": 1, "settle": settle, "beyond_reservation": true, "max": 50 });
    let limits = json!([{ "algorithm": "funnel", "capacity": 100, "rate": "1/d" }]);
    let rule = fleet(
        &[("cost", cost), ("limits", limits)],
        &json!({ "timeout": "1s" }),
    );
    let (host, mut engine) = (host_that_knows(), Engine::default());
    let mut plane = DataPlane::new(rule, Nanos::ZERO);
    let mut passing = Vec::new();
    for stream in 1..=2 {
        host.request("GET", "/", &[("x-user-id", b"alice")]);
        let headers = host.headers.borrow().clone();
        host.paused.borrow_mut().insert(stream, headers);
        let (_, hold_state) = plane.decide(&host, stream, false);
        assert!(plane.waits(&hold_state));
        host.pass(Nanos::from_millis(50));
        for again in engine.answer_call(&host, &mut plane) {
            assert!(host.focus(again.stream));
            let (outcome, hold_state) = plane.decide_again(&host, again, false);
            assert_eq!(status(&outcome), 0);
            passing.push(hold_state);
        }
    }
    for hold_state in &passing {
        host.properties.borrow_mut().insert(
            "response\0code_details".to_owned(),
            b"via_upstream".to_vec(),
        );
        *host.response_headers.borrow_mut() = vec![
            (":status".to_owned(), "200".to_owned()),
            ("x-cost".to_owned(), "31".to_owned()),
        ];
        plane.responded(&host, hold_state);
        plane.end(&host, hold_state);
        tick_often(&host, &mut plane);
    }
    let debts = || {
        let calls = host.calls.borrow();
        let debts = calls.iter().map(|sent| {
            let call: LeaseRequest = serde_json::from_slice(&sent.body).expect("a call");
            call.keys.iter().map(|key| key.debt).sum::<u64>()
        });
        debts.filter(|debt| *debt > 0).collect::<Vec<_>>()
    };
    assert_eq!(debts(), [30]);
    let calls = host.calls.borrow().len();
    let charging = (0..calls)
        .rev()
        .find(|call| asks_for_a_key(&host.calls.borrow()[*call]));
    engine.answered = charging.expect("the call with the debt");
    let _again = engine.answer(&host, &mut plane);
    tick_often(&host, &mut plane);
    assert_eq!(debts(), [30, 30]);
}
