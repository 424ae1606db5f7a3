//! Recordings: the answers to polls as JSON Lines, plain or compressed. `docs/recordings.md` describes the format.
//!
//! The first line is the [`Head`]. Each other [`Line`] has the time since the beginning, the client's wall clock, and
//! either the answer of one Envoy, the reason why there was none, or the reason why the recording ends. A recording that
//! was cut short lacks that last line.

use serde::{Deserialize, Serialize};

mod reader;
mod source;
mod writer;

pub(crate) use reader::{Bad, Ending, Mark, Tape};
pub(crate) use writer::Writer;

/// The version of the format. Fields may be added to it: readers ignore those that they do not know.
pub(crate) const FORMAT: u64 = 1;
/// The most Envoys that a screen watches or a recording has: each has a thread or two.
pub(crate) const MAX_ENVOYS: usize = 64;

/// The first line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head {
    /// The version of the format.
    pub(crate) loudou_recording: u64,
    /// The version of `loudou` that wrote it.
    pub(crate) version: String,
    /// The client's wall clock when the recording began.
    pub(crate) unix_ms: u64,
    /// The time between two polls.
    pub(crate) interval_ns: u64,
    /// The Envoys.
    pub(crate) urls: Vec<String>,
}

/// A time in a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// The time since it began.
    pub(crate) at_ns: u64,
    /// The client's wall clock.
    pub(crate) unix_ms: u64,
}

/// Any other line. It has one of the last three fields; `S` is a snapshot, or what is wanted of one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Line<S> {
    at_ns: u64,
    unix_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    snapshot: Option<S>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failed: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    end: Option<End>,
}

/// A default that needs none of `S`.
const fn none<S>() -> Option<S> {
    None
}

/// The reason for the end of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum End {
    /// Its time was over.
    Done,
    /// By a signal.
    Interrupted,
    /// The file has reached its size.
    Full,
    /// One that this version does not know.
    #[serde(other)]
    Other,
}

#[cfg(test)]
pub(crate) mod tests;
