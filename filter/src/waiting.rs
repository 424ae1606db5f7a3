//! Held requests: paused streams on one worker that are resumed by the worker's timer when they are
//! due.
//!
//! A stream can only be resumed by its own worker, so each worker has a separate queue. Due times
//! are consistent across all workers, because they are computed from shared buckets.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use loudou_limiter::Nanos;
use loudou_rules::rule::WaitingSettings;

use crate::host::{Host, Reply};
use crate::metrics::{FleetMetrics, Registry, StoreMetrics};
use crate::reservation::Reservations;

/// Maximum number of streams resumed per timer tick. After the callback, Envoy continues the
/// streams one by one. However, if a stream receives a response immediately, Envoy calls into the
/// VM for that response and continues the next stream when this nested callback returns, so the
/// calls nest. A few hundred nested streams would exhaust the VM's stack.
pub(crate) const MAX_RELEASED: usize = 32;

/// Estimated memory usage of a held request with its own connection, in bytes. The estimate covers
/// both Envoy and the VM, but not the headers and body. `tests/tests/waiting.rs` compares it to the
/// measured memory usage, which was 27 255 bytes over HTTP/1.1.
pub(crate) const HELD_BYTES: u64 = 32 << 10;
/// Number of copies of a held request's headers that are in memory. In addition to the parsed
/// headers, Envoy retains the unparsed input until the request has passed.
const HEADER_COPIES: u64 = 2;

/// Identifies a held request and determines its position in the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket {
    pub(crate) due: Nanos,
    pub(crate) stream: u32,
}

/// A held request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Held {
    /// Ticket assigned to the request when it entered the queue.
    pub(crate) ticket: Ticket,
    /// Memory usage of the request, in bytes.
    pub(crate) bytes: u64,
    /// Tokens reserved by the request.
    pub(crate) reservations: Option<Reservations>,
    /// True if the request is waiting for a lease or for the fleet's changes and must then be
    /// decided.
    pub(crate) is_undecided: bool,
    /// Time of the request's arrival or of the latest new decision.
    pub(crate) since: Nanos,
    /// Deadline until which the request may be held.
    pub(crate) latest: Nanos,
}

/// The held requests and their total memory usage.
#[derive(Debug, Default)]
struct Queue {
    held: BTreeMap<Ticket, Held>,
    /// Current due times of all requests whose due times have changed, by ticket.
    moved: BTreeMap<Ticket, Nanos>,
    bytes: u64,
}

impl Queue {
    /// Returns the current queue position for this ticket's request.
    fn position(&self, ticket: Ticket) -> Ticket {
        let due = self.moved.get(&ticket).copied().unwrap_or(ticket.due);
        Ticket { due, ..ticket }
    }

    fn remove(&mut self, ticket: Ticket) -> Option<Held> {
        let held = self.held.remove(&self.position(ticket))?;
        self.moved.remove(&ticket);
        self.bytes = self.bytes.saturating_sub(held.bytes);
        Some(held)
    }
}

type SharedQueue = RefCell<Queue>;

/// Room available for one more held request. `free` is the free memory in bytes, or `None` if the
/// maximum number of requests is already held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    free: Option<u64>,
    body: u64,
}

impl Room {
    /// Estimates the memory needed for a request body, given its length if known. According to
    /// measurements, Envoy's buffers are a fifth larger than their contents. A body that is longer
    /// than the `body_kib` setting is not read to the end and fills two buffers: the filter chain's
    /// buffer and the connection's buffer.
    pub(crate) fn body(self, length: Option<u64>) -> u64 {
        match length.filter(|length| *length < self.body) {
            Some(length) => length.saturating_add(length >> 2),
            None => self.body.saturating_mul(2).saturating_add(self.body >> 2),
        }
    }

    /// Returns the memory occupied by a request with headers and a body of these sizes. `None` if
    /// there is not enough room for it.
    pub(crate) fn takes(self, headers: u64, body: u64) -> Option<u64> {
        let bytes = headers
            .saturating_mul(HEADER_COPIES)
            .saturating_add(body)
            .saturating_add(HELD_BYTES);
        self.free.filter(|free| bytes <= *free).map(|_free| bytes)
    }
}

/// The queue of held requests, ordered by due time. The VM's [`PanicCleanup`] holds a weak
/// reference to the queue.
#[derive(Debug, Default)]
pub(crate) struct Waiting(Rc<SharedQueue>);

impl Waiting {
    /// Calls `use_queue` with the queue. The queue cannot already be borrowed, because no method
    /// calls other code while borrowing it.
    fn with_queue<T: Default>(&self, use_queue: impl FnOnce(&mut Queue) -> T) -> T {
        match self.0.try_borrow_mut() {
            Ok(mut queue) => use_queue(&mut queue),
            Err(_borrowed) => T::default(),
        }
    }

