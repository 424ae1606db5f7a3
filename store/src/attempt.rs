//! One decision against the store, step by step: read the page and decide, write it back unless another
//! worker was faster.
//!
//! The steps are separate so that a model can interleave those of many workers in any order.

use alloc::boxed::Box;

use loudou_limiter::ban::Ban;
use loudou_limiter::{Ask, BucketDecision, Limits, Nanos};

use crate::gave_up::GaveUp;
use crate::leasing::{ByLease, Leased, Outage};
use crate::page::{Evicted, FLAG_KEEPS_GAIN, FLAG_PINNED, PageBytes, Slot, gain_flag};
use crate::receipt::Receipt;
use crate::rule::{Age, LiveRule};
use crate::shared_data::{Cas, MAX_RETRIES, SharedData, StoreFailed, Written};
use crate::stats::StoreStats;
use crate::table::{BucketId, StoreKey, Table};

mod straight;

/// A request to the bucket `key` of a rule.
#[derive(Clone, Copy, Debug)]
pub struct Take<'a> {
    /// The rule.
    pub rule: &'a dyn LiveRule,
    /// The limits of the key.
    pub limits: &'a Limits,
    /// The key.
    pub key: &'a str,
    /// The requested cost, and the time.
    pub ask: Ask,
    /// How to take from the lease, where many Envoys share the limits.
    pub lease: Option<ByLease<'a>>,
}

/// A decision of a bucket.
#[derive(Clone, Debug)]
pub struct Charge {
    /// The bucket's answer; a ban refuses without evaluating the limits.
    pub answer: Result<BucketDecision, Ban>,
    /// For giving the cost back; `None` for a refusal.
    pub receipt: Option<Receipt>,
    /// The effect on the lease; a request that waits for it took nothing.
    pub leased: Option<Leased>,
}

/// A [`Take`] in progress: reads and writes in turn until one write succeeds.
#[derive(Debug)]
pub struct Attempt<'a> {
    table: &'a Table,
    take: Take<'a>,
    id: BucketId,
    page_key: StoreKey,
    /// The page as read, then as it is to be written.
    page: PageBytes,
    expected: Cas,
    planned: Option<Box<Planned>>,
    tries: u32,
}

/// The result once the page is written.
#[derive(Debug)]
struct Planned {
    charge: Charge,
    is_new: bool,
    evicted: Evicted,
}

impl<'a> Attempt<'a> {
    /// An attempt before its first step.
    pub fn new(table: &'a Table, take: Take<'a>) -> Self {
        Self::at(table, table.id(take.rule.tag(), take.key), take)
    }

    /// The same with a known address of the bucket: hashing a key twice costs time.
    pub fn at(table: &'a Table, id: BucketId, take: Take<'a>) -> Self {
        let page_key = table.page_key(id.page);
        Self {
            table,
            take,
            id,
            page_key,
            page: PageBytes::default(),
            expected: 0,
            planned: None,
            tries: 0,
        }
    }

    /// Reads the page and decides.
    pub fn read(&mut self, store: &mut dyn SharedData) -> Result<(), GaveUp> {
        self.expected = self.page.read(store, &self.page_key)?;
        let planned = match self.plan_straight() {
            None => self.plan()?,
            Some(planned) => planned,
        };
        self.planned = Some(planned);
        Ok(())
    }

    /// How long the request will wait if the decision is written.
    pub fn wait(&self) -> Nanos {
        let answer = self.planned.as_ref().map(|planned| &planned.charge.answer);
        match answer {
            Some(Ok(answer)) => answer.wait(),
            _ => Nanos::ZERO,
        }
    }

    /// Whether the request will wait for a lease, and takes nothing.
    pub fn waits_for_lease(&self) -> bool {
        let leased = self
            .planned
            .as_ref()
            .and_then(|planned| planned.charge.leased);
        leased.is_some_and(Leased::waits)
    }

    /// The request waits at most for `patience`, in the decisions from the next read on.
    pub const fn shorten(&mut self, patience: Nanos) {
        self.take.ask.patience = patience;
    }

    fn plan(&mut self) -> Result<Box<Planned>, GaveUp> {
        let Take {
            rule,
            limits,
            key,
            ask,
            lease,
        } = self.take;
        let now = ask.now;
        let mut evicted = Evicted::Nothing;
        let found = self.page.find(self.id.fingerprint);
        if found.is_none() {
            let room = self.page.make_room(self.id.rule_tag, now);
            evicted = room.map_err(|_full| GaveUp::PageFull)?;
        }
        let (index, mut slot) = if let Some((index, slot)) = found {
            (Some(index), slot)
        } else {
            let origin = self.page.new_origin();
            let slot = Slot::new((rule, limits), self.id, origin, ask.clock());
            (None, slot)
        };
        match rule.age(slot.version) {
            Age::Current => {}
            Age::Newer => return Err(GaveUp::Outdated),
            Age::Older => {
                let origin = self.page.origins().wrapping_add(1);
                if slot.bring_forward(rule, (key, limits), origin, ask.clock()) {
                    self.page.set_origins(origin);
                }
            }
        }
        slot.flags = slot.flags & !FLAG_KEEPS_GAIN | gain_flag(limits);
        let mut receipt = Receipt::new(self.id, &slot, &ask);
        let (answer, leased) = self.answer(&mut slot, lease.as_ref());
        receipt.is_leased = leased.is_some_and(Leased::admits);
        let is_refused = is_refused(&answer);
        let waits = leased.is_some_and(Leased::waits);
        let is_local = leased.is_some_and(Leased::is_local);
        let refuses_all = is_local && lease.is_some_and(|lease| lease.outage == Outage::Refuse);
        if !waits {
            slot.count(is_refused || refuses_all, now);
        }
        match index {
            Some(index) => self.page.replace(index, &slot),
            None => self.page.push(&slot),
        }
        Ok(Box::new(Planned {
            charge: Charge {
                receipt: (!is_refused && !waits).then_some(receipt),
                answer,
                leased,
            },
            is_new: index.is_none(),
            evicted,
        }))
    }

