//! Detects when a worker gets no answers from the engine and must therefore decide requests
//! locally, and tracks the number of Envoys among which local decisions divide each limit.

use loudou_api::EventKind;
use loudou_limiter::Nanos;
use loudou_rules::rule::OnOutage;

use super::{Fleet, Heartbeat, Ready, RulesInForce, heartbeat, wire};
use crate::host::Host;

/// Number of consecutive relay responses containing no answer from the engine after which the
/// engine is reported as down.
const EMPTY: u32 = 3;
/// Minimum time without a response before a worker relies on the responses that other workers
/// receive. A worker that calls more often, for example because its keys are on a lost engine node,
/// relies on its own responses.
const IDLE: Nanos = Nanos::from_secs(1);

impl Fleet {
    /// Stops counting this worker in the `fleet.down` gauge, because its plugin is being replaced.
    pub(crate) fn close(&mut self, host: &dyn Host) {
        self.breaker.succeeded();
        self.count(host, false);
    }

    /// Starts or stops counting this worker in the `fleet.down` gauge. Returns true if this changed
    /// the gauge.
    fn count(&self, host: &dyn Host, is_alone: bool) -> bool {
        let is_new = self.is_alone.replace(is_alone) != is_alone;
        if is_new {
            self.metrics.opened(host, is_alone);
        }
        is_new
    }

    /// Adopts the number of Envoys stored in the shared heartbeat state.
    pub(super) fn adopt_envoys(&mut self, heartbeat: Heartbeat) {
        if heartbeat.envoys > 0 {
            self.envoys = heartbeat.known_envoys();
        }
    }

    /// Updates the number of Envoys before decisions made without the engine, which divide each
    /// limit by this number.
    pub(crate) fn expect_local(&mut self, host: &dyn Host) {
        // Otherwise, a worker that sends no heartbeats could learn the number up to a second late.
        if let Some(heartbeat) = Heartbeat::find(host, &self.namespace) {
            self.adopt_envoys(heartbeat);
        }
    }

    /// Handles a call to which the engine has responded. `was_down` is true if the last fleet event
    /// reported an outage. The event may have been added by a worker that has since died or been
    /// replaced, in which case this worker reports the end of the outage.
    pub(super) fn note_success(
        &mut self,
        host: &dyn Host,
        active: &impl RulesInForce,
        was_down: bool,
        now: Nanos,
    ) {
        (self.answered_at, self.is_silent) = (now, false);
        self.breaker.succeeded();
        self.empty = 0;
        let was_alone = self.count(host, false);
        let is_last = (was_alone || was_down) && self.metrics.workers_alone(host) == 0;
        if is_last && heartbeat::claims_outage_event(host, &self.namespace, false) {
            let detail = "the relay and its engine answer again";
            active.report(host, (EventKind::FleetUp, detail), now);
        }
    }

    /// Relies on the engine's answers to other workers if this worker has had no response for a
    /// while, because a worker without requests may never send a call of its own.
    pub(super) fn note_answers_to_others(
        &mut self,
        host: &dyn Host,
        active: &impl RulesInForce,
        heartbeat: Heartbeat,
        now: Nanos,
    ) {
        if self.is_alone.get() && heartbeat.answered_at.since(self.answered_at) >= IDLE {
            self.note_success(host, active, heartbeat.is_down(), now);
        }
    }

    /// Handles a failed call. If the failure opens the circuit breaker, returns all waiting
    /// requests, which must then be decided without the engine.
    pub(super) fn note_failure(
        &mut self,
        host: &dyn Host,
        active: &impl RulesInForce,
        now: Nanos,
    ) -> Vec<Ready> {
        self.metrics.failed(host);
        if !self.breaker.failed(now, wire::jitter(host)) {
            return Vec::new();
        }
        self.expect_local(host);
        self.report_down(host, active, now);
        let due_keys = self.due_keys.clear().into_iter();
        let held = due_keys.flat_map(|due| due.requests).map(Ready::soon);
        held.chain(self.early.end()).collect()
    }

    /// Handles a relay response that contains no answer from the engine. Calls continue, with a
    /// separate back-off for each key, because other keys may be on healthy engine nodes. The
    /// engine is reported as down only by an event and the `fleet.down` gauge.
    pub(super) fn note_empty(&mut self, host: &dyn Host, active: &impl RulesInForce, now: Nanos) {
        self.metrics.failed(host);
        self.breaker.succeeded();
        (self.answered_at, self.is_silent) = (now, false);
        if now.since(self.answer_shared_at) >= heartbeat::INTERVAL {
            self.answer_shared_at = now;
            heartbeat::mark_reached(host, &self.namespace, now);
        }
        self.empty = self.empty.saturating_add(1);
        if self.empty >= EMPTY {
            self.report_down(host, active, now);
        }
    }

    /// Counts this worker in the `fleet.down` gauge. Adds an event if no other worker has reported
    /// the outage.
    fn report_down(&self, host: &dyn Host, active: &impl RulesInForce, now: Nanos) {
        if self.count(host, true) && heartbeat::claims_outage_event(host, &self.namespace, true) {
            let detail = match self.settings.on_outage {
                OnOutage::Local => {
                    "no answers from the relay: each Envoy enforces its part of the limits"
                }
                OnOutage::Admit => "no answers from the relay: requests of fleet rules pass",
                OnOutage::Refuse => {
                    "no answers from the relay: requests of fleet rules are refused"
                }
            };
            active.report(host, (EventKind::FleetDown, detail), now);
        }
    }
}
