//! Parameters of a fleet-wide limit.

use loudou_limiter::bounds::{MAX_AMOUNT, MAX_PERIOD};
use loudou_limiter::lease::{ENGINE_CLOCK, MAX_ODD_PERIOD};
use serde::{Deserialize, Serialize};

/// A limit whose state is stored in the engine. Time is measured by the engine's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub enum LeaseLimit {
    /// A funnel, or a token bucket that refills continuously: `{"capacity", "amount", "period_ns"}`.
    Leak {
        /// Capacity, in units.
        capacity: u64,
        /// Units added per period.
        amount: u64,
        /// Period.
        period_ns: u64,
    },
    /// A token bucket that refills at intervals: `{"capacity", "amount", "interval_ns"}`. Intervals start at
    /// multiples of their length since the Unix epoch.
    Interval {
        /// Capacity, in units.
        capacity: u64,
        /// Units added per interval.
        amount: u64,
        /// Length of an interval.
        interval_ns: u64,
    },
    /// A fixed window, aligned to the clock: `{"capacity", "window_ns"}`. Windows start at multiples of their
    /// length since the Unix epoch.
    Window {
        /// Units per window.
        capacity: u64,
        /// Length of a window.
        window_ns: u64,
    },
}

/// JSON form of a [`LeaseLimit`].
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Written {
    capacity: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    amount: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    period_ns: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    interval_ns: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    window_ns: Option<u64>,
}

impl TryFrom<Written> for LeaseLimit {
    type Error = &'static str;

    fn try_from(written: Written) -> Result<Self, Self::Error> {
        let capacity = written.capacity;
        let times = (written.period_ns, written.interval_ns, written.window_ns);
        match (written.amount, times) {
            (Some(amount), (Some(period_ns), None, None)) => Ok(Self::Leak {
                capacity,
                amount,
                period_ns,
            }),
            (Some(amount), (None, Some(interval_ns), None)) => Ok(Self::Interval {
                capacity,
                amount,
                interval_ns,
            }),
            (None, (None, None, Some(window_ns))) => Ok(Self::Window {
                capacity,
                window_ns,
            }),
            _ => Err(
                "a limit has capacity, amount and period_ns, or capacity, amount and interval_ns, \
                 or capacity and window_ns",
            ),
        }
    }
}

impl From<LeaseLimit> for Written {
    fn from(limit: LeaseLimit) -> Self {
        let (capacity, time) = (limit.capacity(), Some(limit.time_ns()));
        let written = Self {
            capacity,
            ..Self::default()
        };
        match limit {
            LeaseLimit::Leak { amount, .. } => Self {
                amount: Some(amount),
                period_ns: time,
                ..written
            },
            LeaseLimit::Interval { amount, .. } => Self {
                amount: Some(amount),
                interval_ns: time,
                ..written
            },
            LeaseLimit::Window { .. } => Self {
                window_ns: time,
                ..written
            },
        }
    }
}

impl LeaseLimit {
    /// Returns the capacity, in units.
    pub const fn capacity(self) -> u64 {
        match self {
            Self::Leak { capacity, .. }
            | Self::Interval { capacity, .. }
            | Self::Window { capacity, .. } => capacity,
        }
    }

    /// Returns the length of the period, interval or window.
    const fn time_ns(self) -> u64 {
        match self {
            Self::Leak { period_ns, .. } => period_ns,
            Self::Interval { interval_ns, .. } => interval_ns,
            Self::Window { window_ns, .. } => window_ns,
        }
    }

    /// Returns the field, value and allowed values of the first number that is out of range. A relay rejects the entire
    /// call if any number in a limit is out of range, so a rule with such a limit cannot be fleet-wide.
    pub fn beyond(self) -> Option<(&'static str, u64, String)> {
        let most = u64::from(MAX_AMOUNT);
        let units = |value: u64| (value == 0 || value > most).then(|| format!("1 to {most}"));
        if let Some(allowed) = units(self.capacity()) {
            return Some(("capacity", self.capacity(), allowed));
        }
        let (field, amount) = match self {
            Self::Leak { amount, .. } => ("period_ns", amount),
            Self::Interval { amount, .. } => ("interval_ns", amount),
            Self::Window { .. } => ("window_ns", 1),
        };
        if let Some(allowed) = units(amount) {
            return Some(("amount", amount, allowed));
        }
        let (time, longest) = (self.time_ns(), MAX_PERIOD.get());
        let (clock, most_odd) = (ENGINE_CLOCK.get(), MAX_ODD_PERIOD.get());
        let shortest = match self {
            Self::Leak { .. } => 1,
            Self::Interval { .. } | Self::Window { .. } => clock,
        };
        if time < shortest || time > longest {
            return Some((field, time, format!("{shortest} to {longest}")));
        }
        let odd = time > most_odd && !time.is_multiple_of(clock);
        odd.then(|| {
            let allowed = format!("a multiple of {clock} above {most_odd}");
            (field, time, allowed)
        })
    }
}
