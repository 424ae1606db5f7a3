//! A bucket that many Envoys share, as far as it is known here.

use loudou_api::LeaseView;
use loudou_limiter::lease::Lease;
use loudou_limiter::{Clock, Nanos};
use loudou_rules::fleet::FleetView;

/// The time of a call, and the state of the fleet then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) clock: Clock,
    /// `None` where no worker has a fleet.
    pub(super) fleet: Option<FleetView>,
}

impl Moment {
    /// Whether the engine of the fleet cannot be asked.
    pub(super) fn is_outage(&self) -> bool {
        self.fleet.is_some_and(|fleet| fleet.is_down)
    }
}

/// A lease of this many limits; `None` before the engine was heard of.
pub(super) fn lease_view(lease: &Lease, limits: usize, now: Nanos) -> Option<LeaseView> {
    let seen = lease.seen()?;
    Some(LeaseView {
        tokens: lease.tokens(now),
        left: (0..limits).map(|limit| seen.left.at(limit)).collect(),
        heard_ns: seen.at.get(),
        debt: lease.debt(),
        denied_until_ns: lease.denied_until(now).map(Nanos::get),
    })
}
