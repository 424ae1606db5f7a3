//! Decides on a single request in separate steps: reads the bucket's page, decides, and writes the
//! page back. If another worker wrote the page in the meantime, the steps are repeated.
//!
//! Each step is a function of its own, so that a test model can interleave the steps of many
//! workers in any order.

use alloc::boxed::Box;

use loudou_limiter::ban::Ban;
use loudou_limiter::{Bucket, BucketDecision, BucketRequest, Limits, Nanos, Taken, Words};

use crate::change::PageChange;
use crate::leasing::{ByLease, Leased, Outage};
use crate::page::{Evicted, FLAG_KEEPS_GAIN, FLAG_PINNED, FastSlot, Slot, gain_flag, patch_of};
use crate::shared_data::{SharedData, StoreFailed, Written};
use crate::table::{Age, LiveRule};
use crate::table::{BucketId, Table};

/// A request to a bucket, which is identified by a rule and a key.
#[derive(Clone, Copy, Debug)]
pub struct Acquire<'a> {
    /// The rule.
    pub rule: &'a dyn LiveRule,
    /// The key's limits.
    pub limits: &'a Limits,
    /// The key.
    pub key: &'a str,
    /// The request's cost and time.
    pub request: BucketRequest,
    /// Terms of the lease, if the limits are shared by a fleet of Envoys.
    pub lease: Option<ByLease<'a>>,
}

/// A decision made by a bucket.
#[derive(Clone, Debug)]
pub struct Charge {
    /// The bucket's decision. A request with a banned key is refused without evaluating its limits.
    pub answer: Result<BucketDecision, Ban>,
    /// Receipt for giving the cost back. `None` if the request is refused or waits for a lease.
    pub receipt: Option<Receipt>,
    /// The request's effect on the lease. A request that is waiting for the lease has not taken
    /// anything.
    pub leased: Option<Leased>,
}

/// An [`Acquire`] in progress. Call [`read`](Self::read) and [`write`](Self::write) alternately
/// until a write succeeds.
#[derive(Debug)]
pub struct Attempt<'a> {
    acquire: Acquire<'a>,
    change: PageChange<'a>,
    /// Decision to return once the page is written.
    planned: Option<Box<Charge>>,
}

impl<'a> Attempt<'a> {
    /// Creates an attempt, without reading the page yet.
    pub fn new(table: &'a Table, acquire: Acquire<'a>) -> Self {
        Self::at(table, table.id(acquire.rule.tag(), acquire.key), acquire)
    }

    /// Like [`Attempt::new`], but for a known bucket address, which avoids hashing the key twice.
    pub fn at(table: &'a Table, id: BucketId, acquire: Acquire<'a>) -> Self {
        Self {
            acquire,
            change: PageChange::new(table, id, acquire.key),
            planned: None,
        }
    }

    /// Reads the page and decides.
    pub fn read(&mut self, store: &mut dyn SharedData) -> Result<(), GaveUp> {
        self.change.read(store)?;
        let planned = match self.plan_fast() {
            None => self.plan()?,
            Some(planned) => planned,
        };
        self.planned = Some(planned);
        Ok(())
    }

    /// Returns how long the request must wait under the planned decision.
    pub fn wait(&self) -> Nanos {
        let answer = self.planned.as_ref().map(|charge| &charge.answer);
        match answer {
            Some(Ok(answer)) => answer.wait(),
            _ => Nanos::ZERO,
        }
    }

    /// Returns true if the planned decision makes the request wait for a lease. A request that
    /// waits for a lease does not take any units.
    pub fn waits_for_lease(&self) -> bool {
        let leased = self.planned.as_ref().and_then(|charge| charge.leased);
        leased.is_some_and(Leased::waits)
    }

    /// Limits the request's wait to `patience`. The new limit takes effect on the next
    /// [`read`](Self::read).
    pub const fn shorten(&mut self, patience: Nanos) {
        self.acquire.request.patience = patience;
    }

