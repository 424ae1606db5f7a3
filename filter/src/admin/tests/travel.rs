//! Changes that travel through a fleet of Envoys on fake hosts, in virtual time. The results are
//! compared with a model of the engine and with the operators' actions.

use std::collections::VecDeque;

use loudou_api::{LeaseAnswer, LeaseRequest, RELAY_HEADER};

use super::*;

mod bases;
mod engine;

use engine::Engine;

/// The step of virtual time, in milliseconds.
const STEP: u64 = 10;
const OVERRIDE: &str = "/v1/overrides/per-user/vip";
const KEY: &str = "/v1/buckets/per-user/mallory";
/// The time of a call that has no answer.
const TIMEOUT: u64 = 30;

/// An Envoy with two workers.
struct Envoy {
    bench: Bench,
    other: DataPlane,
    /// Calls that are on their way: number, end, answer.
    calls: VecDeque<(usize, u64, Option<LeaseAnswer>)>,
    seen: usize,
}

fn file(capacity: u32) -> Value {
    json!({
        "version": 1,
        "fleet": { "cluster": "relay" },
        "rules": [
            {
                "name": "per-user",
                "key": [{ "header": "x-user-id" }],
                "limits": [{ "name": "burst", "algorithm": "funnel", "capacity": capacity, "rate": "1/d" }],
            },
            {
                "name": "shared",
                "scope": "fleet",
                "key": [{ "header": "x-user-id" }],
                "limits": [{ "algorithm": "funnel", "capacity": 2, "rate": "1/d" }],
            },
        ],
    })
}

impl Envoy {
    fn new(chance: u8, begun: u64) -> Self {
        Self::with_base(2, chance, begun)
    }

    /// With this capacity of the first rule in the configuration.
    fn with_base(base: u32, chance: u8, begun: u64) -> Self {
        let host = FakeHost::default();
        host.chance.set(chance);
        // Their clocks have nothing in common.
        host.now
            .set(Nanos::from_secs(1_000 * u64::from(chance)).get() + begun);
        let bench = Bench::with_file(host, &file(base));
        let other = config::parse(&file(base)).file.expect("valid");
        let mut other = DataPlane::new(other, Nanos::ZERO);
        assert!(other.start(&bench.host));
        Self {
            bench,
            other,
            calls: VecDeque::new(),
            seen: 0,
        }
    }

