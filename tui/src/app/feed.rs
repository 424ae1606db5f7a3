//! Builds the request for the next poll. The request is limited to the data that the screen needs,
//! to keep the load on the proxy low.

use loudou_limiter::Nanos;

use super::effects::{PollRequest, Undoable};
use super::layout::table_height;
use super::rows::{BucketName, Row};
use super::screen::Screen;
use super::state::State;

/// Maximum number of rows outside the screen that a poll may read.
const OTHERS: usize = 128;
/// Factor by which the poll interval grows while the screen is frozen. Polls of a frozen screen
/// mainly check the connection and detect restarts.
const FROZEN: u64 = 5;

/// Returns the time between two polls.
pub(crate) fn interval(state: &State) -> Nanos {
    let interval = state.settings.interval.get();
    let times = if state.frozen.is_some() { FROZEN } else { 1 };
    Nanos::new(interval.saturating_mul(times))
}

/// Returns the request for the next poll.
pub(crate) fn request(state: &State) -> PollRequest {
    let request = at_hand(state);
    let is_seen = state.frozen.is_none() && !state.is_hidden;
    let is_home = state.screen == Screen::Buckets && is_seen;
    let lists = is_home || state.summed.is_some();
    let summed = state.summed.as_ref();
    let filter = summed.map_or(&state.table.filter, |summed| &summed.filter);
    let shown = shown(state);
    let data = state.data.as_ref().filter(|_| lists);
    let others = data.map_or_else(Vec::new, |data| others(&data.rows, &shown));
    let rules = data.map_or(&[][..], |data| &data.rules.rules);
    let names = rules.iter().map(|rule| rule.name.as_str());
    PollRequest {
        wanted: filter.searches(names),
        shown,
        others,
        lists,
        anew: state.searches_anew,
        ..request
    }
}

/// Returns a request that names the data the app already has, so that the next poll need not read
/// it again.
fn at_hand(state: &State) -> PollRequest {
    let waiting = state
        .frozen
        .as_ref()
        .and_then(|frozen| frozen.waiting.as_ref());
    match (&state.data, waiting) {
        (None, _) => PollRequest::default(),
        (Some(data), None) => PollRequest {
            instance: data.status.instance.clone(),
            generation: Some(data.rules.generation),
            after_seq: data.last_seq,
            ..PollRequest::default()
        },
        (Some(data), Some((snapshot, _))) => PollRequest {
            instance: snapshot.status.instance.clone(),
            generation: Some(snapshot.rules.as_ref().unwrap_or(&data.rules).generation),
            after_seq: snapshot.last_seq,
            ..PollRequest::default()
        },
    }
}

/// Returns the buckets on screen, and the bucket of the key that the last undoable change affected.
fn shown(state: &State) -> Vec<BucketName> {
    let mut shown: Vec<BucketName> = match state.screen {
        _ if let Some(summed) = &state.summed => summed.shown.clone(),
        _ if state.frozen.is_some() || state.is_hidden => Vec::new(),
        Screen::Buckets => {
            let lines = state.table.lines(table_height(state.size)).into_iter();
            let rows = lines.filter_map(|index| state.row(index));
            let missing = state
                .table
                .pinned
                .clone()
                .filter(|_| state.table.is_missing);
            rows.map(|row| row.id.clone()).chain(missing).collect()
        }
        Screen::Bucket => state.open.iter().cloned().collect(),
        _ => Vec::new(),
    };
    let undone = state.undos.last().map(Undoable::of);
    if let Some((rule, Some(key))) = undone {
        shown.push(BucketName::new(rule, key));
    }
    shown
}

/// Returns the rows outside the screen that were read least recently.
fn others(rows: &[Row], shown: &[BucketName]) -> Vec<BucketName> {
    let mut rows: Vec<&Row> = rows.iter().filter(|row| !shown.contains(&row.id)).collect();
    rows.sort_by_key(|row| row.as_of_ns);
    rows.into_iter()
        .take(OTHERS)
        .map(|row| row.id.clone())
        .collect()
}
