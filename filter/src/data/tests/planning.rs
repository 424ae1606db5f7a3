//! Held requests when their rule changes. Two workers hold them, and each plans its own requests
//! again.

use loudou_limiter::{Carry, Clock};
use loudou_rules::rule::Override;
use loudou_store::{BanChange, SetBan, StoreStats};
use serde_json::Value;

use super::*;
use crate::host::HostStore;
use crate::metrics::{Registry, StoreMetrics};
use crate::record::{Author, RuleRecord};

const STEP: u64 = 5;

/// A rule with a queue of 30 for each user.
fn queue(rate: &str, max_wait: &str) -> Value {
    json!([{
        "name": "line",
        "key": [{ "header": "x-user-id" }],
        "limits": [limit(rate, max_wait)],
    }])
}

fn limit(rate: &str, max_wait: &str) -> Value {
    json!({
        "name": "pace", "algorithm": "leaky_queue", "capacity": 30, "rate": rate, "max_wait": max_wait,
    })
}

/// Two workers on one host, and the requests that passed or were answered.
struct World {
    host: FakeHost,
    workers: Vec<DataPlane>,
    /// Worker, stream and hold state of each held request.
    held: Vec<(usize, u32, HoldState)>,
    /// The stream and the millisecond of each request that passed after it was held.
    passed: Vec<(u32, u64)>,
    /// The stream and the cause of each request that was refused after it was held.
    refused: Vec<(u32, String)>,
}

impl World {
    /// Alice's first request passes, and the others wait behind it.
    fn new(rules: &Value, waiting: u32) -> Self {
        let host = FakeHost::default();
        let file = file(rules);
        let mut world = Self {
            workers: vec![
                DataPlane::new(file.clone(), Nanos::ZERO),
                DataPlane::new(file, Nanos::ZERO),
            ],
            host,
            held: Vec::new(),
            passed: Vec::new(),
            refused: Vec::new(),
        };
        assert_eq!(world.send(0, 100, &[]), 0);
        for (stream, worker) in (1..=waiting).zip([1, 0].into_iter().cycle()) {
            assert_eq!(world.send(worker, stream, &[]), 1);
        }
        world
    }

    /// Returns the status that alice's request gets: 0 if it passes, 1 if it is held.
    fn send(&mut self, worker: usize, stream: u32, more: &[(&str, &[u8])]) -> u16 {
        let headers = [&[("x-user-id", &b"alice"[..])], more].concat();
        self.host.request("GET", "/", &headers);
        let lines = self.host.headers.borrow().clone();
        self.host.paused.borrow_mut().insert(stream, lines);
        let (outcome, hold_state) = self.workers[worker].decide(&self.host, stream, false);
        match outcome {
            RequestOutcome::Pass(_) => 0,
            RequestOutcome::Hold(_) => {
                self.held.push((worker, stream, hold_state));
                1
            }
            RequestOutcome::Refuse(reply) => reply.status,
        }
    }

    /// Lets time pass, and the timers of the workers.
    fn run(&mut self, millis: u64) {
        for _ in 0..millis / STEP {
            self.host.pass(Nanos::from_millis(STEP));
            self.tick();
        }
    }

    fn tick(&mut self) {
        for (number, worker) in self.workers.iter_mut().enumerate() {
            for again in worker.tick(&self.host) {
                assert!(self.host.focus(again.stream));
                let stream = again.stream;
                match worker.decide_again(&self.host, again, false) {
                    (RequestOutcome::Refuse(reply), _) => {
                        self.refused.push((stream, reply.details));
                    }
                    (RequestOutcome::Pass(_), hold_state) => {
                        self.host.resume(stream);
                        self.held.push((number, stream, hold_state));
                    }
                    (RequestOutcome::Hold(_), hold_state) => {
                        self.held.push((number, stream, hold_state));
                    }
                }
            }
        }
        let now = self.host.now().as_millis();
        let resumed = self.host.resumed.take();
        self.passed
            .extend(resumed.into_iter().map(|stream| (stream, now)));
    }

    /// The requests with these streams end.
    fn end(&mut self, streams: &[u32]) {
        for (worker, stream, hold_state) in &self.held {
            if streams.contains(stream) {
                self.workers[*worker].end(&self.host, hold_state);
            }
        }
    }

