//! The `governor` crate with the numbers that Loudou's limits have here, and a clock that is set by hand:
//! Loudou takes the time as an argument, so governor must not pay for reading one.

use std::cell::Cell;
use std::num::NonZeroU32;
use std::rc::Rc;

use governor::clock::Clock;
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::keyed::HashMapStateStore;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};

/// The capacity of all limits, and their units per second.
pub(crate) const BURST: u32 = 100;
/// The instant of the first request, in nanoseconds.
pub(crate) const START: u64 = 1_000_000_000;
/// Time between two admitted requests, which is twice the time in which a unit comes back.
pub(crate) const APART: u64 = 20_000_000;

/// A limiter with one state.
pub(crate) type Direct = RateLimiter<NotKeyed, InMemoryState, Hand, NoOpMiddleware<Nanos>>;
/// A limiter with a state for each key, in a hash map with a lock.
pub(crate) type Keyed = RateLimiter<String, HashMapStateStore<String>, Hand, NoOpMiddleware<Nanos>>;

/// The time that all clones show.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hand(Rc<Cell<u64>>);

impl Hand {
    pub(crate) fn set(&self, now: u64) {
        self.0.set(now);
    }
}

impl Clock for Hand {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        self.0.get().into()
    }
}

fn quota() -> Quota {
    let burst = NonZeroU32::MIN.saturating_add(BURST.saturating_sub(1));
    Quota::per_second(burst)
}

pub(crate) fn direct() -> (Direct, Hand) {
    let clock = Hand::default();
    (
        RateLimiter::direct_with_clock(quota(), clock.clone()),
        clock,
    )
}

pub(crate) fn keyed() -> (Keyed, Hand) {
    let clock = Hand::default();
    let states = HashMapStateStore::default();
    (RateLimiter::new(quota(), states, clock.clone()), clock)
}
