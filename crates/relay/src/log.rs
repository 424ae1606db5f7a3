//! Structured logging to standard error, one JSON object per line. Request keys are never logged.
//!
//! `tracing-subscriber` could not replace this module. Its log lines have a different time format, different level
//! names and no `null` values, so a custom formatter would still be needed. A filter would also be needed, because h2
//! logs parts of requests.

use std::io::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::ValueEnum;
use serde_json::{Map, Value, json};

/// Log level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Level {
    /// Only fatal errors
    Error,
    /// Also lost engine connections and overload
    Warn,
    /// Also start, stop and new engine connections
    Info,
    /// Also each call
    Debug,
}

impl Level {
    const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }
}

/// A log that writes lines up to a given level.
#[derive(Clone, Copy, Debug)]
pub struct Log {
    most: Level,
}

impl Log {
    /// Creates a log that writes lines up to the given level.
    pub const fn new(most: Level) -> Self {
        Self { most }
    }

    /// Returns true if lines at this level are written.
    pub fn has(self, level: Level) -> bool {
        level <= self.most
    }

    /// Writes a line containing the time, the level, the message, and the members of the object `fields`.
    pub fn write(self, level: Level, message: &str, fields: Value) {
        if !self.has(level) {
            return;
        }
        let mut line = Map::new();
        line.insert("unix_ms".to_owned(), json!(unix_ms()));
        line.insert("level".to_owned(), json!(level.name()));
        line.insert("message".to_owned(), json!(message));
        if let Value::Object(fields) = fields {
            line.extend(fields);
        }
        let mut text = Value::Object(line).to_string();
        text.push('\n');
        // If standard error is closed, there is no way to report the error.
        drop(std::io::stderr().lock().write_all(text.as_bytes()));
    }
}

/// Returns the number of milliseconds since the Unix epoch, or 0 if the clock is set to an earlier time.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the clock module of the crate"
)]
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}
