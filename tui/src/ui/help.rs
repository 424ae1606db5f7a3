//! The keys of this screen with their descriptions, from the key table.

use crate::app::command::Binding;
use crate::app::keys;
use crate::app::screens;
use crate::app::state::State;
use crate::draw::panel;
use crate::draw::pen::Pen;
use loudou_words::num::cells;

/// Draws the keys of the screen under the help.
pub(crate) fn draw(pen: &mut Pen<'_>, state: &State, top: usize) {
    let theme = pen.theme;
    let place = state.screen.place();
    let here = keys::all().filter(|b| b.places & place != 0 && keys::is_listed(state, b));
    let here: Vec<&Binding> = here.collect();
    let title = format!("keys on {}", screens::shown(state).about().title);
    let height = cells(here.len()).saturating_add(2);
    let width = pen.width().saturating_sub(2).min(70);
    let mut pen = panel::open(pen, &title, width, height);
    let last = here.len().saturating_sub(usize::from(pen.height()));
    for (binding, y) in here.iter().skip(top.min(last)).zip(0..pen.height()) {
        let obstacle = keys::obstacle(state, binding.command);
        let names: Vec<String> = binding.keys.iter().map(ToString::to_string).collect();
        let (key, style) = match obstacle {
            None => (theme.key, theme.plain),
            Some(_) => (theme.dim, theme.dim),
        };
        pen.within(1, y, 11, &names.join(" "), key);
        let x = pen.text(13, y, binding.help, style);
        if let Some(why) = obstacle {
            pen.text(x.saturating_add(1), y, &format!("({why})"), theme.dim);
        }
    }
}
