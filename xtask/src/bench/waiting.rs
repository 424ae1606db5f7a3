//! `cargo xtask bench waiting`: what held requests cost the requests of other users.
//!
//! One Envoy with one worker has Loudou and then Envoy's own fault filter. In turns, no request waits,
//! Loudou holds a crowd, and the fault filter delays a crowd of the same size; each time another user sends
//! requests that pass both. So the turns differ only in which requests wait, and where.

use std::iter;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use loudou_tests::clock::now;
use loudou_tests::{Config, Crowd, Envoy, Request, eventually};
use serde_json::json;

use super::{float, processor_time};
use crate::filter;
use crate::setup;

const CROWD: usize = 10_000;
const ROUNDS: usize = 12;
/// The requests of the other user in one turn, on each of [`CONNECTIONS`] connections.
const REQUESTS: usize = 3_000;
const CONNECTIONS: usize = 2;
/// The time without any request, to measure what waiting alone costs.
const IDLE: Duration = Duration::from_secs(1);
/// A crowd arrives and leaves within seconds; the rest is a margin for a busy machine.
const SOON: Duration = Duration::from_mins(1);
const HELD: &str = "x-held";
const DELAYED: &str = "x-delayed";

/// The requests that wait in a turn.
#[derive(Debug, Clone, Copy)]
enum Turn {
    None,
    InLoudou,
    InFault,
}

const TURNS: [Turn; 3] = [Turn::None, Turn::InFault, Turn::InLoudou];

impl Turn {
    const fn name(self) -> &'static str {
        match self {
            Self::None => "no request",
            Self::InFault => "10 000 in Envoy's fault filter",
            Self::InLoudou => "10 000 in Loudou",
        }
    }
}

/// The results of one kind of turn, over all rounds.
#[derive(Debug, Default)]
struct Found {
    latencies: Vec<Duration>,
    /// Seconds of Envoy's processor time while another user sends, and while no request arrives.
    busy: f64,
    idle: f64,
}

/// Runs the benchmark.
pub(super) fn run_all() -> Result<()> {
    setup::run()?;
    let wasm = filter::build()?;
    let envoy = Envoy::start(&configuration().concurrency(1).wasm(wasm))?;
    // The first requests set things up, so they are not measured.
    turn(&envoy, Turn::None, 0, &mut Found::default())?;
    let mut found = TURNS.map(|turn| (turn, Found::default()));
    for round in 0..ROUNDS {
        println!("round {} of {ROUNDS}…", round + 1);
        for place in 0..TURNS.len() {
            // The order rotates, so that no kind is always first.
            let next = found.get_mut((round + place) % TURNS.len());
            let (kind, found) = next.context("three turns")?;
            turn(&envoy, *kind, round, found).with_context(|| kind.name())?;
        }
    }
    print(&mut found);
    envoy.stop()
}

/// A queue in which the last request waits for almost an hour, and a limit that is never reached.
fn configuration() -> Config {
    let rules = json!([
        {
            "name": "line",
            "key": [{ "header": HELD }],
            "limits": [{ "algorithm": "leaky_queue", "capacity": 2 * CROWD, "rate": "3/s" }],
        },
        {
            "name": "others",
            "key": [{ "header": "x-user-id" }],
            "limits": [{ "algorithm": "funnel", "capacity": 1_000_000, "rate": "1000000/s" }],
        },
    ]);
    // The whole crowd may be held by one worker.
    let bounds = json!({ "memory_mib": 4_096 });
    Config::new(rules).waiting(&bounds).filter_behind(json!({
        "name": "fault",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault",
            "headers": [{ "name": DELAYED, "present_match": true }],
            "delay": { "fixed_delay": "3600s", "percentage": { "numerator": 100 } },
        },
    }))
}

