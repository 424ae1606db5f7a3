//! A flood of random keys through one rule must not admit exhausted keys of another rule.
//!
//! The flood has three times as many keys as the store has buckets. Every second key is banned at
//! its first request, because banned buckets are evicted last.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::{Config, Envoy, Http, Operator, Request, Upstream, eventually};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(30);
const CONNECTIONS: usize = 16;
/// Number of users of each kind that the flood must not affect. Nearly every user is on a different
/// page.
const USERS: usize = 6;
const PLACES: u64 = 5;

fn rule(name: &str, limit: &Value, penalty: &Value, cost: &Value) -> Value {
    json!({
        "name": name,
        "match": { "path": { "prefix": format!("/{name}") } },
        "key": [{ "header": "x-user-id" }],
        "limits": [limit],
        "penalty": penalty,
        "cost": cost,
    })
}

/// Each rule has a separate path. The limits are three a day, five in flight, and one a day with a
/// ban for ten minutes after the first refusal. In the flooded rule, a cost of 2 exceeds the limit
/// and leads to a ban for an hour.
fn rules() -> Value {
    let a_day =
        |capacity: u64| json!({ "algorithm": "funnel", "capacity": capacity, "rate": "1/d" });
    let ban = |ban: &str| json!({ "after": 1, "within": "60s", "ban": ban });
    let flights = json!({ "algorithm": "concurrency", "capacity": PLACES });
    let cost = json!({ "header": "x-cost", "default": 1, "max": 2 });
    let (none, one) = (Value::Null, json!(1));
    json!([
        rule("quota", &a_day(3), &none, &one),
        rule("flights", &flights, &none, &one),
        rule("banning", &a_day(1), &ban("10m"), &one),
        rule("flooded", &a_day(1), &ban("1h"), &cost),
    ])
}

/// Requests of the concurrency rule go to an upstream that does not answer. Envoy answers all other
/// requests directly.
fn config(upstream: &Upstream, buckets: u64) -> Config {
    let flights = json!({
        "match": { "prefix": "/flights" }, "route": { "cluster": "upstream", "timeout": "0s" },
    });
    let others = json!({ "match": { "prefix": "/" }, "direct_response": { "status": 200 } });
    let config = Config::new(rules()).buckets(buckets);
    let config = config.cluster("upstream", Some(upstream.address()));
    config.routes(json!([flights, others]))
}

fn ask(rule: &str, user: &str) -> Request {
    Request::get(&format!("/{rule}")).header("x-user-id", user)
}

fn users(what: &str) -> Vec<String> {
    (0..USERS).map(|n| format!("{what}-{n}")).collect()
}

/// Sends `count` requests. The last request must get the status `last`, and the others must be
/// admitted.
fn spend(http: &mut Http, rule: &str, user: &str, count: u64, last: u16) -> Result<()> {
    for n in 1..=count {
        let status = http.send(&ask(rule, user))?.status;
        let expected = if n == count { last } else { 200 };
        ensure!(status == expected, "{rule} {user}: {status}");
    }
    Ok(())
}

/// Sends a request that stays in flight until its connection closes.
fn fly(envoy: &Envoy, user: &str) -> Result<TcpStream> {
    let mut socket = TcpStream::connect(envoy.data_address())?;
    let head = format!(
        "GET /flights HTTP/1.1\r\nhost: a\r\nx-user-id: {user}\r\nx-answer-as: hang\r\n\r\n"
    );
    socket.write_all(head.as_bytes())?;
    Ok(socket)
}

/// Waits until a user has `count` free slots.
fn left(ops: &mut Operator, user: &str, count: u64) -> Result<()> {
    eventually(SOON, &format!("{count} places of {user}"), || {
        let bucket = ops.bucket("flights", user)?;
        let left = bucket.and_then(|bucket| bucket.pointer("/limits/0/remaining").cloned());
        Ok((left == Some(json!(count))).then_some(()))
    })
}

/// Floods one rule with three times as many keys as the store has `buckets`.
fn flood(buckets: u64) -> Result<()> {
    let upstream = Upstream::start()?;
    let envoy = Envoy::start(&config(&upstream, buckets))?;
    let (mut http, mut ops) = (envoy.data(), Operator::editor(&envoy));
    let [spent, refused, full, banned] = ["spent", "refused", "full", "banned"].map(users);
    let mut flights = Vec::new();
    for n in 0..USERS {
        spend(&mut http, "quota", spent.get(n).context("a user")?, 3, 200)?;
        spend(
            &mut http,
            "quota",
            refused.get(n).context("a user")?,
            4,
            429,
        )?;
        spend(
            &mut http,
            "banning",
            banned.get(n).context("a user")?,
            2,
            429,
        )?;
        let full = full.get(n).context("a user")?;
        for _ in 0..PLACES {
            flights.push(fly(&envoy, full)?);
        }
        left(&mut ops, full, 0)?;
    }

    let counts = envoy.load(3 * buckets, CONNECTIONS, |n| {
        ask("flooded", &n.to_string()).header("x-cost", (1 + n % 2).to_string())
    })?;
    let half = 3 * buckets / 2;
    ensure!(
        (counts.of(200), counts.of(429)) == (half, half),
        "{counts:?}"
    );

    let mut freed = Vec::new();
    for (rule, users) in [
        ("quota", &spent),
        ("quota", &refused),
        ("flights", &full),
        ("banning", &banned),
    ] {
        for user in users {
            let answer = http.send(&ask(rule, user))?;
            let is_ban = answer.text().contains("#abnormal-usage-detected");
            if answer.status != 429 || is_ban != (rule == "banning") {
                freed.push((user, answer.status));
            }
        }
    }
    ensure!(freed.is_empty(), "the flood has freed {freed:?}");
    // A request that ends still frees its slot.
    drop(flights);
    for user in &full {
        left(&mut ops, user, PLACES)?;
        ensure!(http.send(&ask("flights", user))?.status == 200, "{user}");
    }
    envoy.stop()
}

#[test]
fn a_flood_of_a_small_store_frees_no_key_of_another_rule() -> Result<()> {
    flood(4_096)
}

#[test]
fn a_flood_of_a_large_store_frees_no_key_of_another_rule() -> Result<()> {
    flood(65_536)
}

/// Requests that never end keep their buckets, but a rule can fill only its share of a page with
/// such buckets.
#[test]
fn a_flood_of_slow_requests_leaves_others_their_share() -> Result<()> {
    const SLOW: u64 = 192;
    let upstream = Upstream::start()?;
    let envoy = Envoy::start(&config(&upstream, 64))?;
    let mut http = envoy.data();
    let slow = (0..SLOW).map(|n| fly(&envoy, &n.to_string()));
    let slow = slow.collect::<Result<Vec<TcpStream>>>()?;
    // A request without room for a bucket passes uncounted, because `on_error` admits by default.
    eventually(SOON, "all to be in flight", || {
        Ok((upstream.requests() == SLOW).then_some(()))
    })?;
    let errors = |rule: &str| envoy.counter(&format!("wasmcustom.loudou.rule.{rule}.errors"));
    eventually(SOON, "those without room to be counted", || {
        Ok((errors("flights")? == SLOW - 64).then_some(()))
    })?;
    for user in users("late") {
        spend(&mut http, "quota", &user, 4, 429)?;
    }
    ensure!(errors("quota")? == 0, "a rule below its share had no room");
    drop(slow);
    envoy.stop()
}
