//! Drawing primitives, such as a clipped pen, the theme, number formats, and the widgets that
//! screens share. This module does not depend on the state of the app.

pub(crate) mod pen;
pub(crate) mod theme;
pub(crate) mod widgets;
pub(crate) mod words;