    /// Makes a step. New calls reach the engine, which answers after `latency`, and a lost call
    /// ends by its time-out.
    fn step(&mut self, engine: &mut Engine, (now, latency, is_lost): (u64, u64, bool)) {
        let host = &self.bench.host;
        host.pass(Nanos::from_millis(STEP));
        drop(self.bench.data.tick(host));
        drop(self.other.tick(host));
        let sent = host.calls.borrow()[self.seen..].to_vec();
        for call in sent {
            let request: LeaseRequest = serde_json::from_slice(&call.body).expect("a call");
            let at = i64::try_from(now).expect("small");
            let answer = (!engine.is_down).then(|| engine.answer(&request, at));
            let answer = answer.filter(|_| !is_lost);
            let end = now + if answer.is_some() { latency } else { TIMEOUT };
            self.calls.push_back((self.seen, end, answer));
            self.seen += 1;
        }
        while let Some((number, _, answer)) = self.calls.pop_front_if(|call| call.1 <= now) {
            let status = if answer.is_some() { "200" } else { "504" };
            let headers = [(":status", status), (RELAY_HEADER, "1")];
            let headers = headers.map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()));
            let body = answer.map_or_else(Vec::new, |answer| {
                serde_json::to_vec(&answer).expect("JSON")
            });
            let size = body.len();
            *host.called.borrow_mut() = (headers.to_vec(), body);
            let number = u32::try_from(number).expect("few");
            // Only the worker that made it knows it.
            drop(self.bench.data.called(host, number, size));
            drop(self.other.called(host, number, size));
        }
    }

    /// Performs the action. Returns false if there was nothing to do at this Envoy.
    fn act(&mut self, act: Act) -> bool {
        let span = |span: Option<u64>| span.map_or_else(String::new, |ms| format!("for={ms}ms"));
        let (method, path, body) = match act {
            Act::Edit(n, ms) => {
                let path = format!("/v1/rules/per-user?{}", span(ms));
                ("PUT", path, Some(capacity(n)))
            }
            Act::DropEdit => ("DELETE", "/v1/rules/per-user".to_owned(), None),
            Act::Override(n, ms) => {
                let path = format!("{OVERRIDE}?{}", span(ms));
                ("PUT", path, Some(json!({ "scale": n })))
            }
            Act::DropOverride => ("DELETE", OVERRIDE.to_owned(), None),
            Act::Ban(ms) => ("POST", format!("{KEY}/ban?replace=true&{}", span(ms)), None),
            Act::Unban => ("POST", format!("{KEY}/unban"), None),
        };
        let if_match = if method == "POST" { "" } else { "*" };
        let (status, answer) = self.bench.edit(method, &path, if_match, body.as_ref());
        // There may be no override to drop.
        assert!(matches!(status, 200 | 404), "{answer}");
        // Another Envoy may have a ban to lift.
        let changed = answer["changed"] == true || matches!(act, Act::Unban);
        let spread = if changed {
            json!("sending")
        } else {
            Value::Null
        };
        assert_eq!(answer["fleet"], spread, "{answer}");
        changed
    }

    /// The capacity, the override's scale, and whether the key is banned.
    fn holds(&mut self) -> (u64, Option<u64>, bool) {
        let rules = self.bench.get("/v1/rules");
        let rule = &rules["rules"][0]["rule"];
        let capacity = rule["limits"][0]["capacity"].as_u64().expect("a number");
        let scale = rule["overrides"]["vip"]["scale"].as_u64();
        let bans = self.bench.buckets("state=banned");
        (capacity, scale, !bans.is_empty())
    }
}

/// An operator's action. Some actions have a lifetime in milliseconds.
#[derive(Clone, Copy, Debug)]
enum Act {
    Edit(u32, Option<u64>),
    DropEdit,
    Override(u32, Option<u64>),
    DropOverride,
    Ban(Option<u64>),
    Unban,
}

/// Expected effect of the last actions, wherever they were made: capacity, scale and ban, each with
/// its end.
#[derive(Clone, Copy, Default)]
struct Expected([(Option<u64>, Option<u64>); 3]);

impl Expected {
    fn note(&mut self, act: Act, now: u64) {
        let until = |span: Option<u64>| span.map(|span| now + span);
        let [capacity, scale, ban] = &mut self.0;
        match act {
            Act::Edit(n, span) => *capacity = (Some(n.into()), until(span)),
            Act::DropEdit => *capacity = (None, None),
            Act::Override(n, span) => *scale = (Some(n.into()), until(span)),
            Act::DropOverride => *scale = (None, None),
            Act::Ban(span) => *ban = (Some(1), until(span)),
            Act::Unban => *ban = (None, None),
        }
    }

    fn at(&self, now: u64) -> (u64, Option<u64>, bool) {
        self.with_base(2, now)
    }

    /// The effect where the configuration has this capacity.
    fn with_base(&self, base: u64, now: u64) -> (u64, Option<u64>, bool) {
        type Kept = (Option<u64>, Option<u64>);
        let in_force = |(value, until): &Kept| value.filter(|_| until.is_none_or(|at| now < at));
        let [capacity, scale, ban] = &self.0;
        let capacity = in_force(capacity).unwrap_or(base);
        (capacity, in_force(scale), in_force(ban).is_some())
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn act(&mut self) -> Act {
        let n = u32::try_from(self.below(50) + 3).expect("small");
        // Shorter than the next pause, or much longer.
        let span = [None, Some(40 + 20 * self.below(40)), Some(3_600_000)];
        let span = span[usize::try_from(self.below(3)).expect("small")];
        match self.below(9) {
            0..=2 => Act::Edit(n, span),
            3 => Act::DropEdit,
            4..=5 => Act::Override(n, span),
            6 => Act::DropOverride,
            7 => Act::Ban(span),
            _ => Act::Unban,
        }
    }
}

struct Fleet {
    envoys: Vec<Envoy>,
    engine: Engine,
    now: u64,
    random: Random,
    /// Percentage of lost calls.
    lost: u64,
}

impl Fleet {
    fn new(seed: u64) -> Self {
        Self::with_bases([2; 3], seed)
    }

