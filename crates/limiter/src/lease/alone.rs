//! Decisions without the engine, by the part of one Envoy in the limits, and their price.
//!
//! An Envoy that decides alone must not have two incomes, its part and the leases. So it begins with its part
//! of the units that the engine last reported as left, and its debt grows by the cost of each request that it
//! admits alone. The next ask that is answered charges the debt.

use smallvec::SmallVec;

use super::Lease;
use super::shared::Shared;
use super::terms::Terms;
use crate::decision::Ask;
use crate::limit::{Bucket, BucketDecision, Limits};
use crate::meter::USED_ONE;
use crate::time::{Clock, Nanos};
use crate::wide::mul_div_ceil;

/// The time whose income an Envoy can owe, besides a full bucket of its part. A breaker probes at least this
/// often, so only an Envoy that is cut off for longer admits units that nobody is charged for. Without this
/// bound the fleet would have to pay after an outage for units that came back meanwhile: it would refuse
/// everything for as long again.
pub const OWED_FOR: Nanos = Nanos::from_secs(1);

impl Lease {
    /// Decides on a request without the engine, by the part of one of `envoys` in `limits`; `bucket` is the
    /// state of that part. The cost of an admitted request is owed to the engine.
    ///
    /// ```
    /// use loudou_limiter::lease::{Held, Lease, LeaseSettings, Terms};
    /// use loudou_limiter::{Ask, Limit, Limits, Nanos, Rate, algorithm::Funnel};
    ///
    /// let funnel = Funnel::new(20, Rate::parse("100/s").unwrap()).unwrap();
    /// let limits = Limits::new(vec![Limit::new("burst", funnel)]).unwrap();
    /// let (mut lease, mut bucket) = (Lease::default(), limits.start(Nanos::ZERO));
    /// let mut admitted = 0;
    /// while !lease.decide_alone(&limits, 4, &mut bucket, &Ask::new(1, Nanos::ZERO)).is_refused() {
    ///     admitted += 1;
    /// }
    /// assert_eq!((admitted, lease.debt()), (5, 5));
    /// ```
    pub fn decide_alone(
        &mut self,
        limits: &Limits,
        envoys: u32,
        bucket: &mut Bucket,
        ask: &Ask,
    ) -> BucketDecision {
        let Some(part) = limits.divided(envoys) else {
            return limits.answer(bucket, ask);
        };
        self.drain_part(limits, &part, bucket, ask.not_before(bucket.last).clock());
        let answer = part.answer(bucket, ask);
        if !answer.is_refused() {
            self.owe(ask.cost, &part);
        }
        answer
    }

    /// Lowers what is left in `bucket`, the state of `part`, to the part of the units that the engine reported
    /// last. Otherwise a key that is used up, by this Envoy or by others, would have a full bucket here.
    pub fn drain_part(&self, limits: &Limits, part: &Limits, bucket: &mut Bucket, clock: Clock) {
        let Some(seen) = self.seen() else { return };
        let then = clock.moved_to(seen.at);
        let mut whole = limits.iter();
        part.each(bucket, &mut |place, meter, words| {
            let whole = whole.next().map_or(0, |limit| limit.algorithm().capacity());
            let (own, left) = (meter.capacity(), seen.left.at(place));
            let left = mul_div_ceil(own.into(), left.into(), u128::from(whole.max(1)));
            let left = left.saturating_mul(USED_ONE);
            let mut drained: SmallVec<[u64; 2]> = SmallVec::from_elem(0, words.len());
            meter.resume(&mut drained, meter.full().saturating_sub(left), then);
            if meter.used(&drained, clock.now) > meter.used(words, clock.now) {
                words.copy_from_slice(&drained);
            }
        });
    }

    /// Adds a cost that was admitted alone to the debt.
    fn owe(&mut self, cost: u64, part: &Limits) {
        let parts = part
            .iter()
            .filter_map(|limit| limit.algorithm().shared().ok());
        let most = parts.map(|limit| limit.capacity().saturating_add(limit.units_in(OWED_FOR)));
        let most = most.min().unwrap_or(0);
        let debt = u64::from(self.debt).saturating_add(cost).min(most);
        self.debt = self.debt.max(u32::try_from(debt).unwrap_or(u32::MAX));
    }

    /// Forgets the debt beyond the credit once a window of the limits has ended since `last`, the time of the
    /// previous touch: units of a past window must not be charged to the one that runs.
    pub fn turn(&mut self, terms: &Terms, last: Nanos, clock: Clock) {
        let Some(owed) = u64::from(self.debt).checked_sub(terms.settings().credit) else {
            return;
        };
        let has_turned = |limit: &Shared| match *limit {
            Shared::Window { window, .. } => {
                let since = clock.now.since(last).get();
                let past = clock.wall.get().checked_rem(window.get());
                past.is_some_and(|past| since > past)
            }
            _ => false,
        };
        if owed > 0 && terms.limits().iter().any(has_turned) {
            self.debt = u32::try_from(terms.settings().credit).unwrap_or(u32::MAX);
        }
    }

    /// Takes back the cost of a request that was admitted alone and then did not pass.
    pub fn forgive(&mut self, cost: u64) {
        let debt = u64::from(self.debt).saturating_sub(cost);
        self.debt = u32::try_from(debt).unwrap_or(self.debt);
    }
}
