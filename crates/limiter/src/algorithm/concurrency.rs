//! `concurrency`: limits the number of requests in flight.
//!
//! A request is admitted if its cost plus the cost of the requests in flight does not exceed the
//! capacity. The cost is given back when the request's stream ends, for whatever reason. This
//! algorithm suits a backend that can serve only a certain number of requests at once.
//!
//! The end of a request can go unrecorded if a worker dies or the store is too busy. Every cost
//! therefore expires: a cost that is never given back stops counting between `lease` and 2·`lease`
//! after it was taken. A request that runs longer than its lease may no longer be counted, so
//! choose a lease that is longer than any request. At any instant, the requests in flight that are
//! younger than the lease have a total cost of at most `capacity`.
//!
//! The limit has no rate, and a refusal reports no retry time, because units become available only
//! when other requests end.
//!
//! The state consists of two counters: the cost taken since the young generation began, and the
//! cost taken during the preceding lease. Each generation lasts as long as the lease. When a
//! request ends, its cost is subtracted from the generation in which it was taken. The cost of
//! older requests has already expired. If the bucket was evicted or reset in the meantime, it no
//! longer contains the cost, so nothing is subtracted from the cost of other requests.

use serde::Serialize;

use crate::bounds::{BadNumbers, MAX_AMOUNT, MAX_PERIOD};
use crate::convert::Carry;
use crate::decision::BucketRequest;
use crate::decision::Decision;
use crate::meter::{Meter, same};
use crate::meter::{Refund, USED_ONE, Used};
use crate::time::Rate;
use crate::time::{Clock, Nanos};

/// Maximum lease.
pub const MAX_LEASE: Nanos = MAX_PERIOD;
/// Default lease: five minutes.
pub const LEASE: Nanos = Nanos::from_secs(300);

/// Parameters of a limit on requests in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Concurrency {
    capacity: u64,
    lease: Nanos,
}

/// Cost of the requests in flight, by generation.
#[derive(Clone, Copy, Debug)]
struct Flight {
    /// Time at which the young generation expires, which is two leases after it began. The old
    /// generation expires one lease earlier.
    ends: Nanos,
    young: u64,
    old: u64,
}

impl Flight {
    const fn all(self) -> u64 {
        self.young.saturating_add(self.old)
    }

    fn write(self, words: &mut [u64]) {
        if let [ends, young, old] = words {
            *ends = self.ends.get();
            *young = self.young;
            *old = self.old;
        }
    }
}

impl Concurrency {
    /// Creates a limit that allows requests with a total cost of up to `capacity` in flight. A cost
    /// that is not given back expires between `lease` and 2·`lease` after it was taken.
    ///
    /// ```
    /// use loudou_limiter::{Limit, Limits, Nanos, algorithm::Concurrency};
    ///
    /// let in_flight = Concurrency::new(1, Nanos::from_secs(300)).unwrap();
    /// let limits = Limits::new(vec![Limit::new("in-flight", in_flight)]).unwrap();
    /// let mut bucket = limits.start(Nanos::ZERO);
    /// let first = limits.decide(&mut bucket, 1, Nanos::ZERO);
    /// assert!(limits.decide(&mut bucket, 1, Nanos::from_secs(1)).is_refused());
    /// // The first request ends.
    /// limits.release(&mut bucket, 1, first.at(), Nanos::from_secs(2));
    /// assert!(!limits.decide(&mut bucket, 1, Nanos::from_secs(2)).is_refused());
    /// ```
    pub fn new(capacity: u64, lease: Nanos) -> Result<Self, BadNumbers> {
        if capacity == 0 || capacity > u64::from(MAX_AMOUNT) {
            return Err(BadNumbers::Capacity);
        }
        if lease == Nanos::ZERO || lease > MAX_LEASE {
            return Err(BadNumbers::Lease);
        }
        Ok(Self { capacity, lease })
    }

    /// Returns a copy of this limit with the given capacity.
    pub(super) fn with(&self, capacity: Option<u64>) -> Result<Self, BadNumbers> {
        Self::new(capacity.unwrap_or(self.capacity), self.lease)
    }

    pub(crate) const fn lease(&self) -> Nanos {
        self.lease
    }

    const fn two_leases(&self) -> Nanos {
        self.lease.saturating_add(self.lease)
    }

    /// Returns a state with no requests in flight and a young generation that begins now.
    const fn none(&self, now: Nanos) -> Flight {
        Flight {
            ends: now.saturating_add(self.two_leases()),
            young: 0,
            old: 0,
        }
    }

