//! The recent demand for a key in one Envoy, counted per lease.
//!
//! Tokens that nobody uses are lost to the whole fleet until they come back at the limit's rate. So a key
//! gets tokens beforehand only by what will surely come: of the last two leases the one with fewer
//! requests, less two standard deviations of requests at random distances (twice the square root). For
//! less than six requests in a lease that is too little to be halved, and a slow key leases nothing.

use crate::time::Nanos;

/// The spans that are counted: the one that runs, and two that are over.
pub(super) const SPANS: usize = 3;

/// The demand during one lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) units: u32,
    pub(super) requests: u8,
}

/// Demand that will surely come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sure {
    pub(super) units: u64,
    /// Units of one request.
    pub(super) cost: u64,
}

/// Counts of the demand, the span that runs first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Recent {
    /// The beginning of the span that runs.
    pub(super) start: Nanos,
    pub(super) counts: [Count; SPANS],
}

impl Recent {
    /// The counts at `now`, where each span lasts for `lease`.
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

    /// Notes a request.
    pub(super) fn note(&mut self, cost: u64, lease: Nanos, now: Nanos) {
        *self = self.at(lease, now);
        let [running, ..] = &mut self.counts;
        let cost = u32::try_from(cost).unwrap_or(u32::MAX);
        running.units = running.units.saturating_add(cost);
        running.requests = running.requests.saturating_add(1);
    }

    /// The units that a lease will surely use.
    pub(super) fn surely(self, lease: Nanos, now: Nanos) -> Sure {
        let [_, last, before] = self.at(lease, now).counts;
        let requests = u64::from(last.requests.min(before.requests));
        let units = u64::from(last.units.min(before.units));
        let sure = requests.saturating_sub(requests.isqrt().saturating_mul(2));
        let cost = units.div_ceil(requests.max(1));
        Sure {
            units: sure.saturating_mul(cost),
            cost,
        }
    }
}
