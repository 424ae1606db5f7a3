//! Human-readable text: describes rules and API responses in sentences, formats numbers and times, and escapes text
//! from clients.
//!
//! The command line, the terminal app and `loudou check` all use this crate, so their wording is the same.
#![forbid(unsafe_code)]

pub mod limit_edit;
pub mod meaning;
pub mod num;
pub mod text;
