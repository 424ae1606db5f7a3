//! Costs and bounds of held requests: slots that are returned, deadlines, and `store.waiting`.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::{Config, Envoy, Operator, Request, eventually, expect};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_mins(1);

fn rules(limit: &Value) -> Value {
    json!([{
        "name": "shape",
        "key": [{ "header": "x-user-id" }],
        "limits": [limit],
        "respond": { "explain_header": true },
    }])
}

fn of(user: &str) -> Request {
    Request::get("/").header("x-user-id", user)
}

/// Sends a request of alice with these additional header lines on a new connection, without reading
/// the response.
fn sent(envoy: &Envoy, lines: &str) -> Result<TcpStream> {
    sent_by(envoy, "alice", lines)
}

fn sent_by(envoy: &Envoy, user: &str, lines: &str) -> Result<TcpStream> {
    let mut socket = TcpStream::connect(envoy.data_address())?;
    let head = format!("GET / HTTP/1.1\r\nhost: a\r\nx-user-id: {user}\r\n{lines}\r\n");
    socket.write_all(head.as_bytes())?;
    Ok(socket)
}

/// Waits until the number of held requests is in this range.
fn held(ops: &mut Operator, least: u64, most: u64) -> Result<()> {
    eventually(SOON, &format!("{least} to {most} to wait"), || {
        let waiting = ops.waiting()?;
        Ok((least..=most).contains(&waiting).then_some(()))
    })
}

/// Clients that disconnect must return their slots, so that the next client waits for one turn at
/// most.
#[test]
fn places_of_clients_that_left_come_back() -> Result<()> {
    const COUNT: u32 = 1_000;
    let limits = [
        json!({ "algorithm": "leaky_queue", "capacity": COUNT, "rate": "1/3s" }),
        json!({ "algorithm": "funnel", "capacity": 1, "rate": "1/10s", "max_wait": "1h" }),
    ];
    for limit in limits {
        let envoy = Envoy::start(&Config::new(rules(&limit)))?;
        let mut ops = Operator::viewer(&envoy);
        ensure!(envoy.data().send(&of("alice"))?.status == 200);
        // The maximum wait is one hour, so the funnel can hold fewer requests.
        let count = if limit["algorithm"] == "funnel" {
            300
        } else {
            COUNT
        };
        let crowd = (0..count).map(|_| sent(&envoy, ""));
        let crowd = crowd.collect::<Result<Vec<_>>>()?;
        // Some requests may have passed meanwhile.
        held(&mut ops, u64::from(count) * 9 / 10, count.into())?;
        drop(crowd);
        held(&mut ops, 0, 0)?;
        let answer = envoy.data().send(&of("alice"))?;
        ensure!(answer.status == 200, "{limit}: {answer:?}");
        let wait = answer.header("x-loudou-wait-ms").unwrap_or("0");
        ensure!(wait.parse::<u64>()? <= 10_000, "{limit}: {wait} ms");
        envoy.stop()?;
    }
    Ok(())
}

#[test]
fn a_request_that_would_be_late_is_refused_at_once() -> Result<()> {
    let limit = json!({ "algorithm": "leaky_queue", "capacity": 9, "rate": "1/m" });
    let config = Config::new(rules(&limit)).concurrency(1);
    let config =
        config.access_log("details=%RESPONSE_CODE_DETAILS% %FILTER_STATE(wasm.loudou:PLAIN)%");
    let envoy = Envoy::start(&config)?;
    let mut ops = Operator::viewer(&envoy);
    let mut http = envoy.data();
    // A request that need not wait passes with any deadline.
    ensure!(http.send(&of("alice").header("grpc-timeout", "1n"))?.status == 200);
    let late = || of("alice").header("grpc-timeout", "2S");
    for request in [
        late(),
        late().header("x-envoy-expected-rq-timeout-ms", "9999999"),
    ] {
        let answer = http.send(&request)?;
        ensure!(answer.status == 429, "{request:?}: {answer:?}");
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        ensure!(
            text.contains("the required wait exceeds the deadline"),
            "{text}"
        );
    }
    let status = ops.get("/v1/status")?;
    ensure!(status["not_held_deadline"] == 2, "{status}");
    ensure!(envoy.counter("wasmcustom.loudou.not_held_deadline")? == 2);
    // The refused requests took nothing, so the first slot in the queue is free.
    let bucket = ops.get("/v1/buckets/shape/alice")?;
    ensure!(
        bucket.pointer("/limits/0/remaining") == Some(&json!(9)),
        "{bucket}"
    );
    let log = eventually(SOON, "the log", || {
        let log = envoy.log()?;
        Ok((log.matches("details=loudou_deadline{").count() == 2).then_some(log))
    })?;
    ensure!(log.contains("shape;leaky_queue;refuse;"), "{log}");

    // Malformed values are ignored, and a deadline that is late enough has no effect. Envoy removes
    // `x-envoy-expected-rq-timeout-ms` from external requests.
    let fine = [
        "grpc-timeout: 1s",
        "grpc-timeout: -1m",
        "grpc-timeout: 123456789n",
        "grpc-timeout: 2H",
        "x-envoy-expected-rq-timeout-ms: 0",
        "x-envoy-expected-rq-timeout-ms: 1",
    ];
    let waiting = fine.map(|line| sent(&envoy, &format!("{line}\r\n")));
    held(&mut ops, 6, 6)?;
    drop(waiting);

    let explained = ops.send(Request::post("/v1/explain").json(&json!({
        "method": "GET", "path": "/", "headers": { "x-user-id": "alice", "grpc-timeout": "1S" },
    })))?;
    let explained = expect(&explained, 200)?;
    ensure!(explained["verdict"] == "refuse", "{explained}");
    ensure!(
        explained.pointer("/rules/0/not_held") == Some(&json!("deadline")),
        "{explained}"
    );
    envoy.stop()
}

