//! The document of a whole run. It is the output of `--output json`, and the source of the tables.

use serde::Serialize;

use super::input::{BadLine, InputIntake};
pub use super::keys::{MOST_COUNTED, Percentiles};
pub use super::timeline::VerdictCounts;

mod collect;

/// A run as a document.
#[derive(Clone, Debug, Serialize)]
pub struct RunSummary {
    /// Version of this document's format, always 1.
    version: u8,
    /// Statistics of the input.
    pub trace: Trace,
    /// Results of the rule file.
    #[serde(flatten)]
    pub side: SideSummary,
    /// How often the first rule file refuses the same requests as the log. `None` if the log records no refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beside_log: Option<BesideLog>,
    /// Rule files to compare with the first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub compare: Vec<Compare>,
    /// Facts that may change the answer.
    pub warnings: Vec<String>,
    /// Other caveats about these numbers.
    pub notes: Vec<String>,
}

/// Numbers of requests by the log's outcome and the replay's outcome. With `has_verdicts`, a
/// refusal in the log is a verdict of the filter. Otherwise it is an answer with one of the
/// `statuses` with which the enforced rules refuse. Requests with neither are not counted.
#[derive(Clone, Debug, Serialize)]
pub struct BesideLog {
    /// Statuses of refusals.
    pub statuses: Vec<u16>,
    /// True if the log names requests that Loudou refused, in the field `response_code_details` or in the decisions
    /// that Loudou logs.
    pub has_verdicts: bool,
    /// Requests that both refuse.
    pub both_refused: u64,
    /// Requests that only the log refuses.
    pub only_log_refused: u64,
    /// Requests that only the replay refuses.
    pub only_replay_refused: u64,
    /// Requests that neither refuses.
    pub neither_refused: u64,
}

/// Statistics of the input.
#[derive(Clone, Debug, Serialize)]
pub struct Trace {
    /// Name of the trace.
    pub name: String,
    /// Format of the input: `mixed` for several formats, `None` if no line identifies one.
    pub format: Option<&'static str>,
    /// Files, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<InputIntake>,
    /// Number of bytes read, after decompression.
    pub bytes: u64,
    /// Lines read.
    pub lines: u64,
    /// Requests among the lines.
    pub requests: u64,
    /// Edits of rules among the lines.
    pub edits: u64,
    /// Time of the first request or edit.
    pub first_ns: Option<u64>,
    /// Latest time in the input.
    pub last_ns: Option<u64>,
    /// Lines with an earlier time than a preceding line of their file. All lines are sorted by
    /// time.
    pub steps_back: u64,
    /// Largest such difference.
    pub longest_step_back_ns: u64,
    /// Requests outside of the chosen times.
    pub outside: u64,
    /// Lines that are not requests, by kind.
    pub other_lines: OtherLines,
    /// Lines that could not be read.
    pub bad_lines: u64,
    /// Unreadable lines that only lack a time, so they cannot be ordered.
    pub untimed_lines: u64,
    /// First bad lines.
    pub first_bad_lines: Vec<BadLine>,
}

/// Lines that are neither requests nor mistakes.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct OtherLines {
    /// TCP connections.
    pub tcp_connections: u64,
    /// Connections without a request.
    pub without_request: u64,
    /// Messages of the proxy.
    pub messages: u64,
}

/// Results of one rule file.
#[derive(Clone, Debug, Serialize)]
pub struct SideSummary {
    /// Name of the rule file.
    pub config: String,
    /// All requests, by verdict.
    pub requests: Requests,
    /// Rules, in file order.
    pub rules: Vec<RuleSummary>,
    /// Keys with the most refusals.
    pub refused_keys: RefusedKeys,
    /// Requests over time.
    pub timeline: TimelineSummary,
    /// Delays of held requests.
    pub waits: WaitsSummary,
    /// Buckets at the end.
    pub store: StoreSummary,
}

/// Numbers of requests by verdict.
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

/// Verdicts of one rule. After an enforced rule has refused, later enforced rules are not
/// evaluated.
#[derive(Clone, Debug, Serialize)]
pub struct RuleSummary {
    /// Name of the rule.
    pub rule: String,
    /// Mode of the rule at the end of the trace.
    pub mode: &'static str,
    /// Requests that the rule matched.
    pub matched: u64,
    /// Requests that the rule admitted immediately.
    pub admitted: u64,
    /// Requests that the rule held.
    pub held: u64,
    /// Requests that the rule refused.
    pub refused: u64,
    /// Requests that the rule admitted and a later rule refused.
    pub overruled: u64,
    /// Requests that the rule would have refused, in shadow mode.
    pub shadow_refused: u64,
    /// Requests that the rule would have held, in shadow mode.
    pub shadow_held: u64,
    /// Requests that lack a part of the rule's key.
    pub skipped: u64,
    /// Requests that fell back to the rule's `on_error`.
    pub gave_up: u64,
    /// Keys of the rule.
    pub keys: KeysSummary,
}

