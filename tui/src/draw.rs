//! Drawing primitives: a clipped pen, the theme, numbers in words, and the widgets that screens share. None of them knows
//! the state of the app.

pub(crate) mod pen;
pub(crate) mod theme;
pub(crate) mod widgets;
pub(crate) mod words;
