//! Number of units remaining in the engine for each limit.

use crate::limit::MAX_LIMITS;

/// Remaining units for each limit of a key, in the order of the limits. Limits whose remaining
/// units are unknown are set to 0.
///
/// ```
/// use loudou_limiter::lease::RemainingUnits;
///
/// let left = RemainingUnits::of([3, 970]).unwrap();
/// assert_eq!((left.at(0), left.at(1), left.at(2)), (3, 970, 0));
/// assert_eq!(RemainingUnits::of([1; 9]), None);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemainingUnits([u32; MAX_LIMITS]);

impl RemainingUnits {
    /// Collects the remaining units of each limit, capped at 2^32 - 1. Returns `None` if there are
    /// more than [`MAX_LIMITS`] values.
    pub fn of(units: impl IntoIterator<Item = u64>) -> Option<Self> {
        let mut left = Self::default();
        for (place, units) in units.into_iter().enumerate() {
            *left.0.get_mut(place)? = u32::try_from(units).unwrap_or(u32::MAX);
        }
        Some(left)
    }

    /// Returns the remaining units of the limit at index `place`.
    pub fn at(self, place: usize) -> u64 {
        self.0.get(place).copied().unwrap_or(0).into()
    }

    /// Keeps the units of the first `limits` limits, and sets the units of all others to 0.
    #[must_use]
    pub(super) fn cut(mut self, limits: usize) -> Self {
        if let Some(others) = self.0.get_mut(limits..) {
            others.fill(0);
        }
        self
    }

    /// Returns the first limit's units and the other limits' units, without trailing zeros.
    pub(super) fn split(&self) -> (u32, &[u32]) {
        let [first, later @ ..] = &self.0;
        let zeros = later.iter().rev().take_while(|units| **units == 0).count();
        let known = later.len().saturating_sub(zeros);
        (*first, later.get(..known).unwrap_or_default())
    }

    /// Joins the values that [`Self::split`] returned.
    pub(super) fn joined(first: u32, later: &[u32]) -> Self {
        let units = core::iter::once(&first).chain(later);
        let units = units.take(MAX_LIMITS).copied().map(u64::from);
        Self::of(units).unwrap_or_default()
    }
}
