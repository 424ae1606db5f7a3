use loudou_limiter::Nanos;
use loudou_rules::size::{EVENTS_OF_FILTER, EVENTS_OF_OPERATORS, EVENTS_OF_SEGMENT};
use loudou_store::CAS_OVERWRITE;
use serde_json::Value;

use super::*;
use crate::host::fake::FakeHost;

const SHARE: &str = "loudou";

fn action(kind: EventKind) -> Event {
    event(Clock::at(Nanos::ZERO), kind, "ops", 1)
}

/// The page after a number.
fn page_of(host: &FakeHost, after: u64, of: Option<EventSource>) -> loudou_api::Events {
    let wanted = Wanted {
        after,
        is_other: false,
        of,
    };
    let here = Instance::start(host);
    let body = body(host, SHARE, wanted, Some(&here), Clock::at(Nanos::ZERO)).expect("a body");
    serde_json::from_slice(&body).expect("events")
}

/// The numbers of all events after a number, and the most pages that they take.
fn all(host: &FakeHost, of: Option<EventSource>) -> Vec<u64> {
    let (mut after, mut all) = (0, Vec::new());
    loop {
        let page = page_of(host, after, of);
        all.extend(page.events.iter().map(|event| event.seq));
        assert!(page.last_seq > after || !page.more);
        after = page.last_seq;
        if !page.more {
            return all;
        }
    }
}

/// A program that waits for the line may read the event at once, on any worker.
#[test]
fn the_line_in_the_log_follows_the_event_in_the_list() {
    let host = FakeHost::default();
    add(&host, SHARE, &action(EventKind::Reset));
    let writes = host.writes.get();
    assert!(writes > 0);
    assert_eq!(*host.writes_before_logs.borrow(), [writes]);
}

#[test]
fn an_event_is_read_as_it_was_written() {
    let host = FakeHost::default();
    let bare = event(Clock::at(Nanos::ZERO), EventKind::Configured, BY_ITSELF, 1);
    let full = Event {
        rule: Some("per-user".to_owned()),
        key: Some("alice \"\\ \u{e9}".to_owned()),
        reason: "sorry".to_owned(),
        detail: "the bucket was reset".to_owned(),
        until_ns: Some(7),
        ..action(EventKind::Reset)
    };
    add(&host, SHARE, &bare);
    add(&host, SHARE, &full);
    let page = page_of(&host, 0, None);
    let here = Instance::start(&host);
    assert_eq!((page.instance, page.last_seq, page.lost), (here.id, 2, 0));
    assert_eq!(page.started_unix_ms, here.started_unix_ms);
    let numbered = |seq, event: &Event| Event {
        seq,
        ..event.clone()
    };
    assert_eq!(page.events, [numbered(1, &bare), numbered(2, &full)]);
    assert_eq!(page_of(&host, 1, None).events, [numbered(2, &full)]);
    assert_eq!(page_of(&host, 2, None).events, []);
    let of = Some(EventSource::Filter);
    assert_eq!(page_of(&host, 0, of).events, [numbered(1, &bare)]);
    assert!(
        page_of(&host, 3, None).restarted,
        "no event had that number"
    );
    assert_eq!(page_of(&host, 3, None).events.len(), 2);
}

#[test]
fn each_ring_keeps_its_newest_and_counts_the_lost() {
    let host = FakeHost::default();
    for _ in 0..EVENTS_OF_OPERATORS {
        add(&host, SHARE, &action(EventKind::Ban));
    }
    let most = u64::try_from(EVENTS_OF_OPERATORS).expect("a number");
    let numbers = |from: u64, count: usize| (from..).take(count).collect::<Vec<u64>>();
    assert_eq!(all(&host, None), numbers(1, EVENTS_OF_OPERATORS));
    assert_eq!(page_of(&host, 0, None).lost, 0);
    for more in 1..=200 {
        add(&host, SHARE, &action(EventKind::Ban));
        let kept = all(&host, None);
        assert_eq!(kept, numbers(more + 1, EVENTS_OF_OPERATORS), "{more}");
        assert_eq!(page_of(&host, 0, None).lost, more);
        assert_eq!(page_of(&host, 1, None).lost, more - 1);
        assert_eq!(page_of(&host, more, None).lost, 0);
    }
    // The filter's events push out only each other.
    for _ in 0..3 * EVENTS_OF_FILTER {
        add(&host, SHARE, &action(EventKind::UpstreamFails));
    }
    let operators = all(&host, Some(EventSource::Operators));
    assert_eq!(operators, numbers(201, EVENTS_OF_OPERATORS));
    let filter = all(&host, Some(EventSource::Filter));
    let newest = most + 200 + 3 * 256;
    assert_eq!(filter, numbers(newest - 255, EVENTS_OF_FILTER));
    assert_eq!(all(&host, None), [operators, filter].concat());
    assert_eq!(page_of(&host, 0, None).lost, 200 + 2 * 256);
    assert_eq!(page_of(&host, 200 + most, None).lost, 2 * 256);
}

