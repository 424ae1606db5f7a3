//! Formats the text output of commands: tables, bars, explanations and replays. Callers pass the writer and the style,
//! so the command line and the playground print identical output.
#![forbid(unsafe_code)]

pub mod bars;
pub mod cells;
pub mod explain;
pub mod replay;
pub mod style;
pub mod table;
