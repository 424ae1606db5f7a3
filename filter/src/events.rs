//! The ring of events in shared data: changes and their authors.

use loudou_api::{Event, EventKind, Events};
use loudou_limiter::Clock;
use loudou_store::StoreFailed;
use loudou_store::swap::{Swapped, swap};
use serde::Serialize;
use serde_json::Value;

use crate::escaped::escaped;
use crate::host::{Host, HostStore, LogLevel};
use crate::json::{list, number, text};
use crate::record::Ended;
use loudou_rules::joined::joined;

/// The number of events that are kept.
const KEPT: usize = 256;
/// The most keys that one event names.
const NAMED: usize = 8;
/// The author of automatic events.
pub(crate) const BY_ITSELF: &str = "loudou";

#[derive(Clone, Debug, Default, Serialize)]
struct Ring {
    last_seq: u64,
    events: Vec<Event>,
}

fn key(share: &str) -> Vec<u8> {
    [share.as_bytes(), b":events"].concat()
}

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

/// Adds an event, to the ring and to Envoy's log. Losing one to contention is logged, not fatal:
/// the change itself has happened.
pub(crate) fn add(host: &dyn Host, share: &str, event: &Event) {
    log(host, event);
    let added = swap(&mut HostStore(host), &key(share), &mut |bytes| {
        let mut ring = Ring::read(bytes);
        ring.add(event.clone());
        serde_json::to_vec(&ring).ok()
    });
    if added != Ok(Swapped::Done) {
        let line = "the event above could not be added to the list";
        host.log(LogLevel::Warn, line);
    }
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
pub(crate) struct Over<'a> {
    pub(crate) at: Clock,
    pub(crate) kind: EventKind,
    pub(crate) generation: u64,
    /// The text for the edit of a rule.
    pub(crate) edit: &'a str,
    /// The text for overrides, after `the override of alice`.
    pub(crate) keys: &'a str,
}

fn log(host: &dyn Host, event: &Event) {
    let rule = event.rule.as_deref().unwrap_or("-");
    let key = event.key.as_deref().unwrap_or("-");
    let line = format!(
        "{}: rule {rule}, key {key}: {} (by {}; reason: \"{}\"; generation {})",
        event.kind.name(),
        event.detail,
        event.by,
        escaped(&event.reason),
        event.generation,
    );
    host.log(LogLevel::Info, &line);
}

impl Ring {
    /// The ring in shared data. An unreadable ring is replaced by an empty one: events are for people, not
    /// for decisions.
    fn read(bytes: Option<&[u8]>) -> Self {
        bytes.and_then(Self::parse).unwrap_or_default()
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let ring: Value = serde_json::from_slice(bytes).ok()?;
        Some(Self {
            last_seq: number(&ring, "last_seq")?,
            events: list(ring.get("events")?, read)?,
        })
    }

    fn add(&mut self, event: Event) {
        self.last_seq = self.last_seq.saturating_add(1);
        let seq = self.last_seq;
        self.events.push(Event { seq, ..event });
        let surplus = self.events.len().saturating_sub(KEPT);
        self.events.drain(..surplus);
    }
}

fn read(event: &Value) -> Option<Event> {
    Some(Event {
        seq: number(event, "seq")?,
        at_ns: number(event, "at_ns")?,
        at_unix_ms: number(event, "at_unix_ms")?,
        kind: EventKind::parse(event.get("kind")?.as_str()?),
        rule: text(event, "rule"),
        key: text(event, "key"),
        by: text(event, "by")?,
        reason: text(event, "reason").unwrap_or_default(),
        detail: text(event, "detail")?,
        generation: number(event, "generation")?,
        until_ns: number(event, "until_ns"),
    })
}

/// The events after number `after`; all of them if the number is of another process. A number that no event
/// has had yet must be of another process.
pub(crate) fn after(
    host: &dyn Host,
    share: &str,
    after: u64,
    is_other: bool,
) -> Result<Events, StoreFailed> {
    let mut bytes = Vec::new();
    let found = host.shared_get(&key(share), &mut bytes)?;
    let ring = Ring::read(found.map(|_| bytes.as_slice()));
    let restarted = is_other || after > ring.last_seq;
    let after = if restarted { 0 } else { after };
    let oldest = ring
        .events
        .first()
        .map_or(ring.last_seq, |event| event.seq.saturating_sub(1));
    Ok(Events {
        restarted,
        lost: oldest.saturating_sub(after),
        last_seq: ring.last_seq,
        events: ring
            .events
            .into_iter()
            .filter(|event| event.seq > after)
            .collect(),
        ..Events::default()
    })
}

#[cfg(test)]
mod tests {
    use loudou_limiter::Nanos;

    use super::*;
    use crate::host::fake::FakeHost;

    #[test]
    fn an_event_is_read_as_it_was_written() {
        let host = FakeHost::default();
        let at = Clock::at(Nanos::ZERO);
        let bare = event(at, EventKind::Configured, BY_ITSELF, 1);
        let full = Event {
            rule: Some("per-user".to_owned()),
            key: Some("alice".to_owned()),
            reason: "sorry".to_owned(),
            detail: "the bucket was reset".to_owned(),
            until_ns: Some(7),
            ..event(at, EventKind::Reset, "ops", 2)
        };
        for event in [&bare, &full] {
            add(&host, "loudou", event);
        }
        let mut read = after(&host, "loudou", 0, false).expect("events").events;
        for event in &mut read {
            event.seq = 0;
        }
        assert_eq!(read, [bare, full]);
    }

    #[test]
    fn keeps_the_newest_and_counts_the_lost() {
        let host = FakeHost::default();
        for _ in 0..300 {
            let reset = event(Clock::at(Nanos::ZERO), EventKind::Reset, "ops", 1);
            add(&host, "loudou", &reset);
        }
        let all = after(&host, "loudou", 0, false).expect("events");
        assert_eq!((all.events.len(), all.last_seq, all.lost), (256, 300, 44));
        assert_eq!(all.events[0].seq, 45);
        let newest = after(&host, "loudou", 299, false).expect("events");
        assert_eq!((newest.events.len(), newest.lost), (1, 0));
        let none = after(&host, "loudou", 300, false).expect("events");
        assert_eq!((none.events.len(), none.lost), (0, 0));
    }
}
