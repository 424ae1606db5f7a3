//! Structured logs: one JSON object a line, on standard error. No line has a key of a request in it.
//!
//! Not by `tracing-subscriber`: its lines have another time, other names of levels and no `null`, so these lines would
//! still need a formatter here, and also a filter, because h2 logs parts of requests.

use std::io::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::ValueEnum;
use serde_json::{Map, Value, json};

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Level {
    /// Only fatal errors.
    Error,
    /// Also engine loss and overload.
    Warn,
    /// Also the start, the stop, and an engine that is reached.
    Info,
    /// Also each call.
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

/// Writes lines up to a level.
#[derive(Clone, Copy, Debug)]
pub struct Log {
    most: Level,
}

impl Log {
    /// A log of lines up to this level.
    pub const fn new(most: Level) -> Self {
        Self { most }
    }

    /// Returns true if lines of this level are written.
    pub fn has(self, level: Level) -> bool {
        level <= self.most
    }

    /// Writes a line with the fields of an object.
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
        // Nobody is left to hear of a log that is gone.
        drop(std::io::stderr().lock().write_all(text.as_bytes()));
    }
}

/// Milliseconds since the Unix epoch.
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
