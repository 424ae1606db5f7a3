//! An Envoy's lease requests, and the effect of their answers on a lease.
//!
//! A worker can send a lease request for its own held requests at any time. Only one lease request
//! at a time, the *refill*, also requests tokens in advance and carries the debt, so that tokens
//! are not requested twice and debt is not charged twice.

use super::Lease;
use super::breaker::{Policy, doubled};
use super::grant::{Demand, Grant};
use super::jitter::between;
use super::portions::Portion;
use super::terms::Terms;
use crate::time::Nanos;

/// Requests that a worker is holding and for which it has not yet sent a lease request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Total cost of the held requests.
    pub units: u64,
    /// Minimum cost of the held requests.
    pub least: u64,
}

/// A lease request in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenRequest {
    /// The demand that the lease request contains.
    pub demand: Demand,
    /// Time at which the lease request was sent.
    pub sent_at: Nanos,
    /// True if this lease request is the refill.
    pub is_refill: bool,
    /// Number of edits when the lease request was sent.
    edition: u32,
}

impl Lease {
    /// Returns true if a lease request is needed even without held requests, because there is debt
    /// or tokens are running low.
    pub fn is_due(&self, terms: &Terms, now: Nanos) -> bool {
        let may_ask = !self.is_refilling(terms, now) && !self.is_alone(now);
        may_ask && (self.debt > 0 || self.prefetch(terms, now) > 0)
    }

    /// Returns the lease request that the caller must send at `now`, or `None` if nothing is
    /// needed. The lease request covers the held requests. Unless a refill is in flight, the lease
    /// request also carries the debt and requests tokens in advance.
    pub fn request(&mut self, terms: &Terms, held: Held, now: Nanos) -> Option<TokenRequest> {
        let is_free = !self.is_refilling(terms, now);
        let beforehand = if is_free {
            self.prefetch(terms, now)
        } else {
            0
        };
        let demand = Demand {
            want: held.units.saturating_add(beforehand),
            need: held.least.min(held.units),
            debt: if is_free { self.debt.into() } else { 0 },
        };
        if demand.want == 0 && demand.debt == 0 {
            return None;
        }
        let is_refill = beforehand > 0 || demand.debt > 0;
        if is_refill {
            self.refill_sent = stamp(now);
        }
        Some(TokenRequest {
            demand,
            sent_at: now,
            is_refill,
            edition: self.edition,
        })
    }

    /// Applies the engine's answer to `request`. `random` is a 64-bit random number. Returns false
    /// and discards the tokens if an edit changed the limits of the key after the request was sent.
    pub fn apply(
        &mut self,
        terms: &Terms,
        request: &TokenRequest,
        grant: &Grant,
        now: Nanos,
        random: u64,
    ) -> bool {
        self.end_refill(request);
        let charged = u32::try_from(grant.charged).unwrap_or(u32::MAX);
        self.debt = self.debt.saturating_sub(charged);
        if request.edition != self.edition {
            return false;
        }
        let lease = terms.settings().lease;
        let lasts = match grant.ends_in {
            Nanos::ZERO => lease,
            ends_in => lease.min(ends_in),
        };
        let tokens = grant.granted.min(request.demand.want);
        let portion = Portion {
            tokens: u32::try_from(tokens).unwrap_or(u32::MAX),
            end: request.sent_at.saturating_add(lasts),
        };
        self.tokens.add(portion, now);
        // Answers may arrive out of order, so only the answer to the latest request updates the
        // reported engine state.
        if stamp(request.sent_at) >= self.answered_at {
            self.answered_at = stamp(request.sent_at);
            self.left = grant.left.cut(terms.limits().len());
            self.deny(terms, request.demand, grant, now, random);
        }
        true
    }

    /// Starts or ends a denial. During a denial, this Envoy refuses requests without a call,
    /// because the engine has too few units.
    fn deny(&mut self, terms: &Terms, request: Demand, grant: &Grant, now: Nanos, random: u64) {
        if grant.granted >= request.want && grant.wait.is_zero() {
            (self.denied_until, self.denied_cost, self.misses) = (Nanos::ZERO, 0, 0);
            return;
        }
        self.misses = match grant.granted {
            0 => self.misses.saturating_add(1),
            _ => 0,
        };
        let lease = terms.settings().lease;
        let span = if grant.wait.is_zero() {
            let doubled = 1_u64.checked_shl(self.misses.into()).unwrap_or(u64::MAX);
            let span = terms.time_for(1).get().saturating_mul(doubled);
            lease.min(Nanos::new(span))
        } else {
            lease
        };
        // A denial is never shorter than the wait that the engine reported. If many Envoys retried
        // earlier, each retry would cost a call and, with credit, admit requests on credit again.
        let denied = grant.wait.max(between(span, (1, 3), random));
        self.denied_until = now.saturating_add(denied);
        self.denied_cost = u32::try_from(request.need.max(1)).unwrap_or(u32::MAX);
    }

    /// Handles the loss of `request`. The debt is sent again even though the engine may already
    /// have charged it, because otherwise the limit could be exceeded.
    pub fn lost(&mut self, request: &TokenRequest) {
        self.end_refill(request);
    }

    /// Handles an answer that does not contain this key. This Envoy decides locally for the key for
    /// a short time, while the engine may still answer for other keys. `random` is a 64-bit random
    /// number.
    ///
    /// A current denial stays in effect, because the key had too few units when the engine last
    /// answered. The refill still counts as in flight until its timeout, like a lost refill, so
    /// that the debt is not sent again immediately.
    pub fn failed(&mut self, now: Nanos, random: u64) {
        if self.denied_until(now).is_some() {
            return;
        }
        let policy = Policy::default();
        let longest = doubled(policy.first, self.misses.into()).min(policy.most);
        self.misses = self.misses.saturating_add(1);
        self.denied_until = now.saturating_add(between(longest, (2, 4), random));
        self.denied_cost = 0;
    }

    /// Marks the refill as completed if `request` is the refill in flight.
    fn end_refill(&mut self, request: &TokenRequest) {
        if request.is_refill && self.refill_sent == stamp(request.sent_at) {
            self.refill_sent = Nanos::ZERO;
        }
    }

    /// Returns true if a refill is in flight.
    fn is_refilling(&self, terms: &Terms, now: Nanos) -> bool {
        let lands = self.refill_sent.saturating_add(terms.flight());
        !self.refill_sent.is_zero() && now < lands
    }

    /// Returns the number of tokens to lease in advance: half of the expected demand during a
    /// lease, or 0 if this many tokens are already available.
    fn prefetch(&self, terms: &Terms, now: Nanos) -> u64 {
        if now < self.denied_until {
            return 0;
        }
        let expected = self.recent.expected_demand(terms.settings().lease, now);
        if expected.units == 0 {
            return 0;
        }
        let half = expected.units.div_euclid(2).min(terms.max_prefetch());
        // Tokens beyond a multiple of the request cost could not be used.
        let part = half.checked_rem(expected.cost).unwrap_or(0);
        let half = half.saturating_sub(part);
        if self.tokens.tokens(now) < half {
            half
        } else {
            0
        }
    }
}

/// Replaces a time of zero with one nanosecond, because a stored zero means "none".
fn stamp(instant: Nanos) -> Nanos {
    instant.max(Nanos::new(1))
}
