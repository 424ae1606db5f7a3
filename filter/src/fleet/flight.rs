//! Calls that are on their way, and the requests that their ends set free.

use loudou_limiter::Nanos;
use loudou_limiter::lease::LeaseAsk;
use loudou_store::BucketId;

use crate::waiting::Ticket;

/// A key that asks, in the call that is on its way.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) id: BucketId,
    pub(super) key: String,
    pub(super) ask: LeaseAsk,
    /// The requests that wait for it.
    pub(super) requests: Vec<Ticket>,
}

/// A request that waits for no lease any more, and is to be decided anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ready {
    pub(crate) ticket: Ticket,
    /// Whether it must not wait again.
    pub(crate) is_expired: bool,
}

impl Ready {
    pub(super) const fn soon(ticket: Ticket) -> Self {
        Self {
            ticket,
            is_expired: false,
        }
    }
}

/// A call that is on its way.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) call: u32,
    pub(super) sent_at: Nanos,
    pub(super) carries: Carried,
}

/// The content of a call.
#[derive(Debug)]
pub(super) enum Carried {
    /// Keys that ask.
    Keys(Vec<Asked>),
    /// The changes that it tells, by name and version. It also counts this Envoy.
    Changes(Vec<(String, u64)>),
}