    /// Returns the room available for one more held request.
    pub(crate) fn room(&self, bounds: &WaitingSettings) -> Room {
        let most = usize::try_from(bounds.requests).unwrap_or(usize::MAX);
        let memory = u64::from(bounds.memory_mib) << 20;
        Room {
            free: self.with_queue(|queue| {
                let has_room = queue.held.len() < most;
                has_room.then(|| memory.saturating_sub(queue.bytes))
            }),
            body: u64::from(bounds.body_kib) << 10,
        }
    }

    /// Adds a request to the queue, where it is held until `due`. Returns the request's ticket.
    pub(crate) fn enter(&self, stream: u32, due: Nanos, held: Held) -> Ticket {
        let ticket = Ticket { due, stream };
        self.with_queue(|queue| {
            queue.bytes = queue.bytes.saturating_add(held.bytes);
            queue.held.insert(ticket, Held { ticket, ..held });
        });
        ticket
    }

    /// Returns the position of the request with the earliest due time.
    fn first(&self) -> Option<Ticket> {
        self.with_queue(|queue| queue.held.first_key_value().map(|(ticket, _)| *ticket))
    }

    /// Returns the earliest due time of all held requests.
    pub(crate) fn due(&self) -> Option<Nanos> {
        self.first().map(|next| next.due)
    }

    /// Returns true if the request with this ticket is still held.
    pub(crate) fn holds(&self, ticket: Ticket) -> bool {
        self.with_queue(|queue| queue.held.contains_key(&queue.position(ticket)))
    }

    /// Removes and returns a request if it is still held.
    pub(crate) fn take(&self, ticket: Ticket) -> Option<Held> {
        self.with_queue(|queue| queue.remove(ticket))
    }

    /// Returns the first held request at or after the position `place`, and its position.
    pub(crate) fn next_from(&self, place: Ticket) -> Option<(Ticket, Held)> {
        self.with_queue(|queue| {
            let (place, held) = queue.held.range(place..).next()?;
            Some((*place, held.clone()))
        })
    }

    /// Returns the reservations of a held request, if it has any.
    pub(crate) fn reservations(&self, ticket: Ticket) -> Option<Reservations> {
        self.with_queue(|queue| {
            queue
                .held
                .get(&queue.position(ticket))?
                .reservations
                .clone()
        })
    }

    /// Changes the due time of a held request.
    pub(crate) fn plan(&self, ticket: Ticket, due: Nanos) {
        self.with_queue(|queue| {
            if let Some(held) = queue.held.remove(&queue.position(ticket)) {
                queue.held.insert(Ticket { due, ..ticket }, held);
                queue.moved.insert(ticket, due);
            }
        });
    }

    /// Removes a request from the queue. Returns true if the request was still held.
    pub(crate) fn cancel(&self, ticket: Ticket) -> bool {
        self.take(ticket).is_some()
    }

    /// Removes the first request in the queue if it is due and its position is before `end`.
    /// Returns the request and its position.
    pub(crate) fn next_due(&self, now: Nanos, end: Option<Ticket>) -> Option<(Ticket, Held)> {
        let next = self.first().filter(|next| next.due <= now)?;
        if end.is_some_and(|end| next >= end) {
            return None;
        }
        self.with_queue(|queue| {
            let ticket = queue.held.get(&next)?.ticket;
            queue.remove(ticket).map(|held| (next, held))
        })
    }

    /// Creates the cleanup actions to run if the VM panics.
    pub(crate) fn cleanup(&self, share: &str, is_alone: &Rc<Cell<bool>>) -> PanicCleanup {
        PanicCleanup {
            share: share.to_owned(),
            queue: Rc::downgrade(&self.0),
            is_alone: Rc::clone(is_alone),
        }
    }
}

/// Cleanup actions to run if the VM panics. Held requests must be sent a response, because Envoy
/// would neither resume them nor respond to them. The gauges for held requests and workers without
/// a relay must be corrected, because they outlive the VM.
#[derive(Debug)]
pub struct PanicCleanup {
    share: String,
    queue: Weak<SharedQueue>,
    /// True while this worker is included in the `fleet.down` gauge.
    is_alone: Rc<Cell<bool>>,
}

impl PanicCleanup {
    /// Returns true if the queue no longer exists, in which case there is nothing to clean up.
    pub fn is_void(&self) -> bool {
        self.queue.strong_count() == 0
    }

