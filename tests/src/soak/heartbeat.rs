//! Measures how late the timers of the workers may have been.
//!
//! A waiting request is due at an instant, and passes when the timer of its worker next fires. It
//! is never early, but on a busy machine it is late. One connection to each worker, on a listener
//! without the limiter, shows how late. Its requests are answered one after the other, each in a
//! separate turn of the worker's event loop. Each turn fires all timers that were due when it
//! began.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::book::Book;
use super::timeline::At;
use crate::clock::eventually;
use crate::config::HEARTBEAT;
use crate::envoy::Envoy;
use crate::http::{Http, Request};

/// Time between two pulses of a worker.
const PAUSE: Duration = Duration::from_millis(5);
/// Maximum rounding of a timer. It fires after a whole number of milliseconds, and if that was too
/// early, it is set again in whole milliseconds.
const TIMER: u64 = 2_000_000;
const START: Duration = Duration::from_secs(20);

/// A request to a worker, and its answer.
#[derive(Debug, Clone, Copy)]
struct Heartbeat {
    sent: At,
    answered: At,
}

/// Pulses of each worker.
#[derive(Debug)]
pub struct Heartbeats(Vec<Mutex<Vec<Heartbeat>>>);

impl Heartbeats {
    /// Creates an empty list for each worker.
    pub fn new(workers: usize) -> Self {
        Self((0..workers).map(|_| Mutex::default()).collect())
    }

    /// Returns the earliest time at which a request was due that any worker's timer let pass at
    /// `went`.
    ///
    /// The last pulse before `went` may have been answered in the same turn. The turn of the pulse
    /// before that began after that pulse was sent, and fired all timers that were due by then.
    pub fn due_from(&self, went: At) -> At {
        let of = |heartbeats: &[Heartbeat]| {
            let answered = heartbeats.partition_point(|heartbeat| heartbeat.answered <= went);
            let before = answered
                .checked_sub(2)
                .and_then(|place| heartbeats.get(place));
            before.map_or(0, |heartbeat| heartbeat.sent)
        };
        let earliest = self.each(of).min().unwrap_or(0);
        earliest.saturating_sub(TIMER)
    }

    /// Returns the latest time at which a request was decided that arrived at `came`. The turn that
    /// decided it ended before the answer to any pulse that was sent later.
    pub fn decided_until(&self, came: At) -> At {
        let of = |heartbeats: &[Heartbeat]| {
            let sent = heartbeats.partition_point(|heartbeat| heartbeat.sent < came);
            heartbeats
                .get(sent)
                .map_or(At::MAX, |heartbeat| heartbeat.answered)
        };
        self.each(of).max().unwrap_or(At::MAX)
    }

    /// Returns the maximum time between two answers to a worker.
    pub fn longest(&self) -> At {
        let gap = |two: &[Heartbeat]| match two {
            [one, next] => next.answered.saturating_sub(one.answered),
            _ => 0,
        };
        let of = |heartbeats: &[Heartbeat]| heartbeats.windows(2).map(gap).max().unwrap_or(0);
        self.each(of).max().unwrap_or(0)
    }

    fn each<'a>(&'a self, of: impl Fn(&[Heartbeat]) -> At + 'a) -> impl Iterator<Item = At> + 'a {
        self.0.iter().map(move |heartbeats| {
            let heartbeats = heartbeats.lock().unwrap_or_else(PoisonError::into_inner);
            of(&heartbeats)
        })
    }

    fn add(&self, worker: usize, heartbeat: Heartbeat) {
        if let Some(heartbeats) = self.0.get(worker) {
            let mut heartbeats = heartbeats.lock().unwrap_or_else(PoisonError::into_inner);
            heartbeats.push(heartbeat);
        }
    }
}

/// Opens a connection to each worker.
pub fn open(envoy: &Envoy, workers: usize) -> Result<Vec<Http>> {
    let address = envoy
        .listener(HEARTBEAT)?
        .context("no listener for pulses")?;
    let mut all: Vec<Http> = (0..workers).map(|_| Http::new(address)).collect();
    for http in &mut all {
        http.get("/")?;
    }
    let active = format!(r"^listener\.{HEARTBEAT}\.worker_\d+\.downstream_cx_active$");
    eventually(START, "a connection to each worker", || {
        let stats = envoy.stats(&active)?;
        ensure!(stats.len() == workers, "{stats:?}");
        Ok(stats.values().all(|count| *count == 1).then_some(()))
    })?;
    Ok(all)
}

/// Sends pulses to a worker until `stop` is closed.
pub fn run(book: &Book, worker: usize, mut http: Http, stop: &Receiver<()>) {
    let request = Request::get("/");
    while matches!(stop.recv_timeout(PAUSE), Err(RecvTimeoutError::Timeout)) {
        let sent = book.now();
        // A request without an answer is no pulse, so requests may count as later.
        if http
            .send_once(&request)
            .is_ok_and(|answer| answer.is_some())
        {
            let answered = book.now();
            book.heartbeats.add(worker, Heartbeat { sent, answered });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heartbeats(of: [&[[At; 2]]; 2]) -> Heartbeats {
        let all = Heartbeats::new(2);
        for (worker, heartbeats) in of.iter().enumerate() {
            for [sent, answered] in *heartbeats {
                let (sent, answered) = (sent * TIMER, answered * TIMER);
                all.add(worker, Heartbeat { sent, answered });
            }
        }
        all
    }

    #[test]
    fn the_slower_worker_counts() {
        let all = heartbeats([
            &[[10, 11], [20, 21], [30, 31], [40, 41]],
            &[[12, 13], [14, 15], [16, 35]],
        ]);
        let due_from = |went: At| all.due_from(went * TIMER) / TIMER;
        assert_eq!(due_from(50), 13, "a stall until 35");
        assert_eq!(due_from(34), 11, "within the stall");
        assert_eq!(due_from(31), 11);
        assert_eq!(due_from(15), 0, "the first worker has no two pulses yet");
        let decided_until = |came: At| all.decided_until(came * TIMER) / TIMER;
        assert_eq!(decided_until(13), 21);
        assert_eq!(decided_until(15), 35);
        assert_eq!(all.decided_until(20 * TIMER), At::MAX);
        assert_eq!(all.longest() / TIMER, 20);
    }
}