/// Lets a crowd arrive, another user send requests, and the crowd leave. Each round has its own queue,
/// so that none finds what the one before it left.
fn turn(envoy: &Envoy, turn: Turn, round: usize, found: &mut Found) -> Result<()> {
    let line = round.to_string();
    let crowd = |header| Crowd::send(envoy.data_address(), (header, &line), CROWD);
    let crowd = match turn {
        Turn::None => None,
        Turn::InLoudou => Some(crowd(HELD)?),
        Turn::InFault => Some(crowd(DELAYED)?),
    };
    let waiting = |what: &str, is_right: fn(u64) -> bool| {
        eventually(SOON, what, || {
            let (loudou, fault) = waiting(envoy)?;
            Ok(is_right(loudou + fault).then_some(loudou))
        })
    };
    if crowd.is_some() {
        // A few pass in the meantime.
        let in_loudou = waiting("the crowd to wait", |all| all > 9_900)?;
        ensure!((in_loudou > 0) == matches!(turn, Turn::InLoudou));
    }
    // Once the worker has answered these, it has finished with the connections opened and closed before.
    others(envoy)?;
    let processor = || processor_time(envoy.pid()).context("no processor time");
    let before = processor()?;
    found.latencies.append(&mut others(envoy)?);
    let between = processor()?;
    idle();
    found.busy += between - before;
    found.idle += processor()? - between;
    drop(crowd);
    waiting("the crowd to go", |all| all == 0).map(drop)
}

/// The numbers of requests that wait in Loudou and in the fault filter.
fn waiting(envoy: &Envoy) -> Result<(u64, u64)> {
    let loudou = envoy.counter("wasmcustom.loudou.waiting")?;
    Ok((loudou, envoy.counter("http.data.fault.active_faults")?))
}

/// Waits for [`IDLE`] without sending anything.
fn idle() {
    let (_sender, nothing) = channel::<()>();
    let _timeout = nothing.recv_timeout(IDLE);
}

/// The latency of each request of the other user; each connection sends one after the other.
fn others(envoy: &Envoy) -> Result<Vec<Duration>> {
    let one = || {
        let (mut http, request) = (envoy.data(), Request::get("/").header("x-user-id", "other"));
        http.connect()?;
        let send = |()| {
            let begun = now();
            let answer = http.send(&request)?;
            ensure!(answer.status == 200, "{answer:?}");
            Ok(begun.elapsed())
        };
        let times = iter::repeat_n((), REQUESTS).map(send);
        times.collect::<Result<Vec<Duration>>>()
    };
    let parts: Vec<Result<Vec<Duration>>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(one)).collect();
        let ended = threads.into_iter().map(thread::ScopedJoinHandle::join);
        let part = |end: thread::Result<_>| end.unwrap_or_else(|_| Err(anyhow!("it panicked")));
        ended.map(part).collect()
    });
    let parts = parts.into_iter().collect::<Result<Vec<_>>>()?;
    Ok(parts.concat())
}

/// A column: its title and its value.
type Column = (&'static str, fn(&Found) -> f64);

const COLUMNS: [Column; 5] = [
    ("p50 µs", |found| percentile(found, 500)),
    ("p99 µs", |found| percentile(found, 990)),
    ("p99.9 µs", |found| percentile(found, 999)),
    ("CPU µs/request", |found| {
        let requests = u64::try_from(found.latencies.len()).unwrap_or(u64::MAX);
        found.busy * 1e6 / float(requests)
    }),
    ("CPU ms/s idle", |found| {
        found.idle * 1e3 / (IDLE * u32::try_from(ROUNDS).unwrap_or(1)).as_secs_f64()
    }),
];

/// Prints each value and its ratio to the turn without waiting requests, which comes first.
fn print(found: &mut [(Turn, Found); 3]) {
    for (_, found) in &mut *found {
        found.latencies.sort();
    }
    let titles = COLUMNS.map(|(title, _)| format!("{title:>22}"));
    println!("{:32}{}", "waiting", titles.concat());
    let [(_, unloaded), ..] = &*found;
    for (turn, found) in &*found {
        let cells = COLUMNS.map(|(_, number)| {
            let (number, base) = (number(found), number(unloaded));
            format!("{number:>13.1} ({:>5.2}x)", number / base)
        });
        println!("{:32}{}", turn.name(), cells.concat());
    }
}

/// The latency in microseconds that `thousandths` of the requests do not exceed.
fn percentile(found: &Found, thousandths: usize) -> f64 {
    let times = &found.latencies;
    let place = times.len() * thousandths / 1_000;
    times
        .get(place)
        .map_or(0.0, |time| time.as_secs_f64() * 1e6)
}
