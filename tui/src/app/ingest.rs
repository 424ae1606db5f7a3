//! Applies the snapshot of a poll to the state. Computes the request rates, sorts the rows, and
//! keeps the selection.

use std::collections::{BTreeMap, BTreeSet};

use loudou_api::{BucketView, Event, EventKind, RuleView, Rules};
use loudou_limiter::Nanos;
use loudou_rules::rule::Mode;
use serde_json::Value;

use super::again;
use super::columns::{Longest, Sort};
use super::filter::Filter;
use super::history::{Counts, Rates};
use super::layout::table_height;
use super::msg::Snapshot;
use super::rows::{BucketName, Row};
use super::running::Running;
use super::screen::Screen;
use super::state::{Data, Frozen, MAX_EVENTS, State};
use super::targets;
use crate::draw::words::amount;
use loudou_print::cells::{safe, width};
use loudou_words::num::count;

/// Maximum number of rows.
const MAX_ROWS: usize = 2_000;

/// Applies a snapshot, or keeps it for later while the screen is frozen.
pub(crate) fn polled(state: &mut State, snapshot: Box<Snapshot>) {
    // The first call of a poll reads the status, so its totals are `status_age` old when the poll
    // ends.
    let read_at = state.now.get().saturating_sub(snapshot.status_age.get());
    let read_at = Nanos::new(read_at);
    again::note(state, &snapshot);
    // Before the first snapshot, there is nothing to freeze.
    match &mut state.frozen {
        Some(frozen) if state.data.is_some() => keep(frozen, snapshot, read_at),
        _ => apply(state, *snapshot, read_at),
    }
}

/// Keeps the newest snapshot, and merges in the events and rules of earlier snapshots, which are
/// read only once.
fn keep(frozen: &mut Frozen, mut snapshot: Box<Snapshot>, read_at: Nanos) {
    let earlier = frozen.waiting.take();
    let same = |earlier: &Snapshot| earlier.status.instance == snapshot.status.instance;
    if let Some((earlier, _)) = earlier.filter(|(earlier, _)| same(earlier)) {
        let mut events = earlier.events;
        let newest = events.last().map_or(0, |event| event.seq);
        events.extend(
            snapshot
                .events
                .into_iter()
                .filter(|event| event.seq > newest),
        );
        snapshot.events = events;
        snapshot.rules = snapshot.rules.or(earlier.rules);
    }
    frozen.waiting = Some((snapshot, read_at));
}

/// Applies the snapshot that arrived while the screen was frozen.
pub(crate) fn thaw(state: &mut State) {
    if let Some(Frozen {
        waiting: Some((snapshot, read_at)),
        ..
    }) = state.frozen.take()
    {
        apply(state, *snapshot, read_at);
    }
}

fn apply(state: &mut State, mut snapshot: Snapshot, read_at: Nanos) {
    let mut data = state.data.take().unwrap_or_default();
    if data.status.instance != snapshot.status.instance {
        data.rows.clear();
        (data.whole_ns, data.complete_ns) = (None, None);
    }
    // A bucket without history did not exist when all buckets were last known.
    let absent_ns = data.complete_ns;
    let patience_ns = state.patience().get();
    let history = &mut state.history;
    history.note_rules(&snapshot.status, read_at, patience_ns);
    mark_shadow(&mut snapshot);
    let (open, pinned) = (state.open.clone(), state.table.pinned.clone());
    let keeps = |id: &BucketName| Some(id) == open.as_ref() || Some(id) == pinned.as_ref();
    let now_ns = snapshot.status.now_ns;
    if !snapshot.truncated {
        data.whole_ns = Some(now_ns);
    }
    data.gone = snapshot
        .gone
        .iter()
        .map(|id| (id.clone(), now_ns))
        .collect();
    merge(
        &mut data.rows,
        &mut snapshot,
        keeps,
        |id, view, as_of_ns| {
            let is_open = Some(id) == open.as_ref();
            if let Some(absent_ns) = absent_ns {
                history.note_absent(id, absent_ns);
            }
            let counts = Counts::of_bucket(view);
            history.note_bucket(id, counts, as_of_ns, (is_open, patience_ns))
        },
    );
    // The history of a bucket is dropped with its row, so that the limit on rows also limits the
    // memory of histories.
    let rows: BTreeSet<&BucketName> = data.rows.iter().map(|row| &row.id).collect();
    let tracks = &mut history.buckets;
    tracks.retain(|id, _| rows.contains(id) || Some(id) == open.as_ref());
    let used = snapshot.status.store.used;
    data.truncated = snapshot.truncated && used > count(data.rows.len());
    // If the store has evicted buckets, some rows may belong to evicted buckets. In that case,
    // having as many rows as buckets does not mean that every bucket is known.
    let store = &snapshot.status.store;
    let keeps_all = store.evicted_lossy == 0 && store.evicted_lossless == 0;
    if !snapshot.truncated || (keeps_all && !data.truncated) {
        data.complete_ns = Some(now_ns);
    }
    data.searching = snapshot.searching;
    data.longest = longest(&data.rows);
    if let Some(rules) = snapshot.rules {
        take_rules(&mut data, rules);
    }
    if data.status.instance != snapshot.status.instance {
        (data.last_seq, data.events_lost) = (0, 0);
        data.events.clear();
    }
    let is_first = data.last_seq == 0;
    let ended = ended(&data, &snapshot.events);
    note_events(
        &mut data,
        snapshot.events,
        snapshot.last_seq,
        snapshot.events_lost,
    );
    data.status = snapshot.status;
    data.read_at = read_at;
    let last_rule = data.rules.rules.len().saturating_sub(1);
    let rule = state.selected(Screen::Rules).min(last_rule);
    state.selected.insert(Screen::Rules, rule);
    state.data = Some(data);
    tell_ends(state, if is_first { Vec::new() } else { ended });
    arrange(state);
}

