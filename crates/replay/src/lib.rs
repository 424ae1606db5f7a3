//! Replays recorded traffic through rule files, with the filter's own decision code.
//!
//! This crate accesses no terminal and no network. The crate reads lines from any reader, and returns results as
//! numbers and serializable documents, which the `loudou replay` command displays.
//!
//! [`replay()`] reads all inputs, sorts their requests by time, and passes the requests through a [`Run`]. A run
//! evaluates one rule file, or compares several. The run reports decisions and progress to an [`Observer`].
//! [`RunSummary`] is the serializable result, and [`decisions`] writes one JSON line per request.
//!
//! ```
//! use loudou_replay::{Input, Observer, Progress, Reading, Run, RunSummary, decisions::Decided, replay};
//! # use loudou_rules::config;
//!
//! /// Needs the summary alone.
//! struct Quiet;
//!
//! impl Observer for Quiet {
//!     fn decided(&mut self, _: &Decided<'_>) -> std::io::Result<()> {
//!         Ok(())
//!     }
//!     fn progress(&mut self, _: Progress) -> std::io::Result<()> {
//!         Ok(())
//!     }
//! }
//!
//! let rules = serde_json::json!({ "version": 1, "rules": [{ "name": "all", "key": [], "limits": [
//!     { "name": "l", "algorithm": "funnel", "capacity": 1, "rate": "1/s" },
//! ] }] });
//! let file = config::parse(&rules).file.expect("a valid rule file");
//! let mut run = Run::new(("rules.json", &file), &[]).expect("room for the buckets");
//!
//! let trace = Input::new("trace", &b"{\"at_ns\":1}\n{\"at_ns\":0}\n"[..]);
//! let input = replay(vec![trace], &Reading::default(), &mut run, &mut Quiet)?;
//! let summary = RunSummary::new("two requests", &input, &run, 10);
//! assert_eq!(summary.side.requests.refused, 1);
//! # Ok::<(), loudou_replay::Error>(())
//! ```
//!
//! To find your way around this crate, follow the data:
//!
//! 1. `read` reads all inputs. It decompresses each input, splits it into `lines` in bounded memory, removes the
//!    `envelope` that a container runtime adds to each line, and detects the [`format`](mod@format).
//! 2. `trace`, `envoy_json`, `caddy` and the text formats of `pattern` parse a line into a `record`. `source` selects
//!    the client address. `instant` parses timestamps, `json` parses JSON, and `verdict` parses the filter's output in
//!    logs.
//! 3. `encode` encodes the records, and `sort` sorts them by time, in memory or in a scratch file. The result is a
//!    [`Recording`]: all requests in the `window`, in chronological order.
//! 4. `play` passes each record to a [`run`], which passes it to an [`engine`]: the rules, their buckets, and the
//!    requests in `flight`.
//! 5. Outcomes are counted in structures of bounded size: `tally`, `top`, `timeline`, `waits`, `keys` (up to half a
//!    million keys), `calibration` (agreement with the outcomes in the log), and `changes` (differences between rule
//!    files).
//! 6. [`summary`] combines the counts with warnings: `notes` on the whole run, and `rule_notes` on request parts that
//!    rules need but that are `missing` from a log.
//! 7. [`suggest`](mod@suggest) computes the limits that would have admitted a recording.
#![forbid(unsafe_code)]

mod caddy;
mod calibration;
mod changes;
pub mod decisions;
mod decompress;
mod encode;
pub mod engine;
mod envelope;
mod envoy_json;
mod error;
mod flight;
pub mod format;
pub mod input;
pub mod instant;
mod json;
mod keys;
mod lines;
mod missing;
mod notes;
mod pattern;
mod play;
mod read;
mod record;
mod recording;
mod rule_notes;
pub mod run;
pub mod sort;
pub mod source;
pub mod suggest;
pub mod summary;
mod tally;
mod timeline;
mod top;
mod trace;
mod verdict;
mod waits;
pub mod window;

pub use error::{Error, Observer, Progress};
pub use format::LogFormat;
pub use input::Input;
pub use pattern::Pattern;
pub use play::replay;
pub use read::{Reading, read};
pub use record::OtherLine;
pub use recording::Recording;
pub use run::Run;
pub use summary::RunSummary;
