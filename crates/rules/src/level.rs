//! Computes a bucket's current level for display, either from the bucket itself or, if its limits
//! are shared by many Envoys, from the lease.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use loudou_limiter::lease::{Lease, LeaseVerdict, Phase, Terms};
use loudou_limiter::{Bucket, BucketDecision, BucketRequest, Clock, Limits, Nanos};
use loudou_store::page::Slot;
use loudou_store::{LiveRule, Outage};

use crate::fleet::FleetView;
use crate::rule::Scope;
use crate::rule_set::ActiveRule;

/// A bucket, with the limits or the lease by which its requests are decided.
#[derive(Clone, Debug)]
pub struct Level<'a> {
    limits: Cow<'a, Limits>,
    bucket: Bucket,
    /// The lease, if the engine has ever responded to a request for it.
    lease: Option<(Lease, Terms)>,
    outage: Option<Outage>,
}

impl<'a> Level<'a> {
    /// Returns the level of the bucket for `key` under `rule`. Without a `slot`, the bucket is new.
    /// Without a `fleet`, the local bucket decides, using the rule's full limits.
    pub fn of(
        rule: &'a ActiveRule,
        key: &str,
        slot: Option<&Slot>,
        clock: Clock,
        fleet: Option<FleetView>,
    ) -> Self {
        let limits = rule.limits_in(key, slot.map(|slot| (&slot.bucket, slot.version)));
        Self::under(limits, rule, (key, slot), clock, fleet)
    }

    /// Like [`Level::of`], but with the limits of a request, whose numbers may differ from the
    /// numbers stored in the bucket.
    pub(crate) fn under(
        limits: Cow<'a, Limits>,
        rule: &'a ActiveRule,
        (key, slot): (&str, Option<&Slot>),
        clock: Clock,
        fleet: Option<FleetView>,
    ) -> Self {
        let mut fleet = fleet.filter(|_| rule.rule().scope == Scope::Fleet);
        let own = slot.and_then(|slot| slot.lease.as_deref());
        if let Some(fleet) = &mut fleet {
            fleet.is_down |= own.is_some_and(|lease| lease.is_alone(clock.now));
        }
        let lease = fleet.zip(slot).and_then(|(fleet, slot)| {
            let lease = **slot.lease.as_ref()?;
            let is_current = slot.version == rule.version();
            lease.seen().filter(|_| is_current)?;
            Some((lease, fleet.terms(rule.rule(), &limits)?))
        });
        let outage = fleet.and_then(|fleet| fleet.outage());
        let part = fleet.filter(|fleet| fleet.is_down);
        let part = part.and_then(|fleet| fleet.part(&limits));
        let mut bucket = slot.map_or_else(
            || limits.start_at(clock),
            |slot| {
                let bucket = (&slot.bucket, slot.version);
                let brought = rule.bring_forward((key, &limits), bucket, clock);
                brought.unwrap_or_else(|| slot.bucket.clone())
            },
        );
        if let (Some(part), Some((lease, _))) = (&part, &lease) {
            lease.drain_part(&limits, part, &mut bucket, clock);
        }
        Self {
            bucket,
            limits: part.map_or(limits, Cow::Owned),
            lease,
            outage,
        }
    }

    /// Returns the limits in effect: the key's limits, or this Envoy's share of them.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the lease, if the engine has ever responded to a request for it. The lease is not
    /// used during an [`outage`](Self::outage).
    pub fn lease(&self) -> Option<&Lease> {
        self.lease.as_ref().map(|(lease, _)| lease)
    }

    /// Returns the fallback used instead of the lease during an outage. Returns `None` if the lease
    /// is used, or if the rule has no lease.
    pub const fn outage(&self) -> Option<Outage> {
        self.outage
    }

    /// Returns the lease, unless this Envoy's share of the limits is used instead.
    fn reported(&self) -> Option<&(Lease, Terms)> {
        let is_local = matches!(self.outage, Some(Outage::Local(_)));
        self.lease.as_ref().filter(|_| !is_local)
    }

    /// Returns the decision for a hypothetical request. During an outage in which all requests are
    /// admitted or all are refused, it contains the last known numbers.
    pub fn answer(&self, request: &BucketRequest) -> BucketDecision {
        let is_open = matches!(self.outage, Some(Outage::Admit | Outage::Refuse));
        let answer = if let Some((lease, terms)) = self.reported() {
            let verdict = if is_open {
                LeaseVerdict::Local
            } else {
                { *lease }.take(terms, request.cost, request.now, Phase::Held, false)
            };
            lease.decision(terms, verdict, request)
        } else {
            let cost = if is_open { 0 } else { request.cost };
            let request = BucketRequest { cost, ..*request };
            self.limits.answer(&mut self.bucket.clone(), &request)
        };
        if self.outage == Some(Outage::Refuse) && request.cost > 0 {
            return answer.refused();
        }
        answer
    }

    /// Returns the units taken from each limit, based on an [`answer`](Self::answer) at `now`.
    pub fn used(&self, answer: &BucketDecision, now: Nanos) -> Vec<u64> {
        if self.reported().is_none() {
            return self.limits.used(&self.bucket, now);
        }
        let used = answer.decisions();
        used.map(|one| one.capacity.saturating_sub(one.remaining))
            .collect()
    }
}
