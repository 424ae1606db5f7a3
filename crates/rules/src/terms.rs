//! The terms of a lease by its rule.

use loudou_limiter::Limits;
use loudou_limiter::lease::{LeaseSettings, Terms};

use crate::fleet::FleetView;
use crate::rule::{Mode, Rule, Scope};

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
