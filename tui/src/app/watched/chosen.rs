//! What stays as it is when another Envoy is shown: the screen, and what the user chose on it.

use super::Watched;
use crate::app::columns::Sort;
use crate::app::filter::Filter;
use crate::app::history::Scale;
use crate::app::ingest;
use crate::app::layout::table_height;
use crate::app::merged::Keys;
use crate::app::rows::BucketName;
use crate::app::screen::Screen;
use crate::app::state::State;

/// The choices.
pub(super) struct Chosen {
    screen: Screen,
    scale: Scale,
    sort: Sort,
    filter: (Filter, String),
    /// The same key can be compared with its bucket at the other Envoy.
    pinned: Option<BucketName>,
    open: Option<BucketName>,
    keys: Keys,
    event_filter: String,
}

impl Chosen {
    /// The choices in a state.
    pub(super) fn of(state: &State) -> Self {
        let table = &state.table;
        Self {
            screen: state.screen,
            scale: state.scale,
            sort: table.sort,
            filter: (table.filter.clone(), table.filter_text.clone()),
            pinned: table.pinned.clone(),
            open: state.open.clone(),
            keys: state.keys.clone(),
            event_filter: state.event_filter.clone(),
        }
    }

    /// Makes them those of another state.
    pub(super) fn apply(self, state: &mut State) {
        (state.screen, state.scale) = (self.screen, self.scale);
        (state.open, state.keys, state.event_filter) = (self.open, self.keys, self.event_filter);
        let table = &mut state.table;
        (table.sort, table.pinned) = (self.sort, self.pinned);
        (table.filter, table.filter_text) = self.filter;
        table.filter_error = None;
        table.rewind();
        ingest::arrange(state);
        if state.table.pinned.is_some() && !state.table.is_missing {
            state.table.scroll(table_height(state.size));
        }
    }
}

impl Watched {
    /// Selects a bucket of the Envoy that is shown.
    pub(super) fn select(&mut self, bucket: Option<BucketName>) {
        let shown = self.states.get_mut(self.at);
        let Some((state, bucket)) = shown.zip(bucket) else {
            return;
        };
        ingest::filter_by(state, "");
        state.table.pinned = Some(bucket);
        ingest::arrange(state);
        state.table.scroll(table_height(state.size));
    }
}
