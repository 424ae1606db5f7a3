//! The `loudou` command: watch the buckets, edit the limits, check rule files.
#![forbid(unsafe_code)]

pub mod client;
pub mod text;
