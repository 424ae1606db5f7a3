//! Counts the outcomes of requests under one rule file.

use loudou_limiter::algorithm::Algorithm;
use loudou_limiter::{Nanos, Verdict};
use loudou_rules::evaluate::{Answer, Outcome, RuleOutcome};
use loudou_rules::rule::Mode;

use super::engine::Reported;
use super::keys::KeyCounts;
use super::timeline::{Timeline, VerdictCounts};
use super::top::TopKeys;
use super::waits::Waits;

/// Kinds of refusals that [`SideTally::refused_keys`] counts.
pub(crate) const REFUSED: usize = 0;
pub(crate) const SHADOW_REFUSED: usize = 1;

/// Outcomes of one rule. Once an enforced rule has refused a request, later enforced rules are not
/// evaluated, and the verdicts of earlier rules are overruled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RuleCounts {
    /// Requests that the rule matched.
    pub(crate) matched: u64,
    /// Requests that the rule admitted immediately, enforced or in shadow mode.
    pub(crate) admitted: u64,
    pub(crate) held: u64,
    pub(crate) refused: u64,
    /// Requests that the rule admitted but that a later rule refused.
    pub(crate) overruled: u64,
    /// Requests that the rule, in shadow mode, would have refused.
    pub(crate) shadow_refused: u64,
    pub(crate) shadow_held: u64,
    /// Requests that the rule skipped because they lack a part of its key.
    pub(crate) skipped: u64,
    /// Refusals, including shadow refusals, by limits whose periods are counted from the start of
    /// the process.
    pub(crate) refused_by_phase: u64,
    /// Requests for which the rule fell back to `on_error`.
    pub(crate) gave_up: u64,
}

/// Outcomes of all requests under one rule file.
#[derive(Debug)]
pub(crate) struct SideTally {
    pub(crate) requests: VerdictCounts,
    pub(crate) rules: Vec<RuleCounts>,
    /// Counts of each rule's keys. `counted_keys` is the number of keys over all rules.
    pub(crate) keys: Vec<KeyCounts>,
    counted_keys: usize,
    pub(crate) refused_keys: TopKeys,
    pub(crate) timeline: Timeline,
    pub(crate) waits: Waits,
}

impl SideTally {
    pub(crate) fn new(rules: usize) -> Self {
        Self {
            requests: VerdictCounts::default(),
            rules: vec![RuleCounts::default(); rules],
            keys: (0..rules).map(|_| KeyCounts::default()).collect(),
            counted_keys: 0,
            refused_keys: TopKeys::new(),
            timeline: Timeline::default(),
            waits: Waits::default(),
        }
    }

    pub(crate) fn add(&mut self, outcome: &Outcome, reported: &Reported<'_>, at: Nanos) {
        self.requests.add(reported.verdict);
        self.timeline.add(at, reported.verdict);
        if reported.verdict == Verdict::Hold {
            self.waits.add(outcome.wait());
        }
        for ruled in &outcome.rules {
            let Some(counts) = self.rules.get_mut(ruled.rule) else {
                continue;
            };
            let (refuses, mode) = (ruled.refuses(), ruled.active.rule().mode);
            counts.add(ruled, refuses, mode);
            let Some(key) = &ruled.key else { continue };
            if let Some(keys) = self.keys.get_mut(ruled.rule) {
                keys.add(key, refuses, &mut self.counted_keys);
            }
            if refuses {
                let kind = match mode {
                    Mode::Enforce => REFUSED,
                    Mode::Shadow | Mode::Off => SHADOW_REFUSED,
                };
                self.refused_keys.add_at(ruled.rule, key, kind, at);
            }
        }
    }
}

impl RuleCounts {
    fn add(&mut self, ruled: &RuleOutcome, refuses: bool, mode: Mode) {
        let answer = &ruled.answer;
        self.matched += 1;
        if matches!(answer, Answer::GaveUp(_)) {
            self.gave_up += 1;
        }
        if refuses && is_of_phase(ruled) {
            self.refused_by_phase += 1;
        }
        let holds = matches!(answer, Answer::Decided(decision) if decision.wait() > Nanos::ZERO);
        let enforced = mode == Mode::Enforce;
        let counter = match (answer, refuses, holds) {
            (Answer::Skipped, ..) => &mut self.skipped,
            _ if ruled.overruled => &mut self.overruled,
            (_, true, _) if enforced => &mut self.refused,
            (_, true, _) => &mut self.shadow_refused,
            (_, _, true) if enforced => &mut self.held,
            (_, _, true) => &mut self.shadow_held,
            _ => &mut self.admitted,
        };
        *counter += 1;
    }
}

/// Returns true if the periods of the deciding limit are counted from the start of the process,
/// which is not in the log.
fn is_of_phase(ruled: &RuleOutcome) -> bool {
    let Answer::Decided(decision) = &ruled.answer else {
        return false;
    };
    let limit = ruled.limits().iter().nth(decision.reported_index());
    limit.is_some_and(|limit| has_phase(limit.algorithm()))
}

/// Returns true if the periods of an algorithm are counted from the start of the process.
pub(crate) fn has_phase(algorithm: &Algorithm) -> bool {
    let has_periods = match algorithm {
        Algorithm::SlidingWindow(_) | Algorithm::SlidingCounter(_) => true,
        Algorithm::TokenBucket(_) => !algorithm.drains(),
        _ => false,
    };
    has_periods && !algorithm.reads_wall()
}
