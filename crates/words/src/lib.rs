//! Text for people: rules and answers as sentences, numbers and times, and escaped text from clients.
//!
//! The command line, the screen and `loudou check` call the functions of this crate, so all three use equal words.
#![forbid(unsafe_code)]

pub mod limit_edit;
pub mod meaning;
pub mod num;
pub mod text;
