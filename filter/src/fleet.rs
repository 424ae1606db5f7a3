//! The leases of one worker: what it asks of the relay, and which requests wait for the answer.
//!
//! A call carries all keys that ask, and the next one leaves from its callback; only where a relay is slow,
//! some are on their way at once. A worker asks for its own held requests itself, so no worker ever has to
//! wake another. Whether a request waits is decided by the core ([`loudou_limiter::lease`]); here is only what
//! a worker needs for it.

use std::cell::Cell;
use std::rc::Rc;

use due::Dues;
use early::Early;
use loudou_api::{EventKind, LEASE_PATH};
use loudou_limiter::Nanos;
use loudou_limiter::lease::breaker::{Breaker, Policy, State};
use loudou_limiter::lease::{Lease, LeaseAsk, LeaseSettings, Phase, Terms};
use loudou_rules::fleet::FleetView;
use loudou_rules::rule::FleetSettings;
use loudou_store::BucketId;
use travel::{Changes, Heard};
use wire::Answer;

use crate::host::{Host, Outgoing};
use crate::metrics::FleetMetrics;
use crate::waiting::Ticket;
use crate::waiting::sooner;

pub(crate) use pulse::Pulse;

mod alone;
mod due;
mod early;
mod pulse;
pub(crate) mod travel;
mod wire;

#[cfg(test)]
pub(crate) use pulse::know_changes;

/// The most calls of one worker that are on their way.
const MAX_FLIGHTS: usize = 4;
/// While a call is younger than this part of the time-out, the next one waits for its answer: it then carries
/// more keys.
const YOUNG: u64 = 4;
/// A refill waits for this part of a lease, so that one call carries those of many keys: what a key has on hand
/// lasts for about a fourth of a lease.
const PATIENCE: u64 = 16;
/// It waits no longer than this with long leases.
const MAX_PATIENCE: Nanos = Nanos::from_millis(20);
/// The most keys in a call. A relay takes more, but a fourth of its usual deadline is gone with so many.
const KEYS_PER_CALL: usize = 128;

/// What the engine's answers act on: the rules in force at this worker, and their buckets. The data role has it.
pub(crate) trait RulesInForce {
    /// The name of the process: 16 hexadecimal digits.
    fn instance(&self) -> &str;

    /// Adds an event of the fleet.
    fn report(&self, host: &dyn Host, what: (EventKind, &str), now: Nanos);

    /// Changes the lease of a key; the result of the change, the name of the rule and the terms. `None` if
    /// the rule or the bucket is gone, the store failed, or the change had no result.
    fn change_lease<T>(
        &self,
        host: &dyn Host,
        fleet: &Fleet,
        of: (BucketId, &str),
        now: Nanos,
        change: &mut LeaseChange<'_, T>,
    ) -> Option<(T, &str, Terms)>;

    /// Reads an answer to a call that sent the changes `told` (name and version of each), and puts new changes in force.
    fn hear_changes(
        &self,
        host: &dyn Host,
        told: &[(String, u64)],
        heard: &Heard,
        now: Nanos,
    ) -> News;

    /// Puts received changes in force, for a bounded time. Returns true if all of them are in force now.
    fn apply_due(&self, host: &dyn Host, now: Nanos) -> bool;

    /// Looks whether the rules here still agree with the changes: another configuration may have come.
    fn recheck_changes(&self, host: &dyn Host, now: Nanos);
}

/// A change of a lease; `None` for no result.
pub(crate) type LeaseChange<'a, T> = dyn FnMut(&mut Lease, &Terms) -> Option<T> + 'a;

/// The news in an answer of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// The engine gave none: the answer has no changes.
    Nothing,
    /// Some changes are still to be sent or received.
    More,
    /// All changes of the engine are known here; `is_current` if they are in force, too.
    All { is_current: bool },
}

/// A key whose lease is asked for.
pub(crate) struct Wanted {
    pub(crate) id: BucketId,
    pub(crate) key: String,
    /// The cost of the request that waits for it; 0 for a refill.
    pub(crate) cost: u64,
    /// Until when the request waits.
    pub(crate) until: Nanos,
}

/// The leases of one worker.
#[derive(Debug)]
pub(crate) struct Fleet {
    settings: FleetSettings,
    namespace: String,
    breaker: Breaker,
    /// The answers in a row in which the engine answered nothing.
    empty: u32,
    dues: Dues,
    early: Early,
    /// In the order of sending.
    flights: Vec<Flight>,
    metrics: FleetMetrics,
    /// Whether this worker counts as one that the engine does not answer; shared with the sandbox's will.
    is_alone: Rc<Cell<bool>>,
    /// The Envoys that the engine last knew of, or that the settings assume; at least 1.
    envoys: u32,
    /// When the engine last answered this worker; zero for never.
    heard_at: Nanos,
    /// When this worker last told the others of an answer.
    told_at: Nanos,
    /// Whether the engine answers no worker of this Envoy.
    is_silent: bool,
    /// When the timer looks whether it is this worker's turn to call.
    next_look: Nanos,
}