    /// Bans alice in a rule, for one second.
    fn ban(&self, rule: usize) {
        let active = self.workers[0].active.as_ref().expect("it is active");
        let rule = active.rules().get(rule).expect("the rule");
        let ban = SetBan {
            rule: &**rule,
            key: "alice",
            ban: BanChange::Banned(Some(Nanos::from_secs(1))),
            clock: Clock::at(self.host.now()),
        };
        let (store, stats) = (&mut HostStore(&self.host), &mut StoreStats::default());
        active.table.set_ban(store, &ban, stats).expect("banned");
    }

    /// Changes the rule, and announces it.
    fn change(&self, change: impl Fn(&mut RuleRecord, &Author, u32)) {
        let author = Author {
            by: "ops".to_owned(),
            reason: String::new(),
            carry: Carry::Keep,
            at: self.host.now(),
            at_unix_ms: 0,
            expires_after: None,
        };
        let edited = records().edit(&self.host, &mut |record| {
            let version = record.next_version();
            change(record.rule_mut("line").expect("the rule"), &author, version);
            true
        });
        edited.expect("edited");
        StoreMetrics::define(&self.host, &mut Registry::default(), "loudou")
            .announce_change(&self.host);
    }

    fn edit(&self, limit: &Value, carry: Carry, expires_after: Option<Nanos>) {
        let edit = config::parse_edit(&json!({ "limits": [limit] })).expect("an edit");
        self.change(|rule, author, version| {
            let author = Author {
                carry,
                expires_after,
                ..author.clone()
            };
            rule.apply(&edit, &author, version);
        });
    }

    fn set_override(&self, own: Option<&Override>) {
        self.change(|rule, author, version| match own {
            Some(own) => rule.set_override("alice", own.clone(), author, version),
            None => assert!(rule.drop_override("alice", author.at, version)),
        });
    }

    /// Every expected request passed at the planned instant, at most this much late.
    fn passes_at(&self, expected: &[(u32, u64)], late: u64) {
        assert_eq!(self.passed.len(), expected.len(), "{:?}", self.passed);
        for ((stream, at), (expected, due)) in self.passed.iter().zip(expected) {
            let passed = &self.passed;
            assert_eq!(stream, expected, "{passed:?}");
            assert!(*at >= *due && *at <= due + late, "{due}: {passed:?}");
        }
    }
}

#[test]
fn a_faster_rate_lets_those_that_wait_pass_sooner() {
    let mut world = World::new(&queue("1/s", "1h"), 6);
    world.run(500);
    world.edit(&limit("10/s", "1h"), Carry::Keep, None);
    // A new request follows them at the new spacing, whichever worker holds it.
    assert_eq!(world.send(0, 7, &[]), 1);
    world.run(2_000);
    let planned = [
        (1, 550),
        (2, 650),
        (3, 750),
        (4, 850),
        (5, 950),
        (6, 1_050),
        (7, 1_150),
    ];
    world.passes_at(&planned, 2 * STEP);
    assert_eq!(world.host.metric("loudou.waiting"), 0);
    world.run(5_000);
    assert_eq!(world.send(0, 8, &[]), 0, "nobody waits");
}

/// No request passes by an old plan once the edit is announced, although its old instant comes
/// first.
#[test]
fn a_slower_rate_delays_those_that_wait() {
    let mut world = World::new(&queue("10/s", "1h"), 3);
    world.run(95);
    world.edit(&limit("1/s", "1h"), Carry::Keep, None);
    assert_eq!(world.send(1, 4, &[]), 1);
    world.run(5_000);
    world.passes_at(&[(1, 145), (2, 1_145), (3, 2_145), (4, 3_145)], 2 * STEP);
}

/// An edit that expires counts as an edit, too.
#[test]
fn the_end_of_an_edit_plans_anew() {
    let mut world = World::new(&queue("1/s", "1h"), 4);
    world.run(500);
    world.edit(
        &limit("10/s", "1h"),
        Carry::Keep,
        Some(Nanos::from_millis(200)),
    );
    world.run(5_000);
    // At 700 ms, half a token's time is left before the third request.
    world.passes_at(&[(1, 550), (2, 650), (3, 1_200), (4, 2_200)], 3 * STEP);
}

