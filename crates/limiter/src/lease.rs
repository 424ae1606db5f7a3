//! Sharing one limit among many Envoys: a key's state in one Envoy, and the computation done by the
//! central engine.
//!
//! A central engine tracks each limit's balance. Each Envoy takes tokens from the engine in
//! advance, as a *lease*, and uses these tokens to decide on requests without calling the engine.
//! [`Lease`] is the state of one key in one Envoy, shared by its workers. [`Terms`] are the limits
//! and settings that the fleet shares, and [`Central`] is a key's state in the engine. The circuit
//! [`breaker`] detects that the engine is down. This module does no I/O and reads no clock.
//!
//! # The bound
//!
//! Let `A` be the number of units that `N` Envoys together admit in an interval of `w` seconds, given a capacity `B`, a
//! rate `r`, a lease `L` and a credit `c`:
//!
//! - Without credit, `A ≤ B + r·(w + L)`, because each admitted request uses a token that was granted at most `L`
//!   earlier. A lease starts when the Envoy *sends* its request, so the clocks need not agree.
//! - With credit, `A ≤ B + r·(w + L) + 2·N·c`.
//! - For a fixed window, `A ≤ B + 2·N·c` in each window of the engine's clock, because tokens expire with the window.
//!
//! Some events raise the bound. If the engine loses the last `d` seconds of its writes, the bound rises by `B + N·c +
//! r·d` once. If the engine's clock jumps ahead by `j`, the bound rises by `r·j`. Each edit raises the bound by `N·c`.
//! While the engine is down, each Envoy decides locally with its share of the limits ([`Limits::divided`]).
//!
//! # The decisions
//!
//! | first row that applies | verdict |
//! | --- | --- |
//! | the cost is above the capacity | refuse, without a retry time |
//! | enough tokens | admit |
//! | the engine is down | the local bucket decides |
//! | the engine denied this cost for a time | refuse for this time |
//! | cost 0 | admit |
//! | the engine did not answer for this key | the local bucket decides |
//! | the request has waited for the maximum time | the local bucket decides |
//! | the request has just arrived, and the credit covers it | admit |
//! | otherwise | wait for an answer |
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
//! let request = lease.request(&terms, Held { units: 1, least: 1 }, at(0)).unwrap();
//! let grant = central.grant(&terms, request.demand, Nanos::from_secs(1_000));
//! assert!(lease.apply(&terms, &request, &grant, at(1), 0));
//! let verdict = lease.take(&terms, 1, at(1), Phase::Held, false);
//! assert_eq!(verdict, LeaseVerdict::Admit);
//! ```

use portions::{Portion, Portions};
use recent::Recent;
use smallvec::SmallVec;

use crate::decision::BucketRequest;
use crate::limit::{Bucket, BucketDecision, Limits};
use crate::meter::USED_ONE;
use crate::time::{Clock, Nanos};
use crate::wide::mul_div_ceil;

pub use central::Central;
pub use grant::{Demand, Grant};
pub use remaining::RemainingUnits;
pub use request::{Held, TokenRequest};
pub use shared::{ENGINE_CLOCK, MAX_ODD_PERIOD, Shared, Unfit};
pub use terms::{LeaseSettings, NotShared, Terms};
pub use words::{LEASE_WORDS, MAX_LATER_LIMITS};

pub mod breaker;
mod central;
mod decision;
mod grant;
mod jitter;
mod portions;
mod recent;
mod remaining;
mod request;
mod shared;
mod terms;
mod words;

/// Phase of a request's wait for a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The request has just arrived.
    First,
    /// The request was held, and since then either the engine has answered or a call has failed.
    Held,
    /// The request has been held for the maximum time.
    Expired,
}

/// A lease's verdict on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseVerdict {
    /// The request passes, and its cost has been taken.
    Admit,
    /// The request is refused.
    Refuse {
        /// Time until the cost may be admitted; `None` if it will never be admitted.
        retry_after: Option<Nanos>,
    },
    /// The request is held without taking anything. The caller must request a lease for it.
    Wait {
        /// Time at which the hold ends. A request that is already held keeps its earlier end time.
        until: Nanos,
    },
    /// The engine is not available. The caller falls back to `on_outage`.
    Local,
}

/// Engine state as reported in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Remaining units in the engine.
    pub left: RemainingUnits,
    /// Send time of the lease request that this answer belongs to.
    pub at: Nanos,
}

