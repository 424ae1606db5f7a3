//! Bounds, checked over every window of the times at which requests passed.

use loudou_limiter::Nanos;
use loudou_limiter::lease::Shared;

/// A request that passed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pass {
    pub(crate) at: u64,
    pub(crate) cost: u64,
    /// Time on the engine's clock.
    pub(crate) engine: u64,
}

/// Returns the largest excess over a bound: the units that passed in some window, minus the units
/// that refill in the window and in the lead before it. Units that refill in part of a nanosecond
/// count as if they refilled in all of it.
pub(crate) fn most_in_a_window(passes: &[Pass], limit: Shared, lead: Nanos) -> i128 {
    match limit {
        Shared::Leak { rate, .. } => {
            let (amount, period): (i128, i128) = (rate.amount().into(), rate.period().get().into());
            let back = |at: u64| i128::from(at) * amount;
            // Scaled by the period, so that nothing is rounded.
            most(passes, lead, &|pass| pass.at, &back, period).div_euclid(period)
        }
        Shared::Interval { rate, .. } => {
            let back = |at: u64| i128::from(at / rate.period().get() * u64::from(rate.amount()));
            most(passes, lead, &|pass| pass.engine, &back, 1)
        }
        Shared::Window { window, .. } => {
            let mut windows = std::collections::BTreeMap::<u64, i128>::new();
            for pass in passes {
                *windows.entry(pass.engine / window.get()).or_default() += i128::from(pass.cost);
            }
            windows.into_values().max().unwrap_or(0)
        }
    }
}

/// Returns the maximum of `sum(i..=j)·scale - (back(t_j) - back(t_i - lead))` over all windows, in
/// one pass.
fn most(
    passes: &[Pass],
    lead: Nanos,
    at: &dyn Fn(&Pass) -> u64,
    back: &dyn Fn(u64) -> i128,
    scale: i128,
) -> i128 {
    let (mut sum, mut least, mut most) = (0, i128::MAX, 0);
    for pass in passes {
        // The origin is long before the first request, so that no lead is cut off.
        least = least.min(sum - back(at(pass).saturating_sub(lead.get())));
        sum += i128::from(pass.cost) * scale;
        most = most.max(sum - back(at(pass)) - least);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::rate;

    fn pass(millis: u64, cost: u64) -> Pass {
        let at = millis * 1_000_000;
        Pass {
            at,
            cost,
            engine: at,
        }
    }

    /// Compares with results computed by hand, and with all windows one by one.
    #[test]
    fn the_walk_finds_the_worst_window() {
        let limit = Shared::Leak {
            capacity: 5,
            rate: rate("1/s"),
        };
        let passes = [
            pass(0, 3),
            pass(1_000, 1),
            pass(9_000, 4),
            pass(9_500, 2),
            pass(10_000, 1),
        ];
        // From 9 s to 10 s: seven minus one.
        assert_eq!(most_in_a_window(&passes, limit, Nanos::ZERO), 6);
        // The refill of two more seconds belongs to each window.
        assert_eq!(most_in_a_window(&passes, limit, Nanos::from_secs(2)), 4);
        let mut naive = 0;
        for i in 0..passes.len() {
            for j in i..passes.len() {
                let sum: u64 = passes[i..=j].iter().map(|pass| pass.cost).sum();
                let back = (passes[j].at - passes[i].at) / 1_000_000_000;
                naive = naive.max(i128::from(sum) - i128::from(back));
            }
        }
        assert_eq!(naive, 6);
    }
}
