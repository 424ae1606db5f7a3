//! The demand of an Envoy for one key, and the engine's grant.

use super::left::Left;
use crate::time::Nanos;

/// The numbers of an ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Units asked for: the units of held requests, and units to lease beforehand.
    pub want: u64,
    /// The least number of units that is of use: the cost of the cheapest held request; 0 for a refill.
    /// The engine grants nothing rather than fewer, because unused tokens are lost.
    pub need: u64,
    /// The units that have passed on credit, and are charged in any case.
    pub debt: u64,
}

/// The engine's answer for one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// The tokens granted; at most [`Demand::want`].
    pub granted: u64,
    /// The part of [`Demand::debt`] that was charged.
    pub charged: u64,
    /// The time until as many units are there as are needed, at least one; zero where all was granted and
    /// the debt left no limit above its capacity.
    pub wait: Nanos,
    /// The units left.
    pub left: Left,
    /// The time until the first window of the limits ends, which the tokens do not outlive; zero without
    /// windows.
    pub ends_in: Nanos,
}
