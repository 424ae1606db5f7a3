//! The live edit, as an on-call engineer does it: the real app in a real terminal, on a real Envoy
//! under load.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use loudou_tests::{Config, EDIT_TOKEN, Envoy, Request, eventually, now};
use serde_json::{Value, json};

use self::terminal::Terminal;

mod terminal;

const WORKERS: u32 = 4;
/// More connections than workers, so that every worker has some.
const CONNECTIONS: usize = 16;
/// How soon every worker must have heard of an edit.
const SOON: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(20);

fn rules() -> Value {
    json!([{
        "name": "per-user",
        "key": [{ "header": "x-user-id" }],
        "limits": [{ "name": "burst", "algorithm": "funnel", "capacity": 5, "rate": "1/s" }],
    }])
}

/// Statuses with the instants at which their requests were sent.
#[derive(Default)]
struct Traffic {
    stop: AtomicBool,
    answers: Mutex<Vec<(Instant, u16)>>,
}

impl Traffic {
    /// Sends requests of one user over one connection until told to stop.
    fn send(&self, envoy: &Envoy) -> Result<()> {
        let mut http = envoy.data();
        let request = Request::get("/").header("x-user-id", "alice");
        while !self.stop.load(Ordering::Relaxed) {
            let sent = now();
            let status = http.send(&request)?.status;
            self.answers
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push((sent, status));
        }
        Ok(())
    }

    /// How many requests sent after `since` got `status`.
    fn count(&self, since: Instant, status: u16) -> usize {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers
            .iter()
            .filter(|(sent, got)| *sent > since && *got == status)
            .count()
    }

    /// Waits for a good number of answers with `status` to requests sent after `since`.
    fn wait_for(&self, since: Instant, status: u16) -> Result<()> {
        let what = format!("answers {status}");
        eventually(PATIENCE, &what, || {
            Ok((self.count(since, status) >= 200).then_some(()))
        })
    }
}

/// Runs `work` while requests of alice flow.
fn under_load(envoy: &Envoy, work: impl FnOnce(&Traffic) -> Result<()>) -> Result<()> {
    let traffic = Traffic::default();
    thread::scope(|scope| {
        let senders: Vec<_> = (0..CONNECTIONS)
            .map(|_| scope.spawn(|| traffic.send(envoy)))
            .collect();
        let worked = work(&traffic);
        traffic.stop.store(true, Ordering::Relaxed);
        for sender in senders {
            sender
                .join()
                .map_err(|_| anyhow::anyhow!("a sender panicked"))??;
        }
        worked
    })
}
