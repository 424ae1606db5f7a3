//! The look of the screen: colours of the terminal, glyphs, theme.

use super::context::Context;
use crate::draw::theme::color::Depth;
use crate::draw::theme::{Look, Scheme};
use crate::runtime::Appearance;

/// The look that options and environment ask for.
pub(super) fn of(context: &Context<'_, '_>) -> Appearance {
    let env = &context.io.env;
    let look = Look {
        depth: if context.style.color {
            Depth::of_terminal(env.term.as_deref(), env.color_term.as_deref())
        } else {
            Depth::Plain
        },
        ascii: context.global.ascii,
        scheme: Scheme::default(),
    };
    Appearance {
        look,
        ..Appearance::default()
    }
}
