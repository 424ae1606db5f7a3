//! What a person reads: rules and answers as sentences, numbers, times, and the texts of strangers made safe.
//!
//! The command line, the screen and the checks of rule files say the same thing by the same function of this crate.
#![forbid(unsafe_code)]

pub mod limit_edit;
pub mod meaning;
pub mod num;
pub mod text;
