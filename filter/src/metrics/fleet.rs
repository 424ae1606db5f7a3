//! The metrics of leases: calls of the relay, and what became of them.

use loudou_api::FleetStatus;
use loudou_limiter::Nanos;

use super::{Registry, add, read};
use crate::host::{Host, MetricId, MetricKind};

/// The metrics of a namespace's fleet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FleetMetrics {
    calls: Option<MetricId>,
    failed: Option<MetricId>,
    granted: Option<MetricId>,
    held: Option<MetricId>,
    local: Option<MetricId>,
    down: Option<MetricId>,
    call_us: Option<MetricId>,
}

impl FleetMetrics {
    pub(crate) fn define(host: &dyn Host, registry: &mut Registry, share: &str) -> Self {
        let mut metric =
            |kind, what: &str| registry.get(host, kind, format!("{share}.fleet.{what}"));
        Self {
            calls: metric(MetricKind::Counter, "calls"),
            failed: metric(MetricKind::Counter, "failed"),
            granted: metric(MetricKind::Counter, "granted"),
            held: metric(MetricKind::Counter, "held"),
            local: metric(MetricKind::Counter, "local"),
            down: metric(MetricKind::Gauge, "down"),
            call_us: metric(MetricKind::Histogram, "call_us"),
        }
    }

    /// A call was made, or tried.
    pub(crate) fn called(&self, host: &dyn Host) {
        add(host, self.calls, 1);
    }

    /// A call ended after this time.
    pub(crate) fn took(&self, host: &dyn Host, time: Nanos) {
        if let Some(id) = self.call_us {
            host.record(id, time.get().div_euclid(1_000));
        }
    }

    /// A call did not succeed.
    pub(crate) fn failed(&self, host: &dyn Host) {
        add(host, self.failed, 1);
    }

    /// Tokens were granted.
    pub(crate) fn granted(&self, host: &dyn Host, tokens: u64) {
        add(host, self.granted, tokens);
    }

    /// A request waits for a lease.
    pub(crate) fn held(&self, host: &dyn Host) {
        add(host, self.held, 1);
    }

    /// A request was decided without the engine.
    pub(crate) fn local(&self, host: &dyn Host) {
        add(host, self.local, 1);
    }

    /// The counts; the caller adds what the workers share.
    pub(crate) fn status(&self, host: &dyn Host) -> FleetStatus {
        FleetStatus {
            workers_down: read(host, self.down),
            calls: read(host, self.calls),
            failed: read(host, self.failed),
            granted: read(host, self.granted),
            held: read(host, self.held),
            local: read(host, self.local),
            ..FleetStatus::default()
        }
    }

    /// The breaker of a worker opened, or closed again.
    pub(crate) fn opened(&self, host: &dyn Host, is_open: bool) {
        if let Some(id) = self.down {
            host.add_to_metric(id, if is_open { 1 } else { -1 });
        }
    }

    /// The number of workers whose breaker is open.
    pub(crate) fn workers_alone(&self, host: &dyn Host) -> u64 {
        read(host, self.down)
    }
}
