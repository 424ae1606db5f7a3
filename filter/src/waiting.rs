//! Requests that wait for their time: paused streams of one worker, released from its timer.
//!
//! A stream can only be resumed by the worker it belongs to, so each has a queue of its own; what
//! they share is the bucket that gave out the times. The timer runs only while somebody waits.

use std::collections::BTreeSet;

use loudou_limiter::Nanos;

/// The most streams that wait on one worker. Beyond it, what would wait is refused.
pub(crate) const MAX_WAITING: usize = 65_536;

/// The period of the timer while somebody waits: the shortest that Envoy has.
pub(crate) const TICK: Nanos = Nanos::from_millis(1);

/// A place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket {
    due: Nanos,
    stream: u32,
}

/// The streams that wait, the earliest due first.
#[derive(Debug, Default)]
pub(crate) struct Waiting(BTreeSet<Ticket>);

impl Waiting {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.0.len() >= MAX_WAITING
    }

    /// Lets `stream` wait until `due`.
    pub(crate) fn enter(&mut self, stream: u32, due: Nanos) -> Ticket {
        let ticket = Ticket { due, stream };
        self.0.insert(ticket);
        ticket
    }

    /// Whether a stream still waits.
    pub(crate) fn holds(&self, ticket: Ticket) -> bool {
        self.0.contains(&ticket)
    }

    /// Takes a stream out that will not wait any longer. Whether it still did.
    pub(crate) fn leave(&mut self, ticket: Ticket) -> bool {
        self.0.remove(&ticket)
    }

    /// The next stream whose time has come.
    pub(crate) fn next_due(&mut self, now: Nanos) -> Option<u32> {
        if self.0.first()?.due > now {
            return None;
        }
        self.0.pop_first().map(|ticket| ticket.stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_leave_in_the_order_of_their_times() {
        let mut waiting = Waiting::default();
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
        assert!(waiting.is_empty());
    }

    #[test]
    fn a_place_is_given_back_once() {
        let mut waiting = Waiting::default();
        let ticket = waiting.enter(7, Nanos::ZERO);
        assert!(waiting.leave(ticket));
        assert!(!waiting.leave(ticket));
        assert_eq!(waiting.next_due(Nanos::MAX), None);
    }
}
