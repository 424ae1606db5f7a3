//! Steady traffic: clients send requests to some addresses until they are stopped, and record when
//! each request was sent and answered.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use crate::clock::{now, pause_for};
use crate::http::{Http, Request};

/// Amount of traffic to each address.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Number of clients. Each has one request at a time.
    pub clients: u32,
    /// Minimum time between two requests of a client.
    pub interval: Duration,
    /// Number of requests per client. `None` for no end.
    pub requests: Option<u32>,
}

/// A request and its answer.
#[derive(Debug, Clone, Copy)]
pub struct Exchange {
    /// Number of the request, over all clients.
    pub number: u64,
    /// Time before the first byte was sent.
    pub sent: Instant,
    /// Time after the answer was read.
    pub got: Instant,
    /// Status of the answer. `None` if the connection ended without an answer.
    pub status: Option<u16>,
}

/// Running clients. Dropping this stops them.
pub struct Traffic {
    shared: Arc<Shared>,
    pace: Pace,
    clients: Vec<JoinHandle<()>>,
}

struct Shared {
    request: Box<dyn Fn(u64) -> Request + Send + Sync>,
    next: AtomicU64,
    is_stopped: AtomicBool,
    log: Mutex<Vec<Exchange>>,
}

impl std::fmt::Debug for Traffic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Traffic")
            .field("pace", &self.pace)
            .finish_non_exhaustive()
    }
}

impl Traffic {
    /// Starts the clients. `request` builds the n-th request.
    pub fn start(
        addresses: impl IntoIterator<Item = SocketAddr>,
        pace: Pace,
        request: impl Fn(u64) -> Request + Send + Sync + 'static,
    ) -> Self {
        let mut traffic = Self {
            shared: Arc::new(Shared {
                request: Box::new(request),
                next: AtomicU64::new(0),
                is_stopped: AtomicBool::new(false),
                log: Mutex::default(),
            }),
            pace,
            clients: Vec::new(),
        };
        for address in addresses {
            traffic.add(address);
        }
        traffic
    }

    /// Starts the clients of another address.
    pub fn add(&mut self, address: SocketAddr) {
        for _ in 0..self.pace.clients {
            let (shared, pace) = (Arc::clone(&self.shared), self.pace);
            let client = thread::spawn(move || shared.run(address, pace));
            self.clients.push(client);
        }
    }

    /// Returns the number of answered requests so far.
    pub fn answered(&self) -> usize {
        self.shared.log().len()
    }

    /// Waits until every client has sent all its requests, whose number must be limited.
    pub fn finish(mut self) -> Result<Vec<Exchange>> {
        self.join()
    }

    /// Stops each client after its current request. Returns the requests in the order of their
    /// answers.
    pub fn stop(mut self) -> Result<Vec<Exchange>> {
        self.shared.is_stopped.store(true, Ordering::Release);
        self.join()
    }

    fn join(&mut self) -> Result<Vec<Exchange>> {
        for client in self.clients.drain(..) {
            client
                .join()
                .map_err(|_panic| anyhow!("a client panicked"))?;
        }
        Ok(std::mem::take(&mut *self.shared.log()))
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.shared.is_stopped.store(true, Ordering::Release);
    }
}

impl Shared {
    fn log(&self) -> MutexGuard<'_, Vec<Exchange>> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, address: SocketAddr, pace: Pace) {
        let mut http = Http::new(address);
        let mut left = pace.requests;
        while left != Some(0) && !self.is_stopped.load(Ordering::Acquire) {
            left = left.map(|left| left.saturating_sub(1));
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let request = (self.request)(number);
            let sent = now();
            let answer = http.send_once(&request).unwrap_or_default();
            let got = now();
            self.log().push(Exchange {
                number,
                sent,
                got,
                status: answer.map(|answer| answer.status),
            });
            pause_for(pace.interval.saturating_sub(sent.elapsed()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::Upstream;

    #[test]
    fn keeps_its_pace_and_notes_answers() -> Result<()> {
        let upstream = Upstream::start_with_log()?;
        let pace = Pace {
            clients: 2,
            interval: Duration::from_millis(5),
            requests: Some(10),
        };
        let begin = now();
        let request = |n| Request::get(&format!("/{n}"));
        let log = Traffic::start([upstream.address()], pace, request).finish()?;
        assert!(begin.elapsed() >= pace.interval * 9);
        let arrivals = upstream.arrivals();
        assert_eq!((log.len(), arrivals.len()), (20, 20));
        for one in log {
            let arrival = arrivals[&format!("/{}", one.number)];
            assert!(one.sent <= arrival && arrival <= one.got, "{one:?}");
            assert_eq!(one.status, Some(200));
        }
        Ok(())
    }
}
