//! Measures how often a replay agrees with the proxy that wrote the log. If the log has verdicts of
//! the filter, they show which requests were refused. Otherwise a request counts as refused if its
//! answer has a status with which an enforced rule refuses.

use loudou_limiter::Verdict;
use loudou_rules::rule::{Mode, Rule};

use super::record::LoggedRequest;
use super::verdict::LogVerdict;

/// Numbers of requests by the log's outcome and the replay's outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Calibration {
    statuses: Vec<u16>,
    /// True if the log has refusals by the filter.
    pub(crate) has_verdicts: bool,
    by_verdict: Agreement,
    by_status: Agreement,
}

/// Numbers of requests that the log and the replay refuse or admit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Agreement {
    /// Requests that both refuse.
    pub(crate) both_refused: u64,
    /// Requests that only the log refuses.
    pub(crate) only_log: u64,
    /// Requests that only the replay refuses.
    pub(crate) only_replay: u64,
    /// Requests that neither refuses.
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

    /// Returns true if the log has refusals.
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

    /// Sets the rules whose statuses count as refusals.
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

    /// Adds a request. A request with neither a status nor a verdict in the log is not counted.
    pub(crate) fn add(&mut self, request: &LoggedRequest<'_>, verdict: Verdict) {
        let logged = request.verdict;
        self.has_verdicts |= logged == Some(LogVerdict::Refused);
        let by_status = request.status.map(|status| {
            // An error of the service itself is not a refusal by the proxy.
            logged != Some(LogVerdict::Passed) && self.statuses.contains(&status)
        });
        if let Some(log_refuses) = by_status {
            self.by_status.add(log_refuses, verdict);
        }
        // Once the log has refusals by the filter, a status never counts as a refusal, even in
        // lines or files that lack the filter's columns.
        if logged.is_some() || by_status.is_some() {
            let log_refuses = logged == Some(LogVerdict::Refused);
            self.by_verdict.add(log_refuses, verdict);
        }
    }

    /// Returns the numbers of requests by both outcomes.
    pub(crate) const fn agreement(&self) -> &Agreement {
        if self.has_verdicts {
            &self.by_verdict
        } else {
            &self.by_status
        }
    }

    /// Returns the statuses that count as refusals.
    pub(crate) fn statuses(&self) -> &[u16] {
        &self.statuses
    }
}
