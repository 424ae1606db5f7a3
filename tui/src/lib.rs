//! The `loudou` command, which watches the buckets, edits the limits, and checks rule files.
#![forbid(unsafe_code)]

mod app;
pub mod cli;
mod config;
mod draw;
mod preview;
pub mod runtime;
mod short_names;
mod term;
mod typed_request;
mod ui;
