//! Several generations of one rule at work: connections of listeners that drain beside those of the newest
//! one. One set of numbers decides for a bucket, so nobody gains by holding connections of both.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::{Config, Envoy, Http, Operator, Request, Update, eventually};
use serde_json::{Map, Value, json};

/// Longer than any worker takes to hear of an update.
const SOON: Duration = Duration::from_secs(20);
/// Longer than any test.
const DRAIN_S: u32 = 3_600;

/// An algorithm with so many a day, and how many a new bucket admits at once.
fn limit(algorithm: &str, capacity: u32) -> (Value, u32) {
    let (more, admits) = match algorithm {
        "funnel" => (json!({ "rate": "1/d" }), capacity),
        "token_bucket" => (json!({ "rate": "1/d", "refill": "interval" }), capacity),
        "leaky_queue" => (
            json!({ "rate": "1/d", "immediate": capacity }),
            capacity + 1,
        ),
        "sliding_window" => (
            json!({ "window": "1d", "slots": 2, "slot_capacity": capacity }),
            capacity,
        ),
        _ => (json!({ "window": "1d" }), capacity),
    };
    let mut limit = json!({ "name": "l", "algorithm": algorithm, "capacity": capacity });
    if let (Some(fields), Value::Object(more)) = (limit.as_object_mut(), more) {
        fields.extend(more);
    }
    (limit, admits)
}

/// Those that pay later have no capacity: one passes, and is paid for a day long.
fn pays_later(algorithm: &str, capacity: u32) -> Value {
    let rate = format!("{capacity}/d");
    let more = match algorithm {
        "smooth_bursty" => ("burst_seconds", json!(0)),
        _ => ("warmup", json!("1s")),
    };
    let mut limit = json!({ "name": "l", "algorithm": algorithm, "rate": rate });
    if let Some(fields) = limit.as_object_mut() {
        fields.extend(Map::from_iter([(more.0.to_owned(), more.1)]));
    }
    limit
}

const LEVELS: [&str; 7] = [
    "funnel",
    "token_bucket",
    "fixed_window",
    "sliding_window",
    "sliding_log",
    "sliding_counter",
    "leaky_queue",
];
const LATER: [&str; 2] = ["smooth_bursty", "smooth_warmup"];

fn path(algorithm: &str) -> String {
    format!("/{}", algorithm.replace('_', "-"))
}

/// A rule for each algorithm but `concurrency`, all with this capacity.
fn config(capacity: u32) -> Config {
    let rule = |algorithm: &str, limit: Value| {
        json!({
            "name": algorithm.replace('_', "-"),
            "match": { "path": { "prefix": path(algorithm) } },
            "key": [{ "header": "x-user-id" }],
            "limits": [limit],
        })
    };
    let levels = LEVELS.map(|algorithm| rule(algorithm, limit(algorithm, capacity).0));
    let later = LATER.map(|algorithm| rule(algorithm, pays_later(algorithm, capacity)));
    Config::new(Value::from_iter(levels.into_iter().chain(later))).drain_s(DRAIN_S)
}

fn asks(http: &mut Http, algorithm: &str) -> Result<u32> {
    let request = Request::get(&path(algorithm)).header("x-user-id", "alice");
    let status = http.send(&request)?.status;
    ensure!(matches!(status, 200 | 429), "{status} from {algorithm}");
    Ok(u32::from(status == 200))
}

/// Connections of the listener that is in force now.
fn connections(envoy: &Envoy) -> Result<Vec<Http>> {
    let mut all: Vec<Http> = (0..4).map(|_| envoy.data()).collect();
    for http in &mut all {
        http.connect()?;
        // Its connection is accepted: the other worker may do that later.
        http.get("/nobody")?;
    }
    Ok(all)
}

/// Waits until the admin API tells of a configuration in force.
fn in_force(ops: &mut Operator, capacity: u32) -> Result<()> {
    eventually(SOON, "the configuration to be in force", || {
        let rule = ops.get("/v1/rules/funnel")?;
        let now = rule.pointer("/rule/limits/0/capacity");
        Ok((now == Some(&json!(capacity))).then_some(()))
    })
}

/// 100 a day, of which 60 are used; then 50, and then 80: 60 of 100 are 30 of 50, of which 20 are left, and
/// what is left of 50 is none. So it is for all, whatever their connections.
#[test]
fn connections_of_several_generations_share_one_bucket() -> Result<()> {
    let envoy = Envoy::start(&config(100))?;
    let mut ops = Operator::editor(&envoy);
    let mut clients = connections(&envoy)?;
    let mut admitted: Map<String, Value> = Map::new();
    let mut count = |algorithm: &str, more: u32| {
        let entry = admitted.entry(algorithm).or_insert(json!(0));
        *entry = json!(entry.as_u64().unwrap_or(0) + u64::from(more));
    };
    for algorithm in LEVELS.into_iter().chain(LATER) {
        let first = clients.first_mut().context("a client")?;
        for _ in 0..60 {
            count(algorithm, asks(first, algorithm)?);
        }
    }
    for capacity in [50, 80] {
        ensure!(envoy.push(&config(capacity))? == Update::Accepted);
        in_force(&mut ops, capacity)?;
        clients.extend(connections(&envoy)?);
        for algorithm in LEVELS.into_iter().chain(LATER) {
            for _ in 0..12 {
                for http in &mut clients {
                    count(algorithm, asks(http, algorithm)?);
                }
            }
        }
    }
    for algorithm in LEVELS {
        // 60 of 101 are 30.3 of 51; 50.3 of those are 79.9 of 81.
        let most = if algorithm == "leaky_queue" { 81 } else { 80 };
        ensure!(
            admitted.get(algorithm) == Some(&json!(most)),
            "{admitted:?}"
        );
    }
    for algorithm in LATER {
        ensure!(admitted.get(algorithm) == Some(&json!(1)), "{admitted:?}");
    }
    // The chains of both earlier configurations are still at work.
    let draining = envoy.stats(r"^listener_manager\.total_filter_chains_draining$")?;
    ensure!(draining.values().all(|count| *count >= 2), "{draining:?}");
    envoy.stop()
}
