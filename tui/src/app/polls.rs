//! Measures the response times of the admin listener in the last minute, and the gaps between
//! answers in the last five minutes.

use std::collections::VecDeque;

use loudou_limiter::Nanos;

/// Time for which response times are evaluated.
const LATENCY: Nanos = Nanos::from_secs(60);
/// Time for which gaps are evaluated.
const GAPS: Nanos = Nanos::from_secs(300);
/// Maximum number of remembered answers, and of remembered gaps.
const MAX_REMEMBERED: usize = 300;
/// Minimum length of a gap. A gap must also be longer than `GAP_INTERVALS` poll intervals. Shorter
/// gaps do not affect any number on the screen.
const MIN_GAP: Nanos = Nanos::from_secs(2);
const GAP_INTERVALS: u64 = 3;

/// Poll statistics.
#[derive(Clone, Debug, Default)]
pub(crate) struct Polls {
    /// Arrival time of each answer, and the duration of its first call.
    answers: VecDeque<(Nanos, Nanos)>,
    /// End and length of each gap.
    gaps: VecDeque<(Nanos, Nanos)>,
    last: Option<Nanos>,
}

impl Polls {
    /// Records an answer. `interval` is the poll interval that preceded the answer.
    pub(crate) fn note(&mut self, now: Nanos, interval: Nanos, took: Nanos) {
        let gap = self.last.map_or(Nanos::ZERO, |last| now.since(last));
        let longest = Nanos::new(interval.get().saturating_mul(GAP_INTERVALS)).max(MIN_GAP);
        if gap > longest {
            keep(&mut self.gaps, (now, gap));
        }
        if took > Nanos::ZERO {
            keep(&mut self.answers, (now, took));
        }
        self.last = Some(now);
    }

    /// Returns the median and the maximum response time in the last minute.
    pub(crate) fn latency(&self, now: Nanos) -> Option<(Nanos, Nanos)> {
        let mut times = within(&self.answers, now, LATENCY);
        times.sort_unstable();
        Some((*times.get(times.len() / 2)?, *times.last()?))
    }

    /// Returns the number of gaps in the last five minutes, and the length of the longest gap.
    pub(crate) fn gaps(&self, now: Nanos) -> Option<(usize, Nanos)> {
        let gaps = within(&self.gaps, now, GAPS);
        Some((gaps.len(), gaps.iter().copied().max()?))
    }
}

fn keep(all: &mut VecDeque<(Nanos, Nanos)>, new: (Nanos, Nanos)) {
    if all.len() >= MAX_REMEMBERED {
        all.pop_front();
    }
    all.push_back(new);
}

fn within(all: &VecDeque<(Nanos, Nanos)>, now: Nanos, span: Nanos) -> Vec<Nanos> {
    let recent = all.iter().filter(|(at, _)| now.since(*at) <= span);
    recent.map(|(_, value)| *value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = Nanos::from_secs(1);

    #[test]
    fn latency_is_of_the_last_minute() {
        let mut polls = Polls::default();
        assert_eq!(polls.latency(SECOND), None);
        for (at, ms) in [(1, 900), (62, 3), (63, 40), (64, 2)] {
            polls.note(Nanos::from_secs(at), SECOND, Nanos::from_millis(ms));
        }
        let now = Nanos::from_secs(64);
        let (median, worst) = polls.latency(now).expect("three answers");
        assert_eq!((median.as_millis(), worst.as_millis()), (3, 40));
    }

    /// Neither a slow answer nor a long poll interval is reported as a gap.
    #[test]
    fn gaps_are_longer_than_intervals_explain() {
        let mut polls = Polls::default();
        for (at, interval) in [(1, 1), (3, 1), (6, 1), (16, 1), (36, 10)] {
            polls.note(Nanos::from_secs(at), Nanos::from_secs(interval), SECOND);
        }
        let now = Nanos::from_secs(36);
        assert_eq!(polls.gaps(now), Some((1, Nanos::from_secs(10))));
        assert_eq!(polls.gaps(Nanos::from_secs(400)), None);
    }
}
