//! Rules that many Envoys share: how a request takes from the lease of its key, and the terms of that lease.

use loudou_limiter::Limits;
use loudou_limiter::lease::{LeaseSettings, Phase, Terms};
use loudou_store::{ByLease, Outage};

use crate::rule::{Mode, OnOutage, Rule, Scope};

/// The state of the fleet for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetView {
    /// The settings of leases.
    pub lease: LeaseSettings,
    /// The decision in an outage.
    pub on_outage: OnOutage,
    /// How long the request has been waiting for a lease.
    pub phase: Phase,
    /// Whether the engine cannot be asked.
    pub is_down: bool,
    /// The known number of Envoys, at least 1.
    pub envoys: u32,
}

impl FleetView {
    /// How to take by these terms.
    pub(crate) const fn by<'a>(&self, terms: &'a Terms) -> ByLease<'a> {
        ByLease {
            terms,
            phase: self.phase,
            is_down: self.is_down,
            outage: self.otherwise(),
        }
    }

    /// Who decides while the engine cannot be asked; `None` while it can.
    pub fn outage(&self) -> Option<Outage> {
        self.is_down.then(|| self.otherwise())
    }

    /// The part of this Envoy in `limits`, if that decides while the engine cannot be asked.
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
    /// The terms of a key's limits under a rule; `None` unless all Envoys share them.
    ///
    /// A rule in shadow mode never makes a request wait: it lets pass on credit, and settles afterwards.
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
