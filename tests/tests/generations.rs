//! Several generations of one rule are in use at once, because draining listeners keep their
//! connections while the newest listener accepts others. One limit decides for each bucket, so a
//! client gains nothing from using both.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Result, ensure};
use loudou_tests::{Config, Envoy, Http, Operator, Request, Update, eventually};
use serde_json::{Map, Value, json};

/// Timeout within which every worker has applied an update.
const SOON: Duration = Duration::from_secs(20);
/// Drain time, longer than any test.
const DRAIN_S: u32 = 3_600;

/// Returns a limit of this algorithm with `capacity` units a day, and the number of requests that a
/// new bucket admits at once.
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

/// Returns a limit of an algorithm without a capacity. One request passes, and the next request has
/// to wait for 1/`capacity` of a day.
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

/// Returns a rule for each algorithm except `concurrency`, with this capacity.
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
    let rules: Value = levels.into_iter().chain(later).collect();
    Config::new(rules).drain_s(DRAIN_S)
}

fn asks(http: &mut Http, algorithm: &str) -> Result<u32> {
    let request = Request::get(&path(algorithm)).header("x-user-id", "alice");
    let status = http.send(&request)?.status;
    ensure!(matches!(status, 200 | 429), "{status} from {algorithm}");
    Ok(u32::from(status == 200))
}

/// Opens connections to the current listener.
fn connections(envoy: &Envoy) -> Result<Vec<Http>> {
    let mut all: Vec<Http> = (0..4).map(|_| envoy.data()).collect();
    for http in &mut all {
        http.connect()?;
        // This request makes sure that a worker has accepted the connection. A worker may accept
        // late.
        http.get("/nobody")?;
    }
    Ok(all)
}

/// Waits until the admin API shows this capacity in force.
fn in_force(ops: &mut Operator, capacity: u32) -> Result<()> {
    eventually(SOON, "the configuration to be in force", || {
        let rule = ops.get("/v1/rules/funnel")?;
        let now = rule.pointer("/rule/limits/0/capacity");
        Ok((now == Some(&json!(capacity))).then_some(()))
    })
}

/// Number of admitted requests per algorithm.
#[derive(Debug, Default)]
struct Admitted(Map<String, Value>);

impl Admitted {
    fn ask(&mut self, clients: &mut [Http], times: u32) -> Result<()> {
        for algorithm in LEVELS.into_iter().chain(LATER) {
            for _ in 0..times {
                for http in &mut *clients {
                    let more = asks(http, algorithm)?;
                    let all = self.0.entry(algorithm).or_insert(json!(0));
                    *all = json!(all.as_u64().unwrap_or(0) + u64::from(more));
                }
            }
        }
        Ok(())
    }

    /// Fails unless the counts fit one bucket. Of 100 a day, 60 are used. With a capacity of 50,
    /// none are left, because 60 exceeds 50. With a capacity of 80, 20 are left, so 80 are admitted
    /// in total.
    fn is_that_of_one_bucket(&self) -> Result<()> {
        for algorithm in LEVELS {
            // A leaky queue admits one request more.
            let most = if algorithm == "leaky_queue" { 81 } else { 80 };
            ensure!(self.0.get(algorithm) == Some(&json!(most)), "{self:?}");
        }
        for algorithm in LATER {
            ensure!(self.0.get(algorithm) == Some(&json!(1)), "{self:?}");
        }
        Ok(())
    }
}

/// Connections of several generations must share one bucket.
#[test]
fn connections_of_several_generations_share_one_bucket() -> Result<()> {
    let envoy = Envoy::start(&config(100))?;
    let mut ops = Operator::editor(&envoy);
    let mut clients = connections(&envoy)?;
    let mut admitted = Admitted::default();
    admitted.ask(&mut clients, 15)?;
    for capacity in [50, 80] {
        ensure!(envoy.push(&config(capacity))? == Update::Accepted);
        in_force(&mut ops, capacity)?;
        clients.extend(connections(&envoy)?);
        admitted.ask(&mut clients, 12)?;
    }
    admitted.is_that_of_one_bucket()?;
    // The filter chains of both earlier configurations still serve requests.
    let draining = envoy.stats(r"^listener_manager\.total_filter_chains_draining$")?;
    ensure!(draining.values().all(|count| *count >= 2), "{draining:?}");
    envoy.stop()
}

