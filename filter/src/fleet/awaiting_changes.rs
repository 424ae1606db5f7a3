//! Requests that arrive before this Envoy knows its fleet's changes. They wait for the first
//! response about changes. Otherwise, after each start, a key that is banned at another Envoy would
//! pass until that response.

use loudou_limiter::Nanos;

use super::{
    CallContent, Fleet, Heartbeat, MAX_CALLS_IN_FLIGHT, RECENT_CALL_DIVISOR, Ready, RulesInForce,
};
use crate::host::Host;
use crate::waiting::Ticket;

/// Requests of one worker that wait for the changes. The worker waits once, until the changes are
/// known and in force or the time-out of the first request has passed.
#[derive(Debug, Default)]
pub(super) struct AwaitingChanges {
    /// True once requests are decided without this wait.
    is_over: bool,
    /// True once all changes were received. Some may not be in force yet.
    has_heard: bool,
    /// End of the wait. Zero before the first request.
    until: Nanos,
    /// Earliest time of the next call.
    next_call: Nanos,
    requests: Vec<Ticket>,
}

impl AwaitingChanges {
    /// Ends the wait. Returns the requests that must be decided.
    pub(super) fn end(&mut self) -> Vec<Ready> {
        self.is_over = true;
        let requests = std::mem::take(&mut self.requests);
        requests.into_iter().map(Ready::early).collect()
    }

    /// Records that a call to fetch the changes was sent.
    pub(super) fn called(&mut self, timeout: Nanos, now: Nanos) {
        // If one of two relays hangs, the next call may reach the other one.
        let young = Nanos::new(timeout.get().div_euclid(RECENT_CALL_DIVISOR));
        self.next_call = now.saturating_add(young);
    }

    /// Returns the time at which the timer must fire.
    pub(super) fn due(&self) -> Option<Nanos> {
        if self.requests.is_empty() {
            return None;
        }
        if self.is_over || self.has_heard {
            return Some(Nanos::ZERO);
        }
        Some(self.next_call.min(self.until))
    }
}

impl Fleet {
    /// Fetches the changes, unless this Envoy knows them already. Called before the first decision.
    pub(crate) fn start(
        &mut self,
        host: &dyn Host,
        active: &impl RulesInForce,
        now: Nanos,
    ) -> Vec<Ready> {
        if self.knows_changes(host, now) {
            return self.early.end();
        }
        self.send_heartbeat(host, active, now)
    }

    /// Returns the time until which a request waits for the changes. `None` if it does not wait.
    pub(crate) fn awaits_changes(&mut self, host: &dyn Host, now: Nanos) -> Option<Nanos> {
        if self.early.is_over {
            return None;
        }
        if self.early.until.is_zero() {
            self.early.until = now.saturating_add(self.settings.timeout);
        }
        let is_over = now >= self.early.until || self.breaker.is_open();
        if is_over || self.knows_changes(host, now) {
            // The timer decides the requests that have waited.
            self.early.is_over = true;
            return None;
        }
        Some(self.early.until)
    }

    /// Queues a request until the changes have arrived.
    pub(crate) fn hold_for_changes(
        &mut self,
        host: &dyn Host,
        active: &impl RulesInForce,
        request: Ticket,
        now: Nanos,
    ) -> Vec<Ready> {
        self.metrics.held(host);
        self.early.requests.push(request);
        let mut calls_in_flight = self.calls_in_flight.iter();
        if calls_in_flight.any(|flight| matches!(flight.carries, CallContent::Changes(_))) {
            return Vec::new();
        }
        self.fetch_changes(host, active, now)
    }

    /// Handles a timer tick for requests that wait for the changes.
    pub(super) fn tick_early(
        &mut self,
        host: &dyn Host,
        active: &impl RulesInForce,
        now: Nanos,
    ) -> Vec<Ready> {
        if self.early.requests.is_empty() {
            return Vec::new();
        }
        let is_over = self.early.is_over || now >= self.early.until || self.breaker.is_open();
        if is_over || self.knows_changes(host, now) {
            return self.early.end();
        }
        if self.early.has_heard {
            let is_current = active.apply_due(host, now);
            return self.changes_received(host, is_current, now);
        }
        self.fetch_changes(host, active, now)
    }

    /// Handles the receipt of the last change. `is_current` is true if they are also in force.
    /// Returns the requests that must be decided.
    pub(super) fn changes_received(
        &mut self,
        host: &dyn Host,
        is_current: bool,
        now: Nanos,
    ) -> Vec<Ready> {
        self.early.has_heard = true;
        if !is_current {
            return Vec::new();
        }
        super::heartbeat::mark_current(host, &self.namespace, now);
        self.early.end()
    }

    fn fetch_changes(
        &mut self,
        host: &dyn Host,
        active: &impl RulesInForce,
        now: Nanos,
    ) -> Vec<Ready> {
        let is_early =
            now < self.early.next_call || self.calls_in_flight.len() >= MAX_CALLS_IN_FLIGHT;
        if is_early || !self.breaker.may_call(now) {
            return Vec::new();
        }
        self.send_heartbeat(host, active, now)
    }

    /// Returns true if a worker of this Envoy has recently received all changes and applied them.
    fn knows_changes(&self, host: &dyn Host, now: Nanos) -> bool {
        let heartbeat = Heartbeat::find(host, &self.namespace);
        heartbeat.is_some_and(|heartbeat| heartbeat.is_current(now))
    }
}