    /// The answer of the slot. A banned key takes nothing. A refusal that reaches the penalty's threshold
    /// bans the key.
    fn answer(
        &self,
        slot: &mut Slot,
        lease: Option<&ByLease<'_>>,
    ) -> (Result<BucketDecision, Ban>, Option<Leased>) {
        let Take {
            rule, limits, ask, ..
        } = self.take;
        let penalty = rule.penalty();
        let now = ask.now.max(slot.bucket.last);
        slot.conduct.settle(now);
        if let Some(ban) = slot.conduct.ban(now) {
            slot.bucket.last = now;
            return (Err(ban), None);
        }
        let (answer, leased) = match lease {
            None => (limits.answer(&mut slot.bucket, &ask), None),
            Some(lease) => {
                let (answer, leased) = lease.answer(slot, limits, &ask);
                (answer, Some(leased))
            }
        };
        // A request that only could not be held is no strike: another client may have filled the worker.
        let strikes = answer.is_refused() && !ask.is_hurried();
        if let Some(penalty) = penalty.filter(|_| strikes) {
            slot.conduct.strike(penalty, now);
            // A ban by a penalty is not an operator's; an earlier operator's ban is over.
            slot.flags &= !FLAG_PINNED;
        }
        if leased.is_none() {
            // The instant that the answer is for, which a cost of 0 does not store.
            slot.note(limits, &answer);
        } else {
            slot.note(limits, &limits.peek(&slot.bucket, 0, now));
            slot.note_lease(now);
        }
        (slot.conduct.ban(now).map_or(Ok(answer), Err), leased)
    }

    /// Writes the decision. `None` if another worker was faster: read again.
    pub fn write(
        &mut self,
        store: &mut dyn SharedData,
        stats: &mut StoreStats,
    ) -> Option<Result<Charge, GaveUp>> {
        let planned = self.planned.take()?;
        match store.set(&self.page_key, self.page.bytes(), self.expected) {
            Err(StoreFailed) => Some(Err(GaveUp::Failed)),
            Ok(Written::Done) => {
                planned.count(stats);
                if planned.is_new {
                    self.table
                        .add_name(store, self.id, self.take.key, self.page.bytes());
                }
                Some(Ok(planned.charge))
            }
            Ok(Written::Conflict) => self.conflict(planned, stats),
        }
    }

    fn conflict(
        &mut self,
        planned: Box<Planned>,
        stats: &mut StoreStats,
    ) -> Option<Result<Charge, GaveUp>> {
        self.tries = self.tries.saturating_add(1);
        if self.tries <= MAX_RETRIES {
            stats.cas_retries = stats.cas_retries.saturating_add(1);
            return None;
        }
        if is_refused(&planned.charge.answer) {
            // Nothing had to be taken, so the verdict stands; only its record is lost.
            stats.lost_counts = stats.lost_counts.saturating_add(1);
            return Some(Ok(planned.charge));
        }
        stats.cas_give_ups = stats.cas_give_ups.saturating_add(1);
        Some(Err(GaveUp::Conflicts))
    }
}

fn is_refused(answer: &Result<BucketDecision, Ban>) -> bool {
    answer.as_ref().map_or(true, BucketDecision::is_refused)
}

impl Planned {
    fn count(&self, stats: &mut StoreStats) {
        if self.is_new {
            stats.count_new(self.evicted);
        }
    }
}

impl Table {
    /// Decides, and takes the cost if admitted.
    pub fn charge(
        &self,
        store: &mut dyn SharedData,
        take: &Take<'_>,
        stats: &mut StoreStats,
    ) -> Result<Charge, GaveUp> {
        let id = self.id(take.rule.tag(), take.key);
        self.charge_at(store, id, take, stats)
    }

    /// The same for the bucket at this address, which is the address of the rule and key.
    pub fn charge_at(
        &self,
        store: &mut dyn SharedData,
        id: BucketId,
        take: &Take<'_>,
        stats: &mut StoreStats,
    ) -> Result<Charge, GaveUp> {
        let mut attempt = Attempt::at(self, id, *take);
        loop {
            attempt.read(store)?;
            if let Some(outcome) = attempt.write(store, stats) {
                return outcome;
            }
        }
    }
}
