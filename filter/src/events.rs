//! The events in shared data and in Envoy's log: changes and their authors.
//!
//! Operators' actions are kept apart from the events that the filter makes by itself, which clients and
//! upstreams can cause in any number ([`kept`]).

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

/// The most keys that one event names.
const NAMED: usize = 8;
/// The author of automatic events.
pub(crate) const BY_ITSELF: &str = "loudou";

/// An event of `kind`.
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

/// Adds an event, to the ring of its source and to Envoy's log. One that cannot be kept is in the log: the
/// change itself has happened.
pub(crate) fn add(host: &dyn Host, share: &str, event: &Event) {
    let source = event.kind.source();
    let level = match source {
        EventSource::Operators => LogLevel::Warn,
        EventSource::Filter => LogLevel::Info,
    };
    // Who sees the line finds the event in the list.
    let is_kept = kept::add(host, share, source, &|seq| json(event, seq)) == Ok(true);
    host.log(level, &line(event));
    if !is_kept {
        let line = "the event above could not be added to the list";
        host.log(LogLevel::Warn, line);
    }
}

/// An event as it is kept, of at most [`EVENT`] bytes: a long text is cut here, and whole in the log.
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

/// Cuts at least this many bytes off the end, as far as there are so many.
fn shorten(text: &mut String, bytes: usize) {
    const MARK: char = '…';
    let end = text
        .len()
        .saturating_sub(bytes.saturating_add(MARK.len_utf8()));
    text.truncate(text.floor_char_boundary(end));
    text.push(MARK);
}

/// Adds the events of edits that are over: that of the rule, and those of overrides of its keys.
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

/// The way in which edits ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Over<'a> {
    pub(crate) at: Clock,
    pub(crate) kind: EventKind,
    pub(crate) generation: u64,
    /// The text for the edit of a rule.
    pub(crate) edit: &'a str,
    /// The text for overrides, after `the override of alice`.
    pub(crate) keys: &'a str,
}

/// The line of an event in Envoy's log.
fn line(event: &Event) -> String {
    let key = event
        .key
        .as_deref()
        .map(|key| format!("\"{}\"", escaped(key)));
    // The arrow of changes is the only character beyond ASCII that this filter writes.
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

/// The fields of [`loudou_api::Events`] besides the events.
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
    /// The number after which they begin.
    pub(crate) after: u64,
    /// Whether that number is of another process: then it counts as 0.
    pub(crate) is_other: bool,
    /// Where they come from; anywhere without.
    pub(crate) of: Option<EventSource>,
}

/// The body of an answer with the events after a number, oldest first: a [`loudou_api::Events`].
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
    // The events are JSON already, unless another program has damaged them.
    let with = |events: &[u8]| [b"{\"events\":[", events, b"],", rest].concat();
    let body = with(&page.events);
    // Ignored strings are not checked to be text.
    let is_text = str::from_utf8(&body).is_ok();
    let is_json = is_text && serde_json::from_slice::<IgnoredAny>(&body).is_ok();
    Ok(if is_json { body } else { with(b"") })
}

#[cfg(test)]
mod tests;