/// State of one key in one Envoy. The default is the state of a key that is not known yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    tokens: Portions,
    /// Units that this Envoy has admitted on credit or without the engine, and that the engine has
    /// not charged yet.
    debt: u32,
    /// Time until which requests with a cost of at least `denied_cost` are refused; zero if none
    /// are refused. If `denied_cost` is 0, this is instead the time until which this Envoy decides
    /// locally for the key. Code that does not know this meaning refuses requests until then, which
    /// is at most a second away.
    denied_until: Nanos,
    denied_cost: u32,
    /// Send time of the refill in flight; zero if no refill is in flight.
    refill_sent: Nanos,
    recent: Recent,
    /// Send time of the latest lease request that was answered; zero before the first answer.
    answered_at: Nanos,
    /// Remaining units in the engine, as reported in that answer.
    left: RemainingUnits,
    /// Number of consecutive answers that granted nothing for this key.
    misses: u8,
    /// Number of edits, modulo 2^32. If a lease request was sent before an edit, tokens granted in
    /// its answer are discarded.
    edition: u32,
}

impl Lease {
    /// Decides whether to admit a request, and takes its cost if it is admitted. `is_down` is true
    /// if the breaker is open.
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
        // A cached denial no longer applies once the engine is down.
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

    /// Returns how long requests with this cost remain denied; `None` if they are not denied.
    fn denied(&self, terms: &Terms, cost: u64, now: Nanos) -> Option<Nanos> {
        let until = self.denied_until(now)?;
        let denied = u64::from(self.denied_cost);
        if 0 < cost && cost < denied {
            return None;
        }
        let more = terms.time_for(cost.saturating_sub(denied));
        Some(until.since(now).saturating_add(more))
    }

    /// Takes `cost` on credit. Returns false if the credit does not cover it.
    fn lend(&mut self, cost: u64, credit: u64) -> bool {
        let debt = u64::from(self.debt).saturating_add(cost);
        let Some(debt) = u32::try_from(debt).ok().filter(|_| debt <= credit) else {
            return false;
        };
        self.debt = debt;
        true
    }

    /// Discards all state that depends on the old limits. The debt is kept, because the engine must
    /// still charge the units that were admitted.
    pub fn after_edit(&mut self) {
        *self = Self {
            debt: self.debt,
            recent: self.recent,
            edition: self.edition.wrapping_add(1),
            ..Self::default()
        };
    }

    /// Discards a cached denial, because a request carried different limits from the key's previous
    /// request. The tokens are kept, because the engine has already charged them.
    pub const fn after_numbers(&mut self) {
        self.denied_until = Nanos::ZERO;
        self.denied_cost = 0;
    }

    /// Restores the cost of a request that was admitted but did not pass. Expired tokens are not
    /// restored.
    pub fn give_back(&mut self, cost: u64, now: Nanos) {
        let owed = u64::from(self.debt).min(cost);
        let debt = u64::from(self.debt).saturating_sub(owed);
        self.debt = u32::try_from(debt).unwrap_or(self.debt);
        self.tokens.give_back(cost.saturating_sub(owed), now);
    }

    /// Returns the expiry time of the first tokens that a request of this cost would take, or zero
    /// if there are not enough tokens.
    pub fn first_end(&self, cost: u64, now: Nanos) -> Nanos {
        if cost == 0 || self.tokens(now) < cost {
            return Nanos::ZERO;
        }
        self.tokens.first_end(now)
    }

    /// Restores the unused units of a request. The units reduce the debt first. The rest become
    /// tokens that expire at `end`, the expiry time of the first tokens that the request took.
    pub fn return_unspent(&mut self, units: u64, end: Nanos, now: Nanos) {
        if now >= end {
            return;
        }
        let owed = u64::from(self.debt).min(units);
        self.forgive(owed);
        let tokens = u32::try_from(units.saturating_sub(owed)).unwrap_or(0);
        self.tokens.add(Portion { tokens, end }, now);
    }

    /// Takes the units by which a request's final cost exceeds its reservation. Available tokens
    /// are used first. The remaining units become debt, which the next call charges.
    pub fn overdraw(&mut self, units: u64, now: Nanos) {
        let tokens = self.tokens(now).min(units);
        self.tokens.take(tokens, now);
        let debt = u64::from(self.debt).saturating_add(units.saturating_sub(tokens));
        self.debt = u32::try_from(debt).unwrap_or(u32::MAX);
    }

