//! Per-worker fleet state: the tokens the worker requests from the relay, and the held requests
//! that are waiting for them.
//!
//! A fleet is a group of Envoys that share limits. The *engine* is Redis or Valkey, which stores
//! each limit's balance, and the *relay* is a service in front of the engine. The relay leases
//! tokens to the Envoys, which can then decide requests without a network call.
//!
//! A call requests tokens for all keys that need them, and its response callback sends the next
//! call. More than one call is in flight only if the relay is slow. Each worker calls the relay for
//! its own held requests, so no worker needs to wake another. Whether a request waits for tokens is
//! decided by the limiter core ([`loudou_limiter::lease`]). This module sends the calls and applies
//! the responses.

use std::cell::Cell;
use std::rc::Rc;

use awaiting_changes::AwaitingChanges;
use due_keys::DueKeys;
use loudou_api::{EventKind, LEASE_PATH};
use loudou_limiter::Nanos;
use loudou_limiter::lease::breaker::{Breaker, Policy, State};
use loudou_limiter::lease::{Lease, LeaseSettings, Phase, Terms, TokenRequest};
use loudou_rules::fleet::FleetView;
use loudou_rules::rule::FleetSettings;
use loudou_store::BucketId;
use travel::{Changes, ChangesAnswer};
use wire::Answer;

use crate::host::{Host, Outgoing};
use crate::metrics::FleetMetrics;
use crate::waiting::Ticket;
use crate::waiting::earlier;

pub(crate) use heartbeat::Heartbeat;

mod alone;
mod awaiting_changes;
mod due_keys;
mod heartbeat;
pub(crate) mod travel;
mod wire;

#[cfg(test)]
pub(crate) use heartbeat::know_changes;

/// Maximum number of relay calls in flight per worker.
const MAX_CALLS_IN_FLIGHT: usize = 4;
/// While a call is in flight, the next call is delayed until this fraction of the timeout (1/4) has
/// passed, so that it can include more keys.
const RECENT_CALL_DIVISOR: u64 = 4;
/// A refill is delayed by this fraction of a lease (1/16), so that a single call can cover many
/// keys. A refill is requested when the key's remaining tokens will last for about a quarter of a
/// lease.
const REFILL_DELAY_DIVISOR: u64 = 16;
/// Maximum refill delay, which applies to long leases.
const MAX_REFILL_DELAY: Nanos = Nanos::from_millis(20);
/// Maximum number of keys in a call. The relay accepts more keys, but processing this many already
/// takes a quarter of its default deadline.
const KEYS_PER_CALL: usize = 128;

/// Provides access to the rules in force and their buckets, to which the engine's responses are
/// applied. The data role implements it.
pub(crate) trait RulesInForce {
    /// Returns the ID of the Envoy process: 16 hexadecimal digits.
    fn instance(&self) -> &str;

    /// Adds an event about the fleet.
    fn report(&self, host: &dyn Host, what: (EventKind, &str), now: Nanos);

    /// Calls `change` with a key's lease, and stores the lease. Returns the result of `change`, the
    /// rule's name and the lease terms. Returns `None` if the rule or the bucket no longer exists,
    /// if the store failed, or if `change` returned `None`.
    fn change_lease<T>(
        &self,
        host: &dyn Host,
        fleet: &Fleet,
        of: (BucketId, &str),
        now: Nanos,
        change: &mut LeaseChange<'_, T>,
    ) -> Option<(T, &str, Terms)>;

    /// Handles the response to a heartbeat that reported changes, and applies new changes. `reported` contains the name
    /// and version of each reported change.
    fn handle_changes(
        &self,
        host: &dyn Host,
        reported: &[(String, u64)],
        response: &ChangesAnswer,
        now: Nanos,
    ) -> ChangesProgress;

    /// Applies received changes for a bounded amount of time. Returns true if all received changes
    /// are now in force.
    fn apply_due(&self, host: &dyn Host, now: Nanos) -> bool;

    /// Checks whether changes must be applied again, because the rules may have been reconfigured
    /// since then.
    fn recheck_changes(&self, host: &dyn Host, now: Nanos);
}

/// A function that modifies a lease. If the function returns `None`, [`RulesInForce::change_lease`]
/// returns `None` too.
pub(crate) type LeaseChange<'a, T> = dyn FnMut(&mut Lease, &Terms) -> Option<T> + 'a;

/// Progress in exchanging the fleet's changes, after a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangesProgress {
    /// The response says nothing about changes.
    Nothing,
    /// There are more changes to send or receive.
    More,
    /// This Envoy has received all of the engine's changes. `is_current` is true if they are also
    /// in force.
    All { is_current: bool },
}

