//! The data role: decides on requests as they arrive, and gives back the units they hold when they end.
//!
//! A configuration becomes active at the first tick or request, not when it is configured: Envoy
//! configures a canary VM to see whether it accepts a configuration at all, and the canary must leave
//! no trace in shared data.

use std::cell::Cell;
use std::collections::VecDeque;
use std::mem;
use std::rc::Rc;

use loudou_limiter::Nanos;
use loudou_limiter::lease::Phase;
use loudou_rules::rule::RuleFile;

use crate::admin::AdminPlane;
use crate::behind;
use crate::fleet::{Fleet, Ready};
use crate::host::{Headers, Host, LogLevel, Reply};
use crate::loan::Loan;
use crate::record::Shelves;
use crate::timer::{Timer, sooner};
use crate::waiting::{Held, MAX_RELEASED, Ticket, Waiting, Will};

mod active;
mod again;
mod changes;
mod connections;
mod counts;
mod embedded;
mod leases;
mod start;
mod verdict;
mod without_store;

pub(crate) use active::Active;
pub use again::Again;
use start::Configuration;
pub(crate) use verdict::Wanted;
use verdict::{Arrival, Decided, Verdict};

/// The fate of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Fate {
    /// It passes; its response gets these headers.
    Pass(Headers),
    /// It is held until the timer resumes it, and its response gets these headers.
    Hold(Headers),
    /// It is refused with this answer.
    Refuse(Reply),
}

/// The resources that a request holds until it ends.
#[derive(Debug, Default)]
pub struct Stay {
    ticket: Option<Ticket>,
    loans: Option<Rc<Vec<Loan>>>,
    /// Whether it continued to an upstream whose response is counted.
    is_watched: bool,
}

/// Puts headers into the current response. The draft's headers are lists, so values of an upstream stay;
/// the other headers have a single value, which the filter replaces.
pub fn put(host: &dyn Host, headers: Headers) {
    for (name, value) in headers {
        if name.starts_with("x-") {
            host.set_response_header(&name, &value);
        } else {
            host.add_response_header(&name, &value);
        }
    }
}

/// The period at which the data role tries to become active, from its configuration on.
pub const START_TICK_MS: u32 = 50;

/// One worker's data role.
#[derive(Debug)]
pub struct DataPlane {
    configuration: Configuration,
    active: Option<Active>,
    /// The leases, if there is a fleet.
    fleet: Option<Fleet>,
    /// Whether this worker is counted as one that cannot ask the relay.
    is_alone: Rc<Cell<bool>>,
    /// The admin API, if this role answers it, too.
    admin: Option<Box<AdminPlane>>,
    waiting: Waiting,
    /// The requests that wait for no lease any more, in the order in which they are decided anew.
    ready: VecDeque<Ready>,
    timer: Timer,
}

impl DataPlane {
    /// A data role that is not active yet, whose timer runs every [`START_TICK_MS`].
    pub fn new(file: RuleFile, configured_at: Nanos) -> Self {
        Self {
            configuration: Configuration::new(file, configured_at),
            active: None,
            fleet: None,
            is_alone: Rc::default(),
            admin: None,
            waiting: Waiting::default(),
            ready: VecDeque::new(),
            timer: Timer::default(),
        }
    }

    /// The same, sharing what it reads with the other plugins of the sandbox.
    #[must_use]
    pub fn sharing(mut self, shelves: &mut Shelves) -> Self {
        self.configuration.records.sharing(shelves);
        self
    }

    /// Makes the configuration active, unless it is already. Returns whether it is active now.
    pub fn start(&mut self, host: &dyn Host) -> bool {
        self.start_at(host, host.now()).is_some()
    }

    fn start_at(&mut self, host: &dyn Host, now: Nanos) -> Option<&mut Active> {
        if self.active.is_none() {
            match self.configuration.activate(host, now) {
                Ok(active) => {
                    self.active = Some(active);
                    self.fleet = self.configuration.fleet(host, &self.is_alone);
                }
                Err(error) => {
                    let line =
                        format!("the rules are not active yet: {error:?}; their on_error applies");
                    host.log(LogLevel::Error, &line);
                    let configuration = &self.configuration;
                    behind::report(
                        host,
                        configuration.share(),
                        configuration.configured_at,
                        now,
                    );
                }
            }
        }
        self.active.as_mut()
    }

    /// The time at which the timer is next needed.
    fn next_tick(&self, now: Nanos) -> Option<Nanos> {
        let active = self.active.as_ref().and_then(Active::due);
        let fleet = self.fleet.as_ref().and_then(Fleet::due);
        let ready = (!self.ready.is_empty()).then_some(now);
        let admin = self.admin.as_ref().and_then(|admin| admin.due());
        let own = sooner(self.waiting.due(), active);
        sooner(own, sooner(admin, sooner(fleet, ready)))
    }