    /// Returns true if nothing is known about the key yet.
    pub fn is_fresh(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the number of tokens that are available at `now`.
    pub fn tokens(&self, now: Nanos) -> u64 {
        self.tokens.tokens(now)
    }

    /// Returns the units that this Envoy has admitted on credit or without the engine, and that the
    /// engine has not charged yet.
    pub fn debt(&self) -> u64 {
        self.debt.into()
    }

    /// Returns the engine state as reported in the latest answer; `None` before the first answer.
    pub fn seen(&self) -> Option<Seen> {
        let answered_at = Seen {
            left: self.left,
            at: self.answered_at,
        };
        (!self.answered_at.is_zero()).then_some(answered_at)
    }

    /// Returns the time until which requests are refused without a call, or `None` if no denial is
    /// in effect at `now`.
    pub fn denied_until(&self, now: Nanos) -> Option<Nanos> {
        let is_denied = now < self.denied_until && self.denied_cost > 0;
        is_denied.then_some(self.denied_until)
    }

    /// Returns true while this Envoy decides locally for the key, because the engine did not answer
    /// for it.
    pub fn is_alone(&self, now: Nanos) -> bool {
        now < self.denied_until && self.denied_cost == 0
    }

    /// Returns the time at which all tokens and denials will have expired. From then on, only the
    /// debt matters.
    pub fn idle_at(&self) -> Nanos {
        self.tokens.end().max(self.denied_until)
    }
}

// Decisions that an Envoy makes locally while the engine is unavailable, using its share of the
// fleet's limits. The engine charges the admitted units later.
//
// An Envoy that decides locally must not draw units from two sources, its share and its leases. The
// Envoy therefore starts with its share of the units that the engine last reported as remaining,
// and adds the cost of each locally admitted request to its debt. The engine charges the debt with
// the next lease request that it answers.

/// Bounds the debt of an Envoy that decides locally: a full bucket of its share, plus the units
/// that refill the share within this time. Breakers probe the engine at least this often, so only
/// an Envoy that is cut off for longer admits units that are never charged. Without this bound, the
/// debt after an outage would include units that were refilled during the outage, and the fleet
/// would then refuse all requests for as long as the outage lasted.
pub const OWED_FOR: Nanos = Nanos::from_secs(1);

impl Lease {
    /// Decides locally, without the engine, whether to admit a request. `limits` are the limits of
    /// the whole fleet. The limits are divided into `envoys` equal shares. This Envoy may use one
    /// share, and `bucket` is the state of this share. The cost of an admitted request is added to
    /// the debt.
    ///
    /// ```
    /// use loudou_limiter::lease::{Held, Lease, LeaseSettings, Terms};
    /// use loudou_limiter::{BucketRequest, Limit, Limits, Nanos, Rate, algorithm::Funnel};
    ///
    /// let funnel = Funnel::new(20, Rate::parse("100/s").unwrap()).unwrap();
    /// let limits = Limits::new(vec![Limit::new("burst", funnel)]).unwrap();
    /// let (mut lease, mut bucket) = (Lease::default(), limits.start(Nanos::ZERO));
    /// let mut admitted = 0;
    /// while !lease.decide_alone(&limits, 4, &mut bucket, &BucketRequest::new(1, Nanos::ZERO)).is_refused() {
    ///     admitted += 1;
    /// }
    /// assert_eq!((admitted, lease.debt()), (5, 5));
    /// ```
    pub fn decide_alone(
        &mut self,
        limits: &Limits,
        envoys: u32,
        bucket: &mut Bucket,
        request: &BucketRequest,
    ) -> BucketDecision {
        let Some(part) = limits.divided(envoys) else {
            return limits.answer(bucket, request);
        };
        self.drain_part(
            limits,
            &part,
            bucket,
            request.not_before(bucket.last).clock(),
        );
        let answer = part.answer(bucket, request);
        if !answer.is_refused() {
            self.owe(request.cost, &part);
        }
        answer
    }

    /// Lowers the balance in `bucket` to this Envoy's share of the units that the engine last
    /// reported as remaining. `part` contains the limits of this share. Without this adjustment, a
    /// key whose units were already used up would start with a full bucket here.
    pub fn drain_part(&self, limits: &Limits, part: &Limits, bucket: &mut Bucket, clock: Clock) {
        let Some(seen) = self.seen() else { return };
        let then = clock.moved_to(seen.at);
        let mut whole = limits.iter();
        part.each(bucket, &mut |place, meter, words| {
            let whole = whole.next().map_or(0, |limit| limit.algorithm().capacity());
            let (own, left) = (meter.capacity(), seen.left.at(place));
            let left = mul_div_ceil(own.into(), left.into(), u128::from(whole.max(1)));
            let left = left.saturating_mul(USED_ONE);
            let mut drained: SmallVec<[u64; 2]> = SmallVec::from_elem(0, words.len());
            meter.resume(&mut drained, meter.full().saturating_sub(left), then);
            if meter.used(&drained, clock.now) > meter.used(words, clock.now) {
                words.copy_from_slice(&drained);
            }
        });
    }

