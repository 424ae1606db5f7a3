//! How often a replay agrees with what the log's proxy did: a refusal there is an answer whose `response_code_details` are
//! the filter's own, or, in a log without them, one with a status with which a rule of the file refuses.

use loudou_limiter::Verdict;
use loudou_rules::rule::{Mode, Rule};

use super::record::LoggedRequest;

/// The field of JSON logs that names the cause of an answer, also in the defaults of Istio and Envoy Gateway.
const DETAILS: &str = "response_code_details";
/// How the filter's own causes begin.
const OURS: &[u8] = b"loudou_";

/// Requests by what the log and the replay say of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Calibration {
    statuses: Vec<u16>,
    /// Whether causes were found.
    pub(crate) has_details: bool,
    /// Refused by both.
    pub(crate) both_refused: u64,
    /// Refused in the log alone.
    pub(crate) only_log: u64,
    /// Refused in the replay alone.
    pub(crate) only_replay: u64,
    /// Refused by neither.
    pub(crate) neither: u64,
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

    /// Adds a request. One without a status in the log is in no number.
    pub(crate) fn add(&mut self, request: &LoggedRequest<'_>, verdict: Verdict) {
        let Some(status) = request.status else { return };
        let mut headers = request.request.headers.iter();
        let details = headers.find(|(name, _)| name == DETAILS);
        self.has_details |= details.is_some();
        let is_refused = details.map_or_else(
            || self.statuses.contains(&status),
            // The admin API's own answers have no `{`.
            |(_, details)| details.starts_with(OURS) && details.contains(&b'{'),
        );
        let counter = match (is_refused, verdict) {
            (true, Verdict::Refuse) => &mut self.both_refused,
            (true, Verdict::Admit | Verdict::Hold) => &mut self.only_log,
            (false, Verdict::Refuse) => &mut self.only_replay,
            (false, Verdict::Admit | Verdict::Hold) => &mut self.neither,
        };
        *counter += 1;
    }

    /// The statuses that are refusals.
    pub(crate) fn statuses(&self) -> &[u16] {
        &self.statuses
    }

    /// Whether the log has refusals.
    pub(crate) const fn has_refusals(&self) -> bool {
        self.both_refused + self.only_log > 0
    }
}
