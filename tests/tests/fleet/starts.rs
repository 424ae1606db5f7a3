//! An Envoy that starts under load applies changes made at other Envoys from its first request on.

use std::fs;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::clock::pause_for;
use loudou_tests::{Config, Fleet, Http, Operator, Request, VIEW_TOKEN, eventually};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_mins(1);
/// Number of clients that send requests continuously, even while no Envoy listens.
const CLIENTS: usize = 8;
const STARTS: usize = 2;
/// Pause of a client after each response, which leaves the processor to Envoy.
const PACE: Duration = Duration::from_micros(500);

fn rules() -> Value {
    json!([
        {
            "name": "shared", "scope": "fleet", "key": [{ "header": "x-shared" }],
            "limits": [{ "algorithm": "funnel", "capacity": 1_000, "rate": "1000/s" }],
        },
        {
            "name": "here", "key": [{ "header": "x-here" }],
            "limits": [{ "algorithm": "funnel", "capacity": 1_000, "rate": "1000/s" }],
        },
    ])
}

/// Number of responses to a client, by outcome.
#[derive(Default)]
struct Seen {
    passed: AtomicU64,
    refused: AtomicU64,
    unavailable: AtomicU64,
}

/// Returns true if a socket on this machine listens at this port.
fn listens(address: SocketAddr) -> bool {
    let sockets = fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let port = format!(":{:04X}", address.port());
    sockets.lines().any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let local = fields.next().is_some_and(|local| local.ends_with(&port));
        local && fields.nth(1) == Some("0A")
    })
}

/// Sends a request repeatedly until `is_over` is set, and reuses a connection while it lasts.
fn hammer(address: SocketAddr, request: &Request, is_over: &AtomicBool, seen: &Seen) {
    let (mut http, mut is_open) = (Http::new(address), false);
    while !is_over.load(Ordering::Relaxed) {
        // Do not connect to a port without a listener, because the kernel could give the client
        // this port as its source port. Then Envoy could not bind it.
        if !is_open && !listens(address) {
            // The socket listens some time before Envoy's workers accept connections.
            pause_for(PACE * 20);
            continue;
        }
        let answer = http.send(request);
        is_open = answer.is_ok();
        let Ok(answer) = answer else {
            http = Http::new(address);
            continue;
        };
        let count = match answer.status {
            200 => &seen.passed,
            503 => &seen.unavailable,
            _ => &seen.refused,
        };
        count.fetch_add(1, Ordering::Relaxed);
        pause_for(PACE);
    }
}

#[test]
fn a_banned_key_passes_no_envoy_that_starts() -> Result<()> {
    let mut fleet = Fleet::start(2, &rules(), &json!({ "timeout": "1s" }))?;
    let mut operator = Operator::editor(&fleet.envoys[0]);
    operator.ban("shared", "mallory", "")?;
    operator.ban("here", "mallory", "")?;
    drop(operator);
    let banned = ["x-shared", "x-here"].map(|header| Request::get("/").header(header, "mallory"));
    for request in &banned {
        eventually(PATIENCE, "the ban at the other Envoy", || {
            let answer = fleet.envoys[1].data().send(request)?;
            Ok((answer.status == 429).then_some(()))
        })?;
    }
    let (data, admin) = (
        fleet.envoys[1].data_address(),
        fleet.envoys[1].admin_address(),
    );
    let status = Request::get("/v1/status").token(VIEW_TOKEN);
    let status = status.header("host", "localhost");
    let config = Config::new(rules()).fleet(&json!({ "timeout": "1s" }), fleet.relay.address());
    let (is_over, of_data, of_admin) = (AtomicBool::new(false), Seen::default(), Seen::default());
    thread::scope(|scope| {
        for request in banned.iter().cycle().take(CLIENTS) {
            scope.spawn(|| hammer(data, request, &is_over, &of_data));
        }
        scope.spawn(|| hammer(admin, &status, &is_over, &of_admin));
        let started = (0..STARTS).try_for_each(|_| {
            let envoy = fleet.envoys.pop().context("an Envoy")?;
            fleet.envoys.push(envoy.restart(&config)?);
            let before = of_data.refused.load(Ordering::Relaxed);
            eventually(PATIENCE, "requests at the Envoy that started", || {
                let refused = of_data.refused.load(Ordering::Relaxed);
                Ok((refused > before + 200).then_some(()))
            })
        });
        is_over.store(true, Ordering::Relaxed);
        started
    })?;
    let passed = of_data.passed.into_inner();
    ensure!(passed == 0, "{passed} requests of a banned key passed");
    // The admin API knows its rules before its listener opens.
    let unavailable = of_admin.unavailable.into_inner();
    ensure!(
        unavailable == 0,
        "{unavailable} calls of the admin API were too early"
    );
    fleet.stop()
}
