//! A bucket as a table row: its numbers as read, and their estimated values some time later.

use loudou_api::{BucketView, LimitView};
use loudou_limiter::{Nanos, Rate};
use serde::{Deserialize, Serialize};

use super::history::{Rates, WINDOW_NS};
use crate::draw::words::ago;
use loudou_words::meaning::{Standing, enforced_ban, main_limit, refuses_now};
use loudou_words::num::{float, fraction};

/// Identifies a bucket by its rule and key.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct BucketName {
    pub(crate) rule: String,
    pub(crate) key: String,
}

impl BucketName {
    /// Returns the name of the bucket of `rule` for `key`.
    pub(crate) fn new(rule: &str, key: &str) -> Self {
        Self {
            rule: rule.to_owned(),
            key: key.to_owned(),
        }
    }
}

/// A bucket as read in a poll.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) id: BucketName,
    pub(crate) view: BucketView,
    /// Server's clock when the bucket was read.
    pub(crate) as_of_ns: u64,
    /// Request rates, or `None` if the bucket was read only once.
    pub(crate) rates: Option<Rates>,
}

impl Row {
    /// Returns the main limit: the limit that refuses requests or, if none does, the limit with the
    /// highest level.
    pub(crate) fn limit(&self) -> Option<&LimitView> {
        self.view.limits.get(main_limit(&self.view))
    }

    /// Returns the state of the bucket, which also determines the colour of its level.
    pub(crate) fn standing(&self) -> Standing {
        let has_requests = self.rates.is_some_and(|rates| rates.all() > 0.0);
        Standing::over_a_minute(&self.view, has_requests, self.was_refused_lately())
    }

    /// Returns the severity of the state, by which rows are sorted. Request rates are ignored,
    /// because rows would otherwise jump with each request.
    pub(crate) fn severity(&self) -> Standing {
        Standing::over_a_minute(&self.view, false, self.was_refused_lately())
    }

    /// Describes the state, `age` after it was read: `refused 5s ago`.
    pub(crate) fn state(&self, age: Nanos) -> String {
        let standing = self.standing();
        let is_past = matches!(standing, Standing::Refused | Standing::WouldHaveRefused);
        match self.view.refused_at_ns.filter(|_| is_past) {
            Some(at_ns) => {
                let past = self
                    .as_of_ns
                    .saturating_sub(at_ns)
                    .saturating_add(age.get());
                format!("{} {}", standing.word(), ago(past))
            }
            None => standing.word().to_owned(),
        }
    }

    /// Returns the long-term rate of the main limit, per second, or `None` if the limit has no
    /// rate.
    pub(crate) fn allowed_per_second(&self) -> Option<f64> {
        per_second(self.limit()?)
    }

    /// Returns the level of the main limit, `age` after it was read.
    pub(crate) fn level(&self, age: Nanos) -> f64 {
        self.limit().map_or(0.0, |limit| level(limit, age))
    }

    /// Returns the level that a table shows. The level is 1 if and only if the next request would
    /// be refused, even if a fraction of a unit remains.
    pub(crate) fn shown_level(&self) -> f64 {
        const ALMOST: f64 = 0.99;
        if refuses_now(&self.view) {
            1.0
        } else {
            self.level(Nanos::ZERO).min(ALMOST)
        }
    }

    /// Returns the level that determines the colour of a level bar in a table. The colour follows
    /// the state: red if requests are being refused, yellow if they were refused within the last
    /// minute or the next one would be.
    pub(crate) fn tone(&self) -> f64 {
        match self.standing() {
            Standing::Idle | Standing::Fine | Standing::Busy => 0.0,
            Standing::Full | Standing::Held | Standing::WouldHaveRefused | Standing::Refused => 0.8,
            Standing::WouldRefuse | Standing::Refusing | Standing::BanOff | Standing::Banned => 1.0,
        }
    }

