//! Reads a page of events from the rings, in sequence number order, up to a size limit. The events'
//! stored JSON is returned without being parsed.

use loudou_api::EventSource;
use loudou_rules::size::EVENTS_OF_SEGMENT;
use loudou_store::StoreFailed;

use super::kept::{Entries, Ring, segment, segments, tail, wide};
use crate::host::Host;

/// Maximum total size of the events in a response, in bytes. Copying this many bytes takes a
/// fraction of a millisecond.
const MAX_BYTES: usize = 128 << 10;

/// A page of events.
#[derive(Debug, Default)]
pub(super) struct Page {
    /// JSON of the events, separated by commas.
    pub(super) events: Vec<u8>,
    /// Sequence number after which the next page starts.
    pub(super) last_seq: u64,
    /// True if there are more events after this page.
    pub(super) more: bool,
    /// Number of requested events that are no longer stored. If only one of the rings has dropped
    /// events, this is an upper bound.
    pub(super) lost: u64,
    /// True if the requested sequence number belongs to another Envoy process: either the caller
    /// named that process, or this process has no event with that number.
    pub(super) restarted: bool,
}

/// Returns the events with sequence numbers greater than `after` from the ring `of`, or from both
/// rings if `of` is `None`. If `is_other` is true, `after` is a sequence number from another Envoy
/// process, so all events are returned.
pub(super) fn read(
    host: &dyn Host,
    share: &str,
    of: Option<EventSource>,
    (after, is_other): (u64, bool),
) -> Result<Page, StoreFailed> {
    let tail = tail(host, share)?;
    let restarted = is_other || after > tail.last_seq;
    let after = if restarted { 0 } else { after };
    let mut rings = Vec::new();
    for source in EventSource::ALL {
        if of.is_none_or(|of| of == source) {
            rings.push(Reader::new(
                (host, share),
                source,
                tail.ring(source),
                after,
            )?);
        }
    }
    let lost = rings.iter().map(|ring| ring.lost);
    let lost = lost.fold(0, u64::saturating_add);
    let mut page = Page {
        last_seq: tail.last_seq,
        lost: lost.min(tail.last_seq.saturating_sub(after)),
        restarted,
        ..Page::default()
    };
    let mut end = after;
    loop {
        let next = rings.iter_mut().filter(|ring| ring.next().is_some());
        let Some(ring) = next.min_by_key(|ring| ring.next().map(|(seq, _)| seq)) else {
            return Ok(page);
        };
        let Some((seq, event)) = ring.next() else {
            return Ok(page);
        };
        if page.events.len().saturating_add(event.len()) > MAX_BYTES {
            (page.last_seq, page.more) = (end, true);
            return Ok(page);
        }
        if !page.events.is_empty() {
            page.events.push(b',');
        }
        page.events.extend_from_slice(event);
        end = seq;
        ring.advance()?;
    }
}

/// Reads a ring's events, loading one segment at a time.
struct Reader<'a> {
    host: &'a dyn Host,
    share: &'a str,
    of: EventSource,
    ring: &'a Ring,
    after: u64,
    /// The current segment. The bytes before `at` have already been read.
    segment: Vec<u8>,
    at: usize,
    /// Number of the next segment.
    next: u64,
    lost: u64,
}

impl<'a> Reader<'a> {
    fn new(
        (host, share): (&'a dyn Host, &'a str),
        of: EventSource,
        ring: &'a Ring,
        after: u64,
    ) -> Result<Self, StoreFailed> {
        let segment = wide(EVENTS_OF_SEGMENT);
        let all = ring.full.saturating_mul(segment);
        let all = all.saturating_add(wide(ring.opened()));
        let dropped = all.saturating_sub(wide(segments(of)).saturating_mul(segment));
        let first = dropped / segment;
        let mut reader = Self {
            host,
            share,
            of,
            ring,
            after,
            segment: Vec::new(),
            at: 0,
            next: first,
            lost: 0,
        };
        // The oldest segment may start with events beyond the ring's capacity, which count as
        // dropped.
        reader.load()?;
        if reader.next == first.saturating_add(1) {
            for _ in 0..dropped % segment {
                reader.step();
            }
            if let Some((seq, _)) = reader.next() {
                let numbers = seq.saturating_sub(1).saturating_sub(after);
                reader.lost = dropped.min(numbers);
            }
        }
        reader.settle()?;
        Ok(reader)
    }

    /// Returns the next event.
    fn next(&self) -> Option<(u64, &[u8])> {
        Entries(self.segment.get(self.at..)?).next()
    }

    fn advance(&mut self) -> Result<(), StoreFailed> {
        self.step();
        self.settle()
    }

    /// Skips the next event in the current segment.
    fn step(&mut self) {
        let event = self.next().map_or(0, |(_, event)| event.len());
        // An event's sequence number and length take up 16 bytes.
        self.at = self.at.saturating_add(event).saturating_add(16);
    }

    /// Advances to the next event after `after`, loading segments as needed.
    fn settle(&mut self) -> Result<(), StoreFailed> {
        loop {
            match self.next() {
                Some((seq, _)) if seq > self.after => return Ok(()),
                Some(_) => self.step(),
                None if self.next > self.ring.full => return Ok(()),
                None => self.load()?,
            }
        }
    }

    /// Loads the next segment that contains an event after `after`.
    fn load(&mut self) -> Result<(), StoreFailed> {
        self.at = 0;
        self.segment.clear();
        let oldest = self.ring.full.saturating_sub(wide(self.ring.ends.len()));
        while self.segment.is_empty() && self.next < self.ring.full {
            let place = usize::try_from(self.next.saturating_sub(oldest)).ok();
            let end = place.and_then(|place| self.ring.ends.get(place));
            if end.is_some_and(|end| *end > self.after) {
                let found = segment(self.host, self.share, self.of, self.next)?;
                self.segment = found.unwrap_or_default();
            }
            self.next = self.next.saturating_add(1);
        }
        if self.segment.is_empty() && self.next == self.ring.full {
            self.segment.clone_from(&self.ring.open);
            self.next = self.next.saturating_add(1);
        }
        Ok(())
    }
}
