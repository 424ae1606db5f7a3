//! Determines, for rules shared by many Envoys, the terms of a key's lease and how a request uses
//! the lease.

use loudou_limiter::Limits;
use loudou_limiter::lease::{LeaseSettings, Phase, Terms};
use loudou_store::{ByLease, Outage};

use crate::rule::{Mode, OnOutage, Rule, Scope};

/// State of the fleet, as it applies to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetView {
    /// Lease settings.
    pub lease: LeaseSettings,
    /// How to treat requests during an engine outage.
    pub on_outage: OnOutage,
    /// Phase of the request's wait for a lease.
    pub phase: Phase,
    /// True if the engine is unreachable.
    pub is_down: bool,
    /// Number of known Envoys; at least 1.
    pub envoys: u32,
}

impl FleetView {
    /// Returns how a rule in this mode takes tokens under these terms.
    pub(crate) const fn by<'a>(&self, mode: Mode, terms: &'a Terms) -> ByLease<'a> {
        ByLease {
            terms,
            // The phase applies only to the rules that made the request wait. A rule in shadow mode
            // is evaluated only once, after the wait, so for this rule the request is new.
            phase: match mode {
                Mode::Enforce => self.phase,
                Mode::Shadow | Mode::Off => Phase::First,
            },
            // In shadow mode, a key's credit is the smallest capacity among its limits. The engine would most likely
            // refuse requests beyond this credit.
            holds: matches!(mode, Mode::Enforce),
            is_down: self.is_down,
            outage: self.otherwise(),
        }
    }

    /// Returns how to treat requests while the engine is unreachable. Returns `None` while it is
    /// reachable.
    pub fn outage(&self) -> Option<Outage> {
        self.is_down.then(|| self.otherwise())
    }

    /// Returns this Envoy's share of `limits`, if requests are decided by this share during an
    /// outage.
    pub(crate) fn part(&self, limits: &Limits) -> Option<Limits> {
        match self.otherwise() {
            Outage::Local(envoys) => limits.divided(envoys),
            Outage::Admit | Outage::Refuse => None,
        }
    }

    const fn otherwise(&self) -> Outage {
        match self.on_outage {
            OnOutage::Local => Outage::Local(self.envoys),
            OnOutage::Admit => Outage::Admit,
            OnOutage::Refuse => Outage::Refuse,
        }
    }
}

impl FleetView {
    /// Returns the lease terms of a key with these limits, or `None` if the rule's buckets are not
    /// shared by the fleet.
    ///
    /// A rule in shadow mode never makes a request wait. Instead, it admits requests on credit and
    /// settles the debt afterwards.
    pub fn terms(&self, rule: &Rule, limits: &Limits) -> Option<Terms> {
        if rule.scope != Scope::Fleet {
            return None;
        }
        let credit = match rule.mode {
            Mode::Enforce => self.lease.credit,
            Mode::Shadow | Mode::Off => {
                let capacities = limits.iter().map(|limit| limit.algorithm().capacity());
                capacities.min().unwrap_or(0)
            }
        };
        let settings = LeaseSettings {
            credit,
            ..self.lease
        };
        Terms::of(limits, &settings).ok()
    }
}
