//! The only clock of the test harness, and the only module that may pause.

use std::time::{Duration, Instant, SystemTime};

use anyhow::{Result, bail};

/// Interval between two probes of [`eventually`], which is short compared with every wait of a
/// test.
const PAUSE: Duration = Duration::from_millis(5);

/// Returns the monotonic time, for measuring durations.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the clock module of the harness"
)]
pub fn now() -> Instant {
    Instant::now()
}

/// Number of attempts of [`both`].
const ATTEMPTS: usize = 4;

/// Returns the monotonic time and the wall clock at one instant. This thread may lose its processor
/// between the two readings, so the function makes several attempts and returns the attempt with
/// the least time between them.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the clock module of the harness"
)]
pub fn both() -> (Instant, SystemTime) {
    let mut best = None;
    for _ in 0..ATTEMPTS {
        let (before, wall) = (now(), SystemTime::now());
        let took = before.elapsed();
        if best.is_none_or(|(least, _)| took < least) {
            best = Some((took, (before, wall)));
        }
    }
    best.map_or_else(|| (now(), SystemTime::now()), |(_, both)| both)
}

/// Repeats `probe` until it returns a value or an error, or until the deadline has passed.
///
/// `what` completes the sentence "waited 5s for …", so that a time-out names the missing event.
pub fn eventually<T>(
    deadline: Duration,
    what: &str,
    mut probe: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let start = now();
    loop {
        if let Some(value) = probe()? {
            return Ok(value);
        }
        if start.elapsed() >= deadline {
            bail!("waited {deadline:?} for {what}");
        }
        pause_for(PAUSE);
    }
}

/// Waits as long as a server asked its clients to wait, or until a client's next request. To wait
/// for an event, use [`eventually`].
#[expect(
    clippy::disallowed_methods,
    reason = "other processes cannot notify us; every wait of the harness ends here"
)]
pub fn pause_for(time: Duration) {
    std::thread::sleep(time);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_the_first_value() -> Result<()> {
        let mut looks = 0;
        let seen = eventually(Duration::from_secs(5), "three looks", || {
            looks += 1;
            Ok((looks == 3).then_some(looks))
        })?;
        assert_eq!(seen, 3);
        Ok(())
    }

    #[test]
    fn says_what_never_came() {
        let never: Result<()> = eventually(Duration::ZERO, "a miracle", || Ok(None));
        let message = never.expect_err("the probe has no value").to_string();
        assert_eq!(message, "waited 0ns for a miracle");
    }

    #[test]
    fn an_error_ends_the_wait() {
        let broken: Result<()> = eventually(Duration::from_mins(1), "nothing", || bail!("broken"));
        assert_eq!(broken.expect_err("the probe fails").to_string(), "broken");
    }
}