impl Fleet {
    pub(crate) fn new(
        settings: FleetSettings,
        namespace: &str,
        metrics: FleetMetrics,
        is_alone: Rc<Cell<bool>>,
    ) -> Self {
        Self {
            envoys: settings.envoys,
            settings,
            namespace: namespace.to_owned(),
            breaker: Breaker::new(Policy::default()),
            empty: 0,
            dues: Dues::default(),
            early: Early::default(),
            flights: Vec::new(),
            metrics,
            is_alone,
            heard_at: Nanos::ZERO,
            told_at: Nanos::ZERO,
            is_silent: false,
            next_look: Nanos::ZERO,
        }
    }

    /// The state of the fleet for a request.
    pub(crate) fn view(&self, phase: Phase) -> FleetView {
        FleetView {
            lease: LeaseSettings {
                lease: self.settings.lease,
                timeout: self.settings.timeout,
                credit: self.settings.credit.into(),
            },
            on_outage: self.settings.on_outage,
            phase,
            is_down: self.is_silent || self.breaker.is_open(),
            envoys: self.envoys,
        }
    }

    /// Whether a call is on its way.
    #[cfg(test)]
    pub(crate) fn is_calling(&self) -> bool {
        !self.flights.is_empty()
    }

    /// A request waits for the lease of a key.
    pub(crate) fn hold(&mut self, host: &dyn Host, wanted: &Wanted, request: Ticket) {
        self.dues.hold(wanted.id, &wanted.key, wanted.cost, request);
        self.metrics.held(host);
    }

    /// A request was decided: without the engine, or with leases that should be asked for more.
    pub(crate) fn decided(
        &mut self,
        host: &dyn Host,
        is_local: bool,
        low: &[(BucketId, String)],
        now: Nanos,
    ) {
        if is_local {
            self.metrics.local(host);
        }
        for (id, key) in low {
            self.dues.refill(*id, key, now);
        }
    }

    /// When the timer is needed.
    pub(crate) fn due(&self) -> Option<Nanos> {
        let may_call = match self.breaker.state() {
            State::Closed => None,
            State::Open { until } | State::Probing { until } => Some(until),
        };
        let asks = !self.dues.is_empty() && self.flights.len() < MAX_FLIGHTS;
        let next = asks.then(|| self.next_flight());
        let waited = sooner(next, self.early.due());
        sooner(sooner(may_call, waited), Some(self.next_look))
    }

    /// The timer's work: some times a second one worker of this Envoy calls, so that it is counted and changes
    /// travel; and a worker that had no answers looks whether there are some again.
    pub(crate) fn tick(
        &mut self,
        host: &dyn Host,
        active: &impl RulesInForce,
        now: Nanos,
    ) -> Vec<Ready> {
        let mut ready = self.tick_early(host, active, now);
        let is_open = self.breaker.is_open();
        let mut is_turn = is_open && self.breaker.may_call(now);
        if now >= self.next_look {
            self.next_look = now.saturating_add(pulse::LOOK);
            let (pulse, is_due) = pulse::look(host, &self.namespace, &self.settings, now);
            self.learn(pulse);
            self.is_silent = pulse.is_silent(self.heard_at);
            if !is_open {
                self.note_answers_to_others(host, active, pulse, now);
            }
            is_turn |= is_due && !is_open;
        }
        if is_turn {
            active.recheck_changes(host, now);
            ready.extend(self.beat(host, active, now));
        }
        ready
    }

    /// Makes a call that counts this Envoy, tells its changes and asks for those of the others.
    fn beat(&mut self, host: &dyn Host, active: &impl RulesInForce, now: Nanos) -> Vec<Ready> {
        let mut changes = Changes {
            head: travel::head(host, &self.namespace),
            all: Vec::new(),
        };
        if changes.head.unsent > 0 {
            changes = travel::find(host, &self.namespace);
        }
        let body = wire::beat(&self.namespace, active.instance(), &changes, now);
        let mut told = Vec::new();
        for change in changes.unsent() {
            told.push((change.name.clone(), change.version));
        }
        let told = Carried::Changes(told);
        self.early.called(self.settings.timeout, now);
        self.launch(host, active, (&body, told), now)
    }