#[test]
fn a_worker_holds_as_many_as_it_may() -> Result<()> {
    let limit = json!({ "algorithm": "leaky_queue", "capacity": 1000, "rate": "1/m" });
    let many = json!({ "requests": 5 });
    // A body of unknown length counts as 270 KiB, and each request as 32 KiB more, so there is room
    // for three.
    let much = json!({ "memory_mib": 1, "body_kib": 120 });
    for (bounds, lines, most) in [
        (many, "", 5),
        (much.clone(), "transfer-encoding: chunked\r\n", 3),
        (much.clone(), "content-length: 99999999999\r\n", 3),
        (much, "content-length: 9\r\n", 20),
    ] {
        let config = Config::new(rules(&limit)).concurrency(1).waiting(&bounds);
        let envoy = Envoy::start(&config)?;
        let mut ops = Operator::viewer(&envoy);
        ensure!(envoy.data().send(&of("alice"))?.status == 200);
        let mut crowd = Vec::new();
        for n in 1..=most {
            crowd.push(sent(&envoy, lines)?);
            held(&mut ops, n, n).with_context(|| format!("{bounds} {lines}"))?;
        }
        // A known small body leaves room for more than 20 requests.
        if most > 5 {
            envoy.stop()?;
            continue;
        }
        crowd.push(sent(&envoy, lines)?);
        eventually(SOON, "one to be refused", || {
            let status = ops.get("/v1/status")?;
            Ok((status["not_held_full"] == 1).then_some(()))
        })?;
        ensure!(ops.waiting()? == most && envoy.verdicts("refused")? == 1);
        // A request that ends makes room for another request.
        drop(crowd.pop());
        drop(crowd.pop());
        held(&mut ops, most - 1, most - 1)?;
        crowd.push(sent(&envoy, lines)?);
        held(&mut ops, most, most)?;
        envoy.stop()?;
    }
    Ok(())
}

/// Returns the memory that Envoy uses for each held request with these additional header lines and
/// this number of body bytes.
fn memory_of_each(count: u64, lines: &str, body: usize) -> Result<u64> {
    let limit = json!({ "algorithm": "leaky_queue", "capacity": 50, "rate": "1/m" });
    let bounds = json!({ "memory_mib": 4_096 });
    let envoy = Envoy::start(&Config::new(rules(&limit)).concurrency(1).waiting(&bounds))?;
    let mut ops = Operator::viewer(&envoy);
    ensure!(envoy.data().send(&of("alice"))?.status == 200);
    let before = envoy.memory()?;
    let body = vec![b'x'; body];
    let mut crowd = Vec::new();
    for n in 0..count {
        // Each queue has room for these requests. The first request of a queue passes.
        let mut socket = sent_by(&envoy, &format!("user-{}", n / 50), lines)?;
        socket.set_nonblocking(true)?;
        // Envoy may stop reading. The rest of the body then stays at the client.
        let mut rest = body.as_slice();
        while let Ok(written @ 1..) = socket.write(rest) {
            rest = rest.get(written..).unwrap_or_default();
        }
        crowd.push(socket);
    }
    held(&mut ops, count * 9 / 10, count)?;
    let (after, waiting) = (envoy.memory()?, ops.waiting()?);
    envoy.stop()?;
    Ok(after.allocated.saturating_sub(before.allocated) / waiting)
}

/// The filter's estimate of the memory of a held request must be at least the actual memory.
#[test]
fn held_requests_take_no_more_than_is_assumed() -> Result<()> {
    const HELD: u64 = 32 << 10;
    let large = format!("x-large: {}\r\n", "v".repeat(16_000));
    for (count, lines, body, assumed) in [
        (2_000, "", 0, HELD),
        (1_000, large.as_str(), 0, HELD + 2 * 16_000),
        (200, "content-length: 100000\r\n", 100_000, HELD + 125_000),
        (
            50,
            "content-length: 100000000\r\n",
            8_000_000,
            HELD + (9 << 18),
        ),
    ] {
        let each = memory_of_each(count, lines, body)?;
        ensure!(
            each <= assumed,
            "{each} bytes each, {assumed} assumed: {body} of body"
        );
    }
    Ok(())
}