    /// Sends a 503 response to all held requests, and subtracts this VM's contribution from the
    /// gauges.
    pub fn execute(&self, host: &dyn Host) {
        let Some(queue) = self.queue.upgrade() else {
            return;
        };
        let Ok(streams) = queue.try_borrow() else {
            return;
        };
        let mut registry = Registry::default();
        StoreMetrics::define(host, &mut registry, &self.share).waited(host, streams.held.len());
        if self.is_alone.take() {
            FleetMetrics::define(host, &mut registry, &self.share).opened(host, false);
        }
        // Envoy sends the same response to all other requests in the VM.
        let reply = Reply {
            status: 503,
            ..Reply::default()
        };
        for ticket in streams.held.keys() {
            host.reply_to(ticket.stream, &reply);
        }
    }
}

// A worker's timer, which is set to fire the next time it is needed. In the proxy-wasm ABI, this
// timer is called *tick*.
//
// Setting the timer requires a host call, so it is not set for a request if it will already fire
// early enough.

/// Returns the earlier of two optional times.
pub(crate) fn earlier(one: Option<Nanos>, other: Option<Nanos>) -> Option<Nanos> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, None) => one,
        (None, other) => other,
    }
}

/// A worker's timer.
#[derive(Debug)]
pub(crate) struct Timer {
    /// Current period in milliseconds. 0 if the timer is stopped, or `None` if the period was set
    /// by other code.
    period: Option<u32>,
    fires_at: Nanos,
}

impl Default for Timer {
    fn default() -> Self {
        Self {
            period: None,
            fires_at: Nanos::MAX,
        }
    }
}

impl Timer {
    /// Ensures that the timer fires no later than `needed`.
    pub(crate) fn fire_by(&mut self, host: &dyn Host, needed: Option<Nanos>, now: Nanos) {
        if needed.is_some_and(|needed| needed < self.fires_at) {
            self.set(host, needed, now);
        }
    }

    /// After the timer has fired, sets it to fire at `needed` or stops it.
    pub(crate) fn fired(&mut self, host: &dyn Host, needed: Option<Nanos>, now: Nanos) {
        self.set(host, needed, now);
    }

