//! The document of a whole run: `--output json`, and the source of the tables.

use serde::Serialize;

use super::input::{BadLine, InputIntake};
pub use super::keys::{MOST_COUNTED, Percentiles};
pub use super::timeline::VerdictCounts;

mod collect;

/// A run as a document.
#[derive(Clone, Debug, Serialize)]
pub struct RunSummary {
    /// The version of this document's format; always 1.
    version: u8,
    /// The input.
    pub trace: Trace,
    /// The results of the rule file.
    #[serde(flatten)]
    pub side: SideSummary,
    /// The first rule file beside what the log says of each request; `None` where the log has no refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beside_log: Option<BesideLog>,
    /// The rule files to compare with it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub compare: Vec<Compare>,
    /// What may change the answer.
    pub warnings: Vec<String>,
    /// Other caveats about these numbers.
    pub notes: Vec<String>,
}

/// Requests by what the log and the replay say of them. With `has_verdicts`, a refusal in the log is one by the filter's
/// verdict there; otherwise it is an answer with one of `statuses`, with which the enforced rules refuse. Requests with
/// neither are in no number.
#[derive(Clone, Debug, Serialize)]
pub struct BesideLog {
    /// The statuses of refusals.
    pub statuses: Vec<u16>,
    /// Whether lines have refusals of the filter, in `response_code_details` or in its decisions.
    pub has_verdicts: bool,
    /// Refused by both.
    pub both_refused: u64,
    /// Refused in the log alone.
    pub only_log_refused: u64,
    /// Refused in the replay alone.
    pub only_replay_refused: u64,
    /// Refused by neither.
    pub neither_refused: u64,
}

/// The input.
#[derive(Clone, Debug, Serialize)]
pub struct Trace {
    /// The name of the trace.
    pub name: String,
    /// The name of its format, `mixed` for several; `None` when no line showed it.
    pub format: Option<&'static str>,
    /// The files, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<InputIntake>,
    /// Bytes read, decompressed.
    pub bytes: u64,
    /// Lines read.
    pub lines: u64,
    /// Requests among them.
    pub requests: u64,
    /// Edits of rules among them.
    pub edits: u64,
    /// The time of the first request or edit.
    pub first_ns: Option<u64>,
    /// The latest time of all.
    pub last_ns: Option<u64>,
    /// Lines with an earlier time than a preceding line of their file; all are sorted by time.
    pub steps_back: u64,
    /// The largest such difference.
    pub longest_step_back_ns: u64,
    /// Requests outside of the chosen times.
    pub outside: u64,
    /// Lines that are no requests, by kind.
    pub other_lines: OtherLines,
    /// Lines that could not be read.
    pub bad_lines: u64,
    /// Those of them that only lack a time, and so a place in the order.
    pub untimed_lines: u64,
    /// The first bad lines.
    pub first_bad_lines: Vec<BadLine>,
}

/// Lines that are no requests, and no mistakes.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct OtherLines {
    /// TCP connections.
    pub tcp_connections: u64,
    /// Connections without a request.
    pub without_request: u64,
    /// Messages of the proxy.
    pub messages: u64,
}

/// The results of one rule file.
#[derive(Clone, Debug, Serialize)]
pub struct SideSummary {
    /// The name of the rule file.
    pub config: String,
    /// All requests, by verdict.
    pub requests: Requests,
    /// The rules, in the order of the file.
    pub rules: Vec<RuleSummary>,
    /// The most refused keys.
    pub refused_keys: RefusedKeys,
    /// Requests over time.
    pub timeline: TimelineSummary,
    /// The waits of held requests.
    pub waits: WaitsSummary,
    /// The buckets.
    pub store: StoreSummary,
}

/// Requests by verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Requests {
    /// All requests.
    pub total: u64,
    /// Admitted at once.
    pub admitted: u64,
    /// Admitted after a wait.
    pub held: u64,
    /// Refused.
    pub refused: u64,
}

