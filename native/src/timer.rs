//! The timer of all roles.
//!
//! Envoy gives a module no timer on its workers. One thread waits for the earliest time of all
//! roles, and then asks the role's configuration to wake the role. The thread runs from the first
//! configuration until the process ends, and it holds no configuration alive.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crate::clock;
use crate::plugin::Configuration;

/// The times at which roles want to be woken.
#[derive(Debug, Default)]
struct Times {
    /// Roles by time. The number distinguishes roles with the same time.
    due: BTreeMap<(Instant, u64), Alarm>,
    next_number: u64,
}

/// A role on one worker.
#[derive(Clone, Debug)]
struct Alarm {
    configuration: Weak<Configuration>,
    worker: usize,
}

/// A time that was set. The role cancels it when it sets another time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Set(Instant, u64);

impl Set {
    /// Returns true if the role is due.
    pub(crate) fn is_due(self, now: Instant) -> bool {
        self.0 <= now
    }
}

static TIMES: Mutex<Times> = Mutex::new(Times {
    due: BTreeMap::new(),
    next_number: 0,
});
static CHANGED: Condvar = Condvar::new();
static THREAD: OnceLock<bool> = OnceLock::new();

fn times() -> MutexGuard<'static, Times> {
    TIMES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the thread, once. Returns false if the system refuses it.
pub(crate) fn start() -> bool {
    *THREAD.get_or_init(|| {
        let builder = thread::Builder::new().name("loudou-timer".to_owned());
        builder.spawn(run).is_ok()
    })
}

/// Wakes the role of a worker after `delay`.
pub(crate) fn set(configuration: Weak<Configuration>, worker: usize, delay: Duration) -> Set {
    let mut times = times();
    let number = times.next_number;
    times.next_number = number.wrapping_add(1);
    let at = clock::instant() + delay;
    let alarm = Alarm {
        configuration,
        worker,
    };
    times.due.insert((at, number), alarm);
    if times
        .due
        .first_key_value()
        .is_some_and(|(key, _)| *key == (at, number))
    {
        CHANGED.notify_one();
    }
    Set(at, number)
}

/// Cancels a time.
pub(crate) fn cancel(set: Set) {
    times().due.remove(&(set.0, set.1));
}

fn run() {
    let mut times = times();
    loop {
        let Some(((at, number), alarm)) = times
            .due
            .first_key_value()
            .map(|(key, alarm)| (*key, alarm.clone()))
        else {
            times = CHANGED.wait(times).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        let delay = at.saturating_duration_since(clock::instant());
        if delay.is_zero() {
            times.due.remove(&(at, number));
            drop(times);
            if let Some(configuration) = alarm.configuration.upgrade() {
                // All roles need this thread, so it must outlive a panic, which the hook has logged.
                let wake = AssertUnwindSafe(|| configuration.wake(alarm.worker));
                let _result = catch_unwind(wake);
            }
            times = self::times();
        } else {
            let waited = CHANGED.wait_timeout(times, delay);
            (times, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}
