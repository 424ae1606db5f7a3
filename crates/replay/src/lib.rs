//! Replays recorded traffic through rule files, with the filter's own decision code.
//!
//! The crate uses no terminal and no network. Lines come from any reader, and results are numbers and documents.
//! The `loudou replay` command displays them.
//!
//! [`replay()`] reads all inputs, sorts their requests by time, and passes them through a [`Run`]. A run has one
//! rule file, or several to compare. It reports to an [`Observer`] as it advances. [`RunSummary`] is the
//! result as a document, and [`decisions`] are JSON Lines, one per request.
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
//! To change this crate, read it in this order:
//!
//! 1. `read` reads all inputs. It decompresses each, splits it into `lines` in bounded memory, removes the
//!    `envelope` of a container's log, and recognises the [`format`](mod@format).
//! 2. `trace`, `envoy_json`, `caddy` and the text formats of `pattern` parse a line into a `record`. `source`
//!    chooses its client. `instant` parses dates, `json` JSON, and `verdict` the filter's output in logs.
//! 3. Records are encoded and sorted: `encode` and `sort`, in memory or in a scratch file. The result is a
//!    [`Recording`]: all requests of the `window`, in order of time.
//! 4. `play` passes each record to a [`run`], which passes it to an [`engine`]: the rules, their buckets, and the
//!    requests in `flight`.
//! 5. Outcomes are counted in bounded structures: `tally`, `top`, `timeline`, `waits`, `keys` (each key
//!    up to half a million), `calibration` (agreement with the log's own answers), and `changes` between rule files.
//! 6. [`summary`] collects them, with warnings and `notes`, and `rule_notes` on parts that are `missing` from a log.
//! 7. [`suggest`](mod@suggest) finds the limits that a recording would have needed.
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