    /// The earliest time of the next call, if a key asks.
    fn next_flight(&self) -> Nanos {
        let young = Nanos::new(self.settings.timeout.get().div_euclid(YOUNG));
        let last = self.flights.last();
        let free = last.map_or(Nanos::ZERO, |last| last.sent_at.saturating_add(young));
        let patience = Nanos::new(self.settings.lease.get().div_euclid(PATIENCE));
        free.max(self.dues.due(patience.min(MAX_PATIENCE), KEYS_PER_CALL))
    }

    /// Sends the next call, unless that is too early or nothing asks. Returns the requests to decide anew:
    /// those that waited for what could not be sent.
    pub(crate) fn send(
        &mut self,
        host: &dyn Host,
        active: &impl RulesInForce,
        now: Nanos,
    ) -> Vec<Ready> {
        let is_early = self.flights.len() >= MAX_FLIGHTS || now < self.next_flight();
        if self.dues.is_empty() || is_early || !self.breaker.may_call(now) {
            return Vec::new();
        }
        let (mut wanted, mut keys, mut ready) = (Vec::new(), Vec::new(), Vec::new());
        for due in self.dues.take(KEYS_PER_CALL) {
            let asked =
                active.change_lease(host, self, (due.id, &due.key), now, &mut |lease, terms| {
                    lease.ask(terms, due.held, now)
                });
            let Some((ask, rule, terms)) = asked else {
                ready.extend(due.requests.into_iter().map(Ready::soon));
                continue;
            };
            wanted.push(wire::asked(rule, &due.key, &terms, ask.demand));
            keys.push(Asked {
                id: due.id,
                key: due.key,
                ask,
                requests: due.requests,
            });
        }
        if !keys.is_empty() {
            let body = wire::call(&self.namespace, wanted);
            ready.extend(self.launch(host, active, (&body, Carried::Keys(keys)), now));
        }
        ready
    }

    fn launch(
        &mut self,
        host: &dyn Host,
        active: &impl RulesInForce,
        (body, carries): (&[u8], Carried),
        now: Nanos,
    ) -> Vec<Ready> {
        let sent = self.post(host, body);
        self.metrics.called(host);
        let flight = |call| Flight {
            call,
            sent_at: now,
            carries,
        };
        match sent {
            Some(call) => {
                self.flights.push(flight(call));
                Vec::new()
            }
            None => self.failed(host, active, flight(0), now),
        }
    }

    fn post(&self, host: &dyn Host, body: &[u8]) -> Option<u32> {
        let token = self.settings.token.as_ref();
        let bearer = token.map(|token| format!("Bearer {}", token.reveal()));
        let mut headers = vec![("content-type", "application/json")];
        headers.extend(bearer.as_deref().map(|bearer| ("authorization", bearer)));
        let timeout_ms = self.settings.timeout.millis_ceil().max(1);
        host.call(&Outgoing {
            cluster: &self.settings.cluster,
            path: LEASE_PATH,
            headers: &headers,
            body,
            timeout_ms: u32::try_from(timeout_ms).unwrap_or(u32::MAX),
        })
    }

    /// The call has its answer, or ended without one. Returns the requests to decide anew.
    pub(crate) fn called(
        &mut self,
        host: &dyn Host,
        active: &impl RulesInForce,
        (call, size): (u32, usize),
        now: Nanos,
    ) -> Vec<Ready> {
        let Some(place) = self.flights.iter().position(|flight| flight.call == call) else {
            return Vec::new();
        };
        let flight = self.flights.remove(place);
        self.metrics.took(host, now.since(flight.sent_at));
        let asked = match &flight.carries {
            Carried::Keys(keys) => keys.len(),
            Carried::Changes(_) => 0,
        };
        let Some(answer) = wire::received(host, size, asked) else {
            return self.failed(host, active, flight, now);
        };
        match flight.carries {
            Carried::Keys(keys) => self.granted(host, active, keys, &answer, now),
            Carried::Changes(told) => self.heard(host, active, &told, &answer, now),
        }
    }

    /// The answer to a call that is not about keys.
    fn heard(
        &mut self,
        host: &dyn Host,
        active: &impl RulesInForce,
        told: &[(String, u64)],
        answer: &Answer,
        now: Nanos,
    ) -> Vec<Ready> {
        // The relay is there; without this number, the part of its engine that counts Envoys is not.
        if answer.envoys == 0 {
            self.note_empty(host, active, now);
            return Vec::new();
        }
        self.envoys = u32::try_from(answer.envoys).unwrap_or(u32::MAX);
        let was_down = self.note_answer(host, Some(answer.envoys), now);
        self.note_success(host, active, was_down, now);
        match active.hear_changes(host, told, &answer.heard, now) {
            News::More => self.beat(host, active, now),
            News::All { is_current } => self.heard_all(host, is_current, now),
            News::Nothing => Vec::new(),
        }
    }

