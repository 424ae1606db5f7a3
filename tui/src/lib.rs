//! The `loudou` command: watch the buckets, edit the limits, check rule files.
#![forbid(unsafe_code)]

mod app;
mod cells;
mod change;
pub mod cli;
pub mod client;
pub mod clock;
mod command_line;
mod config;
pub mod document;
mod draw;
mod limit_edit;
mod live;
mod meaning;
mod merged_top;
mod num;
mod preview;
pub mod runtime;
mod short_names;
mod term;
pub mod text;
mod typed_request;
mod ui;
