//! Bucket leases: requests take tokens from a lease, and the relay's responses update it.

use loudou_limiter::lease::{Lease, LeaseVerdict, Phase, Terms};
use loudou_limiter::{BucketDecision, BucketRequest, Clock, Limits};

use crate::attempt::GaveUp;
use crate::attempt::StoreStats;
use crate::change::PageChange;
use crate::page::Slot;
use crate::shared_data::{SharedData, Written};
use crate::table::LiveRule;
use crate::table::{BucketId, Table};

/// Terms on which a request takes tokens from its bucket's lease.
#[derive(Clone, Copy, Debug)]
pub struct ByLease<'a> {
    /// The limits, in the form that the fleet shares.
    pub terms: &'a Terms,
    /// Current phase of the request's wait for the lease.
    pub phase: Phase,
    /// True if a request may be held until the engine responds. Otherwise, a request that exceeds
    /// the credit is refused.
    pub holds: bool,
    /// True if the engine is unreachable.
    pub is_down: bool,
    /// How requests are decided while the engine is unreachable.
    pub outage: Outage,
}

/// How requests are decided while the engine is unreachable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outage {
    /// The local bucket decides, with the limits divided by this number of Envoys.
    Local(u32),
    /// All requests are admitted.
    Admit,
    /// All requests are refused.
    Refuse,
}

/// A request's effect on its bucket's lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leased {
    /// The lease's verdict.
    pub verdict: LeaseVerdict,
    /// True if this Envoy should ask the engine for more tokens.
    pub is_due: bool,
}

/// A bucket whose lease is to be changed.
#[derive(Clone, Copy, Debug)]
pub struct LeaseOf<'a> {
    /// The rule.
    pub rule: &'a dyn LiveRule,
    /// The key's limits.
    pub limits: &'a Limits,
    /// [`limits`](Self::limits), in the form that the fleet shares.
    pub terms: &'a Terms,
    /// The key.
    pub key: &'a str,
    /// The bucket's address.
    pub id: BucketId,
    /// The current time.
    pub clock: Clock,
}

/// A lease change in progress. Call [`read`](Self::read) and [`write`](Self::write) alternately
/// until a write succeeds.
#[derive(Debug)]
pub struct Leasing<'a> {
    of: LeaseOf<'a>,
    change: PageChange<'a>,
    /// True if there is a change to write.
    is_planned: bool,
}

impl<'a> Leasing<'a> {
    /// Creates a lease change, without reading the page yet.
    pub fn new(table: &'a Table, of: LeaseOf<'a>) -> Self {
        Self {
            of,
            change: PageChange::new(table, of.id, of.key),
            is_planned: false,
        }
    }

    /// Reads the page and changes the lease. Creates the bucket if it is missing.
    pub fn read(
        &mut self,
        store: &mut dyn SharedData,
        change: &mut dyn FnMut(&mut Lease),
    ) -> Result<(), GaveUp> {
        self.change.read(store)?;
        self.is_planned = self.plan(change)?;
        Ok(())
    }

    /// Applies the lease change to the page. Returns true if the page must be written.
    fn plan(&mut self, change: &mut dyn FnMut(&mut Lease)) -> Result<bool, GaveUp> {
        let LeaseOf {
            rule,
            limits,
            terms,
            clock,
            ..
        } = self.of;
        let as_read = self.change.page.find(self.of.id.fingerprint);
        let (index, mut slot) = self.change.slot(rule, limits, clock)?;
        let clock = clock.moved_to(clock.now.max(slot.bucket.last));
        let now = clock.now;
        let lease = slot.lease.get_or_insert_default();
        lease.turn(terms, slot.bucket.last, clock);
        change(lease);
        slot.bucket.last = now;
        slot.note(limits, &limits.peek(&slot.bucket, 0, now));
        slot.note_lease(now, terms.settings().credit > 0);
        if as_read.is_some_and(|(_, as_read)| as_read == slot) {
            return Ok(false);
        }
        self.change.put(index, &slot);
        Ok(true)
    }

    /// Writes the changed page. Returns `None` if another worker wrote the page first. In that
    /// case, the caller must call [`read`](Self::read) again.
    pub fn write(
        &mut self,
        store: &mut dyn SharedData,
        stats: &mut StoreStats,
    ) -> Option<Result<(), GaveUp>> {
        if !core::mem::take(&mut self.is_planned) {
            return Some(Ok(()));
        }
        match self.change.write(store, stats) {
            Ok(Written::Done) => Some(Ok(())),
            Ok(Written::Conflict) => None,
            Err(gave_up) => {
                if gave_up == GaveUp::Conflicts {
                    stats.cas_give_ups = stats.cas_give_ups.saturating_add(1);
                }
                Some(Err(gave_up))
            }
        }
    }
}

impl Leased {
    /// Returns true if the request must wait for the lease.
    pub const fn waits(self) -> bool {
        matches!(self.verdict, LeaseVerdict::Wait { .. })
    }

    /// Returns true if the decision was made by [`Outage`] because the engine was unreachable.
    pub const fn is_local(self) -> bool {
        matches!(self.verdict, LeaseVerdict::Local)
    }

    /// Returns true if the lease admits the request, either with tokens or on credit.
    pub(crate) const fn admits(self) -> bool {
        matches!(self.verdict, LeaseVerdict::Admit)
    }
}

impl ByLease<'_> {
    /// Returns true if requests may be admitted before the engine has granted tokens for them.
    pub(crate) const fn gives_credit(&self) -> bool {
        self.terms.settings().credit > 0
    }

    /// Decides on the request using the slot's lease, or using [`Outage`] while the engine is
    /// unreachable. A request that must wait for the lease does not take any units.
    pub(crate) fn answer(
        &self,
        slot: &mut Slot,
        limits: &Limits,
        request: &BucketRequest,
    ) -> (BucketDecision, Leased) {
        let request = &request.not_before(slot.bucket.last);
        let now = request.now;
        let lease = slot.lease.get_or_insert_default();
        lease.turn(self.terms, slot.bucket.last, request.clock());
        let mut verdict = lease.take(self.terms, request.cost, now, self.phase, self.is_down);
        if (request.is_wait_bounded() || !self.holds)
            && let LeaseVerdict::Wait { until } = verdict
        {
            // The request cannot be held, so it is refused.
            verdict = LeaseVerdict::Refuse {
                retry_after: Some(until.since(now)),
            };
        }
        let leased = Leased {
            verdict,
            is_due: !self.is_down && lease.is_due(self.terms, now),
        };
        if verdict != LeaseVerdict::Local {
            slot.bucket.last = now;
            let answer = lease.decision(self.terms, verdict, request);
            return (answer, leased);
        }
        let answer = match self.outage {
            Outage::Local(envoys) => lease.decide_alone(limits, envoys, &mut slot.bucket, request),
            Outage::Admit | Outage::Refuse => limits.peek(&slot.bucket, 0, now),
        };
        (answer, leased)
    }
}

impl Table {
    /// Changes a bucket's lease. After a conflict, `change` is called again with the lease as it is
    /// then. Only the result of the last call is stored.
    pub fn lease(
        &self,
        store: &mut dyn SharedData,
        of: LeaseOf<'_>,
        change: &mut dyn FnMut(&mut Lease),
        stats: &mut StoreStats,
    ) -> Result<(), GaveUp> {
        let mut leasing = Leasing::new(self, of);
        loop {
            leasing.read(store, change)?;
            if let Some(outcome) = leasing.write(store, stats) {
                return outcome;
            }
        }
    }
}
