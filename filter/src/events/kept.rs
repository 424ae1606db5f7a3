//! Stores events in shared data. Operators' actions and automatic events are stored in separate
//! rings, so that neither kind displaces the other. Both rings share a single sequence of event
//! numbers.
//!
//! A ring consists of *segments*, each of which is a shared data value. New events are first added,
//! by compare-and-swap, to the *tail*, which contains the open segments of both rings. A segment is
//! written to its own value only once, when it is full. The cost of adding an event therefore does
//! not depend on the number of stored events. A segment is written before its events are removed
//! from the tail, so a VM can die at any point without losing stored events.

use loudou_api::EventSource;
use loudou_rules::size::{EVENTS_OF_FILTER, EVENTS_OF_OPERATORS, EVENTS_OF_SEGMENT};
use loudou_store::{CAS_ABSENT, StoreFailed, Written};

use crate::bytes::{put, put_number, take, take_number};
use crate::formats::{self, EVENTS};
use crate::host::Host;

/// Maximum number of attempts to add an event. Each failed attempt means that another worker has
/// added an event, so the attempts could be exhausted only if the workers did nothing but add
/// events.
const MAX_TRIES: usize = 64;

/// Returns the maximum number of full segments stored in a ring.
pub(super) const fn segments(of: EventSource) -> usize {
    match of {
        EventSource::Operators => EVENTS_OF_OPERATORS / EVENTS_OF_SEGMENT,
        EventSource::Filter => EVENTS_OF_FILTER / EVENTS_OF_SEGMENT,
    }
}

/// The tail: the sequence number of the newest event, and the state and open segment of each ring.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tail {
    /// Sequence number of the newest event.
    pub(super) last_seq: u64,
    operators: Ring,
    filter: Ring,
}

/// The state and open segment of a ring.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ring {
    /// Number of segments filled so far, including those since overwritten.
    pub(super) full: u64,
    /// Sequence number of the last event in each stored full segment, oldest segment first.
    pub(super) ends: Vec<u64>,
    /// The open segment, which contains the events since the last full segment.
    pub(super) open: Vec<u8>,
}

impl Tail {
    /// Parses the tail. An unreadable tail is treated as empty, because rate limiting does not
    /// depend on events.
    pub(super) fn read(bytes: &[u8]) -> Self {
        Self::parse(bytes).unwrap_or_default()
    }

    fn parse(mut bytes: &[u8]) -> Option<Self> {
        let bytes = &mut bytes;
        if take_number(bytes)? != EVENTS {
            return None;
        }
        let last_seq = take_number(bytes)?;
        let mut ring = |of| Ring::parse(bytes).filter(|ring| ring.can_be(of, last_seq));
        Some(Self {
            last_seq,
            operators: ring(EventSource::Operators)?,
            filter: ring(EventSource::Filter)?,
        })
    }

    fn bytes(&self) -> Vec<u8> {
        let open = self
            .operators
            .open
            .len()
            .saturating_add(self.filter.open.len());
        let mut bytes = Vec::with_capacity(open.saturating_add(256));
        put_number(&mut bytes, EVENTS);
        put_number(&mut bytes, self.last_seq);
        self.operators.write(&mut bytes);
        self.filter.write(&mut bytes);
        bytes
    }

    pub(super) const fn ring(&self, of: EventSource) -> &Ring {
        match of {
            EventSource::Operators => &self.operators,
            EventSource::Filter => &self.filter,
        }
    }

    const fn ring_mut(&mut self, of: EventSource) -> &mut Ring {
        match of {
            EventSource::Operators => &mut self.operators,
            EventSource::Filter => &mut self.filter,
        }
    }
}

impl Ring {
    fn parse(bytes: &mut &[u8]) -> Option<Self> {
        let full = take_number(bytes)?;
        let count = take_number(bytes)?;
        let ends = (0..count)
            .map(|_| take_number(bytes))
            .collect::<Option<_>>()?;
        let open = take(bytes)?.to_vec();
        Some(Self { full, ends, open })
    }

    /// Returns true if the ring is consistent: it has an end for each stored segment, and
    /// `last_seq` is high enough to cover the events in all full segments. This check bounds the
    /// work done by readers, which iterate over all stored segments.
    fn can_be(&self, of: EventSource, last_seq: u64) -> bool {
        let sealed = self.full.checked_mul(wide(EVENTS_OF_SEGMENT));
        let ends = self.full.min(wide(segments(of)));
        wide(self.ends.len()) == ends && sealed.is_some_and(|sealed| sealed <= last_seq)
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        put_number(bytes, self.full);
        put_number(bytes, wide(self.ends.len()));
        for end in &self.ends {
            put_number(bytes, *end);
        }
        put(bytes, &self.open);
    }