    /// Envoys with these capacities of the first rule in their configurations.
    fn with_bases(bases: [u32; 3], seed: u64) -> Self {
        let envoys = (1..).zip(bases);
        let mut fleet = Self {
            envoys: envoys
                .map(|(n, base)| Envoy::with_base(base, n, seed))
                .collect(),
            engine: Engine::default(),
            now: 1_000_000,
            random: Random(seed),
            lost: 0,
        };
        fleet.run(500);
        fleet
    }

    fn run(&mut self, ms: u64) {
        for _ in 0..ms / STEP {
            self.now += STEP;
            for envoy in &mut self.envoys {
                let latency = STEP * (1 + self.random.below(3));
                let is_lost = self.random.below(100) < self.lost;
                envoy.step(&mut self.engine, (self.now, latency, is_lost));
            }
        }
    }

    fn all(&mut self) -> Vec<(u64, Option<u64>, bool)> {
        self.envoys.iter_mut().map(Envoy::holds).collect()
    }
}

/// With an engine that answers, each change takes effect at all Envoys within a second.
#[test]
fn within_a_second_a_change_holds_everywhere() {
    let (mut fleet, mut expected) = (Fleet::new(7), Expected::default());
    for round in 0..120 {
        // At any point between two looks.
        let pause = fleet.random.below(500);
        fleet.run(pause);
        let act = fleet.random.act();
        let at = usize::try_from(fleet.random.below(3)).expect("small");
        if fleet.envoys[at].act(act) {
            expected.note(act, fleet.now);
        }
        let here = fleet.envoys[at].holds();
        assert_eq!(here, expected.at(fleet.now), "at once: {round} {act:?}");
        fleet.run(1_000);
        let all = vec![expected.at(fleet.now); 3];
        assert_eq!(fleet.all(), all, "{round} {act:?} at {at}");
    }
}

/// With lost calls, an engine that is down or forgets everything, and restarting Envoys: the last
/// action applies everywhere when all is well again.
#[test]
fn after_any_trouble_all_agree_on_what_was_done_last() {
    for seed in 0..80 {
        let (mut fleet, mut expected) = (Fleet::new(seed), Expected::default());
        for _ in 0..30 {
            match fleet.random.below(12) {
                0 => fleet.engine.is_down = true,
                1 => fleet.engine.forget(),
                2 => fleet.lost = 30,
                3..=5 => (fleet.engine.is_down, fleet.lost) = (false, 0),
                _ => {}
            }
            let act = fleet.random.act();
            let at = usize::try_from(fleet.random.below(3)).expect("small");
            // An Envoy without the engine may not know what there is to end.
            if fleet.envoys[at].act(act) {
                expected.note(act, fleet.now);
            }
            let pause = 200 + fleet.random.below(900);
            fleet.run(pause);
        }
        (fleet.engine.is_down, fleet.lost) = (false, 0);
        fleet.run(20_000);
        let all = expected.at(fleet.now);
        assert_eq!(fleet.all(), vec![all; 3], "seed {seed}");
        // A new Envoy receives all changes.
        let newcomer = Envoy::new(9, seed);
        fleet.envoys.push(newcomer);
        fleet.run(2_000);
        assert_eq!(fleet.all(), vec![all; 4], "seed {seed}");
        let status = fleet.envoys[0].bench.get("/v1/status");
        let changes = &status["fleet"]["changes"];
        assert_eq!(
            (&changes["unsent"], &changes["waiting"]),
            (&json!(0), &json!(0))
        );
    }
}

/// A trial that starts at one Envoy runs at all of them, and ends at all of them.
#[test]
fn a_trial_runs_at_all_envoys() {
    let mut fleet = Fleet::new(11);
    let trials = |fleet: &mut Fleet| -> Vec<usize> {
        let envoys = fleet.envoys.iter_mut();
        let lists = envoys.map(|envoy| envoy.bench.get("/v1/rules")["rules"].clone());
        let is_trial =
            |rule: &&Value| rule["name"] == "per-user~trial" && rule["edit"]["by"] == "ops";
        lists
            .map(|rules| {
                rules
                    .as_array()
                    .expect("list")
                    .iter()
                    .filter(is_trial)
                    .count()
            })
            .collect()
    };
    let path = "/v1/rules/per-user~trial";
    let bench = &mut fleet.envoys[1].bench;
    let (status, answer) = bench.edit("PUT", path, "*", Some(&capacity(1)));
    assert_eq!(status, 200, "{answer}");
    fleet.run(1_000);
    assert_eq!(trials(&mut fleet), [1, 1, 1]);
    assert_eq!(fleet.envoys[2].bench.edit("DELETE", path, "*", None).0, 200);
    fleet.run(1_000);
    assert_eq!(trials(&mut fleet), [0, 0, 0]);
    for envoy in &mut fleet.envoys {
        let status = envoy.bench.get("/v1/status");
        assert_eq!(status["fleet"]["changes"]["waiting"], 0, "{status}");
    }
}

/// A change that is too long to travel applies at its Envoy, and no earlier change reverts it.
#[test]
fn what_is_too_long_to_travel_stays_where_it_was_made() {
    let mut fleet = Fleet::new(3);
    assert!(fleet.envoys[0].act(Act::Edit(7, None)));
    fleet.run(1_000);
    let limits = json!([{ "algorithm": "funnel", "capacity": 5, "rate": "1/d" }]);
    let overrides = (0..900).map(|n| (format!("u{n}"), json!({ "limits": limits })));
    let overrides: serde_json::Map<String, Value> = overrides.collect();
    let body = json!({ "overrides": overrides, "limits": capacity(9)["limits"] });
    let bench = &mut fleet.envoys[1].bench;
    let (status, answer) = bench.edit("PUT", "/v1/rules/per-user", "*", Some(&body));
    assert_eq!(
        (status, &answer["fleet"]),
        (200, &json!("here_only")),
        "{answer}"
    );
    fleet.run(3_000);
    let capacities: Vec<u64> = fleet.all().iter().map(|held| held.0).collect();
    assert_eq!(capacities, [7, 9, 7]);
    let status = fleet.envoys[1].bench.get("/v1/status");
    assert_eq!(status["fleet"]["changes"]["refused"], 1);
    // The next one that fits holds everywhere.
    assert!(fleet.envoys[0].act(Act::Edit(8, None)));
    fleet.run(1_000);
    assert_eq!(fleet.all(), vec![(8, None, false); 3]);
}

/// An Envoy notes only its own actions: no end of a ban that it did not have, and no refusal of a
/// change that it did not report.
#[test]
fn events_say_what_was_done() {
    let mut fleet = Fleet::new(5);
    let kinds = |envoy: &mut Envoy| -> Vec<String> {
        let events = envoy.bench.get("/v1/events");
        let events = events["events"].as_array().expect("a list").iter();
        events.map(|event| event["kind"].to_string()).collect()
    };
    let before = kinds(&mut fleet.envoys[1]);
    assert!(fleet.envoys[0].act(Act::Unban));
    fleet.run(1_000);
    assert_eq!(kinds(&mut fleet.envoys[1]), before);
    fleet.engine.refuses = vec!["edit/shared".to_owned()];
    assert!(fleet.envoys[0].act(Act::Edit(7, None)));
    fleet.run(1_000);
    let after = kinds(&mut fleet.envoys[1]);
    assert_eq!(after[before.len()..], ["\"edit\""]);
}
