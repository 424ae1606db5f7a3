//! The answer of a bucket, and which of its limits it reports.

use smallvec::SmallVec;

use crate::decision::{Decision, Verdict};
use crate::time::Nanos;

/// The decisions of limits, in their order. Most rules have one: an answer is copied often, so it is small.
pub(crate) type Decisions = SmallVec<[Decision; 1]>;

/// A bucket's answer: the verdict, and the decision of every limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketDecision {
    pub(super) at: Nanos,
    pub(super) decisions: Decisions,
    pub(super) reported: usize,
    /// The verdict of the decisions: it is asked for some ten times for each request.
    is_refused: bool,
    wait: Nanos,
    /// [`Nanos::MAX`] if it is not known: an answer is copied often.
    pub(super) more_after: Nanos,
}

impl BucketDecision {
    /// The answer with these decisions.
    pub(crate) fn new(at: Nanos, decisions: Decisions) -> Self {
        let mut answer = Self {
            at,
            decisions,
            reported: 0,
            is_refused: false,
            wait: Nanos::ZERO,
            more_after: Nanos::MAX,
        };
        answer.sum_up();
        answer
    }

    /// Makes the verdict, the wait and the reported limit those of the decisions.
    pub(super) fn sum_up(&mut self) {
        let (mut is_refused, mut wait) = (false, Nanos::ZERO);
        for decision in &self.decisions {
            is_refused |= decision.is_refused();
            wait = wait.max(decision.wait);
        }
        self.is_refused = is_refused;
        self.wait = if is_refused { Nanos::ZERO } else { wait };
        self.reported = match self.decisions.len() {
            0 | 1 => 0,
            _ => reported(&self.decisions),
        };
    }

    /// The same, refused by every limit for an unknown time.
    #[must_use]
    pub fn refused(mut self) -> Self {
        for decision in &mut self.decisions {
            *decision = decision.refused(None);
        }
        self.sum_up();
        self
    }

    /// The decisions, in the order of the limits. When the verdict is a refusal, limits that would
    /// have admitted show their numbers as they stay: nothing was taken.
    pub fn decisions(&self) -> impl Iterator<Item = &Decision> {
        self.decisions.iter()
    }

    /// The instant it was taken at, on the bucket's clock.
    pub const fn at(&self) -> Nanos {
        self.at
    }

    /// The index of the limit to report: the refusing one with the longest wait, else the one with
    /// the smallest share left.
    pub const fn reported_index(&self) -> usize {
        self.reported
    }

    /// The reported limit's decision; `None` only for an empty set.
    pub fn reported(&self) -> Option<&Decision> {
        self.decisions.get(self.reported)
    }

    /// Whether any limit refused.
    pub const fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// The outcome of the request: refused if any limit refuses, else held if any holds.
    pub const fn verdict(&self) -> Verdict {
        if self.is_refused {
            Verdict::Refuse
        } else if self.wait.is_zero() {
            Verdict::Admit
        } else {
            Verdict::Hold
        }
    }

    /// The time for which the request is held: the longest wait of the limits; zero when it is refused.
    pub const fn wait(&self) -> Nanos {
        self.wait
    }

    /// The time until the reported limit has more units than it has left now, if nobody takes any. `None` if it is full,
    /// if that depends on the end of other requests (`concurrency`), and if the request did not ask for it.
    pub fn more_after(&self) -> Option<Nanos> {
        Some(self.more_after).filter(|after| *after < Nanos::MAX)
    }

    /// The time until every limit is full again.
    pub fn reset_after(&self) -> Nanos {
        self.decisions()
            .map(|d| d.reset_after)
            .max()
            .unwrap_or(Nanos::ZERO)
    }
}

/// The index of the limit to report.
fn reported(decisions: &[Decision]) -> usize {
    let mut best: Option<(usize, &Decision)> = None;
    for (index, decision) in decisions.iter().enumerate() {
        if best.is_none_or(|(_, other)| is_reported_before(decision, other)) {
            best = Some((index, decision));
        }
    }
    best.map_or(0, |(index, _)| index)
}

fn is_reported_before(a: &Decision, b: &Decision) -> bool {
    match (a.is_refused(), b.is_refused()) {
        // "Never" (no retry_after) is the longest wait.
        (true, true) => {
            let wait = |d: &Decision| d.retry_after.unwrap_or(Nanos::MAX);
            wait(a) > wait(b)
        }
        (false, false) => a.is_tighter_than(b),
        (refused, _) => refused,
    }
}
