//! Model of `lease.lua` in wide integers. The script must return equal numbers.

use std::collections::BTreeMap;

use loudou_api::{Lease, LeaseKey, LeaseLimit};

const US: u128 = 1_000;

/// State of one limit: used units in 1/den, as of `mark`, which is a time in µs or the number of a period.
#[derive(Clone, Debug)]
struct State {
    limit: LeaseLimit,
    used: u128,
    mark: u128,
}

/// Returns the units that leak per microsecond, in lowest terms, or 0/1 if the limit does not leak.
fn pace(limit: LeaseLimit) -> (u128, u128) {
    match limit {
        LeaseLimit::Leak {
            amount, period_ns, ..
        } => {
            let num = amount * 1_000;
            let by = gcd(num, period_ns);
            ((num / by).into(), (period_ns / by).into())
        }
        _ => (0, 1),
    }
}

fn den(limit: LeaseLimit) -> u128 {
    pace(limit).1
}

/// Returns the length of a period or window in nanoseconds.
fn period(limit: LeaseLimit) -> u128 {
    match limit {
        LeaseLimit::Leak { .. } => 1,
        LeaseLimit::Interval { interval_ns, .. } => interval_ns.into(),
        LeaseLimit::Window { window_ns, .. } => window_ns.into(),
    }
}

/// Returns true if both limits are equal except for their capacity.
fn same(one: LeaseLimit, other: LeaseLimit) -> bool {
    let without = |limit| match limit {
        LeaseLimit::Leak { .. } => (0, pace(limit).0, pace(limit).1),
        LeaseLimit::Interval { amount, .. } => (1, amount.into(), period(limit)),
        LeaseLimit::Window { .. } => (2, 0, period(limit)),
    };
    without(one) == without(other)
}

fn gcd(one: u64, other: u64) -> u64 {
    if other == 0 {
        one
    } else {
        gcd(other, one % other)
    }
}

impl State {
    fn fresh(limit: LeaseLimit, now: u128) -> Self {
        let mark = match limit {
            LeaseLimit::Leak { .. } => now,
            _ => now * US / period(limit),
        };
        Self {
            limit,
            used: 0,
            mark,
        }
    }

    fn advance(&mut self, now: u128) {
        match self.limit {
            LeaseLimit::Leak { .. } => {
                let passed = now.saturating_sub(self.mark);
                self.used = self.used.saturating_sub(passed * pace(self.limit).0);
                self.mark = now;
            }
            LeaseLimit::Interval { amount, .. } => {
                let number = self.number(now);
                let back = number.saturating_sub(self.mark) * u128::from(amount);
                self.used = self.used.saturating_sub(back);
                self.mark = number;
            }
            LeaseLimit::Window { .. } => {
                let number = self.number(now);
                if number != self.mark {
                    self.used = 0;
                }
                self.mark = number;
            }
        }
    }

    /// Returns the number of the current period. If the clock was set back across the start of a period, that
    /// period does not start again.
    fn number(&self, now: u128) -> u128 {
        let number = now * US / period(self.limit);
        if self.mark == number + 1 {
            self.mark
        } else {
            number
        }
    }

    fn units(&self) -> u128 {
        self.used.div_ceil(den(self.limit))
    }

    /// Returns the microseconds until at most `level` units are used.
    fn until(&self, level: u128, now: u128) -> u128 {
        let over = self.used.saturating_sub(level * den(self.limit));
        let begin = |ahead: u128| ((self.mark + ahead) * period(self.limit)).div_ceil(US) - now;
        match self.limit {
            _ if over == 0 => 0,
            LeaseLimit::Leak { .. } => over.div_ceil(pace(self.limit).0),
            LeaseLimit::Interval { amount, .. } => begin(over.div_ceil(amount.into())),
            LeaseLimit::Window { .. } => begin(1),
        }
    }

    /// Converts the state of another limit to a state of this limit.
    fn from(limit: LeaseLimit, mut old: Self, now: u128) -> Self {
        old.advance(now);
        if same(limit, old.limit) {
            return Self { limit, ..old };
        }
        let is_leak = |limit| matches!(limit, LeaseLimit::Leak { .. });
        let used = if is_leak(limit) && is_leak(old.limit) {
            let (units, part) = (old.used / den(old.limit), old.used % den(old.limit));
            units * den(limit) + (part * den(limit)).div_ceil(den(old.limit))
        } else {
            old.units() * den(limit)
        };
        Self {
            used,
            ..Self::fresh(limit, now)
        }
    }
}

/// States of all keys.
#[derive(Default)]
pub(crate) struct Model(BTreeMap<String, Vec<State>>);

impl Model {
    pub(crate) fn lease(&mut self, key: &LeaseKey, now: u64) -> Lease {
        let now = u128::from(now);
        let old = self.0.remove(&key.key).unwrap_or_default();
        let mut edited = !old.is_empty() && old.len() != key.limits.len();
        let states = key.limits.iter().enumerate().map(|(at, limit)| {
            let found = old.get(at).filter(|state| same(state.limit, *limit));
            let found = found.or_else(|| old.iter().find(|state| same(state.limit, *limit)));
            let Some(state) = found.or_else(|| old.get(at)) else {
                return State::fresh(*limit, now);
            };
            let new = State::from(*limit, state.clone(), now);
            // The limit has changed, or the clock was set back.
            edited |= !same(*limit, state.limit) || state.mark > new.mark;
            new
        });
        let mut states: Vec<State> = states.collect();
        let mut granted = u128::from(key.want);
        for state in &mut states {
            state.used += u128::from(key.debt) * den(state.limit);
            let free = u128::from(state.limit.capacity()).saturating_sub(state.units());
            granted = granted.min(free);
        }
        if granted < u128::from(key.need) {
            granted = 0;
        }
        let lacks = granted < u128::from(key.want);
        let need = u128::from(key.need).max(1);
        let (mut wait, mut left, mut ends) = (0, Vec::new(), u128::MAX);
        let number = |number: u128| u64::try_from(number).unwrap_or(u64::MAX);
        for state in &mut states {
            state.used += granted * den(state.limit);
            let capacity = u128::from(state.limit.capacity());
            left.push(number(capacity.saturating_sub(state.units())));
            if lacks || state.units() > capacity {
                wait = wait.max(state.until(capacity - need.min(capacity), now));
            }
            if let LeaseLimit::Window { window_ns, .. } = state.limit {
                ends = ends.min((state.mark + 1) * u128::from(window_ns) / US - now);
            }
        }
        // A call that takes no units does not write the state.
        let kept = if granted > 0 || key.debt > 0 || edited {
            states.clone()
        } else {
            old
        };
        if states.iter().any(|state| state.used > 0) {
            self.0.insert(key.key.clone(), kept);
        }
        Lease {
            granted: number(granted),
            charged: key.debt,
            wait_us: number(wait.min(1_000_000_000_000_000)),
            left,
            ends_us: if ends == u128::MAX {
                0
            } else {
                number(ends.max(1))
            },
        }
    }
}
