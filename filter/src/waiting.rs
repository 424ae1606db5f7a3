//! Held requests: paused streams of one worker, released from its timer.
//!
//! A stream can only be resumed by its own worker, so each worker has its own queue; the workers share
//! the bucket that assigned the times. The timer runs only while the queue is not empty.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::{Rc, Weak};

use loudou_limiter::Nanos;

use crate::host::{Host, Reply};
use crate::metrics::{Registry, StoreMetrics};

/// The most held streams of one worker. Further requests are refused instead of held.
pub(crate) const MAX_WAITING: usize = 65_536;

/// The most streams that one run of the timer releases. Envoy resumes them afterwards, one by one; but
/// an immediate answer enters the sandbox again, and on the way out Envoy resumes the next stream,
/// nested in the first. A few hundred nested streams exhaust the sandbox's stack.
pub(crate) const MAX_RELEASED: usize = 32;

/// A place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket {
    due: Nanos,
    stream: u32,
}

type Line = RefCell<BTreeSet<Ticket>>;

/// The held streams, the earliest due first. Shared with the sandbox's [`Will`].
#[derive(Debug, Default)]
pub(crate) struct Waiting(Rc<Line>);

impl Waiting {
    /// The queue is never borrowed already: no method calls other code.
    fn line<T: Default>(&self, use_line: impl FnOnce(&mut BTreeSet<Ticket>) -> T) -> T {
        match self.0.try_borrow_mut() {
            Ok(mut line) => use_line(&mut line),
            Err(_borrowed) => T::default(),
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.line(|line| line.len() >= MAX_WAITING)
    }

    /// Holds `stream` until `due`.
    pub(crate) fn enter(&self, stream: u32, due: Nanos) -> Ticket {
        let ticket = Ticket { due, stream };
        self.line(|line| line.insert(ticket));
        ticket
    }

    /// The stream that is due first.
    fn first(&self) -> Option<Ticket> {
        self.line(|line| line.first().copied())
    }

    /// When the next stream is due.
    pub(crate) fn due(&self) -> Option<Nanos> {
        self.first().map(|next| next.due)
    }

    /// Whether a stream is still held.
    pub(crate) fn holds(&self, ticket: Ticket) -> bool {
        self.line(|line| line.contains(&ticket))
    }

    /// Removes a stream from the queue; returns whether it was still held.
    pub(crate) fn leave(&self, ticket: Ticket) -> bool {
        self.line(|line| line.remove(&ticket))
    }

    /// Removes the next stream that is due.
    pub(crate) fn next_due(&self, now: Nanos) -> Option<u32> {
        let next = self.first().filter(|next| next.due <= now)?;
        self.leave(next).then_some(next.stream)
    }

    /// Answers the streams in this queue if the sandbox dies.
    pub(crate) fn will(&self, share: &str) -> Will {
        Will {
            share: share.to_owned(),
            line: Rc::downgrade(&self.0),
        }
    }
}

/// The last actions when the sandbox dies. Envoy would neither resume nor answer the held requests, and
/// the gauge that counts them outlives the sandbox.
#[derive(Debug)]
pub struct Will {
    share: String,
    line: Weak<Line>,
}

impl Will {
    /// Whether its queue no longer exists.
    pub fn is_void(&self) -> bool {
        self.line.strong_count() == 0
    }

    /// Answers the held requests, and subtracts them from the gauge.
    pub fn execute(&self, host: &dyn Host) {
        let Some(line) = self.line.upgrade() else {
            return;
        };
        let Ok(streams) = line.try_borrow() else {
            return;
        };
        let mut registry = Registry::default();
        StoreMetrics::define(host, &mut registry, &self.share).waited(host, streams.len());
        // Envoy gives the same answer to all other requests in the sandbox.
        let reply = Reply {
            status: 503,
            ..Reply::default()
        };
        for ticket in &*streams {
            host.reply_to(ticket.stream, &reply);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_leave_in_the_order_of_their_times() {
        let waiting = Waiting::default();
        let at = Nanos::from_millis;
        for (stream, due) in [(1, 30), (2, 10), (3, 20), (4, 10)] {
            waiting.enter(stream, at(due));
        }
        assert_eq!(waiting.next_due(at(9)), None);
        assert_eq!(waiting.next_due(at(10)), Some(2));
        assert_eq!(waiting.next_due(at(10)), Some(4));
        assert_eq!(waiting.next_due(at(19)), None);
        assert_eq!(waiting.next_due(at(500)), Some(3));
        assert_eq!(waiting.next_due(at(500)), Some(1));
        assert_eq!(waiting.due(), None);
    }

    #[test]
    fn the_earliest_is_due_next() {
        let waiting = Waiting::default();
        let [near, far] = [Nanos::from_millis(1), Nanos::MAX];
        let first = waiting.enter(1, far);
        assert_eq!(waiting.due(), Some(far));
        let second = waiting.enter(2, near);
        assert_eq!(waiting.due(), Some(near));
        waiting.leave(second);
        assert_eq!(waiting.due(), Some(far));
        waiting.leave(first);
        assert_eq!(waiting.due(), None);
    }

    #[test]
    fn a_place_is_given_back_once() {
        let waiting = Waiting::default();
        let ticket = waiting.enter(7, Nanos::ZERO);
        assert!(waiting.leave(ticket));
        assert!(!waiting.leave(ticket));
        assert_eq!(waiting.next_due(Nanos::MAX), None);
    }
}
