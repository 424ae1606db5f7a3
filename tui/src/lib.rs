//! The `loudou` command: watch the buckets, edit the limits, check rule files.
#![forbid(unsafe_code)]

pub mod cli;
pub mod client;
pub mod document;
pub mod runtime;
pub mod text;
