//! One limit across many Envoys: the state of a key in one of them, and what the engine does.
//!
//! A central engine holds the limit. Each Envoy takes tokens from it beforehand, as a *lease*, and decides
//! by them without asking. [`Lease`] is the state of one key in one Envoy, shared by its workers;
//! [`Terms`] are the numbers; [`Central`] is the engine's side; [`breaker`] tells a dead engine from a
//! slow one. Nothing here makes a call or reads a clock.
//!
//! # The bound
//!
//! `A` is what all `N` Envoys admit in any window of `w` seconds, for a capacity `B`, a rate `r`, a lease
//! `L` and a credit `c`:
//!
//! - without credit `A ≤ B + r·(w + L)`: each pass uses a token that was granted at most `L` earlier. A
//!   lease lasts from the *sending* of the ask, so that no clocks need to agree;
//! - with credit `A ≤ B + r·(w + L) + 2·N·c`;
//! - of a fixed window `A ≤ B + 2·N·c` in each window of the engine's clock: tokens do not outlive it.
//!
//! An engine that loses `d` seconds of its writes adds `B + N·c + r·d` once, one whose clock jumps ahead
//! by `j` adds `r·j`, and an edit `N·c`. Without an engine, each Envoy decides alone by
//! [`Limits::divided`].
//!
//! # The decisions
//!
//! | first row that applies | verdict |
//! | --- | --- |
//! | the cost is above the capacity | refuse for good |
//! | enough tokens | admit |
//! | the engine is down | the local bucket decides |
//! | denied | refuse until then |
//! | cost 0 | admit |
//! | the engine did not answer for this key | the local bucket decides |
//! | the request waited in vain | the local bucket decides |
//! | the credit covers it, at first | admit |
//! | else | wait for an answer |
//!
//! ```
//! use loudou_limiter::lease::{Central, Held, Lease, LeaseSettings, LeaseVerdict, Phase, Shared, Terms};
//! use loudou_limiter::{Nanos, Rate};
//!
//! let at = Nanos::from_millis;
//! let settings = LeaseSettings { lease: at(200), timeout: at(30), credit: 0 };
//! let limit = Shared::Leak { capacity: 1, rate: Rate::parse("1/s").unwrap() };
//! let terms = Terms::new(&[limit], &settings).unwrap();
//! let (mut central, mut lease) = (Central::default(), Lease::default());
//!
//! // Nothing is known of the key yet: its first request waits for the answer.
//! let verdict = lease.take(&terms, 1, at(0), Phase::First, false);
//! assert_eq!(verdict, LeaseVerdict::Wait { until: at(30) });
//! let ask = lease.ask(&terms, Held { units: 1, least: 1 }, at(0)).unwrap();
//! let grant = central.grant(&terms, ask.demand, Nanos::from_secs(1_000));
//! assert!(lease.apply(&terms, &ask, &grant, at(1), 0));
//! let verdict = lease.take(&terms, 1, at(1), Phase::Held, false);
//! assert_eq!(verdict, LeaseVerdict::Admit);
//! ```

use crate::time::Nanos;
use portions::Portions;
use recent::Recent;

mod alone;
mod ask;
mod bound;
pub mod breaker;
mod central;
mod decision;
mod grant;
mod jitter;
mod left;
mod portions;
mod recent;
mod shared;
mod terms;
mod words;

pub use alone::OWED_FOR;
pub use ask::{Held, LeaseAsk};
pub use central::Central;
pub use grant::{Demand, Grant};
pub use left::Left;
pub use shared::{ENGINE_CLOCK, MAX_ODD_PERIOD, Shared, Unfit};
pub use terms::{LeaseSettings, NotShared, Terms};
pub use words::{LEASE_WORDS, MAX_LATER_LIMITS};

#[cfg(doc)]
use crate::limit::Limits;

/// How far a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It has just arrived.
    First,
    /// It was held, and there was an answer or a loss since.
    Held,
    /// It was held for as long as it may be.
    Expired,
}

/// The outcome of a request by a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseVerdict {
    /// It passes; its cost is taken.
    Admit,
    /// It does not pass.
    Refuse {
        /// The time until its cost may be admitted; `None` if it never is.
        retry_after: Option<Nanos>,
    },
    /// It is held, and the engine is to be asked for it. Nothing is taken.
    Wait {
        /// When it has been held for long enough; a request that was held before keeps its first one.
        until: Nanos,
    },
    /// The engine does not answer: `on_outage` decides.
    Local,
}

/// The state of the engine in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The units left there.
    pub left: Left,
    /// When the ask was sent that it answers.
    pub at: Nanos,
}

