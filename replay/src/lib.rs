//! Replays recorded traffic through rule files, with the filter's own decision code.
//!
//! There is no terminal and no network: lines come from any reader, results are numbers and documents. The
//! `loudou replay` command draws them.
//!
//! A [`Run`] has one rule file, or two that are compared. [`replay()`] passes every line of a
//! trace or log through it and reports to an [`Observer`] on the way. [`RunSummary`] is the result as a
//! document, [`decisions`] are JSON Lines, one per request.
//!
//! ```
//! use loudou_replay::{Observer, Run, RunSummary, engine::Reported, replay};
//! # use loudou_limiter::Nanos;
//! # use loudou_rules::config;
//!
//! /// Needs the summary alone.
//! struct Quiet;
//!
//! impl Observer for Quiet {
//!     fn decided(&mut self, _: Nanos, _: &Reported<'_>) -> std::io::Result<()> {
//!         Ok(())
//!     }
//!     fn progress(&mut self, _bytes: u64, _requests: u64) -> std::io::Result<()> {
//!         Ok(())
//!     }
//! }
//!
//! let rules = serde_json::json!({ "version": 1, "rules": [{ "name": "all", "key": [], "limits": [
//!     { "name": "l", "algorithm": "funnel", "capacity": 1, "rate": "1/s" },
//! ] }] });
//! let file = config::parse(&rules).file.expect("a valid rule file");
//! let mut run = Run::new(("rules.json", &file), None).expect("room for the buckets");
//!
//! let mut trace = &b"{\"at_ns\":0}\n{\"at_ns\":1}\n"[..];
//! let input = replay(&mut trace, None, false, &mut run, &mut Quiet)?;
//! let summary = RunSummary::new("two requests", &input, &run);
//! assert_eq!(summary.side.requests.refused, 1);
//! # Ok::<(), loudou_replay::Error>(())
//! ```
//!
//! To change this crate, read it in this order:
//!
//! 1. `play` is the loop. It cuts the input into `lines` in bounded memory and recognises its
//!    [`format`](mod@format).
//! 2. `trace`, `access` and `envoy_json` are the formats: each parses a line into a `record`. `instant`
//!    parses their dates, `json` their JSON.
//! 3. [`run`] passes each record to an [`engine`]: the rules, their buckets, and the requests in `flight`.
//! 4. Outcomes are counted in structures whose size does not depend on the input: `tally`, `top`,
//!    `timeline`, `waits`, and `changes` between two rule files.
//! 5. [`summary`] collects them, with `notes` on parts of requests that a log is `missing`.
#![forbid(unsafe_code)]

mod access;
mod changes;
pub mod decisions;
pub mod engine;
mod envoy_json;
mod flight;
pub mod format;
pub mod input;
pub mod instant;
mod json;
mod lines;
mod missing;
mod notes;
pub mod num;
mod play;
mod record;
pub mod run;
pub mod summary;
mod tally;
mod timeline;
mod top;
mod trace;
mod waits;

pub use format::LogFormat;
pub use play::{Error, Observer, replay};
pub use run::Run;
pub use summary::RunSummary;
