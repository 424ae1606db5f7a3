//! The field `mode` of rules and edits.

use super::grammar::{Field, Form, words};
use crate::rule::Mode;

pub(super) const MODES: [(&str, Mode); 3] = [
    ("enforce", Mode::Enforce),
    ("shadow", Mode::Shadow),
    ("off", Mode::Off),
];
pub(super) const MODE: Field = Field::optional(
    "mode",
    Form::Word(&words(&MODES)),
    "enforce",
    "How refusals are handled: enforce, shadow (only counted), or off (the rule is skipped).",
);

/// Allowed values of the field `mode`.
pub const MODE_NAMES: [&str; 3] = words(&MODES);
