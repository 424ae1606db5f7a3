//! Held requests are spaced by the rate, released in order and never early. They leave no state
//! after their clients disconnect.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use loudou_tests::{Config, Envoy, Operator, Request, Upstream, eventually, now};
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

/// Sends one request on each of `count` connections at once. Returns the status of each answer and
/// the time since the start, sorted by time.
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

fn wait_for(ops: &mut Operator, count: u64) -> Result<()> {
    eventually(SOON, &format!("{count} to wait"), || {
        Ok((ops.waiting()? == count).then_some(()))
    })
}

/// Sends a request on each of `count` new connections, without reading the answers.
fn queued(envoy: &Envoy, count: usize) -> Result<Vec<TcpStream>> {
    let one = |_| {
        let mut socket = TcpStream::connect(envoy.data_address())?;
        socket.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nx-user-id: alice\r\n\r\n")?;
        Ok(socket)
    };
    (0..count).map(one).collect()
}

#[test]
fn a_burst_leaves_at_the_rate() -> Result<()> {
    const PERIOD: Duration = Duration::from_millis(20);
    let envoy = Envoy::start(&Config::new(rules(&queue(200, "50/s"))))?;
    let answers = at_once(&envoy, 200, &of("alice"))?;
    ensure!(
        answers.iter().all(|(status, _)| *status == 200),
        "{answers:?}"
    );
    // Request n cannot leave before n periods have passed, whichever worker decided it.
    let slots = (0..).map(|n| PERIOD * n);
    let late = answers.iter().zip(slots).map(|((_, after), slot)| {
        let late = after.checked_sub(slot);
        late.with_context(|| format!("{after:?}, before {slot:?}"))
    });
    // Requests must not leave much later either. Single gaps prove nothing, because a busy machine
    // delays an answer and so shortens the next gap. Instead, each answer is compared with a line
    // of periods through the earliest answer. If the filter released requests in lumps, most
    // answers would be later than this line.
    let mut late = late.collect::<Result<Vec<Duration>>>()?;
    late.sort();
    let (least, median, most) = (late[0], late[100], late[199]);
    ensure!(median < least + PERIOD, "half are late: {late:?}");
    ensure!(most < least + PERIOD * 50, "one is very late: {late:?}");

    let (held, at_once) = (envoy.verdicts("held")?, envoy.verdicts("admitted")?);
    ensure!(
        held + at_once == 200 && held >= 190,
        "almost all had to wait: {held}"
    );
    ensure!(envoy.verdicts("refused")? == 0);
    wait_for(&mut Operator::viewer(&envoy), 0)?;
    envoy.stop()
}

/// Held requests must be released in the order of their arrival. One worker logs requests in the
/// order of their release, even if clients are slow.
#[test]
fn requests_are_released_in_order_of_arrival() -> Result<()> {
    const COUNT: usize = 5;
    let config = Config::new(rules(&queue(20, "2/s"))).concurrency(1);
    let envoy = Envoy::start(&config.access_log("number=%REQ(x-number)%"))?;
    thread::scope(|scope| -> Result<()> {
        for n in 0..COUNT {
            let (mut http, request) = (envoy.data(), of("alice").header("x-number", n.to_string()));
            scope.spawn(move || http.send(&request));
            eventually(SOON, "its place to be given", || {
                let given = envoy.verdicts("held")? + envoy.verdicts("admitted")?;
                Ok((given == u64::try_from(n)? + 1).then_some(()))
            })?;
        }
        Ok(())
    })?;
    let order = eventually(SOON, "all to be logged", || {
        let log = envoy.log()?;
        let lines = log.lines().filter_map(|line| line.strip_prefix("number="));
        let order: Vec<String> = lines.map(str::to_owned).collect();
        Ok((order.len() == COUNT).then_some(order))
    })?;
    ensure!(order.is_sorted(), "{order:?}");
    envoy.stop()
}

#[test]
fn a_full_queue_refuses_at_once() -> Result<()> {
    // The last request would wait for 50 minutes, which is near the maximum wait.
    let envoy = Envoy::start(&Config::new(rules(&queue(200, "4/m"))))?;
    let mut ops = Operator::viewer(&envoy);
    ensure!(envoy.data().send(&of("alice"))?.status == 200);
    let line = queued(&envoy, 200)?;
    wait_for(&mut ops, 200)?;
    // A refusal that waited would not arrive before the queue moves, in a quarter of a minute.
    let counts = envoy.load(1_000, 8, |_| of("alice"))?;
    ensure!(counts.of(429) == 1_000, "{counts:?}");
    ensure!(ops.waiting()? == 200);
    ensure!((envoy.verdicts("held")?, envoy.verdicts("refused")?) == (200, 1_000));
    let refused = envoy.data().send(&of("alice"))?;
    ensure!(refused.header("retry-after").is_some(), "{refused:?}");
    ensure!(
        envoy.data().send(&of("carol"))?.status == 200,
        "another key"
    );
    drop(line);
    wait_for(&mut ops, 0)?;
    envoy.stop()
}

