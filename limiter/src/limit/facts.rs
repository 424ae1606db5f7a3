//! Consequences of a set of limits that each decision needs, so that none has to ask every limit for it.

use super::{Limit, is_queue};
use crate::meter::Meter;

/// Consequences of a set of limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    /// [`Limits::words`](super::Limits::words).
    pub(super) words: usize,
    /// The number of queues, see [`is_queue`].
    pub(super) queues: usize,
    /// [`Limits::holds_until_end`](super::Limits::holds_until_end).
    pub(super) holds_until_end: bool,
    /// [`Limits::forgets_losslessly`](super::Limits::forgets_losslessly).
    pub(super) forgets_losslessly: bool,
}

impl Facts {
    pub(super) fn of(limits: &[Limit]) -> Self {
        let meters = || limits.iter().map(|limit| limit.algorithm.meter());
        Self {
            words: meters().map(Meter::words).fold(0, usize::saturating_add),
            queues: meters().filter(|meter| is_queue(*meter)).count(),
            holds_until_end: meters().any(Meter::gives_back),
            forgets_losslessly: meters().all(Meter::forgets_losslessly),
        }
    }
}