    /// Returns the number of events in the open segment.
    pub(super) fn opened(&self) -> usize {
        Entries(&self.open).count()
    }
}

/// Iterates over the sequence numbers and JSON of the events in a segment, oldest first.
#[derive(Clone, Debug)]
pub(super) struct Entries<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Entries<'a> {
    type Item = (u64, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        Some((take_number(&mut self.0)?, take(&mut self.0)?))
    }
}

/// Adds an event. `write` returns the event's JSON for a sequence number. Returns true if the event
/// was stored.
pub(super) fn add(
    host: &dyn Host,
    share: &str,
    of: EventSource,
    write: &dyn Fn(u64) -> Vec<u8>,
) -> Result<bool, StoreFailed> {
    let key = tail_key(share);
    let mut bytes = Vec::new();
    for _ in 0..MAX_TRIES {
        let cas = host.shared_get(&key, &mut bytes)?;
        if cas.is_some() && formats::is_other(&bytes, EVENTS) {
            return Ok(false);
        }
        let mut tail = Tail::read(&bytes);
        let seq = tail.last_seq.saturating_add(1);
        if tail.ring(of).opened() >= EVENTS_OF_SEGMENT {
            seal(host, share, of, tail.ring_mut(of))?;
        }
        let open = &mut tail.ring_mut(of).open;
        put_number(open, seq);
        put(open, &write(seq));
        tail.last_seq = seq;
        let expected = cas.unwrap_or(CAS_ABSENT);
        if host.shared_set(&key, &tail.bytes(), expected)? == Written::Done {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Writes the full open segment to its own value, unless another worker has already written this
/// segment or a newer one. Every worker that writes a segment writes the same events.
fn seal(host: &dyn Host, share: &str, of: EventSource, ring: &mut Ring) -> Result<(), StoreFailed> {
    let key = segment_key(share, of, ring.full);
    let mut found = Vec::new();
    let cas = host.shared_get(&key, &mut found)?;
    let there = take_number(&mut found.as_slice()).filter(|_| cas.is_some());
    if there.is_none_or(|there| there < ring.full) {
        let mut bytes = Vec::with_capacity(ring.open.len().saturating_add(8));
        put_number(&mut bytes, ring.full);
        bytes.extend_from_slice(&ring.open);
        // A conflict can be ignored: it means that another worker has already written this segment
        // or a newer one.
        let _other = host.shared_set(&key, &bytes, cas.unwrap_or(CAS_ABSENT))?;
    }
    let last = Entries(&ring.open).last();
    ring.ends.extend(last.map(|(seq, _)| seq));
    let surplus = ring.ends.len().saturating_sub(segments(of));
    ring.ends.drain(..surplus);
    ring.full = ring.full.saturating_add(1);
    ring.open.clear();
    Ok(())
}

/// Returns the events in full segment `number`. `None` if the segment has been overwritten.
pub(super) fn segment(
    host: &dyn Host,
    share: &str,
    of: EventSource,
    number: u64,
) -> Result<Option<Vec<u8>>, StoreFailed> {
    let mut bytes = Vec::new();
    let found = host.shared_get(&segment_key(share, of, number), &mut bytes)?;
    let mut rest = bytes.as_slice();
    let is_it = found.is_some() && take_number(&mut rest) == Some(number);
    Ok(is_it.then(|| rest.to_vec()))
}

/// Reads the tail from shared data.
pub(super) fn tail(host: &dyn Host, share: &str) -> Result<Tail, StoreFailed> {
    let mut bytes = Vec::new();
    host.shared_get(&tail_key(share), &mut bytes)?;
    Ok(Tail::read(&bytes))
}

fn tail_key(share: &str) -> Vec<u8> {
    [share.as_bytes(), b":tail"].concat()
}

fn segment_key(share: &str, of: EventSource, number: u64) -> Vec<u8> {
    let kind: &[u8] = match of {
        EventSource::Operators => b":actions",
        EventSource::Filter => b":own",
    };
    let places = wide(segments(of)).max(1);
    let place = u8::try_from(number % places).unwrap_or(0);
    [share.as_bytes(), kind, &[place]].concat()
}

/// Converts a length to the integer type used to store lengths.
pub(super) fn wide(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
