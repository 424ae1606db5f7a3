//! Lists events, filters them by words, and shows all fields of an event.

use std::borrow::Cow;

use loudou_api::Event;

use super::state::State;
use crate::draw::words::ago;
use loudou_words::text::{date, humanise};

/// Returns the rule and the key that an event concerns: `per-user alice`.
pub(crate) fn about(event: &Event) -> String {
    let parts = [event.rule.as_deref(), event.key.as_deref()];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// Returns the event for display. While keys are hidden, its key is replaced by a pseudonym.
pub(crate) fn as_shown<'a>(state: &State, event: &'a Event) -> Cow<'a, Event> {
    let Some(key) = event.key.as_deref().filter(|_| state.hides_keys) else {
        return Cow::Borrowed(event);
    };
    let shown = state.shown_key(key);
    Cow::Owned(Event {
        detail: event.detail.replace(key, &shown),
        reason: event.reason.replace(key, &shown),
        key: Some(shown.into_owned()),
        ..event.clone()
    })
}

/// Returns the display name of the event's kind.
pub(crate) fn kind(event: &Event) -> String {
    event.kind.name().replace('_', " ")
}

/// Returns true if the event contains all words of the filter and no word that the filter prefixes
/// with `!`. Case is ignored.
fn passes(event: &Event, filter: &str) -> bool {
    let texts = [
        &kind(event),
        &event.by,
        &about(event),
        &event.detail,
        &event.reason,
    ];
    let text = texts.map(|text| text.to_lowercase()).join("\n");
    filter.to_lowercase().split_whitespace().all(|word| {
        let unwanted = word.strip_prefix('!').filter(|word| !word.is_empty());
        unwanted.map_or_else(|| text.contains(word), |word| !text.contains(word))
    })
}

/// Returns the events that pass the filter, newest first.
pub(crate) fn visible(state: &State) -> Vec<&Event> {
    let events = state.data.iter().flat_map(|data| &data.events);
    events
        .filter(|event| passes(event, &state.event_filter))
        .collect()
}

/// Returns the names and values of all fields that an event has.
pub(crate) fn whole(event: &Event, now_ns: u64) -> Vec<(&'static str, String)> {
    let at = date(event.at_unix_ms);
    let age = ago(now_ns.saturating_sub(event.at_ns));
    let until = |until_ns: u64| match until_ns.checked_sub(now_ns) {
        Some(left) => format!("in {}", humanise(left)),
        None => ago(now_ns.saturating_sub(until_ns)),
    };
    let optional = |text: &Option<String>| text.clone().unwrap_or_default();
    let rows = [
        ("time", format!("{at}, {age}")),
        ("number", event.seq.to_string()),
        ("event", kind(event)),
        ("by", event.by.clone()),
        ("rule", optional(&event.rule)),
        ("key", optional(&event.key)),
        ("details", event.detail.clone()),
        ("reason", event.reason.clone()),
        ("until", event.until_ns.map(until).unwrap_or_default()),
        ("generation", event.generation.to_string()),
    ];
    let rows = rows.into_iter();
    rows.filter(|(_, value)| !value.is_empty()).collect()
}
