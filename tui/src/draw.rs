//! Drawing primitives: a clipped pen, the theme, numbers in words, bars and boxes. None of them knows the
//! state of the app.

pub(crate) mod bars;
pub(crate) mod panel;
pub(crate) mod pen;
pub(crate) mod spots;
pub(crate) mod theme;
pub(crate) mod words;
