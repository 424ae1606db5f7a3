//! What became of the requests under one rule file.

use loudou_limiter::{Nanos, Verdict};
use loudou_rules::active_rule::ActiveRule;
use loudou_rules::evaluate::{Answer, Outcome, RuleOutcome};
use loudou_rules::rule::Mode;

use super::engine::Reported;
use super::timeline::{Counts, Timeline};
use super::top::Top;
use super::waits::Waits;

/// The kinds of refusals in [`Tally::refused_keys`].
pub(crate) const REFUSED: usize = 0;
pub(crate) const SHADOW_REFUSED: usize = 1;

/// What one rule said. An enforced rule behind one that refused was not asked, and what one before it
/// said counts for nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RuleCounts {
    /// Requests that it is for.
    pub(crate) matched: u64,
    /// The requests that it let pass at once, for good or in shadow mode.
    pub(crate) admitted: u64,
    pub(crate) held: u64,
    pub(crate) refused: u64,
    /// What it let in and a rule behind it refused.
    pub(crate) overruled: u64,
    /// What it would have refused and held, in shadow mode.
    pub(crate) shadow_refused: u64,
    pub(crate) shadow_held: u64,
    /// Requests without its key.
    pub(crate) skipped: u64,
    /// Requests that got its `on_error`.
    pub(crate) gave_up: u64,
}

/// What became of all requests.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) requests: Counts,
    pub(crate) rules: Vec<RuleCounts>,
    pub(crate) refused_keys: Top,
    pub(crate) timeline: Timeline,
    pub(crate) waits: Waits,
}

impl Tally {
    pub(crate) fn new(rules: usize) -> Self {
        Self {
            requests: Counts::default(),
            rules: vec![RuleCounts::default(); rules],
            refused_keys: Top::new(rules),
            timeline: Timeline::default(),
            waits: Waits::default(),
        }
    }

    pub(crate) fn add(
        &mut self,
        rules: &[ActiveRule],
        outcome: &Outcome,
        reported: &Reported<'_>,
        at: Nanos,
    ) {
        self.requests.add(reported.verdict);
        self.timeline.add(at, reported.verdict);
        if reported.verdict == Verdict::Hold {
            self.waits.add(outcome.wait(rules));
        }
        for said in &outcome.rules {
            let (Some(active), Some(counts)) =
                (rules.get(said.rule), self.rules.get_mut(said.rule))
            else {
                continue;
            };
            let rule = active.rule();
            let refuses = said.answer.refuses(rule.on_error);
            counts.add(said, refuses, rule.mode);
            if let (true, Some(key)) = (refuses, &said.key) {
                let kind = match rule.mode {
                    Mode::Enforce => REFUSED,
                    Mode::Shadow | Mode::Off => SHADOW_REFUSED,
                };
                self.refused_keys.add(said.rule, key, kind);
            }
        }
    }
}

impl RuleCounts {
    fn add(&mut self, said: &RuleOutcome, refuses: bool, mode: Mode) {
        let answer = &said.answer;
        self.matched += 1;
        if matches!(answer, Answer::GaveUp(_)) {
            self.gave_up += 1;
        }
        let holds = matches!(answer, Answer::Decided(decision) if decision.wait() > Nanos::ZERO);
        let enforced = mode == Mode::Enforce;
        let counter = match (answer, refuses, holds) {
            (Answer::Skipped, ..) => &mut self.skipped,
            _ if said.overruled => &mut self.overruled,
            (_, true, _) if enforced => &mut self.refused,
            (_, true, _) => &mut self.shadow_refused,
            (_, _, true) if enforced => &mut self.held,
            (_, _, true) => &mut self.shadow_held,
            _ => &mut self.admitted,
        };
        *counter += 1;
    }
}
