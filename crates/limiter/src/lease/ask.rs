//! Asks of an Envoy, and what their answers do to a lease.
//!
//! A worker asks for the requests that it holds itself, at any time. Tokens beforehand and the debt travel
//! with at most one ask at a time, the *refill*, so that neither is asked for twice.

use super::Lease;
use super::breaker::{Policy, doubled};
use super::grant::{Demand, Grant};
use super::jitter::between;
use super::portions::Portion;
use super::terms::Terms;
use crate::time::Nanos;

/// The requests that a worker holds and has not asked for yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// The sum of their costs.
    pub units: u64,
    /// The smallest of their costs.
    pub least: u64,
}

/// An ask that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseAsk {
    /// The demand.
    pub demand: Demand,
    /// When it was sent.
    pub sent_at: Nanos,
    /// True if it is the refill.
    pub is_refill: bool,
    /// The number of edits that it knew.
    edition: u32,
}

impl Lease {
    /// Returns true if an ask without held requests is worth sending: there is debt, or the tokens run low.
    pub fn is_due(&self, terms: &Terms, now: Nanos) -> bool {
        let may_ask = !self.is_refilling(terms, now) && !self.is_alone(now);
        may_ask && (self.debt > 0 || self.beforehand(terms, now) > 0)
    }

    /// An ask for held requests, and for the debt and tokens beforehand unless these are under way. `None`
    /// if there is nothing to ask for. The caller sends it at `now`.
    pub fn ask(&mut self, terms: &Terms, held: Held, now: Nanos) -> Option<LeaseAsk> {
        let is_free = !self.is_refilling(terms, now);
        let beforehand = if is_free {
            self.beforehand(terms, now)
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
        Some(LeaseAsk {
            demand,
            sent_at: now,
            is_refill,
            edition: self.edition,
        })
    }

    /// Applies the answer to `ask`; `random` are any 64 bits. False if the numbers of the key have changed
    /// since: the tokens are void then.
    pub fn apply(
        &mut self,
        terms: &Terms,
        ask: &LeaseAsk,
        grant: &Grant,
        now: Nanos,
        random: u64,
    ) -> bool {
        self.land(ask);
        let charged = u32::try_from(grant.charged).unwrap_or(u32::MAX);
        self.debt = self.debt.saturating_sub(charged);
        if ask.edition != self.edition {
            return false;
        }
        let lease = terms.settings().lease;
        let lasts = match grant.ends_in {
            Nanos::ZERO => lease,
            ends_in => lease.min(ends_in),
        };
        let tokens = grant.granted.min(ask.demand.want);
        let portion = Portion {
            tokens: u32::try_from(tokens).unwrap_or(u32::MAX),
            end: ask.sent_at.saturating_add(lasts),
        };
        self.tokens.add(portion, now);
        // Answers may overtake each other; what the engine reported last counts.
        if stamp(ask.sent_at) >= self.heard {
            self.heard = stamp(ask.sent_at);
            self.left = grant.left.cut(terms.limits().len());
            self.deny(terms, ask.demand, grant, now, random);
        }
        true
    }

    /// Refuses without asking for as long as the engine has nothing.
    fn deny(&mut self, terms: &Terms, ask: Demand, grant: &Grant, now: Nanos, random: u64) {
        if grant.granted >= ask.want && grant.wait.is_zero() {
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
        // Never shorter than the engine says: many Envoys that ask again too soon cost calls, and with
        // credit each gives it away once more.
        let denied = grant.wait.max(between(span, (1, 3), random));
        self.denied_until = now.saturating_add(denied);
        self.denied_cost = u32::try_from(ask.need.max(1)).unwrap_or(u32::MAX);
    }

    /// Notes that `ask` has no answer. It may have been charged: the debt is asked for again, which is to
    /// the limit's advantage.
    pub fn lost(&mut self, ask: &LeaseAsk) {
        self.land(ask);
    }

    /// Notes that the engine did not answer for this key, although it may answer for others: until a short time
    /// has passed, this Envoy decides the key alone. `random` are any 64 bits.
    ///
    /// A denial stays in force, because the key was empty when the engine last answered. The refill counts as
    /// under way for as long as a lost one, so that a debt is not sent again at once.
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

    /// The refill is no longer under way, if it was this one.
    fn land(&mut self, ask: &LeaseAsk) {
        if ask.is_refill && self.refill_sent == stamp(ask.sent_at) {
            self.refill_sent = Nanos::ZERO;
        }
    }

    /// Returns true if a refill is under way.
    fn is_refilling(&self, terms: &Terms, now: Nanos) -> bool {
        let lands = self.refill_sent.saturating_add(terms.flight());
        !self.refill_sent.is_zero() && now < lands
    }

    /// The tokens to ask for beforehand: half of what a lease will use, and none while there is as much on
    /// hand.
    fn beforehand(&self, terms: &Terms, now: Nanos) -> u64 {
        if now < self.denied_until {
            return 0;
        }
        let sure = self.recent.surely(terms.settings().lease, now);
        if sure.units == 0 {
            return 0;
        }
        let half = sure.units.div_euclid(2).min(terms.most_beforehand());
        // Part of a cost is of no use.
        let part = half.checked_rem(sure.cost).unwrap_or(0);
        let half = half.saturating_sub(part);
        if self.tokens.tokens(now) < half {
            half
        } else {
            0
        }
    }
}

/// An instant as it is kept where zero is none.
fn stamp(instant: Nanos) -> Nanos {
    instant.max(Nanos::new(1))
}