    /// Adds the cost of a locally admitted request to the debt.
    fn owe(&mut self, cost: u64, part: &Limits) {
        let parts = part
            .iter()
            .filter_map(|limit| limit.algorithm().shared().ok());
        let most = parts.map(|limit| limit.capacity().saturating_add(limit.units_in(OWED_FOR)));
        let most = most.min().unwrap_or(0);
        let debt = u64::from(self.debt).saturating_add(cost).min(most);
        self.debt = self.debt.max(u32::try_from(debt).unwrap_or(u32::MAX));
    }

    /// Reduces the debt to the credit if a fixed window has ended since `last`, the time when the
    /// bucket was last touched. Units admitted in a past window must not be charged to the current
    /// window.
    pub fn turn(&mut self, terms: &Terms, last: Nanos, clock: Clock) {
        let Some(owed) = u64::from(self.debt).checked_sub(terms.settings().credit) else {
            return;
        };
        let has_turned = |limit: &Shared| match *limit {
            Shared::Window { window, .. } => {
                let since = clock.now.since(last).get();
                let past = clock.wall.get().checked_rem(window.get());
                past.is_some_and(|past| since > past)
            }
            _ => false,
        };
        if owed > 0 && terms.limits().iter().any(has_turned) {
            self.debt = u32::try_from(terms.settings().credit).unwrap_or(u32::MAX);
        }
    }

    /// Subtracts the cost of a locally admitted request that did not pass from the debt.
    pub fn forgive(&mut self, cost: u64) {
        let debt = u64::from(self.debt).saturating_sub(cost);
        self.debt = u32::try_from(debt).unwrap_or(self.debt);
    }
}

// Upper bound on the number of units that all Envoys in a fleet together admit, for any number of
// Envoys.

/// Maximum number of units that one Envoy admits in an interval in addition to its tokens, as a
/// multiple of the credit. One credit is for units that were admitted before the interval and are
/// charged during it. The other is for units that are admitted at the end of the interval.
const CREDITS: u64 = 2;

impl Shared {
    /// Returns the maximum number of cost units that a fleet without credit admits under this limit
    /// in any interval of length `span`. Each unit uses a token that the engine granted at most
    /// `lease` earlier.
    ///
    /// ```
    /// use loudou_limiter::lease::Shared;
    /// use loudou_limiter::{Nanos, Rate};
    ///
    /// let rate = Rate::parse("30/m").unwrap();
    /// let (minute, lease) = (Nanos::from_secs(60), Nanos::from_millis(200));
    /// assert_eq!(Shared::Leak { capacity: 15, rate }.most_in(minute, lease), 45);
    /// assert_eq!(Shared::Interval { capacity: 15, rate }.most_in(minute, lease), 75);
    /// // A fixed window ends all leases, and a minute may touch two of its windows.
    /// let window = Shared::Window { capacity: 15, window: minute };
    /// assert_eq!(window.most_in(minute, lease), 30);
    /// ```
    pub fn most_in(self, span: Nanos, lease: Nanos) -> u64 {
        let longer = span.saturating_add(lease);
        match self {
            Self::Leak { capacity, .. } => capacity.saturating_add(self.units_in(longer)),
            Self::Interval { capacity, rate } => {
                let lumps = lumps(longer, rate.period());
                capacity.saturating_add(lumps.saturating_mul(rate.amount().into()))
            }
            Self::Window { capacity, window } => {
                let windows = span.get().div_ceil(window.get().max(1));
                capacity.saturating_mul(windows.saturating_add(1))
            }
        }
    }
}

/// Returns the maximum number of multiples of `period` in an interval of length `span`, including
/// both ends.
fn lumps(span: Nanos, period: Nanos) -> u64 {
    let whole = span.get().checked_div(period.get()).unwrap_or(0);
    whole.saturating_add(1)
}

impl LeaseSettings {
    /// Returns the number of units by which each Envoy raises every limit's bound, because it
    /// admits requests on credit.
    pub const fn most_on_credit(&self) -> u64 {
        CREDITS.saturating_mul(self.credit)
    }
}

impl Terms {
    /// Returns true if tokens are leased in advance for a busy key whose requests have this cost.
    /// If too few units refill during a lease, each request of the key needs a call.
    pub fn prefetches(&self, cost: u64) -> bool {
        (1..=self.max_prefetch()).contains(&cost)
    }

