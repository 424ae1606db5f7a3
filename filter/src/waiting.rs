//! Requests that wait for their time: paused streams of one worker, released from its timer.
//!
//! A stream can only be resumed by the worker it belongs to, so each has a queue of its own; what
//! they share is the bucket that gave out the times. The timer runs only while somebody waits.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use loudou_limiter::Nanos;

use crate::host::{Host, Reply};
use crate::metrics::{Registry, StoreMetrics};

/// The most streams that wait on one worker. Beyond it, what would wait is refused.
pub(crate) const MAX_WAITING: usize = 65_536;

/// The most streams that one run of the timer releases. Envoy resumes them after it, one by one; but
/// an answer that comes at once enters the sandbox again, and on the way out Envoy resumes the next,
/// within the first. A few hundred on top of each other exhaust the sandbox's stack.
pub(crate) const MAX_RELEASED: usize = 32;

/// A place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket {
    due: Nanos,
    stream: u32,
}

/// In order. A sorted queue and no tree: tickets mostly come in at its end and leave at its beginning, and
/// a tree is some KiB of the filter.
type Line = RefCell<VecDeque<Ticket>>;

/// The streams that wait, the earliest due first. Shared with the sandbox's [`Will`].
#[derive(Debug, Default)]
pub(crate) struct Waiting(Rc<Line>);

impl Waiting {
    /// Nobody is ever inside already: no method calls anybody.
    fn line<T: Default>(&self, use_line: impl FnOnce(&mut VecDeque<Ticket>) -> T) -> T {
        match self.0.try_borrow_mut() {
            Ok(mut line) => use_line(&mut line),
            Err(_inside) => T::default(),
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.line(|line| line.len() >= MAX_WAITING)
    }

    /// Lets `stream` wait until `due`.
    pub(crate) fn enter(&self, stream: u32, due: Nanos) -> Ticket {
        let ticket = Ticket { due, stream };
        self.line(|line| {
            if let Err(place) = line.binary_search(&ticket) {
                line.insert(place, ticket);
            }
        });
        ticket
    }

    /// Who is due first.
    fn first(&self) -> Option<Ticket> {
        self.line(|line| line.front().copied())
    }

    /// When the next stream is due.
    pub(crate) fn due(&self) -> Option<Nanos> {
        self.first().map(|next| next.due)
    }

    /// Whether a stream still waits.
    pub(crate) fn holds(&self, ticket: Ticket) -> bool {
        self.line(|line| line.binary_search(&ticket).is_ok())
    }

    /// Takes a stream out that will not wait any longer. Whether it still did.
    pub(crate) fn leave(&self, ticket: Ticket) -> bool {
        self.line(|line| {
            let place = line.binary_search(&ticket).ok();
            place.and_then(|place| line.remove(place)).is_some()
        })
    }

    /// The next stream whose time has come.
    pub(crate) fn next_due(&self, now: Nanos) -> Option<u32> {
        let next = self.first().filter(|next| next.due <= now)?;
        self.leave(next).then_some(next.stream)
    }

    /// What to do with those who wait here when the sandbox dies.
    pub(crate) fn will(&self, share: &str) -> Will {
        Will {
            share: share.to_owned(),
            line: Rc::downgrade(&self.0),
        }
    }
}

/// What is left to do when the sandbox dies. Envoy would neither resume nor answer those who wait in
/// it, and the gauge that counts them outlives it.
#[derive(Debug)]
pub struct Will {
    share: String,
    line: Weak<Line>,
}

impl Will {
    /// Whether nobody can wait there any more.
    pub fn is_void(&self) -> bool {
        self.line.strong_count() == 0
    }

    /// Answers those who wait, and takes them off the count.
    pub fn execute(&self, host: &dyn Host) {
        let Some(line) = self.line.upgrade() else {
            return;
        };
        let Ok(streams) = line.try_borrow() else {
            return;
        };
        let mut registry = Registry::default();
        StoreMetrics::define(host, &mut registry, &self.share).waited(host, streams.len());
        // Envoy says the same to all other requests that the sandbox was busy with.
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
