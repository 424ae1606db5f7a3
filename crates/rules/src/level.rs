//! The numbers of a bucket as they decide now, for views: those of the bucket itself, or of limits that many
//! Envoys share.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use loudou_limiter::lease::{Lease, LeaseVerdict, Phase, Terms};
use loudou_limiter::{Ask, Bucket, BucketDecision, Clock, Limits, Nanos};
use loudou_store::page::Slot;
use loudou_store::{LiveRule, Outage};

use crate::fleet::FleetView;
use crate::rule::Scope;
use crate::rule_set::ActiveRule;

/// A bucket and what decides on its requests.
#[derive(Clone, Debug)]
pub struct Level<'a> {
    limits: Cow<'a, Limits>,
    bucket: Bucket,
    /// The lease, if the engine was ever heard of it.
    lease: Option<(Lease, Terms)>,
    outage: Option<Outage>,
}

impl<'a> Level<'a> {
    /// The bucket `key` of a rule, or an untouched one without a slot. Without the state of the fleet, the
    /// bucket decides by all limits of its rule.
    pub fn of(
        rule: &'a ActiveRule,
        key: &str,
        slot: Option<&Slot>,
        clock: Clock,
        fleet: Option<FleetView>,
    ) -> Self {
        let limits = rule.limits_of(key);
        let mut fleet = fleet.filter(|_| rule.rule().scope == Scope::Fleet);
        let own = slot.and_then(|slot| slot.lease.as_deref());
        if let Some(fleet) = &mut fleet {
            fleet.is_down |= own.is_some_and(|lease| lease.is_alone(clock.now));
        }
        let lease = fleet.zip(slot).and_then(|(fleet, slot)| {
            let lease = **slot.lease.as_ref()?;
            let is_current = slot.version == rule.version();
            lease.seen().filter(|_| is_current)?;
            Some((lease, fleet.terms(rule.rule(), limits)?))
        });
        let outage = fleet.and_then(|fleet| fleet.outage());
        let part = fleet.filter(|fleet| fleet.is_down);
        let part = part.and_then(|fleet| fleet.part(limits));
        let mut bucket = slot.map_or_else(
            || limits.start_at(clock),
            |slot| rule.bucket_of(key, slot, clock),
        );
        if let (Some(part), Some((lease, _))) = (&part, &lease) {
            lease.drain_part(limits, part, &mut bucket, clock);
        }
        Self {
            bucket,
            limits: part.map_or(Cow::Borrowed(limits), Cow::Owned),
            lease,
            outage,
        }
    }

    /// The limits that decide: those of the key, or the part of this Envoy in them.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The lease, if the engine was ever heard of it; not in force in an [`outage`](Self::outage).
    pub fn lease(&self) -> Option<&Lease> {
        self.lease.as_ref().map(|(lease, _)| lease)
    }

    /// Who decides in place of the lease; `None` for the lease, and where no lease ever does.
    pub const fn outage(&self) -> Option<Outage> {
        self.outage
    }

    /// The lease whose numbers are reported.
    fn reported(&self) -> Option<&(Lease, Terms)> {
        let is_local = matches!(self.outage, Some(Outage::Local(_)));
        self.lease.as_ref().filter(|_| !is_local)
    }

    /// The decision on a request that is not made. In an outage that admits or refuses everything it has the
    /// numbers that were known last.
    pub fn answer(&self, ask: &Ask) -> BucketDecision {
        let is_open = matches!(self.outage, Some(Outage::Admit | Outage::Refuse));
        let answer = if let Some((lease, terms)) = self.reported() {
            let verdict = if is_open {
                LeaseVerdict::Local
            } else {
                { *lease }.take(terms, ask.cost, ask.now, Phase::Held, false)
            };
            lease.decision(terms, verdict, ask)
        } else {
            let cost = if is_open { 0 } else { ask.cost };
            let ask = Ask { cost, ..*ask };
            self.limits.answer(&mut self.bucket.clone(), &ask)
        };
        if self.outage == Some(Outage::Refuse) && ask.cost > 0 {
            return answer.refused();
        }
        answer
    }

    /// The units taken from each limit, as of an [`answer`](Self::answer) at `now`.
    pub fn used(&self, answer: &BucketDecision, now: Nanos) -> Vec<u64> {
        if self.reported().is_none() {
            return self.limits.used(&self.bucket, now);
        }
        let used = answer.decisions();
        used.map(|one| one.capacity.saturating_sub(one.remaining))
            .collect()
    }
}