    /// Returns the maximum number of tokens to lease in advance: half the refill during a lease,
    /// and at most a quarter of the capacity.
    fn max_prefetch(&self) -> u64 {
        let most = self.units_in_lease().min(self.capacity().div_euclid(2));
        most.div_euclid(2)
    }
}

#[cfg(test)]
mod bound_tests {
    use super::*;
    use super::{Held, Lease, Phase};
    use crate::time::Rate;

    fn terms(limit: Shared) -> Terms {
        let settings = LeaseSettings {
            lease: Nanos::from_millis(200),
            timeout: Nanos::from_millis(30),
            credit: 3,
        };
        Terms::new(&[limit], &settings).expect("valid")
    }

    fn leak(capacity: u64, rate: &str) -> Shared {
        let rate = Rate::parse(rate).expect("a rate");
        Shared::Leak { capacity, rate }
    }

    /// Returns the number of tokens requested in advance after 100 requests in each of several
    /// leases.
    fn prefetched(terms: &Terms) -> u64 {
        let mut lease = Lease::default();
        let mut now = Nanos::ZERO;
        for step in 0..1_000_u64 {
            now = Nanos::from_millis(step.saturating_mul(2));
            lease.take(terms, 1, now, Phase::First, false);
        }
        let request = lease.request(terms, Held { units: 0, least: 0 }, now);
        request.map_or(0, |request| request.demand.want)
    }

    /// Unused units reduce a debt first. The remaining units expire with the tokens that the
    /// request took.
    #[test]
    fn unspent_units_expire_with_their_tokens() {
        let terms = terms(leak(100, "100/s"));
        let at = Nanos::from_millis;
        let mut lease = Lease::default();
        let lend = |lease: &mut Lease, units: u64, now: Nanos| {
            let request = lease.request(
                &terms,
                Held {
                    units,
                    least: units,
                },
                now,
            );
            let request = request.expect("it asks");
            let grant = Grant {
                granted: request.demand.want,
                ..Grant::default()
            };
            assert!(lease.apply(&terms, &request, &grant, now, 0));
        };
        lend(&mut lease, 10, at(0));
        let end = lease.first_end(4, at(1));
        assert_eq!(end, at(200));
        assert_eq!(
            lease.first_end(11, at(1)),
            Nanos::ZERO,
            "there are not enough"
        );
        assert!(lease.tokens.take(4, at(1)));
        lease.return_unspent(3, end, at(100));
        assert_eq!(lease.tokens(at(100)), 9);
        assert_eq!(lease.tokens(at(200)), 0);
        // Units of an earlier lease expire with that lease, even if a later lease has begun.
        lend(&mut lease, 5, at(300));
        lease.return_unspent(3, end, at(300));
        assert_eq!(lease.tokens(at(300)), 5);
        // Expired units do not reduce the debt.
        lease.overdraw(12, at(300));
        assert_eq!((lease.tokens(at(300)), lease.debt()), (0, 7));
        lease.return_unspent(9, end, at(300));
        assert_eq!(lease.debt(), 7);
        lease.return_unspent(9, at(500), at(300));
        assert_eq!((lease.tokens(at(300)), lease.debt()), (2, 0));
    }

    #[test]
    fn slow_and_small_limits_lease_nothing() {
        for (limit, beforehand) in [
            (leak(100, "1/s"), 0),
            (leak(100, "9/s"), 0),
            (leak(100, "10/s"), 1),
            (leak(3, "1000/s"), 0),
            (leak(4, "1000/s"), 1),
            (leak(100, "100/s"), 10),
            (leak(100, "10000/s"), 25),
        ] {
            let terms = terms(limit);
            assert_eq!(prefetched(&terms), beforehand, "{limit:?}");
            let leases =
                [1, beforehand, beforehand.saturating_add(1)].map(|cost| terms.prefetches(cost));
            assert_eq!(leases, [beforehand > 0, beforehand > 0, false], "{limit:?}");
            assert_eq!(terms.max_prefetch(), beforehand, "{limit:?}");
        }
    }

    #[test]
    fn lumps_at_both_ends_count() {
        let rate = Rate::parse("10/s").expect("a rate");
        let limit = Shared::Interval { capacity: 5, rate };
        let most = |span: u64, lease: u64| {
            limit.most_in(Nanos::from_millis(span), Nanos::from_millis(lease))
        };
        assert_eq!(
            [most(0, 0), most(999, 0), most(999, 1), most(2_000, 200)],
            [15, 15, 25, 35]
        );
    }

    #[test]
    fn credit_counts_before_and_after() {
        assert_eq!(terms(leak(9, "1/s")).settings().most_on_credit(), 6);
    }
}