/// Returns the new events about bans, overrides and edits that expired or that a new configuration
/// ended.
fn ended(data: &Data, events: &[Event]) -> Vec<Event> {
    let newest = data.events.first().map_or(0, |event| event.seq);
    let ends = |event: &&Event| {
        let kinds = [
            EventKind::BanExpired,
            EventKind::EditExpired,
            EventKind::EditRetired,
        ];
        event.seq > newest && kinds.contains(&event.kind)
    };
    events.iter().filter(ends).cloned().collect()
}

/// Shows a message about changes that have ended, because the user may still rely on them.
fn tell_ends(state: &mut State, ended: Vec<Event>) {
    /// Maximum number of ended changes that are named. If more have ended, the message only
    /// contains their number.
    const MAX_NAMED: usize = 2;
    if ended.len() > MAX_NAMED {
        return state.toast(
            false,
            format!("{} changes ended; 5 shows them", ended.len()),
        );
    }
    for event in ended {
        let rule = event.rule.as_deref().unwrap_or_default();
        let key = event.key.as_deref().map(|key| state.shown_key(key));
        let words = match (event.kind, key) {
            (EventKind::BanExpired, Some(key)) => format!("the ban of {key} in {rule} ended"),
            (EventKind::EditRetired, _) => format!("a new configuration ended the edit of {rule}"),
            (_, Some(key)) => format!("the override of {key} in {rule} ended"),
            (_, None) => format!("the edit of {rule} ended"),
        };
        state.toast(false, words);
    }
}

/// Stores the rules that were read, and values that are derived from the rules.
fn take_rules(data: &mut Data, rules: Rules) {
    data.numbers = targets::numbers(&rules.rules);
    data.rules = Rules {
        rules: beside(&rules.rules),
        ..rules
    };
    data.running = Running::default();
}

/// Returns the rules in their original order, except that each rule that shadows another directly
/// follows the shadowed rule.
fn beside(rules: &[RuleView]) -> Vec<RuleView> {
    let shadowed = |rule: &RuleView| {
        let other = rule.rule.get("shadows").and_then(Value::as_str);
        other.map(ToOwned::to_owned)
    };
    let is_there = |name: &str| rules.iter().any(|rule| rule.name == name);
    let (mut shadows, mut ordered): (Vec<_>, Vec<_>) = rules
        .iter()
        .cloned()
        .partition(|rule| shadowed(rule).is_some_and(|other| is_there(&other)));
    let mut at = 0;
    while let Some(name) = ordered.get(at).map(|rule| rule.name.clone()) {
        at = at.saturating_add(1);
        let its = |rule: &RuleView| shadowed(rule).as_ref() == Some(&name);
        let (its, rest) = std::mem::take(&mut shadows).into_iter().partition(its);
        shadows = rest;
        let its: Vec<RuleView> = its;
        ordered.splice(at..at, its);
    }
    // Rules that shadow each other come last.
    ordered.append(&mut shadows);
    ordered
}