    /// Returns the time until the main limit admits a request, `age` after the bucket was read, or
    /// `None` if it is 0 or unknown, or if the key is banned.
    pub(crate) fn retry_after_ns(&self, age: Nanos) -> Option<u64> {
        let wait = match enforced_ban(&self.view) {
            Some(_) => return None,
            None => self.limit()?.retry_after_ns?,
        };
        Some(wait.saturating_sub(age.get())).filter(|wait| *wait > 0)
    }

    /// Returns the remaining time of an enforced ban, `age` after the bucket was read, or `None` if
    /// there is no such ban or it has no end.
    pub(crate) fn ban_left_ns(&self, age: Nanos) -> Option<u64> {
        let until_ns = enforced_ban(&self.view)?.until_ns?;
        let left = until_ns.saturating_sub(self.as_of_ns);
        Some(left.saturating_sub(age.get())).filter(|left| *left > 0)
    }

    /// Returns the time since the last request, `age` after the bucket was read.
    pub(crate) fn idle_ns(&self, age: Nanos) -> u64 {
        let idle = self.as_of_ns.saturating_sub(self.view.last_seen_ns);
        idle.saturating_add(age.get())
    }

    /// Returns the refused requests per second, or 0 if the rate is unknown or the rule is in
    /// shadow mode.
    pub(crate) fn refused(&self) -> f64 {
        self.rates.map_or(0.0, |rates| rates.refused)
    }

    /// Returns true if a request was refused within the last minute, which is the time that the
    /// sparkline shows.
    pub(crate) fn was_refused_lately(&self) -> bool {
        let refused_at_ns = self.view.refused_at_ns;
        refused_at_ns.is_some_and(|at_ns| self.as_of_ns.saturating_sub(at_ns) < WINDOW_NS)
    }

    /// Returns true if the bucket has had no more than one request.
    pub(crate) const fn has_one_request(&self) -> bool {
        self.view.admitted.saturating_add(self.view.refused) <= 1
    }

    /// Returns the requests per second that a rule in shadow mode would have refused, or 0 if
    /// unknown.
    pub(crate) fn would_refuse(&self) -> f64 {
        self.rates.map_or(0.0, |rates| rates.shadow)
    }

    /// Returns the admitted requests per second, or 0 if unknown.
    pub(crate) fn admitted(&self) -> f64 {
        self.rates.map_or(0.0, |rates| rates.admitted)
    }
}

/// Returns the long-term rate of a limit, per second, or `None` if the limit has no rate.
pub(crate) fn per_second(limit: &LimitView) -> Option<f64> {
    let rate = Rate::parse(&limit.rate)?;
    let period_ns = float(rate.period().get().max(1));
    Some(float(rate.amount().into()) * 1e9 / period_ns)
}

/// Returns the level of a limit from 0 to 1, `age` after it was read. Most limits drain over time.
pub(crate) fn level(limit: &LimitView, age: Nanos) -> f64 {
    let (part, whole) = limit.level(age.get());
    fraction(part, whole)
}

/// Returns the units that remain in a limit `age` after it was read, consistent with its level.
pub(crate) fn remaining(limit: &LimitView, age: Nanos) -> u64 {
    let (part, whole) = limit.level(age.get());
    let free = u128::from(whole.saturating_sub(part)).saturating_mul(limit.capacity.into());
    let free = free.checked_div(whole.into()).unwrap_or(0);
    let free = u64::try_from(free).unwrap_or(limit.capacity);
    // The server's count is exact, so it is used unless the limit has drained since it was read.
    limit
        .remaining
        .max(if age > Nanos::ZERO { free } else { 0 })
}

/// Returns the level that determines the colour of a limit. This is the level as read, so that
/// colours change with polls, not with every frame. A limit that refuses requests counts as full.
pub(crate) fn tone(limit: &LimitView) -> f64 {
    if limit.retry_after_ns.is_some() {
        1.0
    } else {
        level(limit, Nanos::ZERO)
    }
}
