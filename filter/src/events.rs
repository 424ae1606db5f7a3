//! The ring of events in shared data: who changed what.

use loudou_api::{Event, EventKind, Events};
use loudou_store::{CAS_ABSENT, StoreFailed, Written};
use serde::Serialize;
use serde_json::Value;

use crate::escaped::escaped;
use crate::host::{Host, LogLevel};
use crate::json::{list, number, text};
use crate::record::Ended;

/// How many events are kept.
const KEPT: usize = 256;
const MAX_TRIES: usize = 16;
/// How many keys one event names.
const NAMED: usize = 8;
/// Who did what happened by itself.
pub(crate) const BY_ITSELF: &str = "loudou";

#[derive(Clone, Debug, Default, Serialize)]
struct Ring {
    last_seq: u64,
    events: Vec<Event>,
}

fn key(share: &str) -> Vec<u8> {
    [share.as_bytes(), b":events"].concat()
}

/// An event of `kind`, now.
pub(crate) fn event(host: &dyn Host, kind: EventKind, by: &str, generation: u64) -> Event {
    Event {
        at_ns: host.now().get(),
        at_unix_ms: host.unix_ms(),
        kind,
        by: by.to_owned(),
        generation,
        ..Event::default()
    }
}

/// Adds an event, to the ring and to Envoy's log. Losing one to contention is logged, not fatal:
/// what it tells of has happened.
pub(crate) fn add(host: &dyn Host, share: &str, event: Event) {
    log(host, &event);
    let mut event = event;
    for _ in 0..MAX_TRIES {
        let Ok((mut ring, cas)) = load(host, share) else {
            break;
        };
        ring.last_seq = ring.last_seq.saturating_add(1);
        event.seq = ring.last_seq;
        ring.events.push(event.clone());
        let surplus = ring.events.len().saturating_sub(KEPT);
        ring.events.drain(..surplus);
        let Ok(bytes) = serde_json::to_vec(&ring) else {
            break;
        };
        match host.shared_set(&key(share), &bytes, cas) {
            Ok(Written::Done) => return,
            Ok(Written::Conflict) => {}
            Err(StoreFailed) => break,
        }
    }
    host.log(
        LogLevel::Warn,
        "the event above could not be added to the events",
    );
}

/// Adds what there is to tell of edits that are over: of the rule's, and of overrides of its keys.
pub(crate) fn add_ended(host: &dyn Host, share: &str, over: &Over<'_>, ended: &Ended) {
    let event = |detail: String| Event {
        rule: Some(ended.rule.clone()),
        detail,
        ..event(host, over.kind, BY_ITSELF, over.generation)
    };
    if ended.edit {
        add(host, share, event(over.edit.to_owned()));
    }
    let named: Vec<&str> = ended.keys.iter().map(String::as_str).take(NAMED).collect();
    let mut named = named.join(", ");
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
    add(host, share, event);
}

/// How edits came to be over.
pub(crate) struct Over<'a> {
    pub(crate) kind: EventKind,
    pub(crate) generation: u64,
    /// What is told of the edit of a rule.
    pub(crate) edit: &'a str,
    /// What is told of overrides, after `the override of alice`.
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

fn load(host: &dyn Host, share: &str) -> Result<(Ring, u32), StoreFailed> {
    let mut bytes = Vec::new();
    let cas = host.shared_get(&key(share), &mut bytes)?;
    // A ring that cannot be read is started anew: events are for people, not for decisions.
    let ring = Ring::read(&bytes).unwrap_or_default();
    Ok((ring, cas.unwrap_or(CAS_ABSENT)))
}

impl Ring {
    fn read(bytes: &[u8]) -> Option<Self> {
        let ring: Value = serde_json::from_slice(bytes).ok()?;
        Some(Self {
            last_seq: number(&ring, "last_seq")?,
            events: list(ring.get("events")?, read)?,
        })
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

/// The events after number `after`; all of them if that is of another process, as a number that no event
/// has had yet must be.
pub(crate) fn after(
    host: &dyn Host,
    share: &str,
    after: u64,
    is_other: bool,
) -> Result<Events, StoreFailed> {
    let (ring, _) = load(host, share)?;
    let restarted = is_other || after > ring.last_seq;
    let after = if restarted { 0 } else { after };
    let oldest = ring
        .events
        .first()
        .map_or(ring.last_seq, |event| event.seq.saturating_sub(1));
    Ok(Events {
        restarted,
        now_ns: host.now().get(),
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
    use super::*;
    use crate::host::fake::FakeHost;

    #[test]
    fn an_event_is_read_as_it_was_written() {
        let host = FakeHost::default();
        let bare = event(&host, EventKind::Configured, BY_ITSELF, 1);
        let full = Event {
            rule: Some("per-user".to_owned()),
            key: Some("alice".to_owned()),
            reason: "sorry".to_owned(),
            detail: "the bucket is as new".to_owned(),
            until_ns: Some(7),
            ..event(&host, EventKind::Reset, "ops", 2)
        };
        for event in [&bare, &full] {
            add(&host, "loudou", event.clone());
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
            add(&host, "loudou", event(&host, EventKind::Reset, "ops", 1));
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