/// Marks the buckets of rules in shadow mode, because older versions of the filter do not mark
/// them.
fn mark_shadow(snapshot: &mut Snapshot) {
    let rules = snapshot.status.rules.iter();
    let shadow: BTreeSet<&str> = rules
        .filter(|rule| rule.mode == Mode::Shadow.name())
        .map(|rule| rule.name.as_str())
        .collect();
    for (_, bucket) in &mut snapshot.buckets {
        bucket.shadow |= shadow.contains(bucket.rule.as_str());
    }
}

/// Merges the buckets of a poll into the rows. `note` returns the rates of a bucket.
fn merge(
    rows: &mut Vec<Row>,
    snapshot: &mut Snapshot,
    keeps: impl Fn(&BucketName) -> bool,
    mut note: impl FnMut(&BucketName, &BucketView, u64) -> Option<Rates>,
) {
    let mut known: BTreeMap<BucketName, Row> = BTreeMap::new();
    // If the poll read all buckets, a bucket that is missing from the snapshot no longer exists.
    if snapshot.truncated {
        known.extend(rows.drain(..).map(|row| (row.id.clone(), row)));
    }
    for id in &snapshot.gone {
        known.remove(id);
    }
    let read = snapshot.buckets.len();
    for (as_of_ns, view) in std::mem::take(&mut snapshot.buckets) {
        let id = BucketName::new(&view.rule, &view.key);
        let rates = note(&id, &view, as_of_ns);
        let row = Row {
            id: id.clone(),
            view,
            as_of_ns,
            rates,
        };
        known.insert(id, row);
    }
    // If there are more rows than buckets in the store, some buckets were evicted, probably the
    // least recently read ones. Buckets with a single request are left out first, so that keys that
    // a client invents do not push others out.
    let used = usize::try_from(snapshot.status.store.used).unwrap_or(MAX_ROWS);
    let most = used.max(read).min(MAX_ROWS);
    if known.len() > most {
        let mut old: Vec<(bool, u64, &BucketName)> = known
            .values()
            .filter(|row| !keeps(&row.id))
            .map(|row| (!row.has_one_request(), row.as_of_ns, &row.id))
            .collect();
        old.sort();
        let old = old.into_iter().take(known.len().saturating_sub(most));
        let old: Vec<BucketName> = old.map(|(.., id)| id.clone()).collect();
        for id in old {
            known.remove(&id);
        }
    }
    *rows = known.into_values().collect();
}

/// Returns the widths of the longest rule name, key and capacity.
fn longest(rows: &[Row]) -> Longest {
    let of = |text: &str| width(&safe(text));
    rows.iter().fold(Longest::default(), |longest, row| {
        // If a key has an override, the table shows a mark after the key.
        let mark = if row.view.own.is_some() { 2 } else { 0 };
        let capacity = row.limit().map_or(0, |limit| limit.capacity);
        Longest {
            rule: longest.rule.max(of(&row.id.rule)),
            key: longest.key.max(of(&row.id.key).saturating_add(mark)),
            capacity: longest.capacity.max(of(&amount(capacity))),
        }
    })
}

fn note_events(data: &mut Data, events: Vec<Event>, last_seq: u64, lost: u64) {
    // After a restart, the server numbers events from 1 again.
    if last_seq < data.last_seq {
        data.events.clear();
    }
    let newest = data.events.first().map_or(0, |event| event.seq);
    for event in events.into_iter().filter(|event| event.seq > newest) {
        data.events.insert(0, event);
    }
    data.events.truncate(MAX_EVENTS);
    data.last_seq = last_seq;
    data.events_lost = data.events_lost.saturating_add(lost);
}

/// Applies the filter and the sort order to the rows again. The selection stays on its bucket.
pub(crate) fn arrange(state: &mut State) {
    let rows = state.data.as_ref().map_or(&[][..], |data| &data.rows);
    state.table.arrange(rows.iter(), table_height(state.size));
}

/// Changes the sort column or direction.
pub(crate) fn sort(state: &mut State, sort: Sort) {
    state.table.sort = sort;
    state.table.rewind();
    arrange(state);
}

/// Applies the filter `text`, if it is valid.
pub(crate) fn filter_by(state: &mut State, text: &str) {
    if let Ok(filter) = Filter::parse(text) {
        state.table.filter = filter;
        text.clone_into(&mut state.table.filter_text);
        state.table.filter_error = None;
        state.table.pinned = None;
        state.table.rewind();
        // A poll starts at once, because the matching buckets may not have been read yet.
        state.link.hurry(state.now);
        arrange(state);
    }
}

/// Shows only the buckets of a rule, on the Buckets screen.
pub(crate) fn buckets_of(state: &mut State, rule: &str) {
    filter_by(state, &format!("rule = {rule}"));
    state.screen = Screen::HOME;
}
