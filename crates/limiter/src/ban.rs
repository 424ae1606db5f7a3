//! Bans. While a key is banned, all its requests are refused. A ban is imposed by an operator, or
//! as a penalty for frequent refusals.
//!
//! A penalty counts a key's refusals in windows that begin with a refusal, like fail2ban's
//! `maxretry` and `findtime`. A key with `after` refusals in one window is banned. Each subsequent
//! ban is `factor` times as long as the previous one, up to `max`. The number of earlier bans is
//! reset when `max` has passed since the end of a ban, and the number of refusals is reset when the
//! window ends after `within`. A key that has fewer than `after` refusals in every interval of
//! length `within` is therefore never banned, and a key that has twice `after` refusals in such an
//! interval is always banned. Refusals during a ban do not count, so a banned client cannot prolong
//! its ban by sending more requests.

use serde::Serialize;

use crate::decimal::Decimal;
use crate::time::Nanos;

/// Stored end of a ban that lasts until it is lifted: the maximum number of milliseconds that fits
/// in five bytes, about 34 years.
pub const ENDLESS_MS: u64 = (1 << 40) - 1;

/// Rule for penalty bans: how many refusals within a window trigger a ban, and how long the bans
/// last.
///
/// ```
/// use loudou_limiter::{Decimal, Nanos, Penalty, ban::BanHistory};
///
/// // Three refusals in a minute: five minutes, then twice as long each time, at most an hour.
/// let penalty = Penalty {
///     after: 3,
///     within: Nanos::from_secs(60),
///     ban: Nanos::from_secs(300),
///     factor: Decimal::from_thousandths(2_000),
///     max: Nanos::from_secs(3_600),
/// };
/// let mut ban_history = BanHistory::default();
/// for second in [0, 10] {
///     ban_history.strike(&penalty, Nanos::from_secs(second));
///     assert_eq!(ban_history.ban(Nanos::from_secs(second)), None);
/// }
/// let third = Nanos::from_secs(20);
/// ban_history.strike(&penalty, third);
/// let ban = ban_history.ban(third).unwrap();
/// assert_eq!(ban.lasts(third), Some(Nanos::from_secs(300)));
/// assert_eq!(penalty.span(1), Nanos::from_secs(600), "the next one");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Penalty {
    /// Number of refusals that trigger a ban.
    pub after: u16,
    /// Length of the window in which refusals are counted.
    pub within: Nanos,
    /// Length of the first ban.
    pub ban: Nanos,
    /// Ratio of each ban's length to the previous ban's length, at least 1.
    pub factor: Decimal,
    /// Maximum length of a ban. When this time has passed since the end of a ban, earlier bans no
    /// longer count.
    pub max: Nanos,
}

impl Penalty {
    /// Returns the length of a ban that follows `bans` earlier bans.
    pub fn span(&self, bans: u8) -> Nanos {
        let mut span = self.ban;
        for _ in 0..bans {
            if span >= self.max {
                break;
            }
            let longer = u128::from(span.get())
                .saturating_mul(self.factor.thousandths().into())
                .div_euclid(1_000);
            span = Nanos::new(u64::try_from(longer).unwrap_or(u64::MAX));
        }
        span.min(self.max)
    }
}

/// A ban that is in effect.
///
/// ```
/// use loudou_limiter::{Ban, Nanos, ban::BanHistory};
///
/// let (now, hour) = (Nanos::from_secs(10), Nanos::from_secs(3_600));
/// let mut ban_history = BanHistory::default();
/// ban_history.impose(now, Some(hour));
/// assert_eq!(ban_history.ban(now).unwrap().until, Some(now.saturating_add(hour)));
/// ban_history.impose(now, None);
/// assert_eq!(ban_history.ban(now), Some(Ban::ENDLESS));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ban {
    /// End of the ban; `None` if it lasts until it is lifted.
    pub until: Option<Nanos>,
}

impl Ban {
    /// A ban that lasts until it is lifted.
    pub const ENDLESS: Self = Self { until: None };

    /// Returns the remaining duration of the ban at `now`; `None` if it lasts until it is lifted.
    pub fn lasts(&self, now: Nanos) -> Option<Nanos> {
        self.until.map(|until| until.since(now))
    }
}

