//! Gives back the cost of a request that has ended or was abandoned.
//!
//! If the bucket no longer exists, nothing is given back. The exception is a request whose final
//! cost exceeds its reservation: the missing units are taken from a new bucket.

use loudou_limiter::Clock;

use crate::attempt::GaveUp;
use crate::attempt::StoreStats;
use crate::attempt::{Receipt, root_of};
use crate::change::PageChange;
use crate::page::{FLAG_KEEPS_GAIN, gain_flag};
use crate::shared_data::{SharedData, Written};
use crate::table::Table;
use crate::table::{Age, LiveRule};

/// Reason for giving back a cost. The reason determines the amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseReason {
    /// The request passed and has ended. Gives back the request's permits, which are held only
    /// until the request ends.
    Ended,
    /// The request was held and is now being let through. Its cost remains charged, but no longer
    /// counts as waiting.
    Passed,
    /// The request was admitted, but the client went away while it was being held. Gives back the
    /// whole amount.
    Left,
    /// Like [`ReleaseReason::Left`], but used when another rule refused the request. Also subtracts the request from
    /// the count of admitted requests.
    Refused,
    /// The request passed and has ended with this final cost. Gives back the unused part of the
    /// reservation, or takes the missing units.
    Settled(u64),
}

/// The return of an amount that a request took from a bucket.
#[derive(Clone, Copy, Debug)]
pub struct Release<'a> {
    /// The rule.
    pub rule: &'a dyn LiveRule,
    /// The key.
    pub key: &'a str,
    /// The amount taken.
    pub receipt: &'a Receipt,
    /// The reason.
    pub reason: ReleaseReason,
    /// The current time.
    pub clock: Clock,
}

/// A [`Release`] in progress. Call [`read`](Self::read) and [`write`](Self::write) alternately
/// until a write succeeds.
#[derive(Debug)]
pub struct ReleaseAttempt<'a> {
    release: Release<'a>,
    change: PageChange<'a>,
    /// True if there is a change to write.
    is_planned: bool,
}

impl<'a> ReleaseAttempt<'a> {
    /// Creates an attempt, without reading the page yet.
    pub fn new(table: &'a Table, release: Release<'a>) -> Self {
        Self {
            release,
            change: PageChange::new(table, release.receipt.id, release.key),
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

    /// Subtracts the amount from the bucket in the page. Returns true if the page must be written.
    ///
    /// The entire amount is given back if the slot still has the state from which the amount was
    /// taken. If an edit has converted this state or a reset has replaced it, a waiting request has
    /// kept its place in the queue, so its entire amount can still be given back. In all other
    /// cases, including when the slot is now used by another bucket, only permits are given back,
    /// because in-flight limits keep track of their permits.
    fn plan(&mut self) -> Result<bool, GaveUp> {
        let Release {
            rule,
            key,
            receipt,
            reason,
            clock,
        } = self.release;
        let now = clock.now;
        if let ReleaseReason::Settled(actual) = reason {
            return self.plan_settlement(actual);
        }
        if receipt.is_leased {
            return Ok(self.plan_lease());
        }
        let origin = self.change.page.origins().wrapping_add(1);
        let Some((index, mut slot)) = self.change.page.find(self.change.id.fingerprint) else {
            return Ok(false);
        };
        let bucket = (&slot.bucket, slot.version);
        let limits = &*rule.limits_in(key, Some(bucket));
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
        let concerns_all = (is_same || moved.is_some()) && reason != ReleaseReason::Ended;
        // Permits of a limit that has been removed by an edit are given back as well.
        let may_release = limits.may_release(&slot.bucket) && reason != ReleaseReason::Passed;
        let permits_at = receipt.permits_at.filter(|_| may_release);
        if !concerns_all && permits_at.is_none() {
            return Ok(false);
        }
        let taken = moved.as_ref().unwrap_or(&receipt.taken);
        if concerns_all && reason == ReleaseReason::Passed {
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
        if concerns_all && reason == ReleaseReason::Refused {
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

    /// Like [`ReleaseAttempt::plan`], but for a cost covered by the lease. The tokens go back to the lease, unless they
    /// have expired.
    fn plan_lease(&mut self) -> bool {
        let Release {
            receipt,
            reason,
            clock,
            ..
        } = self.release;
        if reason != ReleaseReason::Left && reason != ReleaseReason::Refused {
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
        if reason == ReleaseReason::Refused {
            slot.admitted = slot.admitted.saturating_sub(1);
        }
        self.change.page.replace(index, &slot);
        true
    }

    /// Like [`ReleaseAttempt::plan`], but for a request with the final cost `actual`. Unused units are given back only
    /// if the slot still has the state that they were taken from. Missing units are always taken, from a new bucket if
    /// the old one no longer exists.
    fn plan_settlement(&mut self, actual: u64) -> Result<bool, GaveUp> {
        let Release {
            rule,
            key,
            receipt,
            clock,
            ..
        } = self.release;
        let taken = &receipt.taken;
        let missing = actual.saturating_sub(taken.cost());
        let unspent = taken.cost().saturating_sub(actual);
        let found = self.change.page.find(self.change.id.fingerprint);
        if actual == taken.cost() || missing == 0 && found.is_none() {
            return Ok(false);
        }
        let bucket = found.as_ref();
        let bucket = bucket.map(|(_, slot)| (&slot.bucket, slot.version));
        let limits = &*rule.limits_in(key, bucket);
        let (index, mut slot) = self.change.slot(rule, limits, clock)?;
        if missing == 0 && slot.origin != receipt.origin {
            return Ok(false);
        }
        let clock = clock.moved_to(clock.now.max(slot.bucket.last));
        let now = clock.now;
        if receipt.is_leased {
            let lease = slot.lease.get_or_insert_default();
            if missing > 0 {
                lease.overdraw(missing, now);
            } else {
                lease.return_unspent(unspent, receipt.tokens_end, now);
            }
        } else {
            let part = (receipt.envoys > 0).then(|| limits.divided(receipt.envoys));
            let part = part.flatten();
            let own = part.as_ref().unwrap_or(limits);
            own.settle(&mut slot.bucket, taken, actual, clock);
            // The debt of requests admitted without the engine is bounded, so it may not include
            // all units of this request. Unused units are therefore not subtracted from the debt.
            if let Some(lease) = slot.lease.as_mut().filter(|_| receipt.envoys > 0) {
                lease.overdraw(missing, now);
            }
        }
        slot.note(limits, &limits.peek(&slot.bucket, 0, now));
        slot.note_lease(now, true);
        slot.flags = slot.flags & !FLAG_KEEPS_GAIN | gain_flag(limits);
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
    /// Gives back the amount taken by a request. The reason determines how much of the amount is
    /// given back. Failures are counted in [`StoreStats::lost_returns`].
    pub fn release(
        &self,
        store: &mut dyn SharedData,
        release: &Release<'_>,
        stats: &mut StoreStats,
    ) -> Result<(), GaveUp> {
        let mut attempt = ReleaseAttempt::new(self, *release);
        loop {
            attempt.read(store, stats)?;
            if let Some(outcome) = attempt.write(store, stats) {
                return outcome;
            }
        }
    }
}