    /// Tells the other workers of an answer; returns whether an event says that there are none.
    fn note_answer(&mut self, host: &dyn Host, envoys: Option<u64>, now: Nanos) -> bool {
        let tells = envoys.is_some() || now.since(self.told_at) >= pulse::EVERY;
        if tells {
            self.told_at = now;
        }
        tells && pulse::answered(host, &self.namespace, envoys, now)
    }

    /// The answer to a call for keys.
    fn granted(
        &mut self,
        host: &dyn Host,
        active: &impl RulesInForce,
        keys: Vec<Asked>,
        answer: &Answer,
        now: Nanos,
    ) -> Vec<Ready> {
        let mut ready = Vec::new();
        let mut failures: usize = 0;
        let mut granted: u64 = 0;
        let asked = keys.len();
        let jitter = wire::jitter(host);
        for (asked, grant) in keys.into_iter().zip(&answer.grants) {
            let (id, key, ask, requests) = (asked.id, asked.key, asked.ask, asked.requests);
            failures = failures.saturating_add(grant.is_none().into());
            let tokens = grant.as_ref().map_or(0, |grant| grant.granted);
            granted = granted.saturating_add(tokens.min(ask.demand.want));
            let changed = active.change_lease(host, self, (id, &key), now, &mut |lease, terms| {
                match grant {
                    Some(grant) => {
                        lease.apply(terms, &ask, grant, now, jitter);
                    }
                    None => lease.failed(now, jitter),
                }
                // A denial stays in force in spite of an error, and requests that cost less would ask at once.
                let would_ask = grant.is_none() && !lease.is_alone(now);
                Some((lease.is_due(terms, now), would_ask))
            });
            let (is_due, would_ask) = changed.map_or((false, false), |(result, ..)| result);
            if is_due {
                self.dues.refill(id, &key, now);
            }
            let of = if would_ask {
                Ready::failed
            } else {
                Ready::soon
            };
            ready.extend(requests.into_iter().map(of));
        }
        self.metrics.granted(host, granted);
        if failures > 0 {
            self.expect_local(host);
        }
        if failures < asked {
            let was_down = self.note_answer(host, None, now);
            self.note_success(host, active, was_down, now);
        } else {
            self.note_empty(host, active, now);
        }
        ready
    }

    /// The call did not succeed.
    fn failed(
        &mut self,
        host: &dyn Host,
        active: &impl RulesInForce,
        flight: Flight,
        now: Nanos,
    ) -> Vec<Ready> {
        let mut ready = Vec::new();
        let keys = match flight.carries {
            Carried::Keys(keys) => keys,
            Carried::Changes(_) => Vec::new(),
        };
        for asked in keys {
            let of = (asked.id, asked.key.as_str());
            active.change_lease(host, self, of, now, &mut |lease, _terms| {
                lease.lost(&asked.ask);
                Some(())
            });
            ready.extend(asked.requests.into_iter().map(Ready::soon));
        }
        ready.extend(self.note_failure(host, active, now));
        ready
    }
}

// Calls that are on their way, and the requests that their ends set free.

/// A key that asks, in the call that is on its way.
#[derive(Debug)]
struct Asked {
    id: BucketId,
    key: String,
    ask: LeaseAsk,
    /// The requests that wait for it.
    requests: Vec<Ticket>,
}

/// A request that no longer waits for the relay, and is to be decided again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ready {
    pub(crate) ticket: Ticket,
    pub(crate) phase: Phase,
}

impl Ready {
    const fn soon(ticket: Ticket) -> Self {
        Self {
            ticket,
            phase: Phase::Held,
        }
    }

    /// A request that was never decided, because it waited for the changes of the fleet.
    const fn early(ticket: Ticket) -> Self {
        Self {
            ticket,
            phase: Phase::First,
        }
    }

    /// A request that is decided without the engine, because asking again would give the same error at once.
    const fn failed(ticket: Ticket) -> Self {
        Self {
            ticket,
            phase: Phase::Expired,
        }
    }
}

/// A call that is on its way.
#[derive(Debug)]
struct Flight {
    call: u32,
    sent_at: Nanos,
    carries: Carried,
}

/// The content of a call.
#[derive(Debug)]
enum Carried {
    /// Keys that ask.
    Keys(Vec<Asked>),
    /// The changes that it tells, by name and version. It also counts this Envoy.
    Changes(Vec<(String, u64)>),
}