    fn plan(&mut self) -> Result<Box<Charge>, GaveUp> {
        let Acquire {
            rule,
            limits,
            request,
            lease,
            ..
        } = self.acquire;
        let now = request.now;
        let (index, mut slot) = self.change.slot(rule, limits, request.clock())?;
        slot.flags = slot.flags & !FLAG_KEEPS_GAIN | gain_flag(limits);
        let mut receipt = Receipt::new(self.change.id, &slot, &request);
        let root = limits.root(&slot.bucket);
        let tokens_end = slot
            .lease
            .as_ref()
            .map(|lease| lease.first_end(request.cost, now));
        let (answer, leased) = self.answer(&mut slot, lease.as_ref());
        receipt.is_leased = leased.is_some_and(Leased::admits);
        receipt.tokens_end = tokens_end.unwrap_or_default();
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

    /// Decides on the request with the bucket in `slot`. A request with a banned key does not take
    /// any units. A refusal that reaches the penalty threshold bans the key.
    fn answer(
        &self,
        slot: &mut Slot,
        lease: Option<&ByLease<'_>>,
    ) -> (Result<BucketDecision, Ban>, Option<Leased>) {
        let Acquire {
            rule,
            limits,
            request,
            ..
        } = self.acquire;
        let penalty = rule.penalty();
        let now = request.now.max(slot.bucket.last);
        slot.ban_history.settle(now);
        if let Some(ban) = slot.ban_history.ban(now) {
            slot.bucket.last = now;
            return (Err(ban), None);
        }
        let (answer, leased) = match lease {
            None if request.cost == 0 && rule.charges_at_end() => {
                (limits.answer_at_end(&mut slot.bucket, &request), None)
            }
            None => (limits.answer(&mut slot.bucket, &request), None),
            Some(lease) => {
                let (answer, leased) = lease.answer(slot, limits, &request);
                (answer, Some(leased))
            }
        };
        // A refusal counts as a strike only if the request's wait was not bounded. Otherwise, the
        // refusal may be solely due to the bounded wait, for example because other clients have
        // filled this worker.
        let strikes = answer.is_refused() && !request.is_wait_bounded();
        if let Some(penalty) = penalty.filter(|_| strikes) {
            slot.ban_history.strike(penalty, now);
            // A penalty ban replaces an operator's ban that has ended, so the slot is no longer
            // pinned.
            slot.flags &= !FLAG_PINNED;
        }
        if leased.is_none() {
            // `note` uses the decision time from `answer`, because a request with a cost of 0 does
            // not store that time in the bucket.
            slot.note(limits, &answer);
        } else {
            let keeps_debt = lease.is_some_and(ByLease::gives_credit);
            slot.note(limits, &limits.peek(&slot.bucket, 0, now));
            slot.note_lease(now, keeps_debt && !leased.is_some_and(Leased::is_local));
        }
        (slot.ban_history.ban(now).map_or(Ok(answer), Err), leased)
    }

    /// Writes the page with the decision. Returns `None` if another worker wrote the page first. In
    /// that case, the caller must call [`read`](Self::read) again.
    pub fn write(
        &mut self,
        store: &mut dyn SharedData,
        stats: &mut StoreStats,
    ) -> Option<Result<Charge, GaveUp>> {
        let charge = self.planned.take()?;
        match self.change.write(store, stats) {
            Ok(Written::Done) => Some(Ok(*charge)),
            Ok(Written::Conflict) => None,
            // A refused request takes no units, so the verdict remains valid even though the page
            // was not written. The only loss is that this refusal is not counted.
            Err(GaveUp::Conflicts | GaveUp::Failed) if is_refused(&charge.answer) => {
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
    /// Decides on a request, and takes its cost if it is admitted.
    pub fn charge(
        &self,
        store: &mut dyn SharedData,
        acquire: &Acquire<'_>,
        stats: &mut StoreStats,
    ) -> Result<Charge, GaveUp> {
        let id = self.id(acquire.rule.tag(), acquire.key);
        self.charge_at(store, id, acquire, stats)
    }

    /// Like [`Table::charge`], but for a known bucket address, which must match the rule and key of
    /// `acquire`.
    pub fn charge_at(
        &self,
        store: &mut dyn SharedData,
        id: BucketId,
        acquire: &Acquire<'_>,
        stats: &mut StoreStats,
    ) -> Result<Charge, GaveUp> {
        let mut attempt = Attempt::at(self, id, *acquire);
        if let Some(charge) = attempt.decide_in_place(store) {
            return Ok(charge);
        }
        loop {
            attempt.read(store)?;
            if let Some(outcome) = attempt.write(store, stats) {
                return outcome;
            }
        }
    }
}

/// Maximum number of words in a bucket that the fast path can handle: enough for eight limits with
/// one word each.
const MAX_FAST_WORDS: usize = 8;

impl Attempt<'_> {
    /// Decides on the request and updates the page in place, in a single store operation. Returns
    /// `None`, and changes nothing, if the store has no such operation, or if the request does not
    /// qualify for the fast path.
    pub fn decide_in_place(&self, store: &mut dyn SharedData) -> Option<Charge> {
        // The Wasm host's shared data has no such operation, and attempting it would cost 2 % of a
        // decision's instructions.
        if cfg!(target_arch = "wasm32") || !self.acquire.may_be_fast() {
            return None;
        }
        let (acquire, id) = (&self.acquire, self.change.id);
        let mut planned = None;
        let is_done = store.patch(&self.change.page_key, &mut |page| {
            let mut patch = patch_of(page, id.fingerprint)?;
            planned = acquire.plan_fast(id, FastSlot::of(patch.bytes_mut())?);
            planned.is_some().then_some(patch)
        });
        planned.filter(|_| is_done).map(|charge| *charge)
    }

    /// Decides on the fast path, using the copy of the page that was read.
    fn plan_fast(&mut self) -> Option<Box<Charge>> {
        if !self.acquire.may_be_fast() {
            return None;
        }
        let id = self.change.id;
        let slot = self.change.page.find_fast(id.fingerprint)?;
        self.acquire.plan_fast(id, slot)
    }
}

impl Acquire<'_> {
    fn may_be_fast(&self) -> bool {
        self.lease.is_none() && self.request.cost > 0 && !self.limits.holds_until_end()
    }

    /// Fast path, which decides in place. The fast path handles most requests: the bucket exists,
    /// the rule has not changed, the slot has no relevant optional parts, and the request is either
    /// refused or admitted without a wait. For all other requests, the fast path returns `None` and
    /// changes nothing. [`Attempt::plan`] then decides instead. For requests that both functions
    /// can handle, they return the same result.
    #[inline]
    fn plan_fast(&self, id: BucketId, mut slot: FastSlot<'_>) -> Option<Box<Charge>> {
        let limits = self.limits;
        let age = self.rule.age(slot.version());
        if age != Age::Current || slot.flags() != gain_flag(limits) {
            return None;
        }
        let mut room = [0; MAX_FAST_WORDS];
        let words = room.get_mut(..limits.words())?;
        let count = slot.read(words)?;
        if !limits.numbers().is_empty() && !words.starts_with(limits.numbers()) {
            return None;
        }
        let before = Bucket {
            last: slot.last(),
            given: 0,
            queue_end: Nanos::ZERO,
            words: Words::from_slice(words.get(..count)?),
        };
        let request = self.request.not_before(before.last);
        let answer = limits.answer_fast(words, &request)?;
        let is_refused = answer.is_refused();
        let is_special =
            is_refused && (self.rule.penalty().is_some() || slot.begins_run(request.now));
        if is_special || !slot.has_room_for(words) {
            return None;
        }
        let idle_at = request.now.saturating_add(answer.reset_after());
        slot.write(words);
        slot.note(request.now, idle_at.millis_ceil(), is_refused);
        let receipt = Receipt::of(id, Taken::from(before, request), slot.origin());
        Some(Box::new(Charge {
            receipt: (!is_refused).then_some(receipt),
            answer: Ok(answer),
            leased: None,
        }))
    }
}

/// Returns the root that corresponds to this origin. The root identifies the requests that are
/// waiting in a bucket and have been promised a time. The root is never 0, because 0 means that
/// there is no promise.
pub(crate) fn root_of(origin: u32) -> u64 {
    u64::from(origin).saturating_add(1)
}

/// Receipt for the units that a request took from a bucket: the bucket's address, the amount, and
/// the origin of the bucket's slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    pub(crate) id: BucketId,
    pub(crate) taken: Taken,
    pub(crate) origin: u32,
    /// If the request is waiting, the rule version under which `taken` is valid. After an edit,
    /// this is the version that `taken` was converted to.
    pub(crate) version: u32,
    /// If the request is waiting, the root that identifies its group of waiting requests (see
    /// [`root_of`]). Otherwise 0.
    pub(crate) root: u64,
    /// True if the lease covered the cost, so that the local limits were not charged.
    pub(crate) is_leased: bool,
    /// Time at which the request took permits, to be returned when the request ends. `None` if the
    /// request took no permits. In that case, it returns none, even if an edit has since added an
    /// in-flight limit.
    pub(crate) permits_at: Option<Nanos>,
    /// Expiry time of the leased tokens that covered the cost. Zero if no leased tokens were taken.
    pub(crate) tokens_end: Nanos,
    /// Number of Envoys that the limits were divided by when the cost was taken; 0 if the limits
    /// were not divided.
    pub(crate) envoys: u32,
}

impl Receipt {
    /// Creates a receipt for `request` before the request takes units from the bucket in `slot`.
    pub(crate) fn new(id: BucketId, slot: &Slot, request: &BucketRequest) -> Self {
        Self::of(id, Taken::new(&slot.bucket, request), slot.origin)
    }

