//! The sums of the keys of all Envoys, while they are on screen.

use loudou_limiter::Nanos;

use super::Watched;
use crate::app::layout::table_height;
use crate::app::merged::{Summed, merge};
use crate::app::screen::Screen;
use crate::app::targets::are_twins;

/// The time between two sums.
const EVERY: Nanos = Nanos::from_millis(250);

impl Watched {
    /// Sums the keys of all Envoys while they are on screen, and has the Envoys read them.
    pub(super) fn sum(&mut self, now: Nanos) {
        let shown = self.shown();
        let is_seen = shown.screen == Screen::Keys && shown.frozen.is_none();
        if !is_seen {
            if self.summed_at.take().is_some() {
                self.states.iter_mut().for_each(|state| state.summed = None);
            }
            return;
        }
        let is_new = self.summed_at.is_none();
        if self.summed_at.is_some_and(|at| now.since(at) < EVERY) {
            return;
        }
        self.summed_at = Some(now);
        let instances = self.states.iter().map(|state| {
            let data = state.data.as_ref();
            data.map_or("", |data| data.status.instance.as_str())
        });
        let twins = are_twins(instances);
        let rows = self.states.iter().zip(twins).map(|(state, is_twin)| {
            let is_up = state.link.up == Some(true) && !is_twin;
            let data = state.data.as_ref().filter(|_| is_up);
            data.map(|data| (data.status.now_ns, data.rows.as_slice()))
        });
        let rows = merge(&rows.collect::<Vec<_>>());
        let Some(state) = self.states.get_mut(self.at) else {
            return;
        };
        let (keys, height) = (&mut state.keys, table_height(state.size));
        keys.rows = rows;
        if is_new {
            keys.since = now;
        }
        keys.arrange(height);
        let summed = Summed {
            shown: keys.on_screen(height),
            filter: keys.table.filter.clone(),
        };
        for state in &mut self.states {
            state.summed = Some(summed.clone());
            if is_new {
                state.link.hurry(now);
            }
        }
    }
}