/// The request with a deadline leaves its slot to the next request. The last request still waits
/// too long.
#[test]
fn who_would_wait_for_too_long_is_refused_and_gives_back_its_place() {
    let mut world = World::new(&queue("10/s", "1h"), 5);
    let deadline = [("grpc-timeout", &b"5S"[..])];
    assert_eq!(world.send(0, 6, &deadline), 1);
    assert_eq!(world.send(0, 7, &[]), 1);
    assert_eq!(world.send(0, 8, &[]), 1);
    world.run(50);
    world.edit(&limit("1/s", "6s"), Carry::Keep, None);
    world.run(30);
    let refused = world.refused.iter();
    let causes: Vec<_> = refused
        .map(|(stream, cause)| (*stream, cause.as_str()))
        .collect();
    assert_eq!(
        causes,
        [
            (6, "loudou_deadline{line.pace}"),
            (8, "loudou_over_limit{line.pace}")
        ]
    );
    assert_eq!(world.host.metric("loudou.waiting"), 6);
    world.run(6_000);
    let planned = [
        (1, 550),
        (2, 1_550),
        (3, 2_550),
        (4, 3_550),
        (5, 4_550),
        (7, 5_550),
    ];
    world.passes_at(&planned, 2 * STEP);
    world.run(500);
    assert_eq!(
        world.send(0, 9, &[]),
        0,
        "nothing is left of those that were refused"
    );
}

#[test]
fn an_override_plans_anew_when_it_comes_and_when_it_goes() {
    let mut world = World::new(&queue("1/s", "1h"), 4);
    let limits = |rate: &str| {
        let rules = file(&queue(rate, "1h")).rules;
        Override::Limits(rules[0].limits.clone())
    };
    world.run(500);
    world.set_override(Some(&limits("10/s")));
    world.run(200);
    world.set_override(None);
    world.run(5_000);
    world.passes_at(&[(1, 550), (2, 650), (3, 1_200), (4, 2_200)], 3 * STEP);
}

#[test]
fn a_key_without_limits_waits_no_longer_and_a_banned_one_is_refused() {
    let mut world = World::new(&queue("1/s", "1h"), 3);
    world.run(500);
    world.set_override(Some(&Override::Unlimited));
    world.run(30);
    world.passed.sort_unstable();
    world.passes_at(&[(1, 500), (2, 500), (3, 500)], 30);

    let mut world = World::new(&queue("1/s", "1h"), 3);
    world.run(500);
    world.set_override(Some(&Override::Banned));
    world.run(30);
    assert_eq!(world.refused.len(), 3, "{:?}", world.refused);
    assert!(
        world
            .refused
            .iter()
            .all(|(_, cause)| cause == "loudou_banned{line}")
    );
    assert!(world.passed.is_empty());
}

/// The workers of an older configuration hold requests while one of a newer configuration decides.
#[test]
fn another_configuration_plans_anew() {
    let mut world = World::new(&queue("1/s", "1h"), 4);
    world.run(500);
    let newer = file(&queue("10/s", "1h"));
    world.workers.push(DataPlane::new(newer, world.host.now()));
    assert_eq!(world.send(2, 5, &[]), 1);
    world.run(2_000);
    let planned = [(1, 550), (2, 650), (3, 750), (4, 850), (5, 950)];
    world.passes_at(&planned, 2 * STEP);
}

#[test]
fn a_reset_keeps_the_spacing_of_those_that_wait() {
    let mut world = World::new(&queue("1/s", "1h"), 3);
    world.run(500);
    world.edit(&limit("10/s", "1h"), Carry::Reset, None);
    assert_eq!(world.send(0, 4, &[]), 1);
    world.run(2_000);
    // The first one passes at once, and the others at the rate after it.
    world.passes_at(&[(1, 500), (2, 600), (3, 700), (4, 800)], 2 * STEP);
}

