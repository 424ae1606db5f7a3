//! Putting a bucket of ours into a state that another limiter is in.

use loudou_limiter::{BucketRequest, Nanos};

use crate::replay::Ours;

/// A request with this cost would wait for ever.
pub(crate) const EVER: Option<u64> = Some(u64::MAX);

impl Ours {
    /// Starts again with a bucket that becomes idle exactly `ahead` nanoseconds after `now`. It
    /// starts early enough for whole units to have leaked down to this level.
    pub(crate) fn fill(&mut self, ahead: i128, now: u64) {
        let limit = self.limits.iter().next().expect("a limit").algorithm();
        let (rate, most) = (limit.rate().expect("a rate"), limit.max_cost());
        let (amount, period) = (i128::from(rate.amount()), i128::from(rate.period().get()));
        let ahead = ahead.max(0);
        let mut units = (ahead * amount + period - 1) / period;
        let start = i128::from(now) + ahead - units * period / amount;
        let start = Nanos::new(u64::try_from(start).expect("after the clock's origin"));
        self.bucket = self.limits.start(start);
        while units > 0 {
            let cost = units.min(most.into());
            units -= cost;
            let ask = BucketRequest::new(u64::try_from(cost).expect("positive"), start);
            // If it were refused, later calls would show it.
            let ask = ask.waiting(EVER.map(Nanos::new));
            self.limits.answer(&mut self.bucket, &ask);
        }
    }
}