    fn set(&mut self, host: &dyn Host, needed: Option<Nanos>, now: Nanos) {
        let wait = needed.map_or(0, |needed| needed.since(now).millis_ceil().max(1));
        let period = u32::try_from(wait).unwrap_or(u32::MAX);
        if self.period != Some(period) {
            self.period = Some(period);
            host.set_timer_ms(period);
        }
        self.fires_at = match needed {
            Some(_) => now.saturating_add(Nanos::from_millis(period.into())),
            None => Nanos::MAX,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(waiting: &Waiting, now: Nanos) -> Option<u32> {
        waiting.next_due(now, None).map(|(ticket, _)| ticket.stream)
    }

    #[test]
    fn streams_leave_in_the_order_of_their_times() {
        let waiting = Waiting::default();
        let at = Nanos::from_millis;
        for (stream, due) in [(1, 30), (2, 10), (3, 20), (4, 10)] {
            waiting.enter(stream, at(due), Held::default());
        }
        assert_eq!(next(&waiting, at(9)), None);
        assert_eq!(next(&waiting, at(10)), Some(2));
        assert_eq!(next(&waiting, at(10)), Some(4));
        assert_eq!(next(&waiting, at(19)), None);
        assert_eq!(next(&waiting, at(500)), Some(3));
        assert_eq!(next(&waiting, at(500)), Some(1));
        assert_eq!(waiting.due(), None);
    }

    #[test]
    fn a_request_that_was_planned_anew_keeps_its_ticket() {
        let waiting = Waiting::default();
        let at = Nanos::from_millis;
        let tickets = [30, 10, 20].map(|due| waiting.enter(due, at(due.into()), Held::default()));
        waiting.plan(tickets[0], at(5));
        waiting.plan(tickets[1], at(40));
        waiting.plan(tickets[1], at(50));
        assert!(tickets.iter().all(|ticket| waiting.holds(*ticket)));
        assert_eq!(next(&waiting, at(4)), None);
        assert_eq!(next(&waiting, at(20)), Some(30));
        assert!(!waiting.holds(tickets[0]));
        assert_eq!(next(&waiting, at(49)), Some(20));
        assert_eq!(next(&waiting, at(49)), None);
        assert!(waiting.cancel(tickets[1]));
        assert!(!waiting.cancel(tickets[1]));
        assert_eq!(waiting.due(), None);
    }

    #[test]
    fn the_earliest_is_due_next() {
        let waiting = Waiting::default();
        let [near, far] = [Nanos::from_millis(1), Nanos::MAX];
        let first = waiting.enter(1, far, Held::default());
        assert_eq!(waiting.due(), Some(far));
        let second = waiting.enter(2, near, Held::default());
        assert_eq!(waiting.due(), Some(near));
        waiting.cancel(second);
        assert_eq!(waiting.due(), Some(far));
        waiting.cancel(first);
        assert_eq!(waiting.due(), None);
    }

    #[test]
    fn a_place_is_given_back_once() {
        let waiting = Waiting::default();
        let ticket = waiting.enter(7, Nanos::ZERO, Held::default());
        assert!(waiting.cancel(ticket));
        assert!(!waiting.cancel(ticket));
        assert_eq!(next(&waiting, Nanos::MAX), None);
    }

    #[test]
    fn there_is_room_for_so_many_and_so_much() {
        let waiting = Waiting::default();
        let bounds = WaitingSettings {
            requests: 3,
            memory_mib: 1,
            body_kib: 100,
        };
        let takes = |headers, body| waiting.room(&bounds).takes(headers, body);
        let room = waiting.room(&bounds);
        let most = 100 << 10;
        assert_eq!(
            [room.body(Some(u64::MAX)), room.body(None)],
            [2 * most + most / 4; 2]
        );
        assert_eq!(room.body(Some(most)), 2 * most + most / 4);
        assert_eq!(room.body(Some(70)), 87);
        let empty = HELD_BYTES;
        assert_eq!(takes(0, 0), Some(empty));
        assert_eq!(takes(10, 0), Some(empty + 20));
        assert_eq!(takes(0, 87), Some(empty + 87));
        assert_eq!(takes(1 << 19, 0), None, "too much for an empty queue");

        let half = Held {
            bytes: 1 << 19,
            ..Held::default()
        };
        let first = waiting.enter(1, Nanos::ZERO, half);
        assert!(takes((1 << 18) - (empty >> 1), 0).is_some());
        assert!(takes((1 << 18) - (empty >> 1) + 1, 0).is_none());
        waiting.enter(2, Nanos::ZERO, Held::default());
        let third = waiting.enter(3, Nanos::ZERO, Held::default());
        assert!(takes(0, 0).is_none(), "three are held");
        assert!(waiting.cancel(third));
        assert!(takes(0, 0).is_some());
        assert!(waiting.cancel(first));
        assert!(takes(300_000, 0).is_some(), "its memory came back");
    }
}

#[cfg(test)]
mod timer_tests {
    use super::*;
    use crate::host::fake::FakeHost;

    /// Returns the timer period if it has been set since the last call to this function.
    fn set(host: &FakeHost) -> Option<u32> {
        Some(host.timer_ms.replace(UNSET)).filter(|ms| *ms != UNSET)
    }

    const UNSET: u32 = 12_345;
    const AT: fn(u64) -> Nanos = Nanos::from_millis;

    fn fake() -> FakeHost {
        let host = FakeHost::default();
        host.timer_ms.set(UNSET);
        host
    }

    #[test]
    fn the_sooner_instant_is_the_first_there_is() {
        assert_eq!(earlier(None, None), None);
        assert_eq!(earlier(None, Some(AT(3))), Some(AT(3)));
        assert_eq!(earlier(Some(AT(2)), None), Some(AT(2)));
        assert_eq!(earlier(Some(AT(2)), Some(AT(3))), Some(AT(2)));
        assert_eq!(earlier(Some(AT(4)), Some(AT(3))), Some(AT(3)));
    }

    #[test]
    fn it_is_set_only_to_fire_sooner() {
        let (host, mut timer) = (fake(), Timer::default());
        timer.fire_by(&host, None, AT(0));
        assert_eq!(set(&host), None);
        timer.fire_by(&host, Some(AT(250)), AT(0));
        assert_eq!(set(&host), Some(250));
        timer.fire_by(&host, Some(AT(250)), AT(1));
        timer.fire_by(&host, Some(AT(300)), AT(50));
        timer.fire_by(&host, None, AT(60));
        assert_eq!(set(&host), None, "it fires soon enough");
        timer.fire_by(&host, Some(AT(61)), AT(60));
        assert_eq!(set(&host), Some(1));
    }

    #[test]
    fn after_it_has_fired_it_is_set_to_the_next_time() {
        let (host, mut timer) = (fake(), Timer::default());
        timer.fired(&host, None, AT(0));
        assert_eq!(set(&host), Some(0), "other code set it before");
        timer.fire_by(&host, Some(AT(9)), AT(8));
        assert_eq!(set(&host), Some(1));
        timer.fired(&host, Some(AT(10)), AT(9));
        assert_eq!(set(&host), None, "the period is the same");
        timer.fired(&host, Some(Nanos::new(AT(20).get() + 1)), AT(10));
        assert_eq!(set(&host), Some(11), "rounded up");
        timer.fired(&host, Some(AT(20)), AT(30));
        assert_eq!(set(&host), Some(1), "at once");
        timer.fired(&host, None, AT(31));
        assert_eq!(set(&host), Some(0));
        timer.fired(&host, None, AT(32));
        assert_eq!(set(&host), None);
    }
}