/// The verdicts of one rule. Enforced rules after one that refused are not evaluated.
#[derive(Clone, Debug, Serialize)]
pub struct RuleSummary {
    /// Its name.
    pub rule: String,
    /// Its mode, at the end of the trace.
    pub mode: &'static str,
    /// Requests that it matched.
    pub matched: u64,
    /// Requests that it let pass at once.
    pub admitted: u64,
    /// Requests that it held.
    pub held: u64,
    /// Requests that it refused.
    pub refused: u64,
    /// Requests that it let pass and a later rule refused.
    pub overruled: u64,
    /// Requests that it would have refused, in shadow mode.
    pub shadow_refused: u64,
    /// Requests that it would have held, in shadow mode.
    pub shadow_held: u64,
    /// Requests that lack a part of its key.
    pub skipped: u64,
    /// Requests that fell back to its `on_error`.
    pub gave_up: u64,
    /// Its keys.
    pub keys: KeysSummary,
}

/// The keys of a rule. Refusals include those in shadow mode.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct KeysSummary {
    /// Keys that were seen.
    pub seen: u64,
    /// Keys that were refused at least once.
    pub refused: u64,
    /// The requests of a key.
    pub requests: Percentiles,
    /// Of a thousand requests of a key, those refused.
    pub refused_per_mille: Percentiles,
    /// Requests of further keys, which are in none of these numbers.
    pub left_out: u64,
}

/// The most refused keys.
#[derive(Clone, Debug, Serialize)]
pub struct RefusedKeys {
    /// Whether every count is exact.
    pub exact: bool,
    /// The number of refused keys; a lower bound when not exact.
    pub keys: u64,
    /// The most refused keys, in descending order.
    pub most: Vec<RefusedKey>,
}

/// A key that was refused.
#[derive(Clone, Debug, Serialize)]
pub struct RefusedKey {
    /// The name of its rule.
    pub rule: String,
    /// The key.
    pub key: String,
    /// Refusals, including those in shadow mode.
    pub refused: u64,
    /// The maximum error: the true number is at most this much lower.
    pub surplus: u64,
    /// The number of refusals in shadow mode; a lower bound when `surplus` is not 0.
    pub shadow_refused: u64,
    /// The first refusal, or a later one when `surplus` is not 0.
    pub first_ns: Option<u64>,
    /// The last refusal.
    pub last_ns: Option<u64>,
}

/// Requests over time, in slots of equal width.
#[derive(Clone, Debug, Serialize)]
pub struct TimelineSummary {
    /// The start of the first slot.
    pub start_ns: u64,
    /// The width of a slot.
    pub slot_ns: u64,
    /// The slots.
    pub slots: Vec<VerdictCounts>,
}

/// The waits of held requests.
#[derive(Clone, Debug, Serialize)]
pub struct WaitsSummary {
    /// Held requests.
    pub held: u64,
    /// The mean wait.
    pub mean_ns: u64,
    /// The longest wait.
    pub longest_ns: u64,
    /// A histogram, from the shortest wait to the longest.
    pub steps: Vec<WaitStep>,
}

/// Waits longer than the previous step and no longer than this one.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct WaitStep {
    /// The longest wait of this step; `None` for any.
    pub up_to_ns: Option<u64>,
    /// Requests with such a wait.
    pub held: u64,
}

/// The buckets at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct StoreSummary {
    /// The maximum number of buckets.
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
    /// Its results.
    #[serde(flatten)]
    pub side: SideSummary,
    /// The requests with a different verdict.
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
    /// Whether every count in `keys` is exact.
    pub exact: bool,
    /// The keys with the most changes.
    pub keys: Vec<ChangedKey>,
}

/// A key with different refusals.
#[derive(Clone, Debug, Serialize)]
pub struct ChangedKey {
    /// The name of its rule.
    pub rule: String,
    /// The key.
    pub key: String,
    /// Requests that only the other file refuses; a lower bound when `surplus` is not 0.
    pub newly_refused: u64,
    /// Requests that only the first file refuses; a lower bound when `surplus` is not 0.
    pub no_longer_refused: u64,
    /// The number of changes that may be missing from both.
    pub surplus: u64,
}