/// Rings that are interleaved are read in the order of the numbers, page by page.
#[test]
fn pages_are_bounded_and_end_to_end() {
    let host = FakeHost::default();
    let long = Event {
        detail: "x".repeat(600),
        ..action(EventKind::Ban)
    };
    for n in 0..900 {
        let kind = if n % 3 == 0 {
            EventKind::UpstreamFails
        } else {
            EventKind::Ban
        };
        let event = Event {
            kind,
            ..long.clone()
        };
        add(&host, SHARE, &event);
    }
    assert_eq!(all(&host, None).len(), 600 + 256);
    assert!(all(&host, None).is_sorted());
    let first = page_of(&host, 0, None);
    assert!(
        first.more && first.events.len() < 200,
        "{}",
        first.events.len()
    );
    assert_eq!(
        Some(first.last_seq),
        first.events.last().map(|event| event.seq)
    );
}

/// The text of an event is cut to the size that the memory is computed with.
#[test]
fn no_event_is_larger_than_the_bound() {
    for (detail, reason) in [
        (5_000, 200),
        (100, 200),
        (0, 5_000),
        (900, 0),
        (5_000, 5_000),
    ] {
        let event = Event {
            rule: Some("r".repeat(63)),
            key: Some("\"".repeat(128)),
            by: "\"".repeat(63),
            reason: "\"".repeat(reason),
            detail: "→".repeat(detail),
            until_ns: Some(u64::MAX),
            ..action(EventKind::OverrideDropped)
        };
        let json = json(&event, u64::MAX);
        assert!(json.len() <= EVENT, "{detail} {reason}: {}", json.len());
        let read: Event = serde_json::from_slice(&json).expect("an event");
        assert_eq!(read.rule, event.rule);
    }
    let short = action(EventKind::Ban);
    assert_eq!(json(&short, 0), serde_json::to_vec(&short).expect("JSON"));
}

/// A VM that dies while it adds an event, after each of its writes, loses no earlier event.
#[test]
fn a_sandbox_that_dies_in_between_loses_nothing() {
    let host = FakeHost::default();
    for _ in 0..EVENTS_OF_SEGMENT {
        add(&host, SHARE, &action(EventKind::Ban));
    }
    let tail = |host: &FakeHost| {
        let mut bytes = Vec::new();
        let found = host.shared_get(b"loudou:tail", &mut bytes);
        assert!(found.is_ok_and(|found| found.is_some()));
        bytes
    };
    let before = tail(&host);
    // The segment is written, and then the VM dies before the tail is written.
    add(&host, SHARE, &action(EventKind::Ban));
    let written = host.shared_set(b"loudou:tail", &before, CAS_OVERWRITE);
    assert!(written.is_ok());
    assert_eq!(all(&host, None).len(), EVENTS_OF_SEGMENT);
    for _ in 0..2_000 {
        add(&host, SHARE, &action(EventKind::Ban));
    }
    assert_eq!(all(&host, None).len(), EVENTS_OF_OPERATORS);
    assert_eq!(all(&host, None).last(), Some(&2_064));
}

/// Another program or a damaged process may leave any tail and any event. Reading them ends, and
/// the answer is JSON.
#[test]
fn a_damaged_tail_or_event_costs_no_more_than_the_list() {
    let host = FakeHost::default();
    add(&host, SHARE, &action(EventKind::Ban));
    let leave = |bytes: &[u8]| {
        let written = host.shared_set(b"loudou:tail", bytes, CAS_OVERWRITE);
        assert!(written.is_ok());
    };
    let tail = |last: u64, full: u64, ends: &[u64], event: &[u8]| {
        let count = u64::try_from(ends.len()).expect("few");
        let mut bytes = [1, last, full, count].map(u64::to_le_bytes).concat();
        bytes.extend(ends.iter().flat_map(|end| end.to_le_bytes()));
        let length = u64::try_from(event.len()).expect("short");
        let length = if event.is_empty() { 0 } else { length + 16 };
        bytes.extend(length.to_le_bytes());
        if !event.is_empty() {
            bytes.extend([last, length - 16].map(u64::to_le_bytes).concat());
            bytes.extend(event);
        }
        // The other ring is empty.
        bytes.extend([0; 24]);
        bytes
    };
    for (last, full, ends) in [
        (3, 1 << 60, [].as_slice()),
        (u64::MAX, u64::MAX, &[]),
        (u64::MAX, u64::MAX / 128, &[1, 2, 3]),
        (u64::MAX, 2, &[u64::MAX, u64::MAX]),
    ] {
        leave(&tail(last, full, ends, b""));
        assert_eq!(page_of(&host, 0, None).events, []);
        add(&host, SHARE, &action(EventKind::Ban));
        page_of(&host, 0, None);
    }
    for event in [b"{\"detail\":\"\x83\"}".as_slice(), b"{", b"{}{}"] {
        leave(&tail(1, 0, &[], event));
        let events = page_of(&host, 0, None).events;
        assert_eq!(events, [], "{}", event.escape_ascii());
    }
}

