//! A worker that the engine does not answer: when it decides alone, and by which number of Envoys.

use loudou_api::EventKind;
use loudou_limiter::Nanos;
use loudou_rules::rule::OnOutage;

use super::{Fleet, Pulse, Ready, pulse, wire};
use crate::data::Active;
use crate::host::Host;

impl Fleet {
    /// This worker is gone: whether it asks is nobody's concern any more.
    pub(crate) fn close(&mut self, host: &dyn Host) {
        if self.breaker.succeeded() {
            self.count(host, false);
        }
    }

    /// Counts this worker as one that cannot ask the relay, or no longer.
    fn count(&self, host: &dyn Host, is_alone: bool) {
        self.is_alone.set(is_alone);
        self.metrics.opened(host, is_alone);
    }

    /// Takes over how many Envoys another worker knows of.
    pub(super) fn learn(&mut self, pulse: Pulse) {
        if pulse.envoys > 0 {
            self.envoys = pulse.known_envoys();
        }
    }

    /// Requests are about to be decided without the engine, by the number of Envoys.
    pub(crate) fn expect_local(&mut self, host: &dyn Host) {
        // A worker that makes no calls would know it up to a second late.
        if let Some(pulse) = Pulse::find(host, &self.namespace) {
            self.learn(pulse);
        }
    }

    /// Notes a call that the engine answered. `was_down` is an event that says that it does not answer: of this
    /// worker, or of one that died since or was replaced.
    pub(super) fn note_success(
        &mut self,
        host: &dyn Host,
        active: &Active,
        was_down: bool,
        now: Nanos,
    ) {
        (self.heard_at, self.is_silent) = (now, false);
        let was_open = self.breaker.succeeded();
        if was_open {
            self.count(host, false);
        }
        let is_last = (was_open || was_down) && self.metrics.workers_alone(host) == 0;
        if is_last && pulse::turns(host, &self.namespace, false) {
            let detail = "the relay and its engine answer again";
            active.report(host, (EventKind::FleetUp, detail), now);
        }
    }

    /// Notes a call that failed. If that opens the breaker, nobody waits any more.
    pub(super) fn note_failure(
        &mut self,
        host: &dyn Host,
        active: &Active,
        now: Nanos,
    ) -> Vec<Ready> {
        self.metrics.failed(host);
        if !self.breaker.failed(now, wire::jitter(host)) {
            return Vec::new();
        }
        self.expect_local(host);
        self.count(host, true);
        if pulse::turns(host, &self.namespace, true) {
            let detail = match self.settings.on_outage {
                OnOutage::Local => "no answers: each Envoy limits alone, by its part of the limits",
                OnOutage::Admit => "no answers: requests of fleet rules pass",
                OnOutage::Refuse => "no answers: requests of fleet rules are refused",
            };
            active.report(host, (EventKind::FleetDown, detail), now);
        }
        let dues = self.dues.clear().into_iter();
        dues.flat_map(|due| due.requests).map(Ready::soon).collect()
    }
}