    /// Marks the request as waiting. `root` is the root of the requests that were already waiting
    /// in the bucket, or 0.
    pub(crate) fn wait(&mut self, version: u32, root: u64) {
        self.version = version;
        self.root = match root {
            0 => root_of(self.origin),
            root => root,
        };
    }

    /// Creates a receipt for units that were taken from the bucket with this address and origin.
    pub(crate) const fn of(id: BucketId, taken: Taken, origin: u32) -> Self {
        Self {
            id,
            taken,
            origin,
            version: 0,
            root: 0,
            is_leased: false,
            permits_at: None,
            tokens_end: Nanos::ZERO,
            envoys: 0,
        }
    }

    /// Returns the rule version under which the receipt of a waiting request is valid.
    pub const fn version(&self) -> u32 {
        self.version
    }

    /// Returns the amount that the request took.
    pub const fn taken(&self) -> &Taken {
        &self.taken
    }

    /// Returns true if the key's lease covered the cost.
    pub const fn is_leased(&self) -> bool {
        self.is_leased
    }

    /// Converts the receipt of a waiting request to a later rule version. `taken` is the amount
    /// under that version, if the amount changed.
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

/// Counters for side effects of decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Number of new buckets that did not cause an eviction.
    pub created: u64,
    /// Number of idle buckets that were evicted.
    pub evicted_lossless: u64,
    /// Number of buckets that were evicted before they were idle.
    pub evicted_lossy: u64,
    /// Number of retries after conflicts.
    pub cas_retries: u64,
    /// Number of decisions abandoned after too many conflicts.
    pub cas_give_ups: u64,
    /// Number of refusals that could not be recorded in their bucket.
    pub lost_counts: u64,
    /// Number of requests whose cost could not be given back. The units stay taken until they
    /// expire.
    pub lost_returns: u64,
    /// Number of responses that could not be counted towards their upstream's health.
    pub lost_responses: u64,
}

impl StoreStats {
    /// Counts a new bucket and the eviction that made room for it.
    pub(crate) const fn count_new(&mut self, evicted: Evicted) {
        let counter = match evicted {
            Evicted::Nothing => &mut self.created,
            Evicted::Lossless => &mut self.evicted_lossless,
            Evicted::Lossy => &mut self.evicted_lossy,
        };
        *counter = counter.saturating_add(1);
    }
}

/// Reason why the store could not make a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GaveUp {
    /// Too many conflicts with other workers.
    Conflicts,
    /// The host could not read or write the store.
    Failed,
    /// The page has a format version that this code does not know.
    UnknownPage,
    /// The page is full, and every eviction candidate is banned by an operator or holds permits.
    PageFull,
    /// The bucket was written under a newer version of the rule than this worker has.
    Outdated,
}

impl From<StoreFailed> for GaveUp {
    fn from(_: StoreFailed) -> Self {
        Self::Failed
    }
}

#[cfg(test)]
mod tests;
