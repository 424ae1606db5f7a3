//! Recent demand for a key in one Envoy, counted per lease duration.
//!
//! Unused tokens are lost to the whole fleet until the limit refills them at its rate. Tokens are
//! therefore leased in advance only for demand that is nearly certain. This demand is the number of
//! requests in the quieter of the last two leases, minus twice the square root of that number,
//! which is two standard deviations for random arrivals. With fewer than six requests per lease,
//! half of the result is less than one request, so nothing is leased in advance for a slow key.

use crate::time::Nanos;

/// Number of time spans for which demand is counted: the current span and the two previous spans.
/// Each span is as long as a lease.
pub(super) const SPANS: usize = 3;

/// Demand during one time span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) units: u32,
    pub(super) requests: u8,
}

/// Demand expected during the next lease.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExpectedDemand {
    pub(super) units: u64,
    /// Average cost of a request, rounded up.
    pub(super) cost: u64,
}

/// Demand in each time span, starting with the current span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Recent {
    /// Start of the current span.
    pub(super) start: Nanos,
    pub(super) counts: [Count; SPANS],
}

impl Recent {
    /// Shifts the spans so that the current span contains `now`. Each span lasts for `lease`.
    fn at(self, lease: Nanos, now: Nanos) -> Self {
        let gone = now.since(self.start).get();
        let spans = gone.checked_div(lease.get()).unwrap_or(u64::MAX);
        let [running, last, _] = self.counts;
        let none = Count::default();
        let counts = match spans {
            0 => return self,
            1 => [none, running, last],
            2 => [none, none, running],
            _ => [none; SPANS],
        };
        let start = match spans {
            1 | 2 => Nanos::new(
                self.start
                    .get()
                    .saturating_add(lease.get().saturating_mul(spans)),
            ),
            _ => now,
        };
        Self { start, counts }
    }

    /// Counts a request in the current span.
    pub(super) fn note(&mut self, cost: u64, lease: Nanos, now: Nanos) {
        *self = self.at(lease, now);
        let [running, ..] = &mut self.counts;
        let cost = u32::try_from(cost).unwrap_or(u32::MAX);
        running.units = running.units.saturating_add(cost);
        running.requests = running.requests.saturating_add(1);
    }

    /// Returns the demand that is nearly certain during the next lease.
    pub(super) fn expected_demand(self, lease: Nanos, now: Nanos) -> ExpectedDemand {
        let [_, last, before] = self.at(lease, now).counts;
        let requests = u64::from(last.requests.min(before.requests));
        let units = u64::from(last.units.min(before.units));
        let sure = requests.saturating_sub(requests.isqrt().saturating_mul(2));
        let cost = units.div_ceil(requests.max(1));
        ExpectedDemand {
            units: sure.saturating_mul(cost),
            cost,
        }
    }
}
