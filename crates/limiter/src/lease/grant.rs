//! An Envoy's demand for one key's tokens, and the engine's grant.

use super::remaining::RemainingUnits;
use crate::time::Nanos;

/// The contents of a lease request for one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Number of units requested, both for held requests and in advance.
    pub want: u64,
    /// Minimum grant: the cost of the cheapest held request, or 0 if no request is held. If fewer
    /// units are available, the engine grants nothing, because tokens that no held request can use
    /// would be lost.
    pub need: u64,
    /// Units that the Envoy has already admitted on credit or locally. The engine charges them even
    /// if it grants nothing.
    pub debt: u64,
}

/// The engine's answer for one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// Number of granted tokens, at most [`Demand::want`].
    pub granted: u64,
    /// Number of units of [`Demand::debt`] that were charged.
    pub charged: u64,
    /// Time until [`Demand::need`] units are available, or until one unit is available if none are
    /// needed. Zero if all requested units were granted and the debt did not raise any limit's
    /// usage above its capacity.
    pub wait: Nanos,
    /// Units that remain in each limit.
    pub left: RemainingUnits,
    /// Time until the first of the current windows ends, which is when the tokens expire. Zero if
    /// no limit has windows.
    pub ends_in: Nanos,
}
