//! The bound: the most that all Envoys of a fleet admit, whatever their number.

use super::shared::Shared;
use super::terms::{LeaseSettings, Terms};
use crate::time::Nanos;

/// The most that one Envoy adds to what tokens cover, in units of the credit: what passed on credit before
/// and after the ends of a time, as long as it was not charged.
const CREDITS: u64 = 2;

impl Shared {
    /// The most that a fleet without credit admits in any time of length `span` by this limit, in cost
    /// units. Each of them uses a token that the engine granted at most `lease` earlier.
    ///
    /// ```
    /// use loudou_limiter::lease::Shared;
    /// use loudou_limiter::{Nanos, Rate};
    ///
    /// let rate = Rate::parse("30/m").unwrap();
    /// let (minute, lease) = (Nanos::from_secs(60), Nanos::from_millis(200));
    /// assert_eq!(Shared::Leak { capacity: 15, rate }.most_in(minute, lease), 45);
    /// assert_eq!(Shared::Interval { capacity: 15, rate }.most_in(minute, lease), 75);
    /// // A fixed window ends all leases, and a minute may touch two of its windows.
    /// let window = Shared::Window { capacity: 15, window: minute };
    /// assert_eq!(window.most_in(minute, lease), 30);
    /// ```
    pub fn most_in(self, span: Nanos, lease: Nanos) -> u64 {
        let longer = span.saturating_add(lease);
        match self {
            Self::Leak { capacity, .. } => capacity.saturating_add(self.units_in(longer)),
            Self::Interval { capacity, rate } => {
                let lumps = lumps(longer, rate.period());
                capacity.saturating_add(lumps.saturating_mul(rate.amount().into()))
            }
            Self::Window { capacity, window } => {
                let windows = span.get().div_ceil(window.get().max(1));
                capacity.saturating_mul(windows.saturating_add(1))
            }
        }
    }
}

/// The most multiples of `period` in a time of length `span`, its ends included.
fn lumps(span: Nanos, period: Nanos) -> u64 {
    let whole = span.get().checked_div(period.get()).unwrap_or(0);
    whole.saturating_add(1)
}

impl LeaseSettings {
    /// The units that each Envoy may add to the bound of every limit, because requests pass on credit.
    pub const fn most_on_credit(&self) -> u64 {
        CREDITS.saturating_mul(self.credit)
    }
}

impl Terms {
    /// Whether a key whose requests have this cost gets tokens beforehand if it is much asked for. Where too
    /// little comes back during a lease, each of its requests asks for itself.
    pub fn leases_beforehand(&self, cost: u64) -> bool {
        (1..=self.most_beforehand()).contains(&cost)
    }

    /// The most tokens that are asked for beforehand: half of what comes back during a lease, and a quarter
    /// of the capacity.
    pub(super) fn most_beforehand(&self) -> u64 {
        let most = self.units_in_lease().min(self.capacity().div_euclid(2));
        most.div_euclid(2)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Held, Lease, Phase};
    use super::*;
    use crate::rate::Rate;

    fn terms(limit: Shared) -> Terms {
        let settings = LeaseSettings {
            lease: Nanos::from_millis(200),
            timeout: Nanos::from_millis(30),
            credit: 3,
        };
        Terms::new(&[limit], &settings).expect("valid")
    }

    fn leak(capacity: u64, rate: &str) -> Shared {
        let rate = Rate::parse(rate).expect("a rate");
        Shared::Leak { capacity, rate }
    }

    /// The tokens that a key asks for beforehand after 100 requests in each of many leases.
    fn asked_beforehand(terms: &Terms) -> u64 {
        let mut lease = Lease::default();
        let mut now = Nanos::ZERO;
        for step in 0..1_000_u64 {
            now = Nanos::from_millis(step.saturating_mul(2));
            lease.take(terms, 1, now, Phase::First, false);
        }
        let ask = lease.ask(terms, Held { units: 0, least: 0 }, now);
        ask.map_or(0, |ask| ask.demand.want)
    }

    #[test]
    fn slow_and_small_limits_lease_nothing() {
        for (limit, beforehand) in [
            (leak(100, "1/s"), 0),
            (leak(100, "9/s"), 0),
            (leak(100, "10/s"), 1),
            (leak(3, "1000/s"), 0),
            (leak(4, "1000/s"), 1),
            (leak(100, "100/s"), 10),
            (leak(100, "10000/s"), 25),
        ] {
            let terms = terms(limit);
            assert_eq!(asked_beforehand(&terms), beforehand, "{limit:?}");
            let leases = [1, beforehand, beforehand.saturating_add(1)]
                .map(|cost| terms.leases_beforehand(cost));
            assert_eq!(leases, [beforehand > 0, beforehand > 0, false], "{limit:?}");
            assert_eq!(terms.most_beforehand(), beforehand, "{limit:?}");
        }
    }

    #[test]
    fn lumps_at_both_ends_count() {
        let rate = Rate::parse("10/s").expect("a rate");
        let limit = Shared::Interval { capacity: 5, rate };
        let most = |span: u64, lease: u64| {
            limit.most_in(Nanos::from_millis(span), Nanos::from_millis(lease))
        };
        assert_eq!(
            [most(0, 0), most(999, 0), most(999, 1), most(2_000, 200)],
            [15, 15, 25, 35]
        );
    }

    #[test]
    fn credit_counts_before_and_after() {
        assert_eq!(terms(leak(9, "1/s")).settings().most_on_credit(), 6);
    }
}
