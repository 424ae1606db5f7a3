//! The lease of a bucket: how a request takes from it, and how a call to the relay and its answer change it.

use loudou_limiter::lease::{Lease, LeaseVerdict, Phase, Terms};
use loudou_limiter::{Ask, BucketDecision, Clock, Limits};

use crate::attempt::GaveUp;
use crate::attempt::StoreStats;
use crate::change::PageChange;
use crate::page::Slot;
use crate::shared_data::{SharedData, Written};
use crate::table::LiveRule;
use crate::table::{BucketId, Table};

/// How a request takes from the lease of its bucket.
#[derive(Clone, Copy, Debug)]
pub struct ByLease<'a> {
    /// The limits that all Envoys share.
    pub terms: &'a Terms,
    /// How long the request has been waiting for the lease.
    pub phase: Phase,
    /// Whether the engine cannot be asked.
    pub is_down: bool,
    /// Who decides then.
    pub outage: Outage,
}

/// Who decides while the engine cannot be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outage {
    /// The bucket here, with the limits divided by this number of Envoys.
    Local(u32),
    /// Every request passes.
    Admit,
    /// None passes.
    Refuse,
}

/// The effect of a request on its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leased {
    /// Its verdict.
    pub verdict: LeaseVerdict,
    /// Whether it should be asked for more.
    pub is_due: bool,
}

/// A change of the lease of the bucket `key` of a rule.
#[derive(Clone, Copy, Debug)]
pub struct LeaseOf<'a> {
    /// The rule.
    pub rule: &'a dyn LiveRule,
    /// The limits of the key.
    pub limits: &'a Limits,
    /// The same limits as all Envoys share them.
    pub terms: &'a Terms,
    /// The key.
    pub key: &'a str,
    /// The address of its bucket.
    pub id: BucketId,
    /// The current time.
    pub clock: Clock,
}

/// A change of a lease in progress: reads and writes in turn until one write succeeds.
#[derive(Debug)]
pub struct Leasing<'a> {
    of: LeaseOf<'a>,
    change: PageChange<'a>,
    /// Whether anything changes.
    is_planned: bool,
}

impl<'a> Leasing<'a> {
    /// A change before its first step.
    pub fn new(table: &'a Table, of: LeaseOf<'a>) -> Self {
        Self {
            of,
            change: PageChange::new(table, of.id, of.key),
            is_planned: false,
        }
    }

    /// Reads the page and changes the lease. A missing bucket is created.
    pub fn read(
        &mut self,
        store: &mut dyn SharedData,
        change: &mut dyn FnMut(&mut Lease),
    ) -> Result<(), GaveUp> {
        self.change.read(store)?;
        self.is_planned = self.plan(change)?;
        Ok(())
    }

    /// Changes the page; returns whether anything changes.
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

    /// Writes the result. `None` if another worker was faster: read again.
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
    /// Whether the request waits until the lease is asked for.
    pub const fn waits(self) -> bool {
        matches!(self.verdict, LeaseVerdict::Wait { .. })
    }

    /// Whether the engine was not asked, and [`Outage`] decided.
    pub const fn is_local(self) -> bool {
        matches!(self.verdict, LeaseVerdict::Local)
    }

    /// Whether tokens of the lease cover the request, or its credit.
    pub(crate) const fn admits(self) -> bool {
        matches!(self.verdict, LeaseVerdict::Admit)
    }
}

impl ByLease<'_> {
    /// Returns true if requests may pass before the engine has granted tokens for them.
    pub(crate) const fn gives_credit(&self) -> bool {
        self.terms.settings().credit > 0
    }

    /// Decides by the lease of a slot, or in an outage as the rule says. A request that waits has no answer
    /// yet: the one returned takes nothing.
    pub(crate) fn answer(
        &self,
        slot: &mut Slot,
        limits: &Limits,
        ask: &Ask,
    ) -> (BucketDecision, Leased) {
        let ask = &ask.not_before(slot.bucket.last);
        let now = ask.now;
        let lease = slot.lease.get_or_insert_default();
        lease.turn(self.terms, slot.bucket.last, ask.clock());
        let mut verdict = lease.take(self.terms, ask.cost, now, self.phase, self.is_down);
        if ask.is_hurried()
            && let LeaseVerdict::Wait { until } = verdict
        {
            // It cannot be held.
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
            let answer = lease.decision(self.terms, verdict, ask);
            return (answer, leased);
        }
        let answer = match self.outage {
            Outage::Local(envoys) => lease.decide_alone(limits, envoys, &mut slot.bucket, ask),
            Outage::Admit | Outage::Refuse => limits.peek(&slot.bucket, 0, now),
        };
        (answer, leased)
    }
}

impl Table {
    /// Changes the lease of a bucket. `change` may be called several times, each time with the lease as it is
    /// by then; only its last result is kept.
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
