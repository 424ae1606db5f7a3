//! Serializable result of a run. `--output json` prints it, and the tables in the terminal are
//! built from it.

use serde::Serialize;

use super::input::{BadLine, InputIntake};
pub use super::keys::{MOST_COUNTED, Percentiles};
pub use super::timeline::VerdictCounts;

mod collect;

/// Result of a run.
#[derive(Clone, Debug, Serialize)]
pub struct RunSummary {
    /// Version of the output format, currently always 1.
    version: u8,
    /// Statistics of the input.
    pub trace: Trace,
    /// Results of the first rule file.
    #[serde(flatten)]
    pub side: SideSummary,
    /// Comparison of the first rule file's outcomes with the outcomes in the log. `None` if the log records no refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beside_log: Option<BesideLog>,
    /// Results of the other rule files, compared with the first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub compare: Vec<Compare>,
    /// Warnings about facts that could change the conclusion.
    pub warnings: Vec<String>,
    /// Other caveats about the results.
    pub notes: Vec<String>,
}

/// Number of requests for each combination of the log's outcome and the replay's outcome. If
/// `has_verdicts` is true, the filter's verdicts in the log show which requests were refused.
/// Otherwise, a request counts as refused if its response status is in `statuses`. Requests with
/// neither a verdict nor a status are not counted.
#[derive(Clone, Debug, Serialize)]
pub struct BesideLog {
    /// Response statuses that enforced rules use for refusals.
    pub statuses: Vec<u16>,
    /// True if the log identifies requests that Loudou refused, in `response_code_details` or in Loudou's logged
    /// decisions.
    pub has_verdicts: bool,
    /// Requests refused in both the log and the replay.
    pub both_refused: u64,
    /// Requests refused only in the log.
    pub only_log_refused: u64,
    /// Requests refused only in the replay.
    pub only_replay_refused: u64,
    /// Requests refused in neither the log nor the replay.
    pub neither_refused: u64,
}

/// Statistics of the input.
#[derive(Clone, Debug, Serialize)]
pub struct Trace {
    /// Name of the trace.
    pub name: String,
    /// Format of the input, `mixed` if there are several formats, or `None` if no line was
    /// recognised.
    pub format: Option<&'static str>,
    /// Statistics of each input, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<InputIntake>,
    /// Number of bytes read, after decompression.
    pub bytes: u64,
    /// Lines read.
    pub lines: u64,
    /// Number of lines that are requests.
    pub requests: u64,
    /// Number of lines that are edits of rules.
    pub edits: u64,
    /// Time of the first request or edit, in nanoseconds.
    pub first_ns: Option<u64>,
    /// Latest timestamp in the replayed part of the input.
    pub last_ns: Option<u64>,
    /// Number of lines whose timestamp is earlier than the latest timestamp before them in the same
    /// file. All lines are sorted before they are replayed.
    pub steps_back: u64,
    /// Largest difference between the timestamp of a line that is out of order and the latest
    /// timestamp before it, in nanoseconds.
    pub longest_step_back_ns: u64,
    /// Number of requests outside the time range selected with `--from` and `--to`.
    pub outside: u64,
    /// Numbers of valid lines that are not requests.
    pub other_lines: OtherLines,
    /// Number of lines that could not be parsed.
    pub bad_lines: u64,
    /// Number of bad lines that are valid except for their timestamp.
    pub untimed_lines: u64,
    /// The first few bad lines.
    pub first_bad_lines: Vec<BadLine>,
}

/// Numbers of valid lines that are not requests, by kind.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct OtherLines {
    /// TCP connections.
    pub tcp_connections: u64,
    /// Connections without a request.
    pub without_request: u64,
    /// Messages from the proxy.
    pub messages: u64,
}

/// Results of one rule file.
#[derive(Clone, Debug, Serialize)]
pub struct SideSummary {
    /// Name of the rule file.
    pub config: String,
    /// Number of requests by verdict.
    pub requests: Requests,
    /// Results of each rule, in file order.
    pub rules: Vec<RuleSummary>,
    /// Keys with the most refusals, and how exact the counts are.
    pub refused_keys: RefusedKeys,
    /// Number of requests over time.
    pub timeline: TimelineSummary,
    /// Statistics on the delays of held requests.
    pub waits: WaitsSummary,
    /// Statistics on the buckets.
    pub store: StoreSummary,
}

/// Number of requests by verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Requests {
    /// All requests.
    pub total: u64,
    /// Admitted immediately.
    pub admitted: u64,
    /// Admitted after a delay.
    pub held: u64,
    /// Refused.
    pub refused: u64,
}

/// Outcomes of one rule. Once an enforced rule has refused a request, later enforced rules are not
/// evaluated.
#[derive(Clone, Debug, Serialize)]
pub struct RuleSummary {
    /// Name of the rule.
    pub rule: String,
    /// Mode of the rule after the last request.
    pub mode: &'static str,
    /// Requests that the rule matched.
    pub matched: u64,
    /// Requests that the rule admitted immediately.
    pub admitted: u64,
    /// Requests that the rule held.
    pub held: u64,
    /// Requests that the rule refused.
    pub refused: u64,
    /// Requests that the rule admitted but that a later rule refused.
    pub overruled: u64,
    /// Requests that the rule would have refused, in shadow mode.
    pub shadow_refused: u64,
    /// Requests that the rule would have held, in shadow mode.
    pub shadow_held: u64,
    /// Requests that the rule skipped because they lack a part of its key.
    pub skipped: u64,
    /// Requests for which the rule fell back to `on_error`.
    pub gave_up: u64,
    /// Statistics on the rule's keys.
    pub keys: KeysSummary,
}

