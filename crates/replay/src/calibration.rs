//! How often a replay agrees with what the log's proxy did. A refusal there is one by the filter's own verdict, or, in a
//! log without such a refusal, an answer with a status with which a rule of the file refuses.

use loudou_limiter::Verdict;
use loudou_rules::rule::{Mode, Rule};

use super::record::LoggedRequest;
use super::verdict::LogVerdict;

/// Requests by what the log and the replay say of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Calibration {
    statuses: Vec<u16>,
    /// Whether the filter's refusals were found in the log.
    pub(crate) has_verdicts: bool,
    by_verdict: Agreement,
    by_status: Agreement,
}

/// Requests by whether the log and the replay refuse them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Agreement {
    /// Refused by both.
    pub(crate) both_refused: u64,
    /// Refused in the log alone.
    pub(crate) only_log: u64,
    /// Refused in the replay alone.
    pub(crate) only_replay: u64,
    /// Refused by neither.
    pub(crate) neither: u64,
}

impl Agreement {
    const fn add(&mut self, log_refuses: bool, verdict: Verdict) {
        let counter = match (log_refuses, verdict) {
            (true, Verdict::Refuse) => &mut self.both_refused,
            (true, Verdict::Admit | Verdict::Hold) => &mut self.only_log,
            (false, Verdict::Refuse) => &mut self.only_replay,
            (false, Verdict::Admit | Verdict::Hold) => &mut self.neither,
        };
        *counter += 1;
    }

    /// Whether the log has refusals.
    pub(crate) const fn has_refusals(&self) -> bool {
        self.both_refused + self.only_log > 0
    }
}

impl Calibration {
    pub(crate) fn new<'a>(rules: impl Iterator<Item = &'a Rule>) -> Self {
        let mut calibration = Self::default();
        calibration.rules(rules);
        calibration
    }

    /// Sets the rules whose statuses are refusals.
    pub(crate) fn rules<'a>(&mut self, rules: impl Iterator<Item = &'a Rule>) {
        let enforced = rules.filter(|rule| rule.mode == Mode::Enforce);
        let statuses = enforced.flat_map(|rule| {
            let without_key = rule.refuse.status_without_key;
            [Some(rule.refuse.status), without_key]
                .into_iter()
                .flatten()
        });
        self.statuses = statuses.collect();
        self.statuses.sort_unstable();
        self.statuses.dedup();
    }

    /// Adds a request. One with neither a status nor a verdict in the log is in no number.
    pub(crate) fn add(&mut self, request: &LoggedRequest<'_>, verdict: Verdict) {
        let logged = request.verdict;
        self.has_verdicts |= logged == Some(LogVerdict::Refused);
        let by_status = request.status.map(|status| {
            // An answer of the service is no refusal of a proxy.
            logged != Some(LogVerdict::Passed) && self.statuses.contains(&status)
        });
        if let Some(log_refuses) = by_status {
            self.by_status.add(log_refuses, verdict);
        }
        // Where the log has refusals of the filter, no status is one, also in a line or a file without its columns.
        if logged.is_some() || by_status.is_some() {
            let log_refuses = logged == Some(LogVerdict::Refused);
            self.by_verdict.add(log_refuses, verdict);
        }
    }

    /// The requests by what both say.
    pub(crate) const fn agreement(&self) -> &Agreement {
        if self.has_verdicts {
            &self.by_verdict
        } else {
            &self.by_status
        }
    }

    /// The statuses that are refusals.
    pub(crate) fn statuses(&self) -> &[u16] {
        &self.statuses
    }
}
