//! A whole run as a document: `--output json`, and what the tables are made from.

use serde::Serialize;

use super::input::BadLine;

mod collect;

/// A run as a document.
#[derive(Clone, Debug, Serialize)]
pub struct RunSummary {
    /// The form of this document; always 1.
    version: u8,
    /// What was read.
    pub trace: Trace,
    /// What the rule file made of it.
    #[serde(flatten)]
    pub side: SideSummary,
    /// The second rule file, when two are compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compare: Option<Compare>,
    /// What to know before these numbers are believed.
    pub notes: Vec<String>,
}

/// What was read.
#[derive(Clone, Debug, Serialize)]
pub struct Trace {
    /// The name of the trace.
    pub name: String,
    /// The name of its format; `None` when no line shows it.
    pub format: Option<&'static str>,
    /// Bytes read.
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
    /// Lines that are earlier than a line before them.
    pub steps_back: u64,
    /// By how much at most.
    pub longest_step_back_ns: u64,
    /// Lines that could not be read.
    pub bad_lines: u64,
    /// The first of them.
    pub first_bad_lines: Vec<BadLine>,
}

/// What one rule file made of it.
#[derive(Clone, Debug, Serialize)]
pub struct SideSummary {
    /// The name of the rule file.
    pub config: String,
    /// All requests, by verdict.
    pub requests: Requests,
    /// The rules, in the order of the file.
    pub rules: Vec<RuleSummary>,
    /// The keys that were refused most.
    pub refused_keys: RefusedKeys,
    /// Requests over time.
    pub timeline: TimelineSummary,
    /// How long requests were held.
    pub waits: WaitsSummary,
    /// The buckets.
    pub store: StoreSummary,
}

/// Requests by verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Requests {
    /// All of them.
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
    /// Requests without its key.
    pub skipped: u64,
    /// Requests that got its `on_error`.
    pub gave_up: u64,
}

/// The keys that were refused most.
#[derive(Clone, Debug, Serialize)]
pub struct RefusedKeys {
    /// Whether no count is too large.
    pub exact: bool,
    /// How many keys were refused; at least, when not exact.
    pub keys: u64,
    /// The most refused ones, most first.
    pub most: Vec<RefusedKey>,
}

/// A key that was refused.
#[derive(Clone, Debug, Serialize)]
pub struct RefusedKey {
    /// The name of its rule.
    pub rule: String,
    /// The key.
    pub key: String,
    /// Refusals, those in shadow mode included.
    pub refused: u64,
    /// By how much these may be too many.
    pub surplus: u64,
    /// How many of them were in shadow mode; at least, when there is a surplus.
    pub shadow_refused: u64,
}

/// Requests over time, in slots of equal width.
#[derive(Clone, Debug, Serialize)]
pub struct TimelineSummary {
    /// When the first slot begins.
    pub start_ns: u64,
    /// The width of a slot.
    pub slot_ns: u64,
    /// The slots.
    pub slots: Vec<Slot>,
}

/// Requests of one slot, by verdict.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Slot {
    /// Admitted at once.
    pub admitted: u64,
    /// Admitted after a wait.
    pub held: u64,
    /// Refused.
    pub refused: u64,
}

/// How long requests were held.
#[derive(Clone, Debug, Serialize)]
pub struct WaitsSummary {
    /// Requests that were held.
    pub held: u64,
    /// The mean wait.
    pub mean_ns: u64,
    /// The longest wait.
    pub longest_ns: u64,
    /// A histogram, from the shortest wait to the longest.
    pub steps: Vec<WaitStep>,
}

/// Waits longer than the step before, and no longer than this one.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct WaitStep {
    /// The longest wait of this step; `None` for any.
    pub up_to_ns: Option<u64>,
    /// Requests held for as long.
    pub held: u64,
}

/// The buckets at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct StoreSummary {
    /// The bound on their number.
    pub buckets: u64,
    /// Buckets created in free slots.
    pub created: u64,
    /// Idle buckets that were evicted.
    pub evicted_lossless: u64,
    /// Other buckets that were evicted.
    pub evicted_lossy: u64,
}

/// Another rule file, and what it does otherwise.
#[derive(Clone, Debug, Serialize)]
pub struct Compare {
    /// What it made of the trace.
    #[serde(flatten)]
    pub side: SideSummary,
    /// The requests that it treats otherwise.
    pub changes: ChangesSummary,
}

/// Requests with another verdict under the second rule file.
#[derive(Clone, Debug, Serialize)]
pub struct ChangesSummary {
    /// All of them.
    pub changed: u64,
    /// Admitted by the first file, held by the second.
    pub admit_hold: u64,
    /// Admitted by the first file, refused by the second.
    pub admit_refuse: u64,
    /// Held by the first file, admitted by the second.
    pub hold_admit: u64,
    /// Held by the first file, refused by the second.
    pub hold_refuse: u64,
    /// Refused by the first file, admitted by the second.
    pub refuse_admit: u64,
    /// Refused by the first file, held by the second.
    pub refuse_hold: u64,
    /// Whether every count of `keys` is exact.
    pub exact: bool,
    /// The keys that changed most.
    pub keys: Vec<ChangedKey>,
}

/// A key with other refusals.
#[derive(Clone, Debug, Serialize)]
pub struct ChangedKey {
    /// The name of its rule.
    pub rule: String,
    /// The key.
    pub key: String,
    /// Requests that only the second file refuses; at least, when there is a surplus.
    pub newly_refused: u64,
    /// Requests that only the first file refuses; at least, when there is a surplus.
    pub no_longer_refused: u64,
    /// How many changes may be missing from both.
    pub surplus: u64,
}
