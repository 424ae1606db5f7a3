//! Holds requests that arrive before this Envoy knows the fleet's changes, until the first response
//! that contains them. Otherwise, requests with a key that was banned through another Envoy would
//! pass for a short time after each start.

use loudou_limiter::Nanos;

use super::{
    CallContent, Fleet, Heartbeat, MAX_CALLS_IN_FLIGHT, RECENT_CALL_DIVISOR, Ready, RulesInForce,
};
use crate::host::Host;
use crate::waiting::Ticket;

/// A worker's requests that are waiting for the fleet's changes. The worker waits only once after
/// it starts, until the changes are in force or the first request's timeout has expired.
#[derive(Debug, Default)]
pub(super) struct AwaitingChanges {
    /// True once requests no longer need to wait for the changes.
    is_over: bool,
    /// True once all changes have been received. Some may not be in force yet.
    has_heard: bool,
    /// Time at which the wait ends. Zero before the first request.
    until: Nanos,
    /// Earliest time at which the next call to fetch the changes may be sent.
    next_call: Nanos,
    requests: Vec<Ticket>,
}

impl AwaitingChanges {
    /// Ends the wait. Returns the waiting requests, which must now be decided.
    pub(super) fn end(&mut self) -> Vec<Ready> {
        self.is_over = true;
        let requests = std::mem::take(&mut self.requests);
        requests.into_iter().map(Ready::early).collect()
    }

    /// Records that a call to fetch the changes has been sent.
    pub(super) fn called(&mut self, timeout: Nanos, now: Nanos) {
        // The next call is sent before this one times out, because it may reach another relay if
        // this relay hangs.
        let young = Nanos::new(timeout.get().div_euclid(RECENT_CALL_DIVISOR));
        self.next_call = now.saturating_add(young);
    }

    /// Returns the time at which the timer must next fire.
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
    /// Fetches the changes, unless this Envoy already knows them. Must be called before the first
    /// decision.
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

    /// Returns the time until which a request must wait for the changes. `None` if the request does
    /// not need to wait.
    pub(crate) fn awaits_changes(&mut self, host: &dyn Host, now: Nanos) -> Option<Nanos> {
        if self.early.is_over {
            return None;
        }
        if self.early.until.is_zero() {
            self.early.until = now.saturating_add(self.settings.timeout);
        }
        let is_over = now >= self.early.until || self.breaker.is_open();
        if is_over || self.knows_changes(host, now) {
            // The next timer tick returns the requests that are still waiting.
            self.early.is_over = true;
            return None;
        }
        Some(self.early.until)
    }

    /// Queues a held request until the changes are in force. Sends a call to fetch the changes,
    /// unless such a call is in flight.
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

    /// Handles a timer tick for requests that are waiting for the changes. Returns the requests
    /// that must now be decided.
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

    /// Records that all changes have been received. If they are also in force (`is_current`),
    /// returns the waiting requests, which must now be decided.
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

    /// Returns true if one of this Envoy's workers has recently confirmed that all changes are in
    /// force.
    fn knows_changes(&self, host: &dyn Host, now: Nanos) -> bool {
        let heartbeat = Heartbeat::find(host, &self.namespace);
        heartbeat.is_some_and(|heartbeat| heartbeat.is_current(now))
    }
}
