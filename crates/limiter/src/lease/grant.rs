//! Demand of an Envoy for one key, and the engine's grant.

use super::remaining::RemainingUnits;
use crate::time::Nanos;

/// Numbers of a lease request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Number of requested units: for held requests, and in advance.
    pub want: u64,
    /// Minimum number of useful units: the cost of the cheapest held request, or 0 for a refill.
    /// The engine grants nothing rather than fewer units, because unused tokens are lost.
    pub need: u64,
    /// Units that were admitted on credit. The engine charges them even if it grants nothing.
    pub debt: u64,
}

/// Answer of the engine for one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// Number of granted tokens, at most [`Demand::want`].
    pub granted: u64,
    /// Charged part of [`Demand::debt`].
    pub charged: u64,
    /// Time until the needed units are available, at least one. Zero if everything was granted and
    /// the debt put no limit above its capacity.
    pub wait: Nanos,
    /// Remaining units.
    pub left: RemainingUnits,
    /// Time until the first window of the limits ends, when the tokens expire. Zero if no limit has
    /// windows.
    pub ends_in: Nanos,
}
