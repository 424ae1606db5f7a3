//! The results of changes for all Envoys, below the list of these.

use super::MARKS;
use crate::app::delivery::Delivery;
use crate::app::state::State;
use crate::draw::pen::Pen;
use loudou_words::num::cells;

/// The results of the last changes for all.
pub(super) struct Results<'a> {
    /// The title of each change, and its result at each Envoy that it is for: failures first, then what is open.
    changes: Vec<(&'a str, Vec<(usize, &'a Delivery)>)>,
}

impl<'a> Results<'a> {
    pub(super) fn new(state: &'a State) -> Self {
        let changes = state.broadcasts.iter().map(|(title, results)| {
            let results = results.iter().enumerate();
            let asked = results.filter(|(_, result)| **result != Delivery::NotAsked);
            let mut asked: Vec<(usize, &Delivery)> = asked.collect();
            asked.sort_by_key(|(_, result)| urgency(result));
            (title.as_str(), asked)
        });
        Self {
            changes: changes.collect(),
        }
    }

    /// The lines that all would take, each change with a gap above it.
    pub(super) fn height(&self, gap: u16) -> u16 {
        let lines = self.changes.iter().map(|(_, results)| {
            let lines = cells(results.len()).saturating_add(1);
            lines.saturating_add(gap)
        });
        lines.fold(0, u16::saturating_add)
    }

    pub(super) fn draw(&self, pen: &mut Pen<'_>, mut y: u16, gap: u16, names: &[String]) {
        let theme = pen.theme;
        for (title, results) in &self.changes {
            if y >= pen.height() {
                return;
            }
            pen.style_line(y, theme.head);
            pen.text(1, y, &format!("change for all: {title}"), theme.head);
            y = y.saturating_add(1);
            for (at, (number, result)) in results.iter().enumerate() {
                let left = results.len().saturating_sub(at);
                // On the last line, the number of those that have no line.
                if y.saturating_add(1) >= pen.height() && left > 1 && at > 0 {
                    pen.text(MARKS, y, &format!("and {left} more"), theme.dim);
                    return;
                }
                let name = names.get(*number).map_or("", String::as_str);
                one(pen, y, name, result);
                y = y.saturating_add(1);
            }
            y = y.saturating_add(gap);
        }
    }
}

/// The order of results: what needs attention comes first.
const fn urgency(result: &Delivery) -> u8 {
    match result {
        Delivery::Failed(_) => 0,
        Delivery::Sending => 2,
        Delivery::Done(_) => 3,
        Delivery::NotAsked => 4,
    }
}

/// The result of a change at one Envoy.
fn one(pen: &mut Pen<'_>, y: u16, name: &str, result: &Delivery) {
    let theme = pen.theme;
    let style = match result {
        Delivery::Sending | Delivery::NotAsked => theme.plain,
        Delivery::Done(_) => theme.good,
        Delivery::Failed(_) => theme.bad,
    };
    let x = pen.within(MARKS, y, pen.width() / 2, name, theme.plain);
    let words = result.words();
    let line = words.lines().next().unwrap_or_default();
    pen.text(x.saturating_add(2), y, line, style);
}
