//! Measures how often a replay agrees with the proxy that wrote the log. If the log contains
//! refusals by the filter, its verdicts show which requests were refused. Otherwise, a request
//! counts as refused if its response status is one that an enforced rule uses for refusals.

use loudou_limiter::Verdict;
use loudou_rules::rule::{Mode, Rule};

use super::record::LoggedRequest;
use super::verdict::LogVerdict;

/// Compares the outcome of each request in the log with its outcome in the replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Calibration {
    statuses: Vec<u16>,
    /// True if the log contains refusals by the filter.
    pub(crate) has_verdicts: bool,
    by_verdict: Agreement,
    by_status: Agreement,
}

/// Number of requests for each combination of the log's outcome and the replay's outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Agreement {
    /// Requests refused in both the log and the replay.
    pub(crate) both_refused: u64,
    /// Requests refused only in the log.
    pub(crate) only_log: u64,
    /// Requests refused only in the replay.
    pub(crate) only_replay: u64,
    /// Requests refused in neither the log nor the replay.
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

    /// Returns true if any request was refused in the log.
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

    /// Sets the rules whose refusal statuses identify refused requests in the log.
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

    /// Counts a request, unless the log contains neither its status nor a verdict.
    pub(crate) fn add(&mut self, request: &LoggedRequest<'_>, verdict: Verdict) {
        let logged = request.verdict;
        self.has_verdicts |= logged == Some(LogVerdict::Refused);
        let by_status = request.status.map(|status| {
            // If the filter admitted the request, an error status came from the service, not from
            // the proxy.
            logged != Some(LogVerdict::Passed) && self.statuses.contains(&status)
        });
        if let Some(log_refuses) = by_status {
            self.by_status.add(log_refuses, verdict);
        }
        // Once the log contains a refusal by the filter, a status alone never counts as a refusal,
        // not even in lines or files without the filter's columns.
        if logged.is_some() || by_status.is_some() {
            let log_refuses = logged == Some(LogVerdict::Refused);
            self.by_verdict.add(log_refuses, verdict);
        }
    }

    /// Returns the number of requests for each combination of outcomes.
    pub(crate) const fn agreement(&self) -> &Agreement {
        if self.has_verdicts {
            &self.by_verdict
        } else {
            &self.by_status
        }
    }

    /// Returns the response statuses that count as refusals.
    pub(crate) fn statuses(&self) -> &[u16] {
        &self.statuses
    }
}
