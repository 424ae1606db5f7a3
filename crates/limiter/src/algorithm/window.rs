//! Arithmetic shared by the window algorithms.

use crate::meter::{USED_ONE, Used};
use crate::time::Nanos;
use crate::time::Rate;
use crate::wide::clamp;

/// Returns the rate at which a limit of `capacity` per `window` admits units.
pub(super) fn rate(capacity: u64, window: Nanos) -> Option<Rate> {
    Rate::new(u32::try_from(capacity).ok()?, window)
}

/// Converts a level to cost units, rounded up.
pub(super) fn units(used: Used) -> u64 {
    clamp(used.div_ceil(USED_ONE))
}

/// Returns the time remaining for a count in a window of length `new`, given that `left` would
/// remain in a window of length `old`. A longer window extends this time by the difference. In a
/// shorter window, this time is at most the length of that window.
pub(super) fn left_after(left: Nanos, old: Nanos, new: Nanos) -> Nanos {
    left.saturating_add(new.since(old)).min(new)
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::algorithm::{
        Algorithm, Align, FixedWindow, SlidingCounter, SlidingLog, SlidingWindow,
    };
    use crate::decision::BucketRequest;
    use crate::time::Clock;

    /// Returns each window algorithm with a capacity of two per two seconds.
    fn all() -> [Algorithm; 6] {
        let window = Nanos::from_secs(2);
        let log = |count_refused| SlidingLog::new(2, window, count_refused).expect("valid");
        let fixed = |align| FixedWindow::new(2, window, align).expect("valid");
        [
            fixed(Align::First).into(),
            fixed(Align::Clock).into(),
            SlidingWindow::new(2, window, 2, None)
                .expect("valid")
                .into(),
            log(false).into(),
            log(true).into(),
            SlidingCounter::new(2, window).expect("valid").into(),
        ]
    }

    #[test]
    fn a_meter_writes_only_what_it_admits() {
        for algorithm in all() {
            let meter = algorithm.meter();
            let mut words = vec![7; meter.words()];
            meter.start(&mut words, Clock::at(Nanos::ZERO));
            assert_eq!(words, vec![0; meter.words()]);
            let decide =
                |words: &mut [u64], cost, now| meter.decide(words, &BucketRequest::new(cost, now));
            assert!(!decide(&mut words, 2, Nanos::ZERO).is_refused());
            let before = words.clone();
            let later = Nanos::from_millis(1_500);
            assert!(decide(&mut words, 2, later).is_refused());
            assert!(decide(&mut words, 3, later).is_refused());
            assert!(!decide(&mut words, 0, later).is_refused());
            // A request with a cost of 0 writes nothing, even after all counts have expired.
            assert!(!decide(&mut words, 0, Nanos::from_secs(5)).is_refused());
            assert_eq!(words, before);
            let noted = meter.note_refusal(&mut words, &BucketRequest::new(1, later));
            assert_eq!(words != before, noted, "{algorithm:?}");
            let noted = words.clone();
            assert!(!meter.note_refusal(&mut words, &BucketRequest::new(0, later)));
            assert_eq!(words, noted);
        }
    }

    /// Converting a level never frees units, and preserves usage in excess of the capacity.
    #[test]
    fn levels_are_written_rounded_up() {
        let now = Nanos::from_secs(1);
        for algorithm in all() {
            let meter = algorithm.meter();
            let mut words = vec![7; meter.words()];
            for (used, expected) in [(0, 0), (1, 1), (USED_ONE, 1), (USED_ONE + 1, 2)] {
                meter.resume(&mut words, used, Clock::at(now));
                let written = meter.used(&words, now);
                assert_eq!(written, expected * USED_ONE, "{algorithm:?}");
            }
            let surplus = meter.max_surplus().min(3);
            words.resize(meter.words() + surplus, 0);
            meter.resume(&mut words, 5 * USED_ONE, Clock::at(now));
            assert_eq!(meter.used(&words, now), 5 * USED_ONE, "{algorithm:?}");
            assert!(
                meter
                    .decide(&mut words, &BucketRequest::new(1, now))
                    .is_refused()
            );
        }
    }
}
