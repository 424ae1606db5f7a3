//! Live edits on the screen of `loudou` in a real terminal, with a real Envoy under load.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use loudou_tests::{Config, EDIT_TOKEN, Envoy, Request, Terminal, eventually, now};
use serde_json::{Value, json};

mod demo;
mod explaining;
mod leaving;
mod looking;
mod restarts;
mod several;
mod spread;
mod suspending;
mod watching;

const WORKERS: u32 = 4;
/// Number of connections, larger than the number of workers, so that every worker has some.
const CONNECTIONS: usize = 16;
/// Maximum time within which an edit must reach every worker.
const SOON: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(20);

fn rules() -> Value {
    json!([{
        "name": "per-user",
        "key": [{ "header": "x-user-id" }],
        "limits": [{ "name": "burst", "algorithm": "funnel", "capacity": 5, "rate": "1/s" }],
    }])
}

/// Statuses of requests, with the time at which each request was sent.
#[derive(Default)]
struct Traffic {
    stop: AtomicBool,
    answers: Mutex<Vec<(Instant, u16)>>,
}

impl Traffic {
    /// Sends requests of one user over one connection until `stop` is set.
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

    /// Returns the number of requests sent after `since` that got `status`.
    fn count(&self, since: Instant, status: u16) -> usize {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers
            .iter()
            .filter(|(sent, got)| *sent > since && *got == status)
            .count()
    }

    /// Waits for 200 answers with `status` to requests sent after `since`.
    fn wait_for(&self, since: Instant, status: u16) -> Result<()> {
        let goal = format!("answers {status}");
        eventually(PATIENCE, &goal, || {
            Ok((self.count(since, status) >= 200).then_some(()))
        })
    }
}

/// Runs `work` while alice sends requests on all connections.
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
                .map_err(|_panic| anyhow::anyhow!("a sender panicked"))??;
        }
        worked
    })
}

/// Types another capacity and rate into the open form, and confirms the edit.
fn fill_in(terminal: &mut Terminal, capacity: &str, rate: &str) -> Result<()> {
    ask(terminal, capacity, rate)?;
    terminal.press("\r")
}

/// Fills in the form, and continues to the confirmation.
fn ask(terminal: &mut Terminal, capacity: &str, rate: &str) -> Result<()> {
    terminal.shows("capacity")?;
    terminal.press(capacity)?;
    terminal.press("\t")?;
    terminal.press(rate)?;
    // Only a valid form continues. Like the form, the confirmation shows the old and the new value,
    // and only the confirmation shows "Esc back".
    terminal.shows(rate)?;
    terminal.press("\r")?;
    terminal.until("before and after", |screen| {
        screen.contains('→') && screen.contains(capacity) && screen.contains("Esc back")
    })?;
    Ok(())
}

fn capacity_in_force(envoy: &Envoy) -> Result<u64> {
    let rule = envoy
        .admin()
        .send(&Request::get("/v1/rules/per-user").token(EDIT_TOKEN))?
        .json()?;
    let capacity = rule
        .pointer("/rule/limits/0/capacity")
        .and_then(Value::as_u64);
    capacity.ok_or_else(|| anyhow::anyhow!("no capacity in {rule}"))
}

#[test]
fn a_raised_limit_applies_on_every_worker_until_undone() -> Result<()> {
    let envoy = Envoy::start(&Config::new(rules()).concurrency(WORKERS))?;
    under_load(&envoy, |traffic| {
        traffic.wait_for(now(), 429)?;
        let mut terminal = Terminal::open(&envoy, EDIT_TOKEN, &[])?;
        terminal.shows("alice")?;
        terminal.shows("connected")?;
        terminal.press("e")?;
        fill_in(&mut terminal, "1000000", "1000000/s")?;
        terminal.shows("sent")?;
        // The period is counted from the moment at which the screen shows the edit, which is later
        // than the answer.
        let shown = now();
        traffic.wait_for(shown + SOON, 200)?;
        let refused = traffic.count(shown + SOON, 429);
        ensure!(refused == 0, "{refused} refusals after the edit");

        terminal.press("u")?;
        terminal.until("the question", |screen| {
            screen.contains("per-user") && screen.contains('?')
        })?;
        terminal.press("\r")?;
        terminal.shows("undone")?;
        ensure!(capacity_in_force(&envoy)? == 5, "the base is back");
        traffic.wait_for(now(), 429)?;

        terminal.quit()
    })?;
    envoy.stop()
}

#[test]
fn the_terminal_is_restored_however_the_app_ends() -> Result<()> {
    let envoy = Envoy::start(&Config::new(rules()))?;
    envoy
        .data()
        .send(&Request::get("/").header("x-user-id", "alice"))?;
    for signal in ["TERM", "HUP", "INT"] {
        let terminal = Terminal::open(&envoy, EDIT_TOKEN, &[])?;
        terminal.shows("alice")?;
        let pid = terminal.pid()?.to_string();
        let killed = std::process::Command::new("kill")
            .args(["-s", signal, &pid])
            .status()?;
        ensure!(killed.success(), "kill -s {signal}");
        terminal.ended()?;
    }
    for thread in ["screen", "poller"] {
        let terminal = Terminal::open(&envoy, EDIT_TOKEN, &[("LOUDOU_TEST_PANIC", thread)])?;
        let (code, printed) = terminal.ended()?;
        ensure!(
            code != 0 && printed.contains("panic"),
            "{thread}: {code}\n{printed}"
        );
    }
    envoy.stop()
}
