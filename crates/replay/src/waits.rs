//! Histogram of the delays of held requests. The upper bounds of the steps are 1, 2 and 5 times a
//! power of ten.

use loudou_limiter::Nanos;

const STEPS: [u64; 3] = [1, 2, 5];
/// Number of decades. The steps range from 1 microsecond to 5 000 seconds.
const DECADES: usize = 10;

/// Histogram of delays.
#[derive(Clone, Debug)]
pub(crate) struct Waits {
    /// Number of delays in each step. The last element counts delays beyond all steps.
    counts: [u64; 3 * DECADES + 1],
    pub(crate) count: u64,
    pub(crate) longest: Nanos,
    pub(crate) total: u128,
}

impl Default for Waits {
    fn default() -> Self {
        Self {
            counts: [0; 3 * DECADES + 1],
            count: 0,
            longest: Nanos::ZERO,
            total: 0,
        }
    }
}

/// Returns the inclusive upper bounds of the steps, in nanoseconds.
fn bounds() -> impl Iterator<Item = u64> {
    let decades = (3..)
        .take(DECADES)
        .map(|digits| 10_u64.saturating_pow(digits));
    decades.flat_map(|decade| STEPS.map(|step| step * decade))
}

impl Waits {
    pub(crate) fn add(&mut self, wait: Nanos) {
        self.count += 1;
        self.total += u128::from(wait.get());
        self.longest = self.longest.max(wait);
        let step = bounds().position(|bound| wait.get() <= bound);
        let step = step.unwrap_or(3 * DECADES);
        if let Some(count) = self.counts.get_mut(step) {
            *count += 1;
        }
    }

    /// Returns the upper bound and the count of each step, in ascending order. The bound is `None`
    /// if the step is unbounded.
    pub(crate) fn steps(&self) -> Vec<(Option<u64>, u64)> {
        let ends = bounds().map(Some).chain([None]);
        let mut steps: Vec<_> = ends.zip(self.counts).collect();
        let last = steps.iter().rposition(|(_, count)| *count > 0);
        steps.truncate(last.map_or(0, |last| last + 1));
        let first = steps.iter().position(|(_, count)| *count > 0);
        steps.drain(..first.unwrap_or(0));
        steps
    }

    /// Returns the mean delay.
    pub(crate) fn mean(&self) -> Nanos {
        let mean = self.total.checked_div(u128::from(self.count)).unwrap_or(0);
        Nanos::new(u64::try_from(mean).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_fall_into_steps() {
        let mut waits = Waits::default();
        assert_eq!((waits.steps(), waits.mean()), (vec![], Nanos::ZERO));
        for ns in [1_000_000, 1_000_001, 2_000_000, 10_000_000] {
            waits.add(Nanos::new(ns));
        }
        let ms = 1_000_000;
        let expected = [
            (Some(ms), 1),
            (Some(2 * ms), 2),
            (Some(5 * ms), 0),
            (Some(10 * ms), 1),
        ];
        assert_eq!(waits.steps(), expected);
        assert_eq!(
            (waits.mean(), waits.longest),
            (Nanos::new(3_500_000), Nanos::new(10 * ms))
        );
        waits.add(Nanos::MAX);
        waits.add(Nanos::new(1));
        let steps = waits.steps();
        assert_eq!(steps.first(), Some(&(Some(1_000), 1)));
        assert_eq!(steps.last(), Some(&(None, 1)));
        assert_eq!(steps.len(), 3 * DECADES + 1);
    }
}
