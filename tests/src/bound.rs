//! Checks that passes keep a bound in every time window, even on a slow machine.
//!
//! A request is decided after it was sent and before it is seen behind Envoy, and a busy machine
//! can put any time between these instants. So a pass counts in a window only if it was both sent
//! and seen in it, because then it was certainly decided in it. Jitter therefore never makes a
//! fleet fail that keeps its bound. Both instants are read from this process's clock.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

const SECOND_NS: u128 = 1_000_000_000;
/// Maximum change of a clock's pace while a machine adjusts its clock, as one part in this number.
const SLEW: u128 = 2_000;

/// Instants around the decision on a request that passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pass {
    /// Instant before the decision.
    pub sent: Instant,
    /// Instant after the decision.
    pub seen: Instant,
}

/// Maximum number of passes in a window, as a constant plus a rate multiplied by the window's
/// length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// Number in a window of length zero, without the part for `longer`.
    pub at_once: u64,
    /// Number per second.
    pub per_second: u64,
    /// Time that is added to the length of each window.
    pub longer: Duration,
}

/// Window that comes closest to the bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closest {
    /// Number of passes in the window.
    pub passes: u64,
    /// Maximum number of passes in the window.
    pub most: u64,
    /// Length of the window.
    pub length: Duration,
}

impl fmt::Display for Closest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            passes,
            most,
            length,
        } = self;
        let ms = length.as_millis();
        write!(f, "{passes} of at most {most} in {ms} ms")
    }
}

impl Bound {
    /// Returns the maximum number of passes in a window of this length.
    pub fn most_in(&self, length: Duration) -> u64 {
        let length = length.as_nanos();
        // The clocks of the engine and of the Envoys determine the rate.
        let length = length + length.div_ceil(SLEW) + self.longer.as_nanos();
        let units = (length * u128::from(self.per_second)).div_ceil(SECOND_NS);
        self.at_once
            .saturating_add(u64::try_from(units).unwrap_or(u64::MAX))
    }

    /// Checks every window. Returns the window that comes closest to the bound.
    pub fn check(&self, passes: &[Pass]) -> Result<Option<Closest>> {
        let closest = self.closest(passes);
        if let Some(window) = closest {
            ensure!(window.passes <= window.most, "too many: {window}");
        }
        Ok(closest)
    }

    /// Returns the window that comes closest to the bound, or exceeds it most.
    pub fn closest(&self, passes: &[Pass]) -> Option<Closest> {
        let mut passes = passes.to_vec();
        passes.sort_by_key(|pass| pass.sent);
        let mut closest: Option<Closest> = None;
        // Sorted instants at which the passes from `pass` on were seen.
        let mut seen: Vec<Instant> = Vec::new();
        for pass in passes.iter().rev() {
            let place = seen.partition_point(|at| *at < pass.seen);
            seen.insert(place, pass.seen);
            for (passes, at) in (1..).zip(&seen).skip(place) {
                let length = at.duration_since(pass.sent);
                let window = Closest {
                    passes,
                    most: self.most_in(length),
                    length,
                };
                let is_closer = closest.is_none_or(|other| {
                    window.passes.saturating_add(other.most)
                        > other.passes.saturating_add(window.most)
                });
                if is_closer {
                    closest = Some(window);
                }
            }
        }
        closest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::now;

    const BOUND: Bound = Bound {
        at_once: 2,
        per_second: 10,
        longer: Duration::from_millis(100),
    };

    fn passes(millis: &[(u64, u64)]) -> Vec<Pass> {
        let begin = now();
        let at = |ms| begin + Duration::from_millis(ms);
        let pass = |&(sent, seen): &(u64, u64)| Pass {
            sent: at(sent),
            seen: at(seen),
        };
        millis.iter().map(pass).collect()
    }

    #[test]
    fn finds_the_fullest_window() -> Result<()> {
        assert_eq!(BOUND.check(&[])?, None);
        let even: Vec<_> = (0..20).map(|n| (n * 100, n * 100)).collect();
        assert!(BOUND.check(&passes(&even)).is_ok());
        let close = [&even[..], &[(500, 501), (530, 531)]].concat();
        let closest = BOUND.check(&passes(&close))?.expect("a window");
        assert_eq!((closest.passes, closest.most), (3, 4));
        let many = [&close[..], &[(510, 511), (512, 513)]].concat();
        let error = BOUND.check(&passes(&many)).expect_err("five at once");
        assert!(error.to_string().contains("5 of at most 4"), "{error}");
        Ok(())
    }

    #[test]
    fn what_may_have_been_decided_outside_does_not_count() {
        let late = [(0, 900), (300, 900), (600, 900), (880, 900), (890, 900)];
        assert!(BOUND.check(&passes(&late)).is_ok());
        let early = [(0, 1), (0, 300), (0, 600), (0, 900)];
        assert!(BOUND.check(&passes(&early)).is_ok());
    }
}
