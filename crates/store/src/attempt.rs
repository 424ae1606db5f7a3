//! One decision against the store, step by step: read the page and decide, write it back unless another
//! worker was faster.
//!
//! The steps are separate so that a model can interleave those of many workers in any order.

use alloc::boxed::Box;

use loudou_limiter::ban::Ban;
use loudou_limiter::{Ask, Bucket, BucketDecision, Limits, Nanos, Taken, Words};

use crate::change::PageChange;
use crate::leasing::{ByLease, Leased, Outage};
use crate::page::{Evicted, FLAG_KEEPS_GAIN, FLAG_PINNED, Slot, gain_flag};
use crate::shared_data::{SharedData, StoreFailed, Written};
use crate::table::{Age, LiveRule};
use crate::table::{BucketId, Table};

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
    take: Take<'a>,
    change: PageChange<'a>,
    /// The result once the page is written.
    planned: Option<Box<Charge>>,
}

impl<'a> Attempt<'a> {
    /// An attempt before its first step.
    pub fn new(table: &'a Table, take: Take<'a>) -> Self {
        Self::at(table, table.id(take.rule.tag(), take.key), take)
    }

    /// The same with a known address of the bucket: hashing a key twice costs time.
    pub fn at(table: &'a Table, id: BucketId, take: Take<'a>) -> Self {
        Self {
            take,
            change: PageChange::new(table, id, take.key),
            planned: None,
        }
    }

    /// Reads the page and decides.
    pub fn read(&mut self, store: &mut dyn SharedData) -> Result<(), GaveUp> {
        self.change.read(store)?;
        let planned = match self.plan_straight() {
            None => self.plan()?,
            Some(planned) => planned,
        };
        self.planned = Some(planned);
        Ok(())
    }

    /// How long the request will wait if the decision is written.
    pub fn wait(&self) -> Nanos {
        let answer = self.planned.as_ref().map(|charge| &charge.answer);
        match answer {
            Some(Ok(answer)) => answer.wait(),
            _ => Nanos::ZERO,
        }
    }

    /// Whether the request will wait for a lease, and takes nothing.
    pub fn waits_for_lease(&self) -> bool {
        let leased = self.planned.as_ref().and_then(|charge| charge.leased);
        leased.is_some_and(Leased::waits)
    }

    /// The request waits at most for `patience`, in the decisions from the next read on.
    pub const fn shorten(&mut self, patience: Nanos) {
        self.take.ask.patience = patience;
    }

    fn plan(&mut self) -> Result<Box<Charge>, GaveUp> {
        let Take {
            rule,
            limits,
            ask,
            lease,
            ..
        } = self.take;
        let now = ask.now;
        let (index, mut slot) = self.change.slot(rule, limits, ask.clock())?;
        slot.flags = slot.flags & !FLAG_KEEPS_GAIN | gain_flag(limits);
        let mut receipt = Receipt::new(self.change.id, &slot, &ask);
        let root = limits.root(&slot.bucket);
        let (answer, leased) = self.answer(&mut slot, lease.as_ref());
        receipt.is_leased = leased.is_some_and(Leased::admits);
        if limits.holds_until_end() {
            receipt.permits_at = Some(receipt.taken.at());
        }
        if answer
            .as_ref()
            .is_ok_and(|answer| answer.wait() > Nanos::ZERO)
        {
            receipt.wait(slot.version, root);
        }
        let is_refused = is_refused(&answer);
        let waits = leased.is_some_and(Leased::waits);
        let is_local = leased.is_some_and(Leased::is_local);
        receipt.envoys = match lease.map(|lease| lease.outage) {
            Some(Outage::Local(envoys)) if is_local => envoys,
            _ => 0,
        };
        let refuses_all = is_local && lease.is_some_and(|lease| lease.outage == Outage::Refuse);
        if !waits {
            slot.count(is_refused || refuses_all, now);
        }
        self.change.put(index, &slot);
        Ok(Box::new(Charge {
            receipt: (!is_refused && !waits).then_some(receipt),
            answer,
            leased,
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
            let keeps_debt = lease.is_some_and(ByLease::gives_credit);
            slot.note(limits, &limits.peek(&slot.bucket, 0, now));
            slot.note_lease(now, keeps_debt && !leased.is_some_and(Leased::is_local));
        }
        (slot.conduct.ban(now).map_or(Ok(answer), Err), leased)
    }

    /// Writes the decision. `None` if another worker was faster: read again.
    pub fn write(
        &mut self,
        store: &mut dyn SharedData,
        stats: &mut StoreStats,
    ) -> Option<Result<Charge, GaveUp>> {
        let charge = self.planned.take()?;
        match self.change.write(store, stats) {
            Ok(Written::Done) => Some(Ok(*charge)),
            Ok(Written::Conflict) => None,
            // Nothing had to be taken, so the verdict stands; only its record is lost.
            Err(GaveUp::Conflicts) if is_refused(&charge.answer) => {
                stats.lost_counts = stats.lost_counts.saturating_add(1);
                Some(Ok(*charge))
            }
            Err(gave_up) => {
                if gave_up == GaveUp::Conflicts {
                    stats.cas_give_ups = stats.cas_give_ups.saturating_add(1);
                }
                Some(Err(gave_up))
            }
        }
    }
}

fn is_refused(answer: &Result<BucketDecision, Ban>) -> bool {
    answer.as_ref().map_or(true, BucketDecision::is_refused)
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

/// The most words of a bucket that is decided in place: those of eight limits with a word each.
const MOST_WORDS: usize = 8;

impl Attempt<'_> {
    /// The straight way of a decision: most requests find their bucket in its page, unchanged rules, and a slot without
    /// optional parts that count, and are admitted at once or refused. They are decided in place. `None` if the other
    /// way has to, which decides alike; nothing is changed then.
    fn plan_straight(&mut self) -> Option<Box<Charge>> {
        let take = &self.take;
        let limits = take.limits;
        if take.lease.is_some() || take.ask.cost == 0 || limits.holds_until_end() {
            return None;
        }
        let id = self.change.id;
        let mut slot = self.change.page.find_plain(id.fingerprint)?;
        let age = take.rule.age(slot.version());
        if age != Age::Current || slot.flags() != gain_flag(limits) {
            return None;
        }
        let mut room = [0; MOST_WORDS];
        let words = room.get_mut(..limits.words())?;
        let count = slot.read(words)?;
        let before = Bucket {
            last: slot.last(),
            given: 0,
            line: Nanos::ZERO,
            words: Words::from_slice(words.get(..count)?),
        };
        let ask = take.ask.not_before(before.last);
        let answer = limits.answer_plainly(words, &ask)?;
        let is_refused = answer.is_refused();
        let is_special = is_refused && (take.rule.penalty().is_some() || slot.begins_run(ask.now));
        if is_special || !slot.has_room_for(words) {
            return None;
        }
        let idle_at = ask.now.saturating_add(answer.reset_after());
        slot.write(words);
        slot.note(ask.now, idle_at.millis_ceil(), is_refused);
        let receipt = Receipt::of(id, Taken::from(before, ask), slot.origin());
        Some(Box::new(Charge {
            receipt: (!is_refused).then_some(receipt),
            answer: Ok(answer),
            leased: None,
        }))
    }
}

/// The root of the promises in a bucket of this origin. No promise has root 0.
pub(crate) fn root_of(origin: u32) -> u64 {
    u64::from(origin).saturating_add(1)
}

/// The receipt of a bucket: its address, the amount taken, and the origin of the bucket in its slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    pub(crate) id: BucketId,
    pub(crate) taken: Taken,
    pub(crate) origin: u32,
    /// If the request waits, the version of the rule under which it was taken, or to which an edit has brought it.
    pub(crate) version: u32,
    /// The root of the count of promises that the request is in, if it waits: see [`root_of`].
    pub(crate) root: u64,
    /// Whether the lease covered the cost, and the limits here did not take it.
    pub(crate) is_leased: bool,
    /// When some of the amount was taken only until the request ends, whatever an edit has made of it since. If `None`, a
    /// limit that counts requests in flight gets nothing back, although an edit may have put it in force.
    pub(crate) permits_at: Option<Nanos>,
    /// The number of Envoys by whose part of the limits the cost was taken; 0 for the whole limits.
    pub(crate) envoys: u32,
}

impl Receipt {
    /// The receipt for `ask`, which is about to take from the bucket in a slot.
    pub(crate) fn new(id: BucketId, slot: &Slot, ask: &Ask) -> Self {
        Self::of(id, Taken::new(&slot.bucket, ask), slot.origin)
    }

