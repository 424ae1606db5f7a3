//! Terms of a lease: the limits that all Envoys share, and the settings that apply to leased
//! tokens.

use alloc::string::String;
use core::fmt;

use smallvec::SmallVec;

use super::shared::{Shared, Unfit};
use crate::limit::{Limits, MAX_LIMITS};
use crate::time::Nanos;

/// Settings that apply to all leases in a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseSettings {
    /// Time for which an Envoy may use leased tokens, measured from when it sends the lease
    /// request.
    pub lease: Nanos,
    /// Timeout of a call to the engine, and maximum time for which a request is held until tokens
    /// arrive.
    pub timeout: Nanos,
    /// Number of units that each Envoy may admit for a key before reporting them to the engine.
    /// With 0, the limit is strict.
    pub credit: u64,
}

/// One key's limits, in the form shared by a fleet, together with the lease settings. Up to two
/// limits are stored without an allocation, so terms are cheap enough to create for each request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    limits: SmallVec<[Shared; 2]>,
    settings: LeaseSettings,
}

/// A limit that a fleet cannot share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotShared {
    /// Name of the limit.
    pub limit: String,
    /// Name of its algorithm.
    pub algorithm: &'static str,
    /// Reason why a fleet cannot share the limit.
    pub why: Unfit,
}

impl fmt::Display for NotShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            limit, algorithm, ..
        } = self;
        write!(f, "limit `{limit}`: ")?;
        match self.why {
            Unfit::Algorithm => write!(
                f,
                "`{algorithm}` cannot be shared by a fleet; funnel, token_bucket and fixed_window can"
            ),
            Unfit::Initial => write!(
                f,
                "a `{algorithm}` of a fleet starts full; leave out `initial`, or set it to `capacity`"
            ),
            Unfit::MaxWait => write!(
                f,
                "a `{algorithm}` of a fleet cannot hold requests for their turn; leave out `max_wait`"
            ),
            Unfit::Clock => write!(
                f,
                "the engine of a fleet computes in whole microseconds; let the period of `{algorithm}` be one"
            ),
            Unfit::Align => write!(
                f,
                "the windows of a `{algorithm}` of a fleet lie on the clock; set `align: clock`"
            ),
            Unfit::Calendar => write!(
                f,
                "the windows of a `{algorithm}` of a fleet have one length; let `window` be a duration"
            ),
        }
    }
}

impl Terms {
    /// Creates the terms of `limits`.
    ///
    /// ```
    /// use loudou_limiter::algorithm::{Funnel, SlidingLog};
    /// use loudou_limiter::lease::{LeaseSettings, Shared, Terms};
    /// use loudou_limiter::{Limit, Limits, Nanos, Rate};
    ///
    /// let settings = LeaseSettings {
    ///     lease: Nanos::from_millis(200),
    ///     timeout: Nanos::from_millis(30),
    ///     credit: 0,
    /// };
    /// let rate = Rate::parse("30/m").unwrap();
    /// let funnel = Limit::new("burst", Funnel::new(15, rate).unwrap());
    /// let terms = Terms::of(&Limits::new(vec![funnel]).unwrap(), &settings).unwrap();
    /// assert_eq!(terms.limits(), [Shared::Leak { capacity: 15, rate }]);
    ///
    /// let log = SlidingLog::new(5, Nanos::from_secs(60), false).unwrap();
    /// let limits = Limits::new(vec![Limit::new("minute", log)]).unwrap();
    /// let refused = Terms::of(&limits, &settings).unwrap_err();
    /// assert_eq!((refused.limit.as_str(), refused.algorithm), ("minute", "sliding_log"));
    /// ```
    pub fn of(limits: &Limits, settings: &LeaseSettings) -> Result<Self, NotShared> {
        let mut shared = SmallVec::new();
        for limit in limits {
            let numbers = limit.algorithm().shared();
            shared.push(numbers.map_err(|why| NotShared {
                limit: limit.name().into(),
                algorithm: limit.algorithm().name(),
                why,
            })?);
        }
        Ok(Self {
            limits: shared,
            settings: *settings,
        })
    }

    /// Creates terms from shared limits. Returns `None` if `limits` is empty, contains more than
    /// [`MAX_LIMITS`] limits, or contains invalid parameters.
    pub fn new(limits: &[Shared], settings: &LeaseSettings) -> Option<Self> {
        let fits = (1..=MAX_LIMITS).contains(&limits.len());
        let valid = limits.iter().all(|limit| limit.check().is_ok());
        (fits && valid).then(|| Self {
            limits: SmallVec::from_slice(limits),
            settings: *settings,
        })
    }

    /// Returns the shared limits, in order.
    pub fn limits(&self) -> &[Shared] {
        &self.limits
    }

    /// Returns the lease settings.
    pub const fn settings(&self) -> LeaseSettings {
        self.settings
    }

    /// Returns the maximum cost of a request that can be admitted.
    pub fn capacity(&self) -> u64 {
        let capacities = self.limits.iter().map(|limit| limit.capacity());
        capacities.min().unwrap_or(0)
    }

    /// Returns the average number of units that refill in the slowest limit during a lease.
    pub(super) fn units_in_lease(&self) -> u64 {
        let units = self.limits.iter();
        let units = units.map(|limit| limit.units_in(self.settings.lease));
        units.min().unwrap_or(0)
    }

    /// Returns the maximum time that `units` take to refill in the slowest limit.
    pub(super) fn time_for(&self, units: u64) -> Nanos {
        let times = self.limits.iter().map(|limit| limit.time_for(units));
        times.max().unwrap_or(Nanos::ZERO)
    }

    /// Returns the time for which an unanswered lease request counts as in flight, which is twice
    /// the timeout of a call.
    pub(super) const fn flight(&self) -> Nanos {
        self.settings.timeout.saturating_add(self.settings.timeout)
    }
}