/// A key whose lease a request must wait for.
pub(crate) struct Wanted {
    pub(crate) id: BucketId,
    pub(crate) key: String,
    /// Cost of the waiting request, or 0 for a refill.
    pub(crate) cost: u64,
    /// Time at which the request stops waiting.
    pub(crate) until: Nanos,
}

/// Per-worker fleet state.
#[derive(Debug)]
pub(crate) struct Fleet {
    settings: FleetSettings,
    namespace: String,
    breaker: Breaker,
    /// Number of consecutive relay responses that contained no answer from the engine.
    empty: u32,
    due_keys: DueKeys,
    early: AwaitingChanges,
    /// Calls in flight, in the order in which they were sent.
    calls_in_flight: Vec<CallInFlight>,
    metrics: FleetMetrics,
    /// True while this worker is counted in the `fleet.down` gauge. The flag is shared with the
    /// VM's [`PanicCleanup`](crate::waiting::PanicCleanup).
    is_alone: Rc<Cell<bool>>,
    /// Number of Envoys in the fleet, as last reported by the engine, or else as assumed in the
    /// settings. At least 1.
    envoys: u32,
    /// Time at which this worker last received a response. Zero before the first response.
    answered_at: Nanos,
    /// Time at which this worker last recorded a response in the shared heartbeat state.
    answer_shared_at: Nanos,
    /// True if none of this Envoy's workers are getting responses.
    is_silent: bool,
    /// Time at which this worker will next check whether it must send a heartbeat.
    next_turn_check: Nanos,
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
            due_keys: DueKeys::default(),
            early: AwaitingChanges::default(),
            calls_in_flight: Vec::new(),
            metrics,
            is_alone,
            answered_at: Nanos::ZERO,
            answer_shared_at: Nanos::ZERO,
            is_silent: false,
            next_turn_check: Nanos::ZERO,
        }
    }

    /// Returns the fleet state for a decision.
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

    /// Returns true if a call is in flight.
    #[cfg(test)]
    pub(crate) fn is_calling(&self) -> bool {
        !self.calls_in_flight.is_empty()
    }

    /// Queues a held request until its key has enough tokens.
    pub(crate) fn hold(&mut self, host: &dyn Host, wanted: &Wanted, request: Ticket) {
        self.due_keys
            .hold(wanted.id, &wanted.key, wanted.cost, request);
        self.metrics.held(host);
    }

    /// Must be called after each decision. Counts the decision if it was made without the engine,
    /// and queues the keys that need a refill.
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
            self.due_keys.refill(*id, key, now);
        }
    }

    /// Returns the time at which the timer must next fire.
    pub(crate) fn due(&self) -> Option<Nanos> {
        let may_call = match self.breaker.state() {
            State::Closed => None,
            State::Open { until } | State::Probing { until } => Some(until),
        };
        let asks = !self.due_keys.is_empty() && self.calls_in_flight.len() < MAX_CALLS_IN_FLIGHT;
        let next = asks.then(|| self.next_call_at());
        let waited = earlier(next, self.early.due());
        earlier(earlier(may_call, waited), Some(self.next_turn_check))
    }

    /// Handles a timer tick. A few times per second, one of this Envoy's workers sends a heartbeat,
    /// which the engine uses to count the Envoy and exchange changes with it. A worker whose
    /// circuit breaker is open sends a heartbeat to check whether the relay is responding again.
    pub(crate) fn tick(
        &mut self,
        host: &dyn Host,
        active: &impl RulesInForce,
        now: Nanos,
    ) -> Vec<Ready> {
        let mut ready = self.tick_early(host, active, now);
        let is_open = self.breaker.is_open();
        let mut is_turn = is_open && self.breaker.may_call(now);
        if now >= self.next_turn_check {
            self.next_turn_check = now.saturating_add(heartbeat::TURN_CHECK_INTERVAL);
            let (heartbeat, is_due) =
                heartbeat::claim_turn(host, &self.namespace, &self.settings, now);
            self.adopt_envoys(heartbeat);
            self.is_silent = heartbeat.is_silent(self.answered_at);
            if !is_open {
                self.note_answers_to_others(host, active, heartbeat, now);
            }
            is_turn |= is_due && !is_open;
        }
        if is_turn {
            active.recheck_changes(host, now);
            ready.extend(self.send_heartbeat(host, active, now));
        }
        ready
    }

    /// Sends a heartbeat, which the engine uses to count this Envoy. The call also reports local
    /// changes and fetches changes from other Envoys.
    fn send_heartbeat(
        &mut self,
        host: &dyn Host,
        active: &impl RulesInForce,
        now: Nanos,
    ) -> Vec<Ready> {
        let mut changes = Changes {
            head: travel::head(host, &self.namespace),
            all: Vec::new(),
        };
        if changes.head.unsent > 0 {
            changes = travel::find(host, &self.namespace);
        }
        let body = wire::heartbeat_call(&self.namespace, active.instance(), &changes, now);
        let mut reported = Vec::new();
        for change in changes.unsent() {
            reported.push((change.name.clone(), change.version));
        }
        let reported = CallContent::Changes(reported);
        self.early.called(self.settings.timeout, now);
        self.send_call(host, active, (&body, reported), now)
    }

    /// Returns the earliest time at which the next call for keys may be sent, if any key needs
    /// tokens.
    fn next_call_at(&self) -> Nanos {
        let young = Nanos::new(self.settings.timeout.get().div_euclid(RECENT_CALL_DIVISOR));
        let last = self.calls_in_flight.last();
        let free = last.map_or(Nanos::ZERO, |last| last.sent_at.saturating_add(young));
        let max_delay = Nanos::new(self.settings.lease.get().div_euclid(REFILL_DELAY_DIVISOR));
        free.max(
            self.due_keys
                .due(max_delay.min(MAX_REFILL_DELAY), KEYS_PER_CALL),
        )
    }

    /// Sends the next call for keys, unless it is too early or no key needs tokens. Returns
    /// requests that must be decided again because no tokens were requested for them.
    pub(crate) fn send(
        &mut self,
        host: &dyn Host,
        active: &impl RulesInForce,
        now: Nanos,
    ) -> Vec<Ready> {
        let is_early =
            self.calls_in_flight.len() >= MAX_CALLS_IN_FLIGHT || now < self.next_call_at();
        if self.due_keys.is_empty() || is_early || !self.breaker.may_call(now) {
            return Vec::new();
        }
        let (mut wanted, mut keys, mut ready) = (Vec::new(), Vec::new(), Vec::new());
        for due in self.due_keys.take(KEYS_PER_CALL) {
            let asked =
                active.change_lease(host, self, (due.id, &due.key), now, &mut |lease, terms| {
                    lease.request(terms, due.held, now)
                });
            let Some((request, rule, terms)) = asked else {
                ready.extend(due.requests.into_iter().map(Ready::soon));
                continue;
            };
            wanted.push(wire::asked(rule, &due.key, &terms, request.demand));
            keys.push(Asked {
                id: due.id,
                key: due.key,
                request,
                requests: due.requests,
            });
        }
        if !keys.is_empty() {
            let body = wire::call(&self.namespace, wanted);
            ready.extend(self.send_call(host, active, (&body, CallContent::Keys(keys)), now));
        }
        ready
    }

    fn send_call(
        &mut self,
        host: &dyn Host,
        active: &impl RulesInForce,
        (body, carries): (&[u8], CallContent),
        now: Nanos,
    ) -> Vec<Ready> {
        let sent = self.post(host, body);
        self.metrics.called(host);
        let flight = |call| CallInFlight {
            call,
            sent_at: now,
            carries,
        };
        match sent {
            Some(call) => {
                self.calls_in_flight.push(flight(call));
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

    /// Handles the response to a call, or the call's failure. Returns the requests that must be
    /// decided again.
    pub(crate) fn called(
        &mut self,
        host: &dyn Host,
        active: &impl RulesInForce,
        (call, size): (u32, usize),
        now: Nanos,
    ) -> Vec<Ready> {
        let Some(place) = self
            .calls_in_flight
            .iter()
            .position(|flight| flight.call == call)
        else {
            return Vec::new();
        };
        let flight = self.calls_in_flight.remove(place);
        self.metrics.took(host, now.since(flight.sent_at));
        let asked = match &flight.carries {
            CallContent::Keys(keys) => keys.len(),
            CallContent::Changes(_) => 0,
        };
        let Some(answer) = wire::received(host, size, asked) else {
            return self.failed(host, active, flight, now);
        };
        match flight.carries {
            CallContent::Keys(keys) => self.granted(host, active, keys, &answer, now),
            CallContent::Changes(reported) => {
                self.handle_heartbeat_response(host, active, &reported, &answer, now)
            }
        }
    }

    /// Handles the response to a heartbeat.
    fn handle_heartbeat_response(
        &mut self,
        host: &dyn Host,
        active: &impl RulesInForce,
        reported: &[(String, u64)],
        answer: &Answer,
        now: Nanos,
    ) -> Vec<Ready> {
        // A count of 0 means that the relay responded, but the engine node that counts the Envoys
        // did not.
        if answer.envoys == 0 {
            self.note_empty(host, active, now);
            return Vec::new();
        }
        self.envoys = u32::try_from(answer.envoys).unwrap_or(u32::MAX);
        let was_down = self.note_answer(host, Some(answer.envoys), now);
        self.note_success(host, active, was_down, now);
        match active.handle_changes(host, reported, &answer.changes, now) {
            ChangesProgress::More => self.send_heartbeat(host, active, now),
            ChangesProgress::All { is_current } => self.changes_received(host, is_current, now),
            ChangesProgress::Nothing => Vec::new(),
        }
    }

    /// Records in the shared heartbeat state that the engine has responded. Returns true if the
    /// last fleet event reported an outage.
    fn note_answer(&mut self, host: &dyn Host, envoys: Option<u64>, now: Nanos) -> bool {
        let report_detail =
            envoys.is_some() || now.since(self.answer_shared_at) >= heartbeat::INTERVAL;
        if report_detail {
            self.answer_shared_at = now;
        }
        report_detail && heartbeat::answered(host, &self.namespace, envoys, now)
    }

    /// Handles the response to a call for keys.
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
            let (id, key, request, requests) = (asked.id, asked.key, asked.request, asked.requests);
            failures = failures.saturating_add(grant.is_none().into());
            let tokens = grant.as_ref().map_or(0, |grant| grant.granted);
            granted = granted.saturating_add(tokens.min(request.demand.want));
            let changed = active.change_lease(host, self, (id, &key), now, &mut |lease, terms| {
                match grant {
                    Some(grant) => {
                        lease.apply(terms, &request, grant, now, jitter);
                    }
                    None => lease.failed(now, jitter),
                }
                // If the engine has previously denied the key, the denial stays in effect despite
                // the failure, and cheaper requests for the key would immediately trigger another
                // call. These requests are therefore decided without the engine.
                let would_ask = grant.is_none() && !lease.is_alone(now);
                Some((lease.is_due(terms, now), would_ask))
            });
            let (is_due, would_ask) = changed.map_or((false, false), |(result, ..)| result);
            if is_due {
                self.due_keys.refill(id, &key, now);
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

    /// Handles a failed call. Returns the requests that must be decided again.
    fn failed(
        &mut self,
        host: &dyn Host,
        active: &impl RulesInForce,
        flight: CallInFlight,
        now: Nanos,
    ) -> Vec<Ready> {
        let mut ready = Vec::new();
        let keys = match flight.carries {
            CallContent::Keys(keys) => keys,
            CallContent::Changes(_) => Vec::new(),
        };
        for asked in keys {
            let of = (asked.id, asked.key.as_str());
            active.change_lease(host, self, of, now, &mut |lease, _terms| {
                lease.lost(&asked.request);
                Some(())
            });
            ready.extend(asked.requests.into_iter().map(Ready::soon));
        }
        ready.extend(self.note_failure(host, active, now));
        ready
    }
}

// Calls in flight, and the held requests that are waiting for them.

/// A key for which a call in flight has requested tokens.
#[derive(Debug)]
struct Asked {
    id: BucketId,
    key: String,
    request: TokenRequest,
    /// Requests that are waiting for the key's tokens.
    requests: Vec<Ticket>,
}

/// A request that is no longer waiting for the relay and must be decided again.
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

    /// Creates the entry for a request that has not been decided yet, because it was waiting for
    /// the fleet's changes.
    const fn early(ticket: Ticket) -> Self {
        Self {
            ticket,
            phase: Phase::First,
        }
    }

    /// Creates the entry for a request that is decided without the engine, to avoid making another
    /// call right after a failed one.
    const fn failed(ticket: Ticket) -> Self {
        Self {
            ticket,
            phase: Phase::Expired,
        }
    }
}

/// A relay call in flight.
#[derive(Debug)]
struct CallInFlight {
    call: u32,
    sent_at: Nanos,
    carries: CallContent,
}

/// Content of a relay call.
#[derive(Debug)]
enum CallContent {
    /// Keys that need tokens.
    Keys(Vec<Asked>),
    /// A heartbeat, with the names and versions of the reported changes.
    Changes(Vec<(String, u64)>),
}