    /// The receipt of a request that waits, where the promises had this root when it came.
    pub(crate) fn wait(&mut self, version: u32, root: u64) {
        self.version = version;
        self.root = match root {
            0 => root_of(self.origin),
            root => root,
        };
    }

    /// The receipt for what was taken from the bucket with this origin.
    pub(crate) const fn of(id: BucketId, taken: Taken, origin: u32) -> Self {
        Self {
            id,
            taken,
            origin,
            version: 0,
            root: 0,
            is_leased: false,
            permits_at: None,
            envoys: 0,
        }
    }

    /// The version of the rule to which it belongs, if the request waits.
    pub const fn version(&self) -> u32 {
        self.version
    }

    /// The amount taken.
    pub const fn taken(&self) -> &Taken {
        &self.taken
    }

    /// Whether the lease of the key covered the cost.
    pub const fn is_leased(&self) -> bool {
        self.is_leased
    }

    /// Brings the receipt of a request that waits to a later version of the rule, in which this was taken.
    pub fn bring_forward(&mut self, version: u32, taken: Option<Taken>) {
        self.version = version;
        if let Some(taken) = taken {
            self.taken = taken;
        }
    }

    /// The address of the bucket.
    pub const fn id(&self) -> BucketId {
        self.id
    }
}

/// The side effects of decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Slots that were newly used.
    pub created: u64,
    /// Idle buckets that were evicted.
    pub evicted_lossless: u64,
    /// Evicted buckets with used capacity.
    pub evicted_lossy: u64,
    /// Retries after conflicts.
    pub cas_retries: u64,
    /// Decisions given up.
    pub cas_give_ups: u64,
    /// Refusals that could not be counted in their bucket.
    pub lost_counts: u64,
    /// Costs that could not be given back: they stay taken until they expire.
    pub lost_returns: u64,
    /// Responses that could not be counted for their upstream.
    pub lost_responses: u64,
}

impl StoreStats {
    /// Counts a newly used slot, and the eviction for it.
    pub(crate) const fn count_new(&mut self, evicted: Evicted) {
        let counter = match evicted {
            Evicted::Nothing => &mut self.created,
            Evicted::Lossless => &mut self.evicted_lossless,
            Evicted::Lossy => &mut self.evicted_lossy,
        };
        *counter = counter.saturating_add(1);
    }
}

/// The reason for a missing decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GaveUp {
    /// Too many conflicts.
    Conflicts,
    /// The host failed.
    Failed,
    /// The page has a version that this code does not know.
    UnknownPage,
    /// Every bucket of the page that could be evicted is banned by an operator or holds permits.
    PageFull,
    /// The bucket has a newer version of its rule than this worker.
    Outdated,
}

impl From<StoreFailed> for GaveUp {
    fn from(_: StoreFailed) -> Self {
        Self::Failed
    }
}

#[cfg(test)]
mod tests;