/// The state of one key in one Envoy. The default is that of a key of which nothing is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    tokens: Portions,
    /// The units that passed on credit or were admitted alone, and were not charged yet.
    debt: u32,
    /// The time until which costs of at least `denied_cost` are refused; zero for none. With a `denied_cost` of
    /// 0 it is the time until which this Envoy decides the key alone. A reader that does not know this state
    /// refuses for that long, which is a second at most.
    denied_until: Nanos,
    denied_cost: u32,
    /// When the refill that is under way was sent; zero for none.
    refill_sent: Nanos,
    recent: Recent,
    /// When the ask of the latest answer was sent; zero for none.
    heard: Nanos,
    /// The units left in the engine then.
    left: Left,
    /// Answers in a row that granted nothing.
    misses: u8,
    /// The number of edits, modulo 2^32: answers to earlier asks bring no tokens.
    edition: u32,
}

impl Lease {
    /// Decides on a request, and takes its cost if it is admitted. `is_down` is an open breaker.
    pub fn take(
        &mut self,
        terms: &Terms,
        cost: u64,
        now: Nanos,
        phase: Phase,
        is_down: bool,
    ) -> LeaseVerdict {
        if cost > terms.capacity() {
            return LeaseVerdict::Refuse { retry_after: None };
        }
        let settings = terms.settings();
        if phase == Phase::First && cost > 0 {
            self.recent.note(cost, settings.lease, now);
        }
        if cost > 0 && self.tokens.take(cost, now) {
            return LeaseVerdict::Admit;
        }
        // A cached denial must not outlive the engine that it came from.
        if is_down {
            return LeaseVerdict::Local;
        }
        if let Some(retry_after) = self.denied(terms, cost, now) {
            return LeaseVerdict::Refuse {
                retry_after: Some(retry_after),
            };
        }
        if cost == 0 {
            return LeaseVerdict::Admit;
        }
        if self.is_alone(now) {
            return LeaseVerdict::Local;
        }
        match phase {
            Phase::Expired => LeaseVerdict::Local,
            Phase::First if self.lend(cost, settings.credit) => LeaseVerdict::Admit,
            Phase::First | Phase::Held => LeaseVerdict::Wait {
                until: now.saturating_add(settings.timeout),
            },
        }
    }

    /// For how long `cost` is denied.
    fn denied(&self, terms: &Terms, cost: u64, now: Nanos) -> Option<Nanos> {
        let until = self.denied_until(now)?;
        let denied = u64::from(self.denied_cost);
        if 0 < cost && cost < denied {
            return None;
        }
        let more = terms.time_for(cost.saturating_sub(denied));
        Some(until.since(now).saturating_add(more))
    }

    /// Lets `cost` pass on credit.
    fn lend(&mut self, cost: u64, credit: u64) -> bool {
        let debt = u64::from(self.debt).saturating_add(cost);
        let Some(debt) = u32::try_from(debt).ok().filter(|_| debt <= credit) else {
            return false;
        };
        self.debt = debt;
        true
    }

    /// Drops everything that the numbers of the key decided, because they have changed. The debt stays: it
    /// was passed, and is charged.
    pub fn after_edit(&mut self) {
        *self = Self {
            debt: self.debt,
            recent: self.recent,
            edition: self.edition.wrapping_add(1),
            ..Self::default()
        };
    }

    /// Takes back the cost of a request that was admitted and then did not pass. Of tokens that have ended
    /// nothing comes back.
    pub fn give_back(&mut self, cost: u64, now: Nanos) {
        let owed = u64::from(self.debt).min(cost);
        let debt = u64::from(self.debt).saturating_sub(owed);
        self.debt = u32::try_from(debt).unwrap_or(self.debt);
        self.tokens.give_back(cost.saturating_sub(owed), now);
    }

    /// Whether nothing is known of the key.
    pub fn is_fresh(&self) -> bool {
        *self == Self::default()
    }

    /// The tokens on hand at `now`.
    pub fn tokens(&self, now: Nanos) -> u64 {
        self.tokens.tokens(now)
    }

    /// The units that passed on credit or were admitted alone, and were not charged yet.
    pub fn debt(&self) -> u64 {
        self.debt.into()
    }

    /// The state of the engine in the latest answer; `None` before the first one.
    pub fn seen(&self) -> Option<Seen> {
        let heard = Seen {
            left: self.left,
            at: self.heard,
        };
        (!self.heard.is_zero()).then_some(heard)
    }

    /// Until when requests are refused without asking, if they are at `now`.
    pub fn denied_until(&self, now: Nanos) -> Option<Nanos> {
        let is_denied = now < self.denied_until && self.denied_cost > 0;
        is_denied.then_some(self.denied_until)
    }

    /// Returns true while this Envoy decides the key alone, because the engine did not answer for it.
    pub fn is_alone(&self, now: Nanos) -> bool {
        now < self.denied_until && self.denied_cost == 0
    }

    /// The time from which nothing here decides on requests any more, whatever the debt.
    pub fn idle_at(&self) -> Nanos {
        self.tokens.end().max(self.denied_until)
    }
}
