//! Models Kong's `rate-limiting` plugin, as implemented by `access` in
//! `kong/plugins/rate-limiting/handler.lua` and by the policies in `policies/init.lua`.

use jiff::Timestamp;
use jiff::tz::Offset;
use loudou_limiter::Nanos;

use super::{Ask, Said};

/// A period of a Kong limit, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Period {
    /// A second.
    Second,
    /// A minute.
    Minute,
    /// An hour.
    Hour,
    /// A day.
    Day,
    /// A calendar month.
    Month,
    /// A calendar year.
    Year,
}

impl Period {
    /// All periods, each with its name in Kong.
    pub const ALL: [(&'static str, Self); 6] = [
        ("second", Self::Second),
        ("minute", Self::Minute),
        ("hour", Self::Hour),
        ("day", Self::Day),
        ("month", Self::Month),
        ("year", Self::Year),
    ];

    /// Returns the time after which Kong deletes a counter for this period, in seconds.
    const fn lifetime(self) -> u64 {
        match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3_600,
            Self::Day => 86_400,
            Self::Month => 30 * 86_400,
            Self::Year => 365 * 86_400,
        }
    }

    /// Returns the number of the period that contains `now`, which is in seconds since the Unix
    /// epoch.
    fn number(self, now: u64) -> u64 {
        match self {
            Self::Second | Self::Minute | Self::Hour | Self::Day => now.div_euclid(self.lifetime()),
            Self::Month | Self::Year => {
                let now = i64::try_from(now).unwrap_or(i64::MAX);
                let now = Timestamp::from_second(now).unwrap_or(Timestamp::MAX);
                let date = Offset::UTC.to_datetime(now).date();
                let year = u64::try_from(date.year()).unwrap_or(0);
                if self == Self::Year {
                    return year;
                }
                let month = u64::try_from(date.month()).unwrap_or(0);
                year.saturating_mul(12).saturating_add(month)
            }
        }
    }
}

/// The limits of a plugin configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plugin {
    /// Periods, each with its maximum number of requests.
    pub limits: Vec<(Period, u64)>,
    /// True if refused requests also count, as with the `redis` policy.
    pub counts_refused: bool,
}

/// Counters of one client identifier, with one counter per period.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage(Vec<Counter>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counter {
    period: Period,
    number: u64,
    hits: u64,
    /// Time at which Kong deletes the counter.
    expires: Nanos,
}

impl Plugin {
    /// Decides whether a request passes, and returns the answer and the next counters. Kong first
    /// checks all periods, and then counts the request in all of them.
    pub fn ask(&self, usage: Option<&Usage>, ask: &Ask) -> (Said, Usage) {
        let seconds = ask.now.get().div_euclid(1_000_000_000);
        let mut next = usage.cloned().unwrap_or_default();
        let mut said = Said::Pass;
        for (period, most) in &self.limits {
            let number = period.number(seconds);
            let lifetime = Nanos::from_secs(period.lifetime());
            let fresh = Counter {
                period: *period,
                number,
                hits: 0,
                expires: ask.now.saturating_add(lifetime),
            };
            let mut known = next.0.iter().position(|one| one.period == *period);
            if known.is_none() {
                known = Some(next.0.len());
                next.0.push(fresh);
            }
            let Some(counter) = known.and_then(|known| next.0.get_mut(known)) else {
                continue;
            };
            if counter.number != number || counter.expires <= ask.now {
                *counter = fresh;
            }
            if counter.hits >= *most {
                said = Said::Refuse;
            }
            counter.hits = counter.hits.saturating_add(1);
        }
        if said == Said::Refuse && !self.counts_refused {
            return (said, usage.cloned().unwrap_or_default());
        }
        (said, next)
    }
}
