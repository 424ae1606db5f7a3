//! The latency of a user's requests, alone and beside callers of the admin API.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use loudou_tests::clock::{now, pause_for};
use loudou_tests::cpu::worker_time;
use loudou_tests::{Envoy, Http, Request};

use super::Size;
use super::calls::{Call, Kind};

/// The callers of a call, and the time between two calls of each. Searches follow their cursors at once.
const CALLERS: usize = 2;
const BETWEEN: Duration = Duration::from_millis(50);
/// The connections of the user: enough to reach each worker.
const CONNECTIONS: usize = 8;

/// A user with some connections, who waits for each answer before the next request.
pub(super) struct Data {
    connections: Vec<Http>,
}

impl Data {
    pub(super) fn open(envoy: &Envoy) -> Result<Self> {
        let mut connections: Vec<Http> = (0..CONNECTIONS).map(|_| envoy.data()).collect();
        for http in &mut connections {
            http.connect()?;
        }
        Ok(Self { connections })
    }

    /// One request on each connection; returns the workers' time.
    pub(super) fn round(&mut self, envoy: &Envoy) -> Result<Duration> {
        let before = worker_time(envoy.pid())?;
        self.send(CONNECTIONS, &mut Vec::new())?;
        Ok(worker_time(envoy.pid())?.saturating_sub(before))
    }

    fn send(&mut self, requests: usize, latencies: &mut Vec<Duration>) -> Result<()> {
        let request = Request::get("/0/").header("x-user-id", "user-0000001");
        for n in 0..requests {
            let place = n % CONNECTIONS;
            let Some(http) = self.connections.get_mut(place) else {
                continue;
            };
            let begun = now();
            let answer = http.send(&request)?;
            latencies.push(begun.elapsed());
            ensure!(answer.status == 200, "{answer:?}");
        }
        Ok(())
    }
}

/// The latencies of a user's requests.
#[derive(Debug, Default)]
pub(super) struct Beside {
    alone: Vec<Duration>,
    beside: Vec<Duration>,
}

impl Beside {
    pub(super) fn measure(envoy: &Envoy, call: &Call, size: Size) -> Result<Self> {
        let mut found = Self::default();
        let mut data = Data::open(envoy)?;
        data.send(CONNECTIONS, &mut Vec::new())?;
        for round in 0..2 * size.rounds {
            // Alone, beside, beside, alone: neither comes first more often.
            if matches!(round % 4, 0 | 3) {
                data.send(size.requests_per_round, &mut found.alone)?;
            } else {
                beside(envoy, call, || {
                    data.send(size.requests_per_round, &mut found.beside)
                })?;
            }
        }
        found.alone.sort();
        found.beside.sort();
        Ok(found)
    }

    /// How many times p50 and p99 are what they are without callers.
    pub(super) fn ratios(&self) -> [f64; 2] {
        [500, 990].map(|part| {
            let [alone, beside] = [&self.alone, &self.beside].map(|all| percentile(all, part));
            beside.as_secs_f64() / alone.as_secs_f64().max(1e-6)
        })
    }

    pub(super) fn cells(&self) -> String {
        let cell = |part| {
            let [alone, beside] = [&self.alone, &self.beside].map(|all| percentile(all, part));
            format!("| {} → {} ", alone.as_micros(), beside.as_micros())
        };
        [500, 990].map(cell).concat()
    }
}

/// Does `work` while callers make the call.
fn beside(envoy: &Envoy, call: &Call, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let done = AtomicBool::new(false);
    let is_search = matches!(call.kind, Kind::Search(_));
    thread::scope(|scope| {
        let repeat = || {
            let mut caller = call.caller(envoy);
            while !done.load(Ordering::Acquire) {
                caller.call()?;
                if !is_search {
                    pause_for(BETWEEN);
                }
            }
            anyhow::Ok(())
        };
        let callers: Vec<_> = (0..CALLERS).map(|_| scope.spawn(repeat)).collect();
        let worked = work();
        done.store(true, Ordering::Release);
        for caller in callers {
            caller
                .join()
                .map_err(|_panic| anyhow!("a caller panicked"))??;
        }
        worked
    })
}

fn percentile(sorted: &[Duration], thousandths: usize) -> Duration {
    let place = sorted.len() * thousandths / 1_000;
    sorted.get(place).copied().unwrap_or_default()
}