/// A worker plans a bounded number at a time, and meanwhile lets no request pass by an old plan.
#[test]
fn a_crowd_is_planned_in_parts() {
    let rules = json!([{
        "name": "line",
        "key": [{ "header": "x-user-id" }],
        "limits": [{
            "name": "pace", "algorithm": "leaky_queue", "capacity": 1_000, "rate": "1000/s"
        }],
    }]);
    let mut world = World::new(&rules, 600);
    world.host.runs_by.set(20_000);
    let slower = json!({
        "name": "pace", "algorithm": "leaky_queue", "capacity": 1_000, "rate": "1/s"
    });
    world.edit(&slower, Carry::Keep, None);
    for _ in 0..200 {
        world.tick();
    }
    assert!(world.passed.len() <= 1, "{:?}", world.passed);
}

/// A crowd of 80 in a queue of this rule, one half at each worker.
fn crowd(rule: &Value) -> World {
    let rules = json!([{ "name": "line", "key": [{ "header": "x-user-id" }], "limits": rule }]);
    World::new(&rules, 80)
}

fn long_queue() -> Value {
    json!({ "name": "pace", "algorithm": "leaky_queue", "capacity": 100, "rate": "20/s" })
}

fn in_flight() -> Value {
    json!({ "name": "slots", "algorithm": "concurrency", "capacity": 5, "lease": "1m" })
}

/// As many waiting requests pass as there are permits, the first ones on a worker, and they keep
/// the permits until they end.
#[test]
fn those_that_wait_take_the_permits_of_a_limit_that_replaces_their_queue() {
    let mut world = crowd(&json!([long_queue()]));
    world.run(100);
    world.passed.clear();
    world.edit(&in_flight(), Carry::Keep, None);
    world.run(200);
    let mut passed: Vec<_> = world.passed.iter().map(|(stream, _)| *stream).collect();
    passed.sort_unstable();
    assert_eq!(passed, [4, 6, 8, 10, 12], "the first ones of a worker");
    assert_eq!(world.refused.len(), 73);
    let is_refused = |(_, cause): &(u32, String)| cause == "loudou_over_limit{line.slots}";
    assert!(world.refused.iter().all(is_refused), "{:?}", world.refused);
    assert_eq!(world.send(0, 101, &[]), 429);
    world.end(&passed[..2]);
    assert_eq!(
        [101, 102, 103].map(|stream| world.send(1, stream, &[])),
        [0, 0, 429]
    );
}

/// If the queue stays, a limit added to it only decides on new requests, not on waiting ones.
#[test]
fn those_that_wait_keep_their_places_beside_a_new_limit() {
    let mut world = World::new(&queue("10/s", "1h"), 10);
    let both = json!([limit("10/s", "1h"), in_flight()]);
    let edit = config::parse_edit(&json!({ "limits": both })).expect("an edit");
    world.change(|rule, author, version| {
        rule.apply(&edit, author, version);
    });
    let later: Vec<_> = (101..=106)
        .map(|stream| world.send(0, stream, &[]))
        .collect();
    assert_eq!(later, [1, 1, 1, 1, 1, 429]);
    world.run(1_000);
    assert_eq!(world.passed.len(), 10);
    assert!(world.refused.is_empty());
}

/// A request that is due during a ban is refused, whichever rule has the ban, and leaves no tokens
/// taken.
#[test]
fn who_waits_does_not_pass_during_a_ban() {
    for (rule, name) in [(0, "line"), (1, "day")] {
        let rules = json!([
            { "name": "line", "key": [{ "header": "x-user-id" }], "limits": [long_queue()] },
            {
                "name": "day",
                "key": [{ "header": "x-user-id" }],
                "limits": [{ "algorithm": "fixed_window", "capacity": 100, "window": "1d" }],
            },
        ]);
        let mut world = World::new(&rules, 40);
        world.run(500);
        assert_eq!(world.passed.len(), 10);
        world.ban(rule);
        world.run(995);
        assert_eq!(world.passed.len(), 10, "during the ban of {name}");
        assert_eq!(world.refused.len(), 19);
        let cause = format!("loudou_banned{{{name}}}");
        assert!(
            world.refused.iter().all(|(_, other)| *other == cause),
            "{:?}",
            world.refused
        );
        world.run(2_000);
        assert_eq!(world.passed.len(), 21);
        assert_eq!(world.passed.last(), Some(&(40, 2_000)));
    }
}
