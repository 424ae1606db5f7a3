//! Makes new decisions for requests that have been waiting for a lease, and for held requests that
//! can no longer pass at their due time.

use loudou_limiter::Nanos;
use loudou_limiter::lease::Phase;

use super::active::IncomingRequest;
use super::{DataPlane, HoldState, RequestOutcome};
use crate::fleet::Ready;
use crate::host::Host;
use crate::waiting::{Held, MAX_RELEASED, Ticket};

/// A held request that must be decided again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redecision {
    /// Stream context.
    pub stream: u32,
    /// Time at which the request must stop waiting for leases.
    until: Nanos,
    phase: Phase,
    /// Arrival time of a request that was decided and then held. `None` for a request that has not
    /// been decided yet.
    late: Option<Nanos>,
}

impl Redecision {
    /// Creates the entry for a request that has been waiting for a lease for the maximum time.
    pub(super) const fn expired(ticket: Ticket) -> Self {
        Self {
            stream: ticket.stream,
            until: ticket.due,
            phase: Phase::Expired,
            late: None,
        }
    }

    const fn ready(ready: Ready) -> Self {
        Self {
            stream: ready.ticket.stream,
            until: ready.ticket.due,
            phase: ready.phase,
            late: None,
        }
    }

    pub(super) const fn overdue(held: &Held) -> Self {
        Self {
            stream: held.ticket.stream,
            until: Nanos::MAX,
            phase: Phase::First,
            late: Some(held.since),
        }
    }
}

impl DataPlane {
    /// Inserts requests that are no longer waiting for a lease into the queue, which is ordered by
    /// ticket.
    pub(super) fn put_ready(&mut self, requests: Vec<Ready>) {
        for ready in requests {
            let place = self
                .ready
                .partition_point(|other| other.ticket < ready.ticket);
            self.ready.insert(place, ready);
        }
    }

    /// Removes and returns up to `most` requests that are no longer waiting for a lease.
    pub(super) fn take_ready(&mut self, host: &dyn Host, most: usize) -> Vec<Redecision> {
        let mut again = Vec::new();
        while again.len() < most
            && let Some(ready) = self.ready.pop_front()
        {
            // The ticket is no longer valid if the client has disconnected in the meantime.
            if self.waiting.cancel(ready.ticket) {
                again.push(Redecision::ready(ready));
            }
        }
        if let Some(active) = &self.active {
            active.store_metrics.waited(host, again.len());
        }
        again
    }

    /// Removes and returns up to `most` held requests that cannot pass at their due time because a
    /// rule was edited. The new decision either takes the tokens that the new limits require, or
    /// refuses the request with a response that reflects the new limits.
    pub(super) fn take_late(
        &mut self,
        host: &dyn Host,
        most: usize,
        now: Nanos,
    ) -> Vec<Redecision> {
        let Some(active) = &self.active else {
            return Vec::new();
        };
        let late = (&self.waiting, &mut self.planning);
        let late = active.postpone_late(host, late, most, now);
        active.store_metrics.waited(host, late.len());
        late.iter().map(Redecision::overdue).collect()
    }

    /// Decides a request again. The caller must first make this request the host's current request.
    pub fn decide_again(
        &mut self,
        host: &dyn Host,
        again: Redecision,
        has_body: bool,
    ) -> (RequestOutcome, HoldState) {
        let now = host.now();
        let configuration = &self.configuration;
        let Some(active) = &mut self.active else {
            return (RequestOutcome::Pass(Vec::new()), HoldState::default());
        };
        active.keep_current(host, &configuration.file, now);
        let phase = if now < again.until {
            again.phase
        } else {
            Phase::Expired
        };
        let since = again.late.unwrap_or(now);
        let incoming = IncomingRequest {
            now,
            room: self.waiting.room(&configuration.file.store.waiting),
            has_body,
            waited: now.since(since),
            fleet: self.fleet.as_ref().map(|fleet| fleet.view(phase)),
        };
        let decided = active.decide(host, &configuration.file, &incoming);
        let decision = self.enter(host, again.stream, decided, (now, again.until));
        self.timer.fire_by(host, self.next_tick(now), now);
        decision
    }

    /// Handles the relay's response to a call, or the call's failure. Returns the requests that the
    /// caller must decide again.
    pub fn called(&mut self, host: &dyn Host, call: u32, size: usize) -> Vec<Redecision> {
        let now = host.now();
        if let (Some(active), Some(fleet)) = (&mut self.active, &mut self.fleet) {
            active.keep_current(host, &self.configuration.file, now);
            let ready = fleet.called(host, active, (call, size), now);
            self.put_ready(ready);
        }
        let again = self.take_ready(host, MAX_RELEASED);
        self.request_leases(host, now);
        self.timer.fire_by(host, self.next_tick(now), now);
        again
    }

    /// Stops counting this worker in the `fleet.down` gauge, because the plugin is being replaced.
    pub fn close(&mut self, host: &dyn Host) {
        if let Some(fleet) = &mut self.fleet {
            fleet.close(host);
        }
    }

    /// Handles a timer tick for the rules with fleet-wide limits.
    pub(super) fn tick_fleet(&mut self, host: &dyn Host, now: Nanos) {
        if let (Some(active), Some(fleet)) = (&self.active, &mut self.fleet) {
            let ready = fleet.tick(host, active, now);
            self.put_ready(ready);
        }
    }

    /// Sends a relay call for the keys that need leases, if a call is due.
    pub(super) fn request_leases(&mut self, host: &dyn Host, now: Nanos) {
        if let (Some(active), Some(fleet)) = (&self.active, &mut self.fleet) {
            let ready = fleet.send(host, active, now);
            self.put_ready(ready);
        }
    }
}