/// Statistics on the keys of a rule. Refusals include shadow refusals.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct KeysSummary {
    /// Number of distinct keys that were counted.
    pub seen: u64,
    /// Number of keys that were refused at least once.
    pub refused: u64,
    /// Requests per key.
    pub requests: Percentiles,
    /// Refusals per thousand requests, for each key.
    pub refused_per_mille: Percentiles,
    /// Requests whose keys exceeded the maximum number of keys. These requests are excluded from
    /// the other counts.
    pub left_out: u64,
}

/// Keys with the most refusals, and how exact the counts are.
#[derive(Clone, Debug, Serialize)]
pub struct RefusedKeys {
    /// True if every count is exact.
    pub exact: bool,
    /// Number of refused keys. A lower bound if `exact` is false.
    pub keys: u64,
    /// Keys with the most refusals, in descending order.
    pub most: Vec<RefusedKey>,
}

/// A key that was refused at least once.
#[derive(Clone, Debug, Serialize)]
pub struct RefusedKey {
    /// Name of the rule.
    pub rule: String,
    /// Key that the requests are counted under.
    pub key: String,
    /// Number of refusals, including shadow refusals.
    pub refused: u64,
    /// Maximum error. The true number of refusals is at least `refused - surplus`.
    pub surplus: u64,
    /// Number of shadow refusals. A lower bound if `surplus` is not 0.
    pub shadow_refused: u64,
    /// Time of the first refusal, or of a later refusal if `surplus` is not 0.
    pub first_ns: Option<u64>,
    /// Time of the last refusal.
    pub last_ns: Option<u64>,
}

/// Number of requests over time, in slots of equal width.
#[derive(Clone, Debug, Serialize)]
pub struct TimelineSummary {
    /// Start of the first slot.
    pub start_ns: u64,
    /// Width of a slot.
    pub slot_ns: u64,
    /// Number of requests by verdict in each slot, in chronological order.
    pub slots: Vec<VerdictCounts>,
}

/// Statistics on the delays of held requests.
#[derive(Clone, Debug, Serialize)]
pub struct WaitsSummary {
    /// Held requests.
    pub held: u64,
    /// Mean delay.
    pub mean_ns: u64,
    /// Longest delay.
    pub longest_ns: u64,
    /// Histogram of delays, in ascending order.
    pub steps: Vec<WaitStep>,
}

/// One step of the histogram. A step counts delays that exceed the previous step's upper bound but
/// not its own.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct WaitStep {
    /// Inclusive upper bound of this step, or `None` if it is unbounded.
    pub up_to_ns: Option<u64>,
    /// Number of requests with a delay in this step.
    pub held: u64,
}

/// Statistics on the buckets of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct StoreSummary {
    /// Maximum number of buckets.
    pub buckets: u64,
    /// Number of buckets created in free slots.
    pub created: u64,
    /// Number of idle buckets that were evicted, which loses no information.
    pub evicted_lossless: u64,
    /// Number of buckets that were evicted while in use.
    pub evicted_lossy: u64,
}

/// Another rule file, and its differences from the first.
#[derive(Clone, Debug, Serialize)]
pub struct Compare {
    /// Results of the other rule file.
    #[serde(flatten)]
    pub side: SideSummary,
    /// Requests whose verdict differs from the verdict under the first rule file.
    pub changes: ChangesSummary,
}

/// Requests whose verdicts differ between the first rule file and another.
#[derive(Clone, Debug, Serialize)]
pub struct ChangesSummary {
    /// Number of all requests whose verdicts differ.
    pub changed: u64,
    /// Requests admitted under the first file but held under the other.
    pub admit_hold: u64,
    /// Requests admitted under the first file but refused under the other.
    pub admit_refuse: u64,
    /// Requests held under the first file but admitted under the other.
    pub hold_admit: u64,
    /// Requests held under the first file but refused under the other.
    pub hold_refuse: u64,
    /// Requests refused under the first file but admitted under the other.
    pub refuse_admit: u64,
    /// Requests refused under the first file but held under the other.
    pub refuse_hold: u64,
    /// True if every count in `keys` is exact.
    pub exact: bool,
    /// Keys with the most changed refusals.
    pub keys: Vec<ChangedKey>,
}

/// A key whose refusals differ between two rule files.
#[derive(Clone, Debug, Serialize)]
pub struct ChangedKey {
    /// Name of the rule.
    pub rule: String,
    /// Key that the requests are counted under.
    pub key: String,
    /// Requests that only the other file refuses. A lower bound if `surplus` is not 0.
    pub newly_refused: u64,
    /// Requests that only the first file refuses. A lower bound if `surplus` is not 0.
    pub no_longer_refused: u64,
    /// Maximum number of changes that are missing from `newly_refused` and `no_longer_refused`
    /// together.
    pub surplus: u64,
}
