//! Human-readable text: describes rules and API answers in sentences, formats numbers and times, and escapes text from
//! clients.
//!
//! The command line, the terminal app and `loudou check` call the functions of this crate, so all three use the same
//! wording.
#![forbid(unsafe_code)]

pub mod limit_edit;
pub mod meaning;
pub mod num;
pub mod text;
