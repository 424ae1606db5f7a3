//! Requests that wait: spaced by the rate, never early, and gone without a trace when their client
//! goes.

use std::net::{Shutdown, TcpStream};
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use loudou_tests::{Config, Envoy, Http, Operator, Request, Update, Upstream, eventually, now};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(30);

fn rules(limit: &Value) -> Value {
    json!([{
        "name": "shape",
        "key": [{ "header": "x-user-id" }],
        "limits": [limit],
    }])
}

fn queue(capacity: u32, rate: &str) -> Value {
    json!({ "algorithm": "leaky_queue", "capacity": capacity, "rate": rate })
}

fn of(user: &str) -> Request {
    Request::get("/").header("x-user-id", user)
}

/// Sends one request on each of `count` connections at once: the statuses, and how long after the
/// beginning each answer came, in order.
fn at_once(envoy: &Envoy, count: usize, request: &Request) -> Result<Vec<(u16, Duration)>> {
    let (start, begun) = (Barrier::new(count), now());
    let one = || {
        let mut http = envoy.data();
        let connected = http.connect();
        start.wait();
        connected?;
        let status = http.send(request)?.status;
        Ok((status, begun.elapsed()))
    };
    let answers: Vec<Result<(u16, Duration)>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|_| scope.spawn(one)).collect();
        let ended = threads.into_iter().map(thread::ScopedJoinHandle::join);
        ended
            .map(|end| end.unwrap_or_else(|_| Err(anyhow!("a client panicked"))))
            .collect()
    });
    let mut answers = answers.into_iter().collect::<Result<Vec<_>>>()?;
    answers.sort_by_key(|(_, after)| *after);
    Ok(answers)
}

fn none_wait(ops: &mut Operator) -> Result<()> {
    eventually(SOON, "nobody to wait", || {
        Ok((ops.waiting()? == 0).then_some(()))
    })
}

#[test]
fn a_burst_leaves_at_the_rate_and_what_does_not_fit_is_refused_at_once() -> Result<()> {
    let limit = queue(100, "100/s");
    let envoy = Envoy::start(&Config::new(rules(&limit)))?;
    let answers = at_once(&envoy, 101, &of("alice"))?;
    ensure!(
        answers.iter().all(|(status, _)| *status == 200),
        "{answers:?}"
    );
    // The n-th cannot leave before n slots of 10 ms have passed, wherever it was decided.
    for (n, (_, after)) in (0..).zip(&answers) {
        ensure!(*after >= Duration::from_millis(10 * n), "{n}: {after:?}");
    }
    let (held, at_once) = (envoy.verdicts("held")?, envoy.verdicts("admitted")?);
    ensure!(
        held + at_once == 101 && held >= 95,
        "almost all had to wait: {held}"
    );
    ensure!(envoy.verdicts("refused")? == 0);

    // A full queue refuses; it does not make anybody wait for the refusal.
    let slow = Envoy::start(&Config::new(rules(&queue(5, "1/m"))))?;
    let mut http = slow.data();
    ensure!(http.send(&of("bob"))?.status == 200, "the queue is empty");
    let mut waiters: Vec<Http> = (0..5).map(|_| slow.data()).collect();
    thread::scope(|scope| -> Result<()> {
        for http in &mut waiters {
            scope.spawn(|| http.send(&of("bob")));
        }
        let mut ops = Operator::editor(&slow);
        eventually(SOON, "five to wait", || {
            Ok((ops.waiting()? == 5).then_some(()))
        })?;
        for _ in 0..20 {
            let refused = http.send(&of("bob"))?;
            ensure!(refused.status == 429, "{refused:?}");
            ensure!(refused.header("retry-after").is_some(), "{refused:?}");
        }
        ensure!(http.send(&of("carol"))?.status == 200, "another key");
        // Ends the five that wait, their clients included.
        slow.stop()
    })?;
    envoy.stop()
}

#[test]
fn clients_that_go_leave_nothing_behind() -> Result<()> {
    let envoy = Envoy::start(&Config::new(rules(&queue(55, "1/m"))))?;
    let mut ops = Operator::editor(&envoy);
    ensure!(envoy.data().send(&of("alice"))?.status == 200);
    let mut sockets = Vec::new();
    for _ in 0..50 {
        let mut socket = TcpStream::connect(envoy.data_address())?;
        let head = b"GET / HTTP/1.1\r\nhost: a\r\nx-user-id: alice\r\n\r\n";
        std::io::Write::write_all(&mut socket, head)?;
        sockets.push(socket);
    }
    eventually(SOON, "fifty to wait", || {
        Ok((ops.waiting()? == 50).then_some(()))
    })?;
    for socket in sockets.drain(..25) {
        socket.shutdown(Shutdown::Both)?;
    }
    eventually(SOON, "half of them to be gone", || {
        Ok((ops.waiting()? == 25).then_some(()))
    })?;
    drop(sockets);
    none_wait(&mut ops)?;
    ensure!(envoy.data().send(&of("bob"))?.status == 200);
    envoy.stop()
}

#[test]
fn a_body_waits_with_its_headers() -> Result<()> {
    let upstream = Upstream::start()?;
    let limit = json!({ "algorithm": "funnel", "capacity": 1, "rate": "5/s", "max_wait": "10s" });
    let config = Config::new(rules(&limit)).upstream(upstream.address());
    let envoy = Envoy::start(&config)?;
    let mut http = envoy.data();
    let body = vec![b'x'; 100_000];
    for request in [
        of("alice"),
        Request::post("/")
            .header("x-user-id", "alice")
            .body(body.clone()),
        Request::post("/")
            .header("x-user-id", "alice")
            .body(body)
            .chunked(7_000),
    ] {
        let answer = http.send(&request)?;
        ensure!(answer.status == 200, "{answer:?}");
    }
    ensure!(upstream.requests() == 3);
    ensure!(envoy.verdicts("held")? == 2);
    none_wait(&mut Operator::editor(&envoy))?;
    envoy.stop()
}

#[test]
fn those_who_wait_are_released_under_a_new_configuration_too() -> Result<()> {
    let limit = json!({ "algorithm": "funnel", "capacity": 1, "rate": "1/2s", "max_wait": "10s" });
    let old = Config::new(rules(&limit)).drain_s(20);
    let envoy = Envoy::start(&old)?;
    let mut ops = Operator::editor(&envoy);
    ensure!(envoy.data().send(&of("alice"))?.status == 200);
    let mut waiter = envoy.data();
    thread::scope(|scope| -> Result<()> {
        let answer = scope.spawn(|| waiter.send(&of("alice")));
        eventually(SOON, "one to wait", || {
            Ok((ops.waiting()? == 1).then_some(()))
        })?;
        let new = rules(&queue(7, "1/s"));
        ensure!(envoy.push(&Config::new(new).drain_s(20))? == Update::Accepted);
        let answer = answer
            .join()
            .map_err(|_panic| anyhow!("the client panicked"))??;
        ensure!(answer.status == 200, "{answer:?}");
        Ok(())
    })?;
    none_wait(&mut ops)?;
    envoy.stop()
}
