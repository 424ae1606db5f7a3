//! The lease of a bucket, changed besides requests: a call that asks for tokens, and its answer. Step by step
//! as in [`attempt`](super::attempt): read the page and change, write it back unless another worker was
//! faster.

use loudou_limiter::lease::{Lease, LeaseVerdict, Phase, Terms};
use loudou_limiter::{Ask, BucketDecision, Clock, Limits};

use crate::attempt::GaveUp;
use crate::attempt::StoreStats;
use crate::page::{Evicted, PageBytes, Slot};
use crate::rule::{Age, LiveRule};
use crate::shared_data::{Cas, MAX_RETRIES, SharedData, Written};
use crate::table::{BucketId, StoreKey, Table};

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
    table: &'a Table,
    of: LeaseOf<'a>,
    page_key: StoreKey,
    /// The page as read, then as it is to be written.
    page: PageBytes,
    expected: Cas,
    /// Whether the bucket is new, and what it evicted; `None` if nothing changes.
    planned: Option<(bool, Evicted)>,
    tries: u32,
}

impl<'a> Leasing<'a> {
    /// A change before its first step.
    pub fn new(table: &'a Table, of: LeaseOf<'a>) -> Self {
        Self {
            table,
            of,
            page_key: table.page_key(of.id.page),
            page: PageBytes::default(),
            expected: 0,
            planned: None,
            tries: 0,
        }
    }

    /// Reads the page and changes the lease. A missing bucket is created.
    pub fn read(
        &mut self,
        store: &mut dyn SharedData,
        change: &mut dyn FnMut(&mut Lease),
    ) -> Result<(), GaveUp> {
        self.expected = self.page.read(store, &self.page_key)?;
        self.planned = self.plan(change)?;
        Ok(())
    }

    fn plan(
        &mut self,
        change: &mut dyn FnMut(&mut Lease),
    ) -> Result<Option<(bool, Evicted)>, GaveUp> {
        let LeaseOf {
            rule,
            limits,
            terms,
            key,
            id,
            clock,
        } = self.of;
        let found = self.page.find(id.fingerprint);
        let (index, mut slot, evicted) = if let Some((index, slot)) = found {
            (Some(index), slot, Evicted::Nothing)
        } else {
            let room = self.page.make_room(id.rule_tag, clock.now);
            let evicted = room.map_err(|_full| GaveUp::PageFull)?;
            let origin = self.page.new_origin();
            (None, Slot::new((rule, limits), id, origin, clock), evicted)
        };
        let before = index.map(|_| slot.clone());
        match rule.age(slot.version) {
            Age::Newer => return Err(GaveUp::Outdated),
            Age::Older => {
                let origin = self.page.origins().wrapping_add(1);
                if slot.bring_forward(rule, (key, limits), origin, clock) {
                    self.page.set_origins(origin);
                }
            }
            Age::Current => {}
        }
        let clock = clock.moved_to(clock.now.max(slot.bucket.last));
        let now = clock.now;
        let lease = slot.lease.get_or_insert_default();
        lease.turn(terms, slot.bucket.last, clock);
        change(lease);
        slot.bucket.last = now;
        slot.note(limits, &limits.peek(&slot.bucket, 0, now));
        slot.note_lease(now, terms.settings().credit > 0);
        if before.is_some_and(|before| before == slot) {
            return Ok(None);
        }
        match index {
            Some(index) => self.page.replace(index, &slot),
            None => self.page.push(&slot),
        }
        Ok(Some((index.is_none(), evicted)))
    }

    /// Writes the result. `None` if another worker was faster: read again.
    pub fn write(
        &mut self,
        store: &mut dyn SharedData,
        stats: &mut StoreStats,
    ) -> Option<Result<(), GaveUp>> {
        let Some((is_new, evicted)) = self.planned.take() else {
            return Some(Ok(()));
        };
        match store.set(&self.page_key, self.page.bytes(), self.expected) {
            Err(failed) => Some(Err(failed.into())),
            Ok(Written::Done) => {
                if is_new {
                    stats.count_new(evicted);
                    let LeaseOf { id, key, .. } = self.of;
                    self.table.add_name(store, id, key, self.page.bytes());
                }
                Some(Ok(()))
            }
            Ok(Written::Conflict) => {
                self.tries = self.tries.saturating_add(1);
                if self.tries > MAX_RETRIES {
                    stats.cas_give_ups = stats.cas_give_ups.saturating_add(1);
                    return Some(Err(GaveUp::Conflicts));
                }
                stats.cas_retries = stats.cas_retries.saturating_add(1);
                None
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
