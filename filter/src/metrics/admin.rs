//! The metrics of the admin API: calls that were refused.

use super::{Registry, add};
use crate::host::{Host, MetricId, MetricKind};

/// The metrics of the admin API.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdminMetrics {
    unauthorized: Option<MetricId>,
    forbidden: Option<MetricId>,
}

impl AdminMetrics {
    pub(crate) fn define(host: &dyn Host, registry: &mut Registry, share: &str) -> Self {
        let mut counter = |what: &str| {
            let name = format!("{share}.admin.{what}");
            registry.get(host, MetricKind::Counter, name)
        };
        Self {
            unauthorized: counter("unauthorized"),
            forbidden: counter("forbidden"),
        }
    }

    /// A call was refused with this status.
    pub(crate) fn refused(&self, host: &dyn Host, status: u16) {
        let id = if status == 401 {
            self.unauthorized
        } else {
            self.forbidden
        };
        add(host, id, 1);
    }
}
