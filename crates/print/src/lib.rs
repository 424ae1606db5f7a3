//! The text that commands print: tables, bars, explanations and replays. Writers and styles are arguments, so that the
//! command line and the playground print the same bytes.
#![forbid(unsafe_code)]

pub mod bars;
pub mod cells;
pub mod explain;
pub mod replay;
pub mod style;
pub mod table;
