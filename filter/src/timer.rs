//! The timer of one worker, set to the time at which it is next needed.
//!
//! Setting it costs a call of the host, so requests do not set it again if it fires soon enough anyway.

use loudou_limiter::Nanos;

use crate::host::Host;

/// The first of two instants at which the timer may be needed.
pub(crate) fn sooner(one: Option<Nanos>, other: Option<Nanos>) -> Option<Nanos> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, None) => one,
        (None, other) => other,
    }
}

/// The timer, as it was last set.
#[derive(Debug)]
pub(crate) struct Timer {
    /// In milliseconds; 0 when it is stopped, and `None` when other code has set it.
    period: Option<u32>,
    fires_at: Nanos,
}

impl Default for Timer {
    fn default() -> Self {
        Self {
            period: None,
            fires_at: Nanos::MAX,
        }
    }
}

impl Timer {
    /// Makes it fire at `needed` or sooner.
    pub(crate) fn fire_by(&mut self, host: &dyn Host, needed: Option<Nanos>, now: Nanos) {
        if needed.is_some_and(|needed| needed < self.fires_at) {
            self.set(host, needed, now);
        }
    }

    /// It has fired: sets it to the time at which it is next needed.
    pub(crate) fn fired(&mut self, host: &dyn Host, needed: Option<Nanos>, now: Nanos) {
        self.set(host, needed, now);
    }

    fn set(&mut self, host: &dyn Host, needed: Option<Nanos>, now: Nanos) {
        let wait = needed.map_or(0, |needed| needed.since(now).millis_ceil().max(1));
        let period = u32::try_from(wait).unwrap_or(u32::MAX);
        if self.period != Some(period) {
            self.period = Some(period);
            host.set_timer_ms(period);
        }
        self.fires_at = match needed {
            Some(_) => now.saturating_add(Nanos::from_millis(period.into())),
            None => Nanos::MAX,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

    /// The period, if it was set since the last call.
    fn set(host: &FakeHost) -> Option<u32> {
        Some(host.timer_ms.replace(UNSET)).filter(|ms| *ms != UNSET)
    }

    const UNSET: u32 = 12_345;
    const AT: fn(u64) -> Nanos = Nanos::from_millis;

    fn fake() -> FakeHost {
        let host = FakeHost::default();
        host.timer_ms.set(UNSET);
        host
    }

    #[test]
    fn the_sooner_instant_is_the_first_there_is() {
        assert_eq!(sooner(None, None), None);
        assert_eq!(sooner(None, Some(AT(3))), Some(AT(3)));
        assert_eq!(sooner(Some(AT(2)), None), Some(AT(2)));
        assert_eq!(sooner(Some(AT(2)), Some(AT(3))), Some(AT(2)));
        assert_eq!(sooner(Some(AT(4)), Some(AT(3))), Some(AT(3)));
    }

    #[test]
    fn it_is_set_only_to_fire_sooner() {
        let (host, mut timer) = (fake(), Timer::default());
        timer.fire_by(&host, None, AT(0));
        assert_eq!(set(&host), None);
        timer.fire_by(&host, Some(AT(250)), AT(0));
        assert_eq!(set(&host), Some(250));
        timer.fire_by(&host, Some(AT(250)), AT(1));
        timer.fire_by(&host, Some(AT(300)), AT(50));
        timer.fire_by(&host, None, AT(60));
        assert_eq!(set(&host), None, "it fires soon enough");
        timer.fire_by(&host, Some(AT(61)), AT(60));
        assert_eq!(set(&host), Some(1));
    }

    #[test]
    fn after_it_has_fired_it_is_set_to_the_next_time() {
        let (host, mut timer) = (fake(), Timer::default());
        timer.fired(&host, None, AT(0));
        assert_eq!(set(&host), Some(0), "other code set it before");
        timer.fire_by(&host, Some(AT(9)), AT(8));
        assert_eq!(set(&host), Some(1));
        timer.fired(&host, Some(AT(10)), AT(9));
        assert_eq!(set(&host), None, "the period is the same");
        timer.fired(&host, Some(Nanos::new(AT(20).get() + 1)), AT(10));
        assert_eq!(set(&host), Some(11), "rounded up");
        timer.fired(&host, Some(AT(20)), AT(30));
        assert_eq!(set(&host), Some(1), "at once");
        timer.fired(&host, None, AT(31));
        assert_eq!(set(&host), Some(0));
        timer.fired(&host, None, AT(32));
        assert_eq!(set(&host), None);
    }
}