/// A worker that read the tail long ago does not write an old segment over a newer one.
#[test]
fn a_slow_worker_overwrites_nothing() {
    let host = FakeHost::default();
    for _ in 0..EVENTS_OF_SEGMENT {
        add(&host, SHARE, &action(EventKind::Ban));
    }
    // The slow worker has read the tail, and the others go round the ring twice before it continues.
    let others = core::cell::Cell::new(true);
    let added = kept::add(&host, SHARE, EventSource::Operators, &|seq| {
        if others.replace(false) {
            for _ in 0..2 * EVENTS_OF_OPERATORS {
                add(&host, SHARE, &action(EventKind::Ban));
            }
        }
        json(&action(EventKind::Unban), seq)
    });
    assert_eq!(added, Ok(true));
    let kept = all(&host, None);
    assert_eq!(kept.len(), EVENTS_OF_OPERATORS);
    let newest = u64::try_from(EVENTS_OF_SEGMENT + 2 * EVENTS_OF_OPERATORS + 1);
    assert_eq!(kept.last().copied(), newest.ok());
    assert!(kept.windows(2).all(|two| two[1] == two[0] + 1));
}

/// For any characters in a key and a reason, the log has one line, which contains each of them
/// once.
#[test]
fn a_line_of_the_log_is_one_line() {
    let host = FakeHost::default();
    let hostile = Event {
        rule: Some("r".to_owned()),
        key: Some("a\n[warn] ban: rule r".to_owned()),
        reason: "\"; generation 9)\u{202e}\r".to_owned(),
        detail: "capacity 3 → 9".to_owned(),
        ..action(EventKind::Ban)
    };
    add(&host, SHARE, &hostile);
    let lines = host.warnings.take();
    assert_eq!(
        lines,
        [
            "ban: rule r, key \"a\\n[warn] ban: rule r\": capacity 3 -> 9 (by ops; reason: \
             \"\\\"; generation 9)\\u{202e}\\r\"; generation 1)"
        ]
    );
    add(&host, SHARE, &action(EventKind::UpstreamHeals));
    assert_eq!(
        host.warnings.take(),
        [""; 0],
        "only operators' actions are warnings"
    );
}

/// The tail and the segments are as large as the memory is computed with.
#[test]
fn what_is_kept_is_as_large_as_said() {
    let host = FakeHost::default();
    let long = Event {
        detail: "x".repeat(5_000),
        ..action(EventKind::Ban)
    };
    for _ in 0..2 * EVENTS_OF_OPERATORS {
        for kind in [EventKind::Ban, EventKind::Warning] {
            let event = Event {
                kind,
                ..long.clone()
            };
            add(&host, SHARE, &event);
        }
    }
    let most = EVENTS_OF_SEGMENT * (EVENT + 16);
    let length = |key: &[u8]| {
        let mut bytes = Vec::new();
        let found = host.shared_get(key, &mut bytes).expect("readable");
        found.map(|_| bytes.len())
    };
    assert!(length(b"loudou:tail").is_some_and(|bytes| bytes <= 2 * most + 512));
    let segments = |kind: &[u8]| {
        let keys = (0..=255).map(|place| [b"loudou:", kind, &[place]].concat());
        keys.filter_map(|key| length(&key)).collect::<Vec<_>>()
    };
    let (operators, filter) = (segments(b"actions"), segments(b"own"));
    assert_eq!((operators.len(), filter.len()), (16, 4));
    assert!(
        operators
            .iter()
            .chain(&filter)
            .all(|bytes| *bytes <= most + 8)
    );
    let _any: Value = serde_json::from_slice(&json(&long, 1)).expect("JSON");
}
