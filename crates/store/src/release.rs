//! Giving back the cost of a request that has ended or was abandoned.
//!
//! A missing bucket has nothing to subtract, and none is created.

use loudou_limiter::Clock;

use crate::attempt::GaveUp;
use crate::attempt::StoreStats;
use crate::attempt::{Receipt, root_of};
use crate::change::PageChange;
use crate::page::{FLAG_KEEPS_GAIN, gain_flag};
use crate::shared_data::{SharedData, Written};
use crate::table::Table;
use crate::table::{Age, LiveRule};

/// The reason for giving back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The request has passed and ended: the amount that it took only until its end.
    Ended,
    /// The request was held and now passes: it keeps what it took, and is no longer waited for.
    Passed,
    /// The request was admitted, but the client left while it was held: the whole amount.
    Left,
    /// The same, because another rule refused the request: it was not admitted after all.
    Refused,
}

/// The return of the amount that a request took from the bucket `key` of a rule.
#[derive(Clone, Copy, Debug)]
pub struct Give<'a> {
    /// The rule.
    pub rule: &'a dyn LiveRule,
    /// The key.
    pub key: &'a str,
    /// The amount taken.
    pub receipt: &'a Receipt,
    /// The reason.
    pub why: Why,
    /// The current time.
    pub clock: Clock,
}

/// A [`Give`] in progress: reads and writes in turn until one write succeeds.
#[derive(Debug)]
pub struct Giving<'a> {
    give: Give<'a>,
    change: PageChange<'a>,
    /// Whether anything changes.
    is_planned: bool,
}

impl<'a> Giving<'a> {
    /// An attempt before its first step.
    pub fn new(table: &'a Table, give: Give<'a>) -> Self {
        Self {
            give,
            change: PageChange::new(table, give.receipt.id, give.key),
            is_planned: false,
        }
    }

    /// Reads the page and subtracts the cost.
    pub fn read(
        &mut self,
        store: &mut dyn SharedData,
        stats: &mut StoreStats,
    ) -> Result<(), GaveUp> {
        let planned = self.change.read(store).and_then(|()| self.plan());
        self.is_planned = planned.inspect_err(|_lost| count(&mut stats.lost_returns))?;
        Ok(())
    }

    /// Changes the page; returns whether anything changes.
    ///
    /// Everything is given back while the state is the one it was taken from. If an edit has converted the
    /// state, or a reset has begun it anew, a request that waits still has its place in the queue. Besides, and if another bucket is in the
    /// slot, only amounts taken until the end of a request are given back: those limits know the permits that
    /// they gave out.
    fn plan(&mut self) -> Result<bool, GaveUp> {
        let Give {
            rule,
            key,
            receipt,
            why,
            clock,
        } = self.give;
        let now = clock.now;
        let limits = rule.limits_of(key);
        if receipt.is_leased {
            return Ok(self.plan_lease());
        }
        let origin = self.change.page.origins().wrapping_add(1);
        let Some((index, mut slot)) = self.change.page.find(self.change.id.fingerprint) else {
            return Ok(false);
        };
        let bucket = (&slot.bucket, slot.version);
        let brought = match rule.age(slot.version) {
            Age::Newer => return Err(GaveUp::Outdated),
            _ => rule.bring_forward((key, limits), bucket, clock),
        };
        let is_current = brought.is_none();
        let is_same = is_current && slot.origin == receipt.origin;
        let (words, admitted) = (slot.bucket.words.clone(), slot.admitted);
        let debt = slot.lease.as_ref().map(|lease| lease.debt());
        if let Some(bucket) = brought {
            slot.bucket = bucket;
            limits.set_root(&mut slot.bucket, root_of(slot.origin));
        }
        let waited = receipt.root > 0 && limits.root(&slot.bucket) == receipt.root;
        let moved = (waited && !is_same).then(|| {
            let of = (&receipt.taken, receipt.version);
            let moved = rule.bring_taken_forward((key, limits), of, clock);
            moved.unwrap_or_else(|| receipt.taken.in_place())
        });
        let concerns_all = (is_same || moved.is_some()) && why != Why::Ended;
        // Also permits of a limit that an edit has removed.
        let may_release = limits.may_release(&slot.bucket) && why != Why::Passed;
        let permits_at = receipt.permits_at.filter(|_| may_release);
        if !concerns_all && permits_at.is_none() {
            return Ok(false);
        }
        let taken = moved.as_ref().unwrap_or(&receipt.taken);
        if concerns_all && why == Why::Passed {
            limits.pass(&mut slot.bucket, taken);
        } else if concerns_all {
            let part = (receipt.envoys > 0).then(|| limits.divided(receipt.envoys));
            let part = part.flatten();
            part.as_ref()
                .unwrap_or(limits)
                .give_back(&mut slot.bucket, taken);
            if let Some(lease) = &mut slot.lease {
                lease.forgive(taken.cost());
            }
        }
        if let Some(taken_at) = permits_at
            && (!concerns_all || moved.is_some())
        {
            let cost = receipt.taken.cost();
            limits.release(&mut slot.bucket, cost, taken_at, now);
        }
        if concerns_all && why == Why::Refused {
            slot.admitted = slot.admitted.saturating_sub(1);
        }
        let is_same_debt = debt == slot.lease.as_ref().map(|lease| lease.debt());
        if slot.bucket.words() == words.as_slice() && slot.admitted == admitted && is_same_debt {
            return Ok(false);
        }
        slot.note(limits, &limits.peek(&slot.bucket, 0, now));
        slot.version = rule.version();
        slot.flags = slot.flags & !FLAG_KEEPS_GAIN | gain_flag(limits);
        if !is_current {
            slot.origin = origin;
            self.change.page.set_origins(origin);
        }
        self.change.page.replace(index, &slot);
        Ok(true)
    }

    /// The same for a cost that the lease covered: its tokens come back while the lease lasts.
    fn plan_lease(&mut self) -> bool {
        let Give {
            receipt,
            why,
            clock,
            ..
        } = self.give;
        if why != Why::Left && why != Why::Refused {
            return false;
        }
        let Some((index, mut slot)) = self.change.page.find(self.change.id.fingerprint) else {
            return false;
        };
        let taken = &receipt.taken;
        if slot.origin == receipt.origin
            && let Some(lease) = &mut slot.lease
        {
            let now = clock.now.max(slot.bucket.last);
            lease.give_back(taken.cost(), now);
        }
        if why == Why::Refused {
            slot.admitted = slot.admitted.saturating_sub(1);
        }
        self.change.page.replace(index, &slot);
        true
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
                count(&mut stats.lost_returns);
                Some(Err(gave_up))
            }
        }
    }
}

fn count(counter: &mut u64) {
    *counter = counter.saturating_add(1);
}

impl Table {
    /// Gives back the amount that a request took, as far as it is returned. Failures are counted as lost
    /// returns.
    pub fn give(
        &self,
        store: &mut dyn SharedData,
        give: &Give<'_>,
        stats: &mut StoreStats,
    ) -> Result<(), GaveUp> {
        let mut giving = Giving::new(self, *give);
        loop {
            giving.read(store, stats)?;
            if let Some(outcome) = giving.write(store, stats) {
                return outcome;
            }
        }
    }
}
