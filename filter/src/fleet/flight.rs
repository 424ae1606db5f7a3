//! Calls that are on their way, and the requests that their ends set free.

use loudou_limiter::Nanos;
use loudou_limiter::lease::{LeaseAsk, Phase};
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

/// A request that no longer waits for the relay, and is to be decided again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ready {
    pub(crate) ticket: Ticket,
    pub(crate) phase: Phase,
}

impl Ready {
    pub(super) const fn soon(ticket: Ticket) -> Self {
        Self {
            ticket,
            phase: Phase::Held,
        }
    }

    /// A request that was never decided, because it waited for the changes of the fleet.
    pub(super) const fn early(ticket: Ticket) -> Self {
        Self {
            ticket,
            phase: Phase::First,
        }
    }

    /// A request that is decided without the engine, because asking again would give the same error at once.
    pub(super) const fn failed(ticket: Ticket) -> Self {
        Self {
            ticket,
            phase: Phase::Expired,
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
