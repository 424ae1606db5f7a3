//! The start of a worker: what it does when it is configured, and requests that arrive before it knows the changes
//! of its fleet.

use loudou_limiter::Nanos;
use loudou_rules::request::Request as _;

use super::{DataPlane, Fate, Stay};
use crate::host::Host;
use crate::request::HostRequest;
use crate::waiting::Held;

impl DataPlane {
    /// Becomes active right when it is configured, if that changes no rules that are in force. So the first
    /// configuration of a process is in force before its listeners open, and the admin API answers. A later one
    /// must wait: Envoy may still reject it, and notifies no filter of that.
    pub fn configured(&mut self, host: &dyn Host) {
        let now = host.now();
        if self.configuration.may_start(host, now) {
            self.start_at(host, now);
        }
    }

    /// Before the first decision: puts in force what waited for this configuration, and asks for the changes.
    pub(super) fn start_fleet(&mut self, host: &dyn Host, now: Nanos) {
        if let (Some(active), Some(fleet)) = (&self.active, &mut self.fleet) {
            active.apply_waiting(host, now);
            let ready = fleet.start(host, active, now);
            self.put_ready(ready);
        }
    }

    /// Holds the current request if the changes of the fleet are not known yet: its key may be banned. A request
    /// that no rule would refuse passes, and one for which there is no room is decided as if nothing had changed.
    pub(super) fn hold_early(
        &mut self,
        host: &dyn Host,
        stream: u32,
        has_body: bool,
        now: Nanos,
    ) -> Option<(Fate, Stay)> {
        let (active, fleet) = (self.active.as_ref()?, self.fleet.as_mut()?);
        let until = fleet.awaits_changes(host, now)?;
        let room = self.waiting.room(&self.configuration.file.store.waiting);
        let mut request = HostRequest::new(host).held_in(room, has_body);
        if !active.may_refuse(&mut request) || !request.may_wait() {
            return None;
        }
        active.store_metrics.waits(host);
        let held = Held {
            bytes: request.held_bytes(),
            is_undecided: true,
            since: now,
            latest: Nanos::MAX,
            ..Held::default()
        };
        let ticket = self.waiting.enter(stream, until, held);
        let ready = fleet.hold_early(host, active, ticket, now);
        self.put_ready(ready);
        self.timer.fire_by(host, self.next_tick(now), now);
        let stay = Stay {
            ticket: Some(ticket),
            ..Stay::default()
        };
        Some((Fate::Hold(Vec::new()), stay))
    }
}
