//! The leases of the buckets: what a call to the relay changes in them.

use loudou_api::EventKind;
use loudou_limiter::Nanos;
use loudou_limiter::lease::{Lease, Phase, Terms};
use loudou_store::{BucketId, LeaseOf, LiveRule, StoreStats};

use super::active::Active;
use crate::events;
use crate::fleet::Fleet;
use crate::host::{Host, HostStore};

/// A change of a lease; `None` for no result.
type Change<'a, T> = dyn FnMut(&mut Lease, &Terms) -> Option<T> + 'a;

impl Active {
    /// The name of the process: 16 hexadecimal digits.
    pub(crate) fn instance(&self) -> &str {
        &self.instance
    }

    /// Adds an event of the fleet.
    pub(crate) fn report(&self, host: &dyn Host, what: (EventKind, &str), now: Nanos) {
        let (kind, detail) = what;
        let at = host.clock_at(now);
        let mut event = events::event(at, kind, events::BY_ITSELF, self.generation);
        detail.clone_into(&mut event.detail);
        events::add(host, self.share(), &event);
    }

    /// Changes the lease of a key; the result of the change, the name of the rule and the terms. `None` if
    /// the rule or the bucket is gone, the store failed, or the change had no result.
    pub(crate) fn change_lease<T>(
        &self,
        host: &dyn Host,
        fleet: &Fleet,
        (id, key): (BucketId, &str),
        now: Nanos,
        change: &mut Change<'_, T>,
    ) -> Option<(T, &str, Terms)> {
        let rule = self.rule_of(id.rule_tag)?;
        let limits = rule.limits_of(key);
        let terms = fleet.view(Phase::First).terms(rule.rule(), limits)?;
        let of = LeaseOf {
            rule,
            limits,
            terms: &terms,
            key,
            id,
            clock: self.clock(host, now),
        };
        let (mut stats, mut result) = (StoreStats::default(), None);
        let mut change = |lease: &mut Lease| result = change(lease, &terms);
        let changed = self
            .table
            .lease(&mut HostStore(host), of, &mut change, &mut stats);
        self.store_metrics.add(host, &stats);
        changed.ok()?;
        Some((result?, rule.rule().name.as_str(), terms))
    }
}