/// Ban history of a bucket: its last ban, the number of earlier bans, and the refusals counted
/// towards the next ban. Times are in milliseconds on the bucket's clock, as stored in a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BanHistory {
    /// End of the last ban, rounded up, or [`ENDLESS_MS`].
    pub banned_until_ms: u64,
    /// Start of the window in which refusals are counted. If no refusals are counted, this field is
    /// instead the number of nanoseconds by which `banned_until_ms` was rounded up, so that a ban
    /// lasts exactly as long as configured.
    pub since_ms: u64,
    /// Time from which earlier bans and refusals no longer count.
    pub clean_at_ms: u64,
    /// Number of counted refusals.
    pub strikes: u16,
    /// Number of penalty bans that still count.
    pub bans: u8,
}

impl BanHistory {
    /// Returns the ban in effect at `now`, if any.
    pub fn ban(&self, now: Nanos) -> Option<Ban> {
        if !self.is_banned(now.as_millis()) {
            return None;
        }
        if self.banned_until_ms >= ENDLESS_MS {
            return Some(Ban::ENDLESS);
        }
        let until = Nanos::from_millis(self.banned_until_ms).since(self.rounded_by());
        (now < until).then_some(Ban { until: Some(until) })
    }

    /// Returns the amount by which the stored end of the ban was rounded up.
    const fn rounded_by(&self) -> Nanos {
        match (self.strikes, self.since_ms) {
            (0, ns @ 0..1_000_000) => Nanos::new(ns),
            _ => Nanos::ZERO,
        }
    }

    /// Starts a ban of length `span` at `now`, and resets the refusal count.
    fn begin(&mut self, now: Nanos, span: Nanos) {
        let until = now.saturating_add(span);
        self.banned_until_ms = until.millis_ceil().min(ENDLESS_MS.saturating_sub(1));
        self.since_ms = Nanos::from_millis(self.banned_until_ms).since(until).get();
        self.strikes = 0;
    }

    /// Returns true if a ban is in effect or ended less than a millisecond ago.
    pub const fn is_banned(&self, now_ms: u64) -> bool {
        now_ms < self.banned_until_ms
    }

    /// Resets the history once none of its bans or refusals count any longer.
    pub fn settle(&mut self, now: Nanos) {
        if now.as_millis() >= self.clean_at_ms {
            *self = Self::default();
        }
    }

    /// Resets the numbers of refusals and bans if they no longer count under `penalty`.
    pub fn expire(&mut self, penalty: &Penalty, now: Nanos) {
        let now_ms = now.as_millis();
        let forgets_at = self
            .banned_until_ms
            .saturating_add(penalty.max.millis_ceil());
        if now_ms >= forgets_at {
            self.bans = 0;
        }
        let ends_at = self.since_ms.saturating_add(penalty.within.millis_ceil());
        if now_ms >= ends_at {
            self.strikes = 0;
        }
    }

    /// Counts a refusal at `now`, and bans the key if the count reaches [`Penalty::after`].
    pub fn strike(&mut self, penalty: &Penalty, now: Nanos) {
        self.expire(penalty, now);
        if self.strikes == 0 {
            self.since_ms = now.as_millis();
            // The assignment above overwrites the stored rounding of the last ban's end. If that
            // ban ended within this millisecond, its stored end is therefore moved back to the
            // start of the millisecond.
            self.banned_until_ms = self.banned_until_ms.min(self.since_ms);
        }
        self.strikes = self.strikes.saturating_add(1);
        if self.strikes >= penalty.after {
            self.begin(now, penalty.span(self.bans));
            self.bans = self.bans.saturating_add(1);
        }
        self.clean_at_ms = self.forgotten_at_ms(penalty);
    }

    fn forgotten_at_ms(&self, penalty: &Penalty) -> u64 {
        let after = |from_ms: u64, span: Nanos| from_ms.saturating_add(span.millis_ceil());
        let strikes = match self.strikes {
            0 => 0,
            _ => after(self.since_ms, penalty.within),
        };
        let bans = match self.bans {
            0 => self.banned_until_ms,
            _ => after(self.banned_until_ms, penalty.max),
        };
        strikes.max(bans).min(ENDLESS_MS)
    }

    /// Starts a ban of length `span` at `now`, or an endless ban if `span` is `None`, and discards
    /// the earlier history.
    pub fn impose(&mut self, now: Nanos, span: Option<Nanos>) {
        *self = Self::default();
        match span {
            Some(span) => self.begin(now, span),
            None => self.banned_until_ms = ENDLESS_MS,
        }
        self.clean_at_ms = self.banned_until_ms;
    }
}