/// A request at the end of the queue must free its slot when its client disconnects. An earlier
/// request cannot, because later requests already have their release times.
#[test]
fn clients_that_leave_free_their_slots() -> Result<()> {
    let envoy = Envoy::start(&Config::new(rules(&queue(60, "1/m"))))?;
    let mut ops = Operator::editor(&envoy);
    let mut http = envoy.data();
    ensure!(http.send(&of("alice"))?.status == 200);
    let mut ahead = queued(&envoy, 50)?;
    wait_for(&mut ops, 50)?;
    let mut behind = Vec::new();
    for n in 51..=60 {
        behind.append(&mut queued(&envoy, 1)?);
        wait_for(&mut ops, n)?;
    }
    ensure!(http.send(&of("alice"))?.status == 429, "the line is full");

    for left in 1..=5 {
        drop(behind.pop());
        eventually(SOON, "the last place to be free", || {
            let bucket = ops.get("/v1/buckets/shape/alice")?;
            Ok((bucket.pointer("/limits/0/remaining") == Some(&json!(left))).then_some(()))
        })?;
    }
    wait_for(&mut ops, 55)?;
    behind.append(&mut queued(&envoy, 5)?);
    wait_for(&mut ops, 60)?;
    ensure!(http.send(&of("alice"))?.status == 429, "it is full again");

    drop(ahead.drain(..25));
    wait_for(&mut ops, 35)?;
    ensure!(
        http.send(&of("alice"))?.status == 429,
        "no request fills a gap in the queue"
    );
    drop((ahead, behind));
    wait_for(&mut ops, 0)?;
    ensure!(http.send(&of("bob"))?.status == 200);
    envoy.stop()
}

/// Hundreds of requests due at one instant must not crash the sandbox. Envoy resumes one request
/// inside the answer to the previous request, and the stack of a sandbox has room for only a few
/// hundred such calls.
#[test]
fn many_requests_may_be_due_at_one_instant() -> Result<()> {
    const LUMP: u64 = 600;
    let limit = json!({
        "algorithm": "token_bucket", "capacity": LUMP, "rate": format!("{LUMP}/9s"),
        "refill": "interval", "max_wait": "10s",
    });
    let envoy = Envoy::start(&Config::new(rules(&limit)).concurrency(1))?;
    let sandboxes = envoy.sandboxes()?;
    let counts = envoy.load(2 * LUMP, LUMP.try_into()?, |_| of("alice"))?;
    ensure!(counts.of(200) == 2 * LUMP, "{counts:?}");
    let held = envoy.verdicts("held")?;
    ensure!(held >= LUMP * 2 / 3, "only {held} had to wait");
    ensure!(envoy.sandboxes()? == sandboxes, "a sandbox died");
    wait_for(&mut Operator::viewer(&envoy), 0)?;
    envoy.stop()
}

/// A request with an earlier release must wake the timer earlier. A timer set for alice's minute
/// would be late for bob.
#[test]
fn earlier_requests_wake_the_timer_earlier() -> Result<()> {
    let slow = json!({
        "name": "slow", "key": [{ "header": "x-slow" }], "limits": [queue(1, "1/m")],
    });
    let quick = json!({
        "name": "quick", "key": [{ "header": "x-quick" }], "limits": [queue(1, "5/s")],
    });
    let config = Config::new(json!([slow, quick])).concurrency(1);
    let envoy = Envoy::start(&config)?;
    let mut ops = Operator::viewer(&envoy);
    let slow = Request::get("/").header("x-slow", "alice");
    let quick = Request::get("/").header("x-quick", "bob");
    ensure!(envoy.data().send(&slow)?.status == 200);
    let mut patient = TcpStream::connect(envoy.data_address())?;
    patient.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nx-slow: alice\r\n\r\n")?;
    wait_for(&mut ops, 1)?;
    let mut http = envoy.data();
    for _ in 0..3 {
        // The client times out after 20 s.
        ensure!(http.send(&quick)?.status == 200);
    }
    ensure!(envoy.counter("wasmcustom.loudou.rule.quick.held")? >= 1);
    ensure!(ops.waiting()? == 1, "alice has to wait on");
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
    wait_for(&mut Operator::viewer(&envoy), 0)?;
    envoy.stop()
}