/// With an extension, Envoy replaces only the filter, so requests on open connections reach the new
/// filter.
#[test]
fn generations_of_an_extension_share_one_bucket() -> Result<()> {
    let envoy = Envoy::start(&config(100).extension())?;
    let mut ops = Operator::editor(&envoy);
    let mut clients = connections(&envoy)?;
    let mut admitted = Admitted::default();
    admitted.ask(&mut clients, 15)?;
    for capacity in [50, 80] {
        ensure!(envoy.push_extension(&config(capacity).extension())? == Update::Accepted);
        in_force(&mut ops, capacity)?;
        clients.extend(connections(&envoy)?);
        admitted.ask(&mut clients, 12)?;
    }
    admitted.is_that_of_one_bucket()?;
    // A rollback, which Envoy may apply without a call to the filter.
    ensure!(envoy.push_extension(&config(50).extension())? == Update::Accepted);
    eventually(SOON, "the rollback to be noticed", || {
        connections(&envoy)?;
        let rule = ops.get("/v1/rules/funnel")?;
        Ok((rule.pointer("/rule/limits/0/capacity") == Some(&json!(50))).then_some(()))
    })?;
    envoy.stop()
}

/// Returns rules under which requests wait for minutes, so that they stay in flight.
fn flights(capacity: u32) -> Config {
    let limits = json!([
        { "algorithm": "concurrency", "capacity": capacity },
        { "algorithm": "leaky_queue", "capacity": 90, "rate": "1/m" },
    ]);
    let key = json!([{ "header": "x-user-id" }]);
    Config::new(json!([{ "name": "flights", "key": key, "limits": limits }])).drain_s(DRAIN_S)
}

/// Sends a request on a separate connection and does not wait for an answer.
fn takes_off(envoy: &Envoy) -> Result<TcpStream> {
    let mut socket = TcpStream::connect(envoy.data_address())?;
    socket.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nx-user-id: alice\r\n\r\n")?;
    Ok(socket)
}

fn flying(ops: &mut Operator, count: u64) -> Result<()> {
    eventually(SOON, &format!("{count} to be in flight"), || {
        let bucket = ops.bucket("flights", "alice")?;
        let used = bucket.and_then(|bucket| bucket.pointer("/limits/0/used")?.as_u64());
        Ok((used.unwrap_or(0) == count).then_some(()))
    })
}

/// Four of five slots are in use when the limit becomes two. No connection may get another slot
/// until only one is in use, and each request that ends must return its slot, even if it took the
/// slot under an earlier limit.
#[test]
fn slots_in_flight_are_shared_by_all_generations() -> Result<()> {
    let envoy = Envoy::start(&flights(5))?;
    let mut ops = Operator::editor(&envoy);
    let (mut old, anonymous) = (envoy.data(), Request::get("/"));
    let alice = Request::get("/").header("x-user-id", "alice");
    old.send(&anonymous)?;
    // Only this request does not wait.
    ensure!(old.send(&alice)?.status == 200);
    let mut first = (0..4)
        .map(|_| takes_off(&envoy))
        .collect::<Result<Vec<TcpStream>>>()?;
    flying(&mut ops, 4)?;
    ensure!(envoy.push(&flights(2))? == Update::Accepted);
    eventually(SOON, "the configuration to be in force", || {
        let rule = ops.get("/v1/rules/flights")?;
        Ok((rule.pointer("/rule/limits/0/capacity") == Some(&json!(2))).then_some(()))
    })?;
    let mut new = envoy.data();
    new.send(&anonymous)?;
    for left in [4, 3, 2] {
        for http in [&mut old, &mut new] {
            ensure!(http.send(&alice)?.status == 429, "{left} in flight");
        }
        drop(first.pop());
        flying(&mut ops, left - 1)?;
    }
    let second = takes_off(&envoy)?;
    flying(&mut ops, 2)?;
    for http in [&mut old, &mut new] {
        ensure!(http.send(&alice)?.status == 429);
    }
    drop((first, second));
    flying(&mut ops, 0)?;
    ensure!(envoy.counter("wasmcustom.loudou.store.lost_returns")? == 0);
    envoy.stop()
}
