//! Events in shared data and in Envoy's log: changes and their authors.
//!
//! Operators' actions are stored separately from the filter's automatic events, because clients and
//! upstreams can cause any number of the latter ([`kept`]).

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

/// Maximum number of keys that one event names.
const NAMED: usize = 8;
/// Author of automatic events.
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

/// Adds an event to the ring of its source and to Envoy's log. The change itself has already
/// happened, so an event that cannot be stored is still logged.
pub(crate) fn add(host: &dyn Host, share: &str, event: &Event) {
    let source = event.kind.source();
    let level = match source {
        EventSource::Operators => LogLevel::Warn,
        EventSource::Filter => LogLevel::Info,
    };
    // The event is stored before it is logged, so a reader of the log finds it in the list.
    let is_kept = kept::add(host, share, source, &|seq| json(event, seq)) == Ok(true);
    host.log(level, &line(event));
    if !is_kept {
        let line = "the event above could not be added to the list";
        host.log(LogLevel::Warn, line);
    }
}

/// Returns the stored form of an event, at most [`EVENT`] bytes. A long text is cut here, but is
/// complete in the log.
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

/// Cuts at least this many bytes off the end, or all of a shorter text.
fn shorten(text: &mut String, bytes: usize) {
    const MARK: char = '…';
    let end = text
        .len()
        .saturating_sub(bytes.saturating_add(MARK.len_utf8()));
    text.truncate(text.floor_char_boundary(end));
    text.push(MARK);
}

/// Adds the events for ended edits: the edit of the rule, and the overrides of its keys.
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

/// Details for the events of ended edits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Over<'a> {
    pub(crate) at: Clock,
    pub(crate) kind: EventKind,
    pub(crate) generation: u64,
    /// Text for the edit of a rule.
    pub(crate) edit: &'a str,
    /// Text for overrides, after `the override of alice`.
    pub(crate) keys: &'a str,
}

/// Returns the log line of an event.
fn line(event: &Event) -> String {
    let key = event
        .key
        .as_deref()
        .map(|key| format!("\"{}\"", escaped(key)));
    // The arrow in changes is the only non-ASCII character that this filter writes.
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

/// Fields of [`loudou_api::Events`] other than the events.
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

/// The events that a caller wants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// Number of the last event that the caller has seen.
    pub(crate) after: u64,
    /// True if `after` belongs to another process. `after` is then treated as 0.
    pub(crate) is_other: bool,
    /// Source of the events. `None` for all sources.
    pub(crate) of: Option<EventSource>,
}

/// Returns a response body with the events after a number, oldest first: a [`loudou_api::Events`].
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
    // The stored events are JSON already, unless another program has damaged them.
    let with = |events: &[u8]| [b"{\"events\":[", events, b"],", rest].concat();
    let body = with(&page.events);
    // The JSON parser does not check ignored strings for UTF-8.
    let is_text = str::from_utf8(&body).is_ok();
    let is_json = is_text && serde_json::from_slice::<IgnoredAny>(&body).is_ok();
    Ok(if is_json { body } else { with(b"") })
}

#[cfg(test)]
mod tests;
