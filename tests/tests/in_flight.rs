//! With `concurrency`, a request takes a slot while it is in flight, and returns it however the
//! request ends.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Result, ensure};
use loudou_tests::{Config, Envoy, Operator, Request, Upstream, eventually};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(30);

/// Returns rules with three slots. The first request passes at once, and the others wait in a queue
/// for minutes, so they keep their slots.
fn rules() -> Value {
    json!([{
        "name": "flights",
        "key": [{ "header": "x-user-id" }],
        "limits": [
            { "algorithm": "concurrency", "capacity": 3 },
            { "algorithm": "leaky_queue", "capacity": 40, "rate": "1/m" },
        ],
    }])
}

fn alice() -> Request {
    Request::get("/").header("x-user-id", "alice")
}

/// Sends a request and does not wait for an answer.
fn sent(envoy: &Envoy) -> Result<TcpStream> {
    let mut socket = TcpStream::connect(envoy.data_address())?;
    socket.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nx-user-id: alice\r\n\r\n")?;
    Ok(socket)
}

fn wait_for(ops: &mut Operator, count: u64) -> Result<()> {
    eventually(SOON, &format!("{count} to be in flight"), || {
        Ok((ops.waiting()? == count).then_some(()))
    })
}

fn places_left(ops: &mut Operator) -> Result<Value> {
    let bucket = ops.get("/v1/buckets/flights/alice")?;
    let left = bucket.pointer("/limits/0/remaining");
    Ok(left.cloned().unwrap_or_default())
}

#[test]
fn a_slot_is_free_again_when_its_request_ends() -> Result<()> {
    let envoy = Envoy::start(&Config::new(rules()))?;
    let (mut http, mut ops) = (envoy.data(), Operator::viewer(&envoy));
    // This request passes at once and ends.
    ensure!(http.send(&alice())?.status == 200);
    eventually(SOON, "its place to come back", || {
        Ok((places_left(&mut ops)? == 3).then_some(()))
    })?;
    for round in 0..3 {
        let flights = (0..3)
            .map(|_| sent(&envoy))
            .collect::<Result<Vec<TcpStream>>>()?;
        wait_for(&mut ops, 3)?;
        ensure!(places_left(&mut ops)? == 0, "round {round}");
        for _ in 0..5 {
            let refused = http.send(&alice())?;
            ensure!(refused.status == 429, "{refused:?}");
            // The filter cannot predict when a request ends, so there is no Retry-After.
            ensure!(refused.header("retry-after").is_none(), "{refused:?}");
            let policies = refused.header("ratelimit-policy").unwrap_or_default();
            ensure!(
                policies.starts_with("\"flights.concurrency\";q=3, "),
                "no window: {policies}"
            );
            ensure!(refused.text().contains("concurrency"), "{refused:?}");
        }
        // Another key has separate slots.
        let bob = Request::get("/").header("x-user-id", format!("bob-{round}"));
        ensure!(http.send(&bob)?.status == 200);
        drop(flights);
        wait_for(&mut ops, 0)?;
        eventually(SOON, "the places to come back", || {
            Ok((places_left(&mut ops)? == 3).then_some(()))
        })?;
    }
    ensure!(envoy.counter("wasmcustom.loudou.store.lost_returns")? == 0);
    envoy.stop()
}

/// Returns routes to the upstream, to a cluster without hosts and to a direct response, with short
/// timeouts.
fn routes() -> Value {
    let to = |path: &str, cluster: &str| {
        json!({
            "match": { "prefix": path },
            "route": {
                "cluster": cluster,
                "timeout": "0.2s",
                "upgrade_configs": [{ "upgrade_type": "websocket" }],
            },
        })
    };
    let direct = json!({
        "match": { "prefix": "/direct" }, "direct_response": { "status": 418 },
    });
    json!([direct, to("/nowhere", "nowhere"), to("/", "upstream")])
}

/// Starts an Envoy with these routes and three slots per user.
fn in_front_of(upstream: &Upstream) -> Result<Envoy> {
    let rules = json!([{
        "name": "flights",
        "key": [{ "header": "x-user-id" }],
        "limits": [{ "algorithm": "concurrency", "capacity": 3 }],
    }]);
    let config = Config::new(rules)
        .upstream(upstream.address())
        .cluster("nowhere", None)
        .routes(routes());
    Envoy::start(&config)
}

/// A slot must be free again when its request ends, whether Envoy or an upstream answers it, and even if a connection breaks.
#[test]
fn a_slot_is_free_again_however_its_request_ends() -> Result<()> {
    let upstream = Upstream::start()?;
    let envoy = in_front_of(&upstream)?;
    let mut ops = Operator::viewer(&envoy);
    for (path, answer_as, expected) in [
        ("/", "200", Some(200)),
        ("/", "500", Some(500)),
        ("/", "hang", Some(504)),
        ("/", "close", Some(503)),
        ("/", "cut", None),
        ("/nowhere", "200", Some(503)),
        ("/direct", "200", Some(418)),
    ] {
        // Sends one request more than there are slots, one after another.
        for _ in 0..4 {
            let request = Request::get(path).header("x-user-id", "alice");
            let answer = envoy.data().send(&request.header("x-answer-as", answer_as));
            let status = answer.as_ref().map(|answer| answer.status).ok();
            ensure!(status == expected, "{path} {answer_as}: {answer:?}");
            eventually(SOON, &format!("the place of {path} {answer_as}"), || {
                Ok((places_left(&mut ops)? == 3).then_some(()))
            })?;
        }
    }
    ensure!(envoy.counter("wasmcustom.loudou.store.lost_returns")? == 0);
    envoy.stop()
}

/// A request that has switched protocols stays in flight until its connection closes.
#[test]
fn an_upgraded_request_keeps_its_slot() -> Result<()> {
    let upstream = Upstream::start()?;
    let envoy = in_front_of(&upstream)?;
    let mut ops = Operator::viewer(&envoy);
    let mut socket = TcpStream::connect(envoy.data_address())?;
    socket.write_all(
        b"GET / HTTP/1.1\r\nhost: a\r\nx-user-id: alice\r\nx-answer-as: upgrade\r\n\
          connection: upgrade\r\nupgrade: websocket\r\n\r\n",
    )?;
    let mut head = [0; 12];
    socket.read_exact(&mut head)?;
    ensure!(
        &head == b"HTTP/1.1 101",
        "{:?}",
        String::from_utf8_lossy(&head)
    );
    ensure!(places_left(&mut ops)? == 2, "it is in flight");
    drop(socket);
    eventually(SOON, "its place to come back", || {
        Ok((places_left(&mut ops)? == 3).then_some(()))
    })?;
    envoy.stop()
}