    /// The timer's work: becomes active, resumes requests that are due, and flushes counts. The timer
    /// keeps running while there is more to do. Returns the requests to decide anew.
    pub fn tick(&mut self, host: &dyn Host) -> Vec<Again> {
        let now = host.now();
        if self.start_at(host, now).is_none() {
            return Vec::new();
        }
        let mut again = Vec::new();
        if let Some(active) = &mut self.active {
            let configuration = &self.configuration;
            active.keep_current(host, &configuration.file, now);
            let mut resumed: usize = 0;
            while resumed < MAX_RELEASED
                && let Some((ticket, held)) = self.waiting.next_due(now)
            {
                resumed = resumed.saturating_add(1);
                if held.is_undecided {
                    again.push(Again::expired(ticket));
                    continue;
                }
                active.let_pass(host, held.loans.as_deref(), now);
                active.store_metrics.held_for(host, now.since(held.since));
                host.resume(ticket.stream);
            }
            active.store_metrics.waited(host, resumed);
            active.tick(host, now);
            if let (Some(fleet), false) = (&mut self.fleet, again.is_empty()) {
                fleet.expect_local(host);
            }
            again.extend(self.take_ready(host, MAX_RELEASED.saturating_sub(resumed)));
        }
        self.tick_fleet(host, now);
        self.ask(host, now);
        self.tick_admin(host, now);
        self.timer.fired(host, self.next_tick(now), now);
        again
    }

    /// The last actions if the sandbox dies.
    pub fn will(&self) -> Will {
        let share = self.configuration.share();
        self.waiting.will(share, &self.is_alone)
    }

    /// Whether a request is still held.
    pub fn waits(&self, stay: &Stay) -> bool {
        stay.ticket.is_some_and(|ticket| self.waiting.holds(ticket))
    }

    /// Ends a request, whatever its end, even while it is held: gives back its resources.
    pub fn end(&mut self, host: &dyn Host, stay: &Stay) {
        let Some(active) = &mut self.active else {
            return;
        };
        let left = stay.ticket.is_some_and(|ticket| self.waiting.leave(ticket));
        if left {
            active.store_metrics.waited(host, 1);
        }
        if stay.loans.is_none() && !stay.is_watched {
            return;
        }
        let now = host.now();
        let configuration = &self.configuration;
        if let Some(loans) = &stay.loans {
            active.keep_current(host, &configuration.file, now);
            active.give_back(host, loans, left, now);
        }
        if stay.is_watched {
            active.see_response(host, configuration.share(), now);
        }
    }

    /// Decides on the current request, which belongs to `stream`. Whatever its fate, the caller must end
    /// its stay.
    pub fn decide(&mut self, host: &dyn Host, stream: u32, has_body: bool) -> (Fate, Stay) {
        let now = host.now();
        self.start_at(host, now);
        let configuration = &self.configuration;
        let Some(active) = &mut self.active else {
            let refusal = without_store::refusal(host, &configuration.file.rules, now);
            let fate = refusal.map_or(Fate::Pass(Vec::new()), Fate::Refuse);
            return (fate, Stay::default());
        };
        active.keep_current(host, &configuration.file, now);
        if active.is_back(host, configuration.share(), now) {
            configuration.roll_back(host, active, now);
        }
        let arrival = Arrival {
            now,
            room: self.waiting.room(&configuration.file.store.waiting),
            has_body,
            fleet: self.fleet.as_ref().map(|fleet| fleet.view(Phase::First)),
        };
        let decided = active.decide(host, &configuration.file, &arrival);
        let decision = self.enter(host, stream, decided, (now, Nanos::MAX));
        // Nothing but counts becomes due through a request that is neither held nor of a fleet's rule.
        let needed = if self.fleet.is_none() && !matches!(decision.0, Fate::Hold(_)) {
            self.active.as_ref().and_then(Active::due)
        } else {
            self.next_tick(now)
        };
        self.timer.fire_by(host, needed, now);
        decision
    }

    /// Lets a request pass, wait or be refused as decided at `now`. One that waits for a lease does so at most
    /// until `latest`.
    fn enter(
        &mut self,
        host: &dyn Host,
        stream: u32,
        mut decided: Decided,
        (now, latest): (Nanos, Nanos),
    ) -> (Fate, Stay) {
        let Some(active) = &mut self.active else {
            return (Fate::Pass(Vec::new()), Stay::default());
        };
        let is_watched = matches!(decided.verdict, Verdict::Pass(..)) && active.watches();
        if let Verdict::Pass(due, headers) = &mut decided.verdict
            && *due <= now
            && decided.loans.is_empty()
            && self.fleet.is_none()
        {
            let stay = Stay {
                is_watched,
                ..Stay::default()
            };
            return (Fate::Pass(mem::take(headers)), stay);
        }
        let loans = Some(decided.loans).filter(|loans| !loans.is_empty());
        let mut stay = Stay {
            ticket: None,
            loans: loans.map(Rc::new),
            is_watched,
        };
        let mut held = Held {
            bytes: decided.bytes,
            loans: stay.loans.clone(),
            is_undecided: false,
            since: now,
        };
        let fate = match decided.verdict {
            Verdict::Pass(due, headers) if due > now => {
                active.store_metrics.waits(host);
                stay.ticket = Some(self.waiting.enter(stream, due, held));
                Fate::Hold(headers)
            }
            Verdict::Pass(_, headers) => Fate::Pass(headers),
            Verdict::Refuse(reply) => Fate::Refuse(reply),
            Verdict::Wait(wanted) => {
                active.store_metrics.waits(host);
                held.is_undecided = true;
                let ticket = self.waiting.enter(stream, wanted.until.min(latest), held);
                stay.ticket = Some(ticket);
                if let Some(fleet) = &mut self.fleet {
                    fleet.hold(host, &wanted, ticket);
                }
                Fate::Hold(Vec::new())
            }
        };
        if let Some(fleet) = &mut self.fleet {
            fleet.decided(host, decided.is_local, &decided.refills, now);
        }
        self.ask(host, now);
        (fate, stay)
    }
}

#[cfg(test)]
mod tests;
