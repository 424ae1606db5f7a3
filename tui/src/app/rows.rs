//! A bucket as a row: its numbers, and their values some time after they were read.

use loudou_api::{BucketView, LimitView};
use loudou_limiter::{Nanos, Rate};
use serde::{Deserialize, Serialize};

use super::history::{Rates, WINDOW_NS};
use crate::draw::words::ago;
use loudou_words::meaning::{Standing, enforced_ban, main_limit};
use loudou_words::num::{float, fraction};

/// The identity of a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct BucketName {
    pub(crate) rule: String,
    pub(crate) key: String,
}

impl BucketName {
    /// The bucket of `rule` for `key`.
    pub(crate) fn new(rule: &str, key: &str) -> Self {
        Self {
            rule: rule.to_owned(),
            key: key.to_owned(),
        }
    }
}

/// One bucket, as of the poll that read it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) id: BucketName,
    pub(crate) view: BucketView,
    /// The server's clock when it was read.
    pub(crate) as_of_ns: u64,
    /// Its rates; `None` if it was read once.
    pub(crate) rates: Option<Rates>,
}

impl Row {
    /// The limit that refuses, or has the highest level.
    pub(crate) fn limit(&self) -> Option<&LimitView> {
        self.view.limits.get(main_limit(&self.view))
    }

    /// Its state.
    pub(crate) fn standing(&self) -> Standing {
        let all = self
            .rates
            .map(|rates| rates.admitted + rates.refused + rates.shadow);
        Standing::of(&self.view, all.is_some_and(|all| all > 0.0))
    }

    /// Its state in words, `age` after it was read: `refused 5s ago`.
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

    /// What that limit allows per second in the long run; `None` if time gives nothing back.
    pub(crate) fn allowed_per_second(&self) -> Option<f64> {
        per_second(self.limit()?)
    }

    /// The level of that limit, `age` after it was read.
    pub(crate) fn level(&self, age: Nanos) -> f64 {
        self.limit().map_or(0.0, |limit| level(limit, age))
    }

    /// The level whose colour that limit has.
    pub(crate) fn tone(&self) -> f64 {
        self.limit().map_or(0.0, tone)
    }

    /// The time until a request is admitted, `age` after it was read; `None` if it is 0 or endless.
    pub(crate) fn retry_after_ns(&self, age: Nanos) -> Option<u64> {
        let wait = match enforced_ban(&self.view) {
            Some(ban) => ban.until_ns?.saturating_sub(self.as_of_ns),
            None => self.limit()?.retry_after_ns?,
        };
        Some(wait.saturating_sub(age.get())).filter(|wait| *wait > 0)
    }

    /// The time since its last request, `age` after it was read.
    pub(crate) fn idle_ns(&self, age: Nanos) -> u64 {
        let idle = self.as_of_ns.saturating_sub(self.view.last_seen_ns);
        idle.saturating_add(age.get())
    }

    /// Refused per second; 0 if unknown, and for a rule in shadow mode.
    pub(crate) fn refused(&self) -> f64 {
        self.rates.map_or(0.0, |rates| rates.refused)
    }

    /// Whether it was refused within the last minute, which its history shows.
    pub(crate) fn was_refused_lately(&self) -> bool {
        let refused_at_ns = self.view.refused_at_ns;
        refused_at_ns.is_some_and(|at_ns| self.as_of_ns.saturating_sub(at_ns) < WINDOW_NS)
    }

    /// Refused per second by a rule in shadow mode, and passed; 0 if unknown.
    pub(crate) fn would_refuse(&self) -> f64 {
        self.rates.map_or(0.0, |rates| rates.shadow)
    }

    /// Admitted per second; 0 if unknown.
    pub(crate) fn admitted(&self) -> f64 {
        self.rates.map_or(0.0, |rates| rates.admitted)
    }
}

/// What a limit allows per second in the long run; `None` if time gives nothing back.
pub(crate) fn per_second(limit: &LimitView) -> Option<f64> {
    let rate = Rate::parse(&limit.rate)?;
    let period_ns = float(rate.period().get().max(1));
    Some(float(rate.amount().into()) * 1e9 / period_ns)
}

/// The level of a limit from 0 to 1, `age` after it was read: most limits drain over time.
pub(crate) fn level(limit: &LimitView, age: Nanos) -> f64 {
    let (part, whole) = limit.level(age.get());
    fraction(part, whole)
}

/// The units left of a limit, `age` after it was read, as its level says.
pub(crate) fn remaining(limit: &LimitView, age: Nanos) -> u64 {
    let (part, whole) = limit.level(age.get());
    let free = u128::from(whole.saturating_sub(part)).saturating_mul(limit.capacity.into());
    let free = free.checked_div(whole.into()).unwrap_or(0);
    let free = u64::try_from(free).unwrap_or(limit.capacity);
    // What the server counted is exact.
    limit
        .remaining
        .max(if age > Nanos::ZERO { free } else { 0 })
}

/// The level whose colour a limit has: as it was read, so that colours change with polls and not with
/// every frame; a refusing limit counts as full.
pub(crate) fn tone(limit: &LimitView) -> f64 {
    if limit.retry_after_ns.is_some() {
        1.0
    } else {
        level(limit, Nanos::ZERO)
    }
}
