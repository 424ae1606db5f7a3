//! Used capacity in a form that all algorithms share, and a request on its way back.

use crate::ask::Ask;
use crate::time::Nanos;

/// A quantity of used capacity with 32 fractional bits: how one algorithm hands its level to
/// another when the numbers of a live bucket change.
pub(crate) type Used = u128;
/// One cost unit as [`Used`].
pub(crate) const USED_ONE: Used = 1 << 32;

/// The cost that a request took from one limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Back<'a> {
    /// The request that took it.
    pub(crate) ask: Ask,
    /// The state that it found.
    pub(crate) before: &'a [u64],
    /// The units given back since by other requests, whose costs it may have found.
    pub(crate) given: u64,
    /// When the bucket was last touched. Since then only time has passed.
    pub(crate) last: Nanos,
}
