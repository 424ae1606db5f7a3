//! Sends many requests over many kept connections in parallel, and counts the answers by status.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use anyhow::{Context as _, Result, anyhow};

use crate::http::{Http, Request};

/// Numbers of answers by status.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    by_status: BTreeMap<u16, u64>,
}

impl Counts {
    /// Returns the number of answers with this status.
    pub fn of(&self, status: u16) -> u64 {
        self.by_status.get(&status).copied().unwrap_or(0)
    }

    /// Returns the number of all answers.
    pub fn total(&self) -> u64 {
        self.by_status.values().sum()
    }

    /// Counts one answer.
    pub fn add(&mut self, status: u16) {
        *self.by_status.entry(status).or_default() += 1;
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (&status, &count) in &other.by_status {
            *self.by_status.entry(status).or_default() += count;
        }
    }
}

/// Sends `requests` requests over `connections` connections, each in a separate thread, and counts
/// the answers. All connections are open before the first request is sent, so that the first
/// requests of a key really race. `request` builds the n-th request.
pub fn load(
    address: SocketAddr,
    requests: u64,
    connections: usize,
    request: impl Fn(u64) -> Request + Sync,
) -> Result<Counts> {
    let next = AtomicU64::new(0);
    let start = Barrier::new(connections);
    let worker = || {
        let mut http = Http::new(address);
        let connected = http.connect();
        // Threads that failed to connect also reach this, because the others wait for all threads.
        start.wait();
        connected?;
        let mut counts = Counts::default();
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            if n >= requests {
                return Ok(counts);
            }
            let answer = http
                .send(&request(n))
                .with_context(|| format!("request {n}"))?;
            counts.add(answer.status);
        }
    };
    let parts: Vec<Result<Counts>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..connections).map(|_| scope.spawn(worker)).collect();
        let ended = threads.into_iter().map(thread::ScopedJoinHandle::join);
        ended
            .map(|end| end.unwrap_or_else(|_| Err(anyhow!("a load thread panicked"))))
            .collect()
    });
    let mut all = Counts::default();
    for part in parts {
        all.merge(&part?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::Upstream;

    #[test]
    fn sends_as_many_as_asked() -> Result<()> {
        let upstream = Upstream::start()?;
        let counts = load(upstream.address(), 1_000, 8, |n| {
            Request::get(&format!("/{n}"))
        })?;
        assert_eq!(
            (counts.of(200), counts.total(), upstream.requests()),
            (1_000, 1_000, 1_000)
        );
        Ok(())
    }
}