    fn read(&self, words: &[u64], now: Nanos) -> Flight {
        let [ends, young, old] = *words else {
            return self.none(now);
        };
        let ends = Nanos::new(ends);
        let left = ends.since(now);
        if left == Nanos::ZERO || left > self.two_leases() {
            // Either both generations have expired, or the stored end is too far in the future to
            // have been written by this limit.
            return self.none(now);
        }
        if left > self.lease {
            return Flight { ends, young, old };
        }
        Flight {
            ends: ends.saturating_add(self.lease),
            young: 0,
            old: young,
        }
    }

    fn reset_after(&self, flight: Flight, now: Nanos) -> Nanos {
        let left = flight.ends.since(now);
        match (flight.young, flight.old) {
            (0, 0) => Nanos::ZERO,
            (0, _) => left.since(self.lease),
            _ => left,
        }
    }

    fn at(&self, flight: Flight, now: Nanos) -> Decision {
        let remaining = self.capacity.saturating_sub(flight.all());
        Decision::admit(self.capacity, remaining, self.reset_after(flight, now))
    }

    /// Converts the requests in flight from a limit with a different lease. The total cost of these
    /// requests is assigned to a single generation. That generation begins at the earliest time at
    /// which a request in flight can have begun, because earlier requests have expired. The cost
    /// counts for at least one more lease. If the new lease is shorter, it may no longer be
    /// possible to give back the cost of the oldest requests.
    fn taken_over(&self, before: &Self, flight: Flight, now: Nanos) -> Flight {
        if before.lease == self.lease {
            return flight;
        }
        let mut begun = flight.ends.since(before.two_leases());
        if flight.old > 0 {
            begun = begun.since(before.lease);
        }
        // The extra nanosecond ensures that a request that begins at this instant belongs to the
        // generation.
        let least = now.saturating_add(self.lease).saturating_add(Nanos::new(1));
        let ends = least.max(begun.saturating_add(self.two_leases()));
        let young = flight.all();
        Flight {
            ends,
            young,
            old: 0,
        }
    }
}

impl Meter for Concurrency {
    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn rate(&self) -> Option<Rate> {
        None
    }

    fn drain_time(&self) -> Nanos {
        self.lease.saturating_add(self.lease)
    }

    /// The words contain the end of the young generation and each generation's cost in flight.
    fn words(&self) -> usize {
        3
    }

    fn start(&self, words: &mut [u64], clock: Clock) {
        self.none(clock.now).write(words);
    }

    fn decide(&self, words: &mut [u64], request: &BucketRequest) -> Decision {
        let BucketRequest { cost, now, .. } = *request;
        let flight = self.read(words, now);
        if cost == 0 {
            return self.at(flight, now);
        }
        if flight.all().saturating_add(cost) > self.capacity {
            return self.at(flight, now).refused(None);
        }
        let flight = Flight {
            young: flight.young.saturating_add(cost),
            ..flight
        };
        flight.write(words);
        self.at(flight, now)
    }

    fn gives_back(&self) -> bool {
        true
    }

    fn release(&self, words: &mut [u64], cost: u64, taken_at: Nanos, now: Nanos) {
        let mut flight = self.read(words, now);
        let expires = taken_at.saturating_add(self.two_leases());
        if expires >= flight.ends {
            flight.young = flight.young.saturating_sub(cost);
        } else if expires.saturating_add(self.lease) >= flight.ends {
            flight.old = flight.old.saturating_sub(cost);
        } else {
            return;
        }
        flight.write(words);
    }

    fn give_back(&self, words: &mut [u64], refund: &Refund<'_>) -> bool {
        self.release(words, refund.request.cost, refund.request.now, refund.last);
        true
    }

    fn used(&self, words: &[u64], now: Nanos) -> Used {
        Used::from(self.read(words, now).all()).saturating_mul(USED_ONE)
    }

    fn resume(&self, words: &mut [u64], used: Used, clock: Clock) {
        let young = u64::try_from(used.div_ceil(USED_ONE)).unwrap_or(u64::MAX);
        let none = self.none(clock.now);
        Flight { young, ..none }.write(words);
    }

    /// Requests in flight continue to count, even if their cost exceeds the new capacity. The level
    /// of any other algorithm is discarded, because it does not represent requests in flight.
    fn adopt(
        &self,
        words: &mut [u64],
        from: &dyn Meter,
        old: &[u64],
        _carry: Carry,
        clock: Clock,
    ) -> bool {
        let now = clock.now;
        let Some(from) = same::<Self>(from) else {
            self.start(words, clock);
            return true;
        };
        self.taken_over(from, from.read(old, now), now).write(words);
        true
    }
}
