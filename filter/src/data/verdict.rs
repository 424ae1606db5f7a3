//! The arrival of a request, and the decision on it.

use loudou_limiter::Nanos;
use loudou_limiter::lease::LeaseVerdict;
use loudou_rules::evaluate::Outcome;
use loudou_rules::fleet::FleetView;
use loudou_store::{BucketId, Leased};

use crate::host::{Headers, Reply};
use crate::loan::Loan;
use crate::waiting::Room;

/// A request as it arrives.
pub(super) struct Arrival {
    pub(super) now: Nanos,
    /// The room for holding it.
    pub(super) room: Room,
    /// Whether more than its headers will come.
    pub(super) has_body: bool,
    /// For how long it has waited already.
    pub(super) waited: Nanos,
    /// The state of the fleet, if there is one.
    pub(super) fleet: Option<FleetView>,
}

/// The verdict on a request.
pub(super) enum Verdict {
    /// It may pass at this instant, and its response gets these headers.
    Pass(Nanos, Headers),
    /// It is refused with this answer.
    Refuse(Reply),
    /// It waits for a lease.
    Wait(Wanted),
}

/// A key whose lease is asked for.
pub(crate) struct Wanted {
    pub(crate) id: BucketId,
    pub(crate) key: String,
    /// The cost of the request that waits for it; 0 for a refill.
    pub(crate) cost: u64,
    /// Until when the request waits.
    pub(crate) until: Nanos,
}

/// A decision on a request.
pub(super) struct Decided {
    pub(super) verdict: Verdict,
    /// The keys whose leases run low.
    pub(super) refills: Vec<(BucketId, String)>,
    /// Whether a rule of the fleet was decided without the engine.
    pub(super) is_local: bool,
    pub(super) loans: Vec<Loan>,
    /// When the request came.
    pub(super) since: Nanos,
    /// The longest time for which it may be held.
    pub(super) patience: Nanos,
    /// The memory that it takes if it is held.
    pub(super) bytes: u64,
}

impl Decided {
    /// A request that passes at once, and for which nothing else is to be done.
    pub(super) const fn passes(now: Nanos) -> Self {
        Self {
            verdict: Verdict::Pass(now, Vec::new()),
            refills: Vec::new(),
            is_local: false,
            loans: Vec::new(),
            since: now,
            patience: Nanos::MAX,
            bytes: 0,
        }
    }
}

impl Wanted {
    /// The key that a request waits for.
    pub(super) fn of(outcome: &Outcome) -> Option<Self> {
        let last = outcome.rules.last().filter(|_| outcome.is_pending)?;
        let LeaseVerdict::Wait { until } = last.leased?.verdict else {
            return None;
        };
        Some(Self {
            id: last.id?,
            key: last.key.clone()?,
            cost: last.price?.cost,
            until,
        })
    }
}

/// The keys of a request whose leases run low.
pub(super) fn refills(outcome: &Outcome) -> Vec<(BucketId, String)> {
    let low = outcome
        .rules
        .iter()
        .filter(|one| one.leased.is_some_and(|leased| leased.is_due));
    low.filter_map(|one| Some((one.id?, one.key.clone()?)))
        .collect()
}

/// Whether a rule of the fleet was decided without the engine.
pub(super) fn is_local(outcome: &Outcome) -> bool {
    let mut leased = outcome.rules.iter().filter_map(|one| one.leased);
    leased.any(Leased::is_local)
}