/// Keys of a rule. Refusals include refusals in shadow mode.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct KeysSummary {
    /// Number of keys seen.
    pub seen: u64,
    /// Number of keys that were refused at least once.
    pub refused: u64,
    /// Requests per key.
    pub requests: Percentiles,
    /// Refusals per thousand requests of a key.
    pub refused_per_mille: Percentiles,
    /// Requests of further keys, which no other number includes.
    pub left_out: u64,
}

/// Keys with the most refusals.
#[derive(Clone, Debug, Serialize)]
pub struct RefusedKeys {
    /// True if every count is exact.
    pub exact: bool,
    /// Number of refused keys. It is a lower bound when not exact.
    pub keys: u64,
    /// Keys with the most refusals, in descending order.
    pub most: Vec<RefusedKey>,
}

/// A key that was refused.
#[derive(Clone, Debug, Serialize)]
pub struct RefusedKey {
    /// Name of its rule.
    pub rule: String,
    /// The key.
    pub key: String,
    /// Refusals, including shadow mode.
    pub refused: u64,
    /// Maximum error. The true number is at most this much lower.
    pub surplus: u64,
    /// Number of refusals in shadow mode. It is a lower bound when `surplus` is not 0.
    pub shadow_refused: u64,
    /// First refusal, or a later one when `surplus` is not 0.
    pub first_ns: Option<u64>,
    /// Last refusal.
    pub last_ns: Option<u64>,
}

/// Requests over time, in slots of equal width.
#[derive(Clone, Debug, Serialize)]
pub struct TimelineSummary {
    /// Start of the first slot.
    pub start_ns: u64,
    /// Width of a slot.
    pub slot_ns: u64,
    /// Slots in order of time.
    pub slots: Vec<VerdictCounts>,
}

/// Delays of held requests.
#[derive(Clone, Debug, Serialize)]
pub struct WaitsSummary {
    /// Held requests.
    pub held: u64,
    /// Mean delay.
    pub mean_ns: u64,
    /// Longest delay.
    pub longest_ns: u64,
    /// Histogram, from the shortest delay to the longest.
    pub steps: Vec<WaitStep>,
}

/// Number of delays longer than the previous step and no longer than this step.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct WaitStep {
    /// Longest delay of this step; `None` means unbounded.
    pub up_to_ns: Option<u64>,
    /// Requests with such a delay.
    pub held: u64,
}

/// Buckets at the end of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct StoreSummary {
    /// Maximum number of buckets.
    pub buckets: u64,
    /// Buckets created in free slots.
    pub created: u64,
    /// Idle buckets that were evicted.
    pub evicted_lossless: u64,
    /// Other buckets that were evicted.
    pub evicted_lossy: u64,
}

/// A rule file to compare with, and its differences from the first.
#[derive(Clone, Debug, Serialize)]
pub struct Compare {
    /// Results of the file.
    #[serde(flatten)]
    pub side: SideSummary,
    /// Requests with a different verdict.
    pub changes: ChangesSummary,
}

/// Requests with a different verdict under the other rule file.
#[derive(Clone, Debug, Serialize)]
pub struct ChangesSummary {
    /// All requests with a different verdict.
    pub changed: u64,
    /// Admitted by the first file, held by the other.
    pub admit_hold: u64,
    /// Admitted by the first file, refused by the other.
    pub admit_refuse: u64,
    /// Held by the first file, admitted by the other.
    pub hold_admit: u64,
    /// Held by the first file, refused by the other.
    pub hold_refuse: u64,
    /// Refused by the first file, admitted by the other.
    pub refuse_admit: u64,
    /// Refused by the first file, held by the other.
    pub refuse_hold: u64,
    /// True if every count in `keys` is exact.
    pub exact: bool,
    /// Keys with the most changes.
    pub keys: Vec<ChangedKey>,
}

/// A key with different refusals.
#[derive(Clone, Debug, Serialize)]
pub struct ChangedKey {
    /// Name of its rule.
    pub rule: String,
    /// The key.
    pub key: String,
    /// Requests that only the other file refuses. It is a lower bound when `surplus` is not 0.
    pub newly_refused: u64,
    /// Requests that only the first file refuses. It is a lower bound when `surplus` is not 0.
    pub no_longer_refused: u64,
    /// Number of changes that may be missing from both.
    pub surplus: u64,
}
