//! Events that report changes and their authors. They are stored in shared data and written to
//! Envoy's log.
//!
//! Events for operators' actions are stored separately from automatic events ([`kept`]), because
//! clients and upstreams can trigger any number of automatic events.

use loudou_api::{Event, EventKind, EventSource};
use loudou_limiter::Clock;
use loudou_rules::joined::joined;
use loudou_rules::size::EVENT;
use loudou_store::StoreFailed;
use serde::Serialize;
use serde::de::IgnoredAny;

use crate::escaped::escaped;
use crate::host::{Host, LogLevel};
use crate::instance::Instance;
use crate::record::Ended;

mod kept;
mod page;

/// Maximum number of keys that an event lists.
const NAMED: usize = 8;
/// Author name used for automatic events.
pub(crate) const BY_ITSELF: &str = "loudou";

/// Creates an event of `kind`.
pub(crate) fn event(at: Clock, kind: EventKind, by: &str, generation: u64) -> Event {
    Event {
        at_ns: at.now.get(),
        at_unix_ms: at.wall.as_millis(),
        kind,
        by: by.to_owned(),
        generation,
        ..Event::default()
    }
}

/// Adds an event to its source's ring and to Envoy's log. The change has already been made, so the
/// event is logged even if it cannot be stored.
pub(crate) fn add(host: &dyn Host, share: &str, event: &Event) {
    let source = event.kind.source();
    let level = match source {
        EventSource::Operators => LogLevel::Warn,
        EventSource::Filter => LogLevel::Info,
    };
    // The event is stored before it is logged, so that every logged event is already in the list of
    // events.
    let is_kept = kept::add(host, share, source, &|seq| json(event, seq)) == Ok(true);
    host.log(level, &line(event));
    if !is_kept {
        let line = "the event above could not be added to the list";
        host.log(LogLevel::Warn, line);
    }
}

/// Returns the JSON of an event for storage, which is at most [`EVENT`] bytes long. Overlong
/// details and reasons are truncated here, but not in the log.
fn json(event: &Event, seq: u64) -> Vec<u8> {
    let mut event = Event {
        seq,
        ..event.clone()
    };
    for cut in [0, 1, 2] {
        let json = serde_json::to_vec(&event).unwrap_or_default();
        let surplus = json.len().saturating_sub(EVENT);
        match cut {
            _ if surplus == 0 => return json,
            0 => shorten(&mut event.detail, surplus),
            _ => shorten(&mut event.reason, surplus),
        }
    }
    Vec::new()
}

/// Shortens a string by at least `bytes` bytes. If the string is too short for that, it is replaced
/// by an ellipsis.
fn shorten(text: &mut String, bytes: usize) {
    const MARK: char = '…';
    let end = text
        .len()
        .saturating_sub(bytes.saturating_add(MARK.len_utf8()));
    text.truncate(text.floor_char_boundary(end));
    text.push(MARK);
}

/// Adds the events for a rule's edits that have ended: one for the edit of the rule itself, and one
/// for the overrides.
pub(crate) fn add_ended(host: &dyn Host, share: &str, over: &Over<'_>, ended: &Ended) {
    let event = |detail: String| Event {
        rule: Some(ended.rule.clone()),
        detail,
        ..event(over.at, over.kind, BY_ITSELF, over.generation)
    };
    if ended.edit {
        add(host, share, &event(over.edit.to_owned()));
    }
    let named: Vec<&str> = ended.keys.iter().map(String::as_str).take(NAMED).collect();
    let mut named = joined(&named, ", ");
    if let Some(more) = ended.keys.len().checked_sub(NAMED).filter(|more| *more > 0) {
        named = format!("{named} and {more} more");
    }
    let mut event = match ended.keys.as_slice() {
        [] => return,
        [_] => event(format!("the override of {named} {}", over.keys)),
        _ => event(format!("the overrides of {named} {}", over.keys)),
    };
    if let [key] = ended.keys.as_slice() {
        event.key = Some(key.clone());
    }
    add(host, share, &event);
}

/// Fields common to the events that report ended edits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Over<'a> {
    pub(crate) at: Clock,
    pub(crate) kind: EventKind,
    pub(crate) generation: u64,
    /// Text of the event that reports that a rule's edit has ended.
    pub(crate) edit: &'a str,
    /// End of the text of the event that reports that overrides have ended. The text starts with a
    /// phrase like `the override of alice`.
    pub(crate) keys: &'a str,
}

/// Returns the log line for an event.
fn line(event: &Event) -> String {
    let key = event
        .key
        .as_deref()
        .map(|key| format!("\"{}\"", escaped(key)));
    // The arrow between old and new values is the only non-ASCII character that the filter itself
    // uses in details.
    let detail = escaped(&event.detail.replace('→', "->"));
    format!(
        "{}: rule {}, key {}: {detail} (by {}; reason: \"{}\"; generation {})",
        event.kind.name(),
        escaped(event.rule.as_deref().unwrap_or("-")),
        key.as_deref().unwrap_or("-"),
        escaped(&event.by),
        escaped(&event.reason),
        event.generation,
    )
}

/// All fields of [`loudou_api::Events`] except the list of events.
#[derive(Debug, Default, Serialize)]
struct Head<'a> {
    instance: &'a str,
    started_unix_ms: u64,
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    restarted: bool,
    now_ns: u64,
    last_seq: u64,
    lost: u64,
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    more: bool,
}

/// Selects which events a caller requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// Sequence number of the last event the caller has received.
    pub(crate) after: u64,
    /// True if `after` is a sequence number from another Envoy process. If so, all events are
    /// returned, as if `after` were 0.
    pub(crate) is_other: bool,
    /// Source of the events. `None` for all sources.
    pub(crate) of: Option<EventSource>,
}

/// Returns the requested events, oldest first, as the JSON of [`loudou_api::Events`].
pub(crate) fn body(
    host: &dyn Host,
    share: &str,
    wanted: Wanted,
    here: Option<&Instance>,
    at: Clock,
) -> Result<Vec<u8>, StoreFailed> {
    let Wanted {
        after,
        is_other,
        of,
    } = wanted;
    let page = page::read(host, share, of, (after, is_other))?;
    let head = Head {
        instance: here.map_or("", |here| &here.id),
        started_unix_ms: here.map_or(0, |here| here.started_unix_ms),
        restarted: page.restarted,
        now_ns: at.now.get(),
        last_seq: page.last_seq,
        lost: page.lost,
        more: page.more,
    };
    let head = serde_json::to_vec(&head).unwrap_or_default();
    let rest = head.get(1..).unwrap_or_default();
    // The stored events are valid JSON unless another program has overwritten them.
    let with = |events: &[u8]| [b"{\"events\":[", events, b"],", rest].concat();
    let body = with(&page.events);
    // UTF-8 is checked separately, because the JSON parser does not validate the strings it skips.
    let is_text = str::from_utf8(&body).is_ok();
    let is_json = is_text && serde_json::from_slice::<IgnoredAny>(&body).is_ok();
    Ok(if is_json { body } else { with(b"") })
}

#[cfg(test)]
mod tests;
