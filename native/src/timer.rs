//! The timer that all roles share.
//!
//! Envoy provides no timers for modules on its workers. So one thread waits for the earliest
//! deadline of any role, and then asks the role's configuration to wake the role. The thread starts
//! with the first configuration and runs until the process ends; it holds only weak references to
//! configurations.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crate::clock;
use crate::plugin::Configuration;

/// Deadlines of all roles.
#[derive(Debug, Default)]
struct Times {
    /// Roles to wake, ordered by deadline. The number distinguishes entries with the same deadline.
    due: BTreeMap<(Instant, u64), Alarm>,
    next_number: u64,
}

/// The role of one worker, which is to be woken.
#[derive(Clone, Debug)]
struct Alarm {
    configuration: Weak<Configuration>,
    worker: usize,
}

/// A deadline that a role has set. The role cancels it when it sets a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Set(Instant, u64);

impl Set {
    /// Returns true if the deadline has passed.
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

/// Starts the timer thread on the first call. Returns false if the system could not start the
/// thread.
pub(crate) fn start() -> bool {
    *THREAD.get_or_init(|| {
        let builder = thread::Builder::new().name("loudou-timer".to_owned());
        builder.spawn(run).is_ok()
    })
}

/// Sets a deadline at which the worker's role is woken, `delay` from now.
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

/// Cancels a deadline.
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
                // All roles depend on this thread, so it must survive a panic. The panic hook has
                // already logged the panic.
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
