//! Columns that the user chose, and themes.

use super::{SIZES, draw, screens, styles};
use crate::app::columns::Column;
use crate::app::fixture::{state, type_keys};
use crate::draw::theme::color::Depth;
use crate::draw::theme::{Base, Look, Scheme, Theme};

/// The menu of columns, and a table of a user's columns.
#[test]
fn columns() {
    screens("columns", "C", |_| {});
    screens("columns_chosen", "", |state| {
        state.table.columns = Some(vec![Column::Key, Column::Seen, Column::Refused]);
    });
}

/// Themes and depths of colour, cell by cell.
#[test]
fn themes() {
    for (name, depth, base) in [
        ("light", Depth::Indexed, Base::Light),
        ("light_16", Depth::Sixteen, Base::Light),
        ("dark_16", Depth::Sixteen, Base::Dark),
    ] {
        let theme = Theme::of(&Look {
            depth,
            ascii: false,
            scheme: Scheme {
                base,
                ..Scheme::default()
            },
        });
        for size in SIZES {
            let mut state = state(size, 20);
            type_keys(&mut state, "j");
            let terminal = draw(&state, &theme, size);
            let name = format!("theme_{name}_{}x{}", size.0, size.1);
            insta::assert_snapshot!(name, styles(&terminal));
        }
    }
}
