//! Decides when a worker without answers from the engine decides alone, and by how many Envoys it
//! then divides each limit.

use loudou_api::EventKind;
use loudou_limiter::Nanos;
use loudou_rules::rule::OnOutage;

use super::{Fleet, Heartbeat, Ready, RulesInForce, heartbeat, wire};
use crate::host::Host;

/// Number of consecutive relay responses without the engine's answer after which the engine counts
/// as down.
const EMPTY: u32 = 3;
/// Minimum time without an answer after which a worker relies on answers to other workers. A worker
/// that makes calls because its keys are on a lost node keeps its own state.
const IDLE: Nanos = Nanos::from_secs(1);

impl Fleet {
    /// Stops counting this worker as one without answers, because its plugin is replaced.
    pub(crate) fn close(&mut self, host: &dyn Host) {
        self.breaker.succeeded();
        self.count(host, false);
    }

    /// Counts this worker in the gauge `fleet.down`, or stops counting it. Returns true if that is
    /// a change.
    fn count(&self, host: &dyn Host, is_alone: bool) -> bool {
        let is_new = self.is_alone.replace(is_alone) != is_alone;
        if is_new {
            self.metrics.opened(host, is_alone);
        }
        is_new
    }

    /// Adopts the number of Envoys that another worker knows.
    pub(super) fn adopt_envoys(&mut self, heartbeat: Heartbeat) {
        if heartbeat.envoys > 0 {
            self.envoys = heartbeat.known_envoys();
        }
    }

    /// Prepares for decisions without the engine, which divide limits by the number of Envoys.
    pub(crate) fn expect_local(&mut self, host: &dyn Host) {
        // A worker that makes no calls would otherwise learn the number up to a second late.
        if let Some(heartbeat) = Heartbeat::find(host, &self.namespace) {
            self.adopt_envoys(heartbeat);
        }
    }

    /// Handles a call that the engine answered. `was_down` is true if the last event reported an
    /// outage, even if the worker that added the event has died or was replaced.
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

    /// Relies on the engine's answers to other workers if this worker has made no call for a while.
    /// A worker without requests may never have a turn to call.
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

    /// Handles a failed call. If it opens the circuit breaker, all waiting requests are decided
    /// without the engine.
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

    /// Handles a relay response in which the engine answered nothing. Other keys may be on healthy
    /// nodes, so calls continue and each key has its own back-off. Only the event and the gauge
    /// report the engine as down.
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

    /// Counts this worker as having no answers from the engine, and reports the outage if it is the
    /// first worker.
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
