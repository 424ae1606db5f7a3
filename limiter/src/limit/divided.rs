//! The limits of one Envoy of a fleet whose engine cannot be reached.

use alloc::vec::Vec;

use super::{Limit, Limits};

impl Limits {
    /// Limits for one of `envoys` Envoys that each decide alone: capacities and rates divided by their
    /// number, capacities rounded down but at least 1. `None` if some limit cannot be shared by a fleet.
    ///
    /// A bucket of these limits may have been written for another number of Envoys: the state of a level
    /// is the time until it is empty, which the division leaves alone.
    ///
    /// ```
    /// use loudou_limiter::{Limit, Limits, Nanos, Rate, algorithm::Funnel};
    ///
    /// let funnel = Funnel::new(20, Rate::parse("100/s").unwrap()).unwrap();
    /// let limits = Limits::new(vec![Limit::new("burst", funnel)]).unwrap();
    /// let local = limits.divided(4).unwrap();
    /// let burst = local.iter().next().unwrap().algorithm();
    /// assert_eq!((burst.capacity(), burst.rate()), (5, Rate::parse("100/4s")));
    /// ```
    pub fn divided(&self, envoys: u32) -> Option<Self> {
        let divided = self.list.iter().map(|limit| {
            Some(Limit {
                name: limit.name.clone(),
                algorithm: limit.algorithm.divided(envoys.max(1))?,
            })
        });
        Self::new(divided.collect::<Option<Vec<_>>>()?)
    }
}
