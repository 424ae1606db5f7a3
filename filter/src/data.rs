//! The data role of the filter, which decides each request, and returns its reserved tokens when
//! the request ends.
//!
//! A configuration is activated on the first timer tick or request, not when Envoy configures the
//! filter. Envoy first configures a canary VM to find out whether the filter accepts the
//! configuration, and may still reject the update for other reasons. A canary VM must therefore not
//! change the rules in force. A process's first configuration does not replace any rules, so it is
//! activated immediately.

use std::cell::Cell;
use std::collections::VecDeque;
use std::mem;
use std::rc::Rc;

use active::{Active, Decided, IncomingRequest, Planning, Verdict};
use loudou_limiter::lease::Phase;
use loudou_limiter::{Ban, Nanos};
use loudou_rules::request::Request as _;
use loudou_rules::rule::key::Key;
use loudou_rules::rule::{Mode, OnError, Override, Reach, Rule, RuleFile};
use start::Configuration;

use crate::admin::{AdminPlane, Begin};
use crate::behind;
use crate::fleet::{Fleet, Ready};
use crate::host::{Headers, Host, LogLevel, Reply};
use crate::record::RecordCaches;
use crate::request::HostRequest;
use crate::reservation::Reservations;
use crate::respond::{Refusal, explain};
use crate::waiting::{Held, MAX_RELEASED, PanicCleanup, Ticket, Waiting};
use crate::waiting::{Timer, earlier};

pub use redecision::Redecision;

mod active;
mod changes;
mod redecision;
mod start;

/// The verdict on a request.
#[derive(Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// The request passes, with these headers added to its response.
    Pass(Headers),
    /// The request is held until the timer resumes it, with these headers added to its response.
    Hold(Headers),
    /// The request is refused with this response.
    Refuse(Reply),
}

/// Resources that must be released when the request ends.
#[derive(Debug, Default)]
pub struct HoldState {
    ticket: Option<Ticket>,
    reservations: Option<Reservations>,
    /// True if the upstream response to the request must be counted.
    is_watched: bool,
}

impl HoldState {
    /// Returns true if [`DataPlane::responded`] needs to be called when the response headers
    /// arrive.
    pub fn awaits_response(&self) -> bool {
        let reservations = self.reservations.as_ref();
        reservations.is_some_and(Reservations::settles)
    }
}

/// Adds headers to the current response. The IETF draft's headers are lists, so the filter appends
/// its items to the upstream's list. Headers that start with `x-` have a single value, so the
/// filter replaces the upstream's value.
pub fn put(host: &dyn Host, headers: Headers) {
    for (name, value) in headers {
        if name.starts_with("x-") {
            host.set_response_header(&name, &value);
        } else {
            host.add_response_header(&name, &value);
        }
    }
}

/// Interval at which a worker checks for rule edits while it has held requests. The worker must
/// poll, because an edit made by another worker does not wake it.
const EDIT_CHECK_INTERVAL: Nanos = Nanos::from_millis(20);

/// Timer period, in milliseconds, until the configuration is active.
pub const START_TICK_MS: u32 = 50;

/// Per-worker state of the data role.
#[derive(Debug)]
pub struct DataPlane {
    configuration: Configuration,
    active: Option<Active>,
    /// The worker's leases of fleet-wide limits, if a fleet is configured.
    fleet: Option<Fleet>,
    /// True while this worker is counted in the gauge `fleet.down`.
    is_alone: Rc<Cell<bool>>,
    /// The embedded admin API, if configured.
    admin: Option<Box<AdminPlane>>,
    waiting: Waiting,
    planning: Planning,
    /// Requests that are no longer waiting for a lease, in the order in which they will be decided
    /// again.
    ready: VecDeque<Ready>,
    timer: Timer,
}

impl DataPlane {
    /// Creates a data role whose configuration has not been activated yet. Until it has been, the
    /// timer must fire every [`START_TICK_MS`] milliseconds.
    pub fn new(file: RuleFile, configured_at: Nanos) -> Self {
        Self {
            configuration: Configuration::new(file, configured_at),
            active: None,
            fleet: None,
            is_alone: Rc::default(),
            admin: None,
            waiting: Waiting::default(),
            planning: Planning::default(),
            ready: VecDeque::new(),
            timer: Timer::default(),
        }
    }

    /// Shares the decoded-rule cache with the other plugins in this VM.
    #[must_use]
    pub fn sharing(mut self, caches: &mut RecordCaches) -> Self {
        self.configuration.records.sharing(caches);
        self
    }

    /// Activates the configuration unless it is already active. Returns true if the configuration
    /// is now active.
    pub fn start(&mut self, host: &dyn Host) -> bool {
        self.start_at(host, host.now()).is_some()
    }

    fn start_at(&mut self, host: &dyn Host, now: Nanos) -> Option<&mut Active> {
        if self.active.is_none() {
            match self.configuration.activate(host, now) {
                Ok(active) => {
                    self.active = Some(active);
                    self.fleet = self.configuration.fleet(host, &self.is_alone);
                    self.start_fleet(host, now);
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

    /// Returns the time at which the timer must next fire.
    fn next_tick(&self, now: Nanos) -> Option<Nanos> {
        let active = self.active.as_ref().and_then(Active::due);
        let fleet = self.fleet.as_ref().and_then(Fleet::due);
        let ready = (!self.ready.is_empty()).then_some(now);
        let admin = self.admin.as_ref().and_then(|admin| admin.due());
        let planning = self.planning.is_due().then_some(now);
        let waiting = self.waiting.due();
        let waiting = waiting.map(|due| due.min(now.saturating_add(EDIT_CHECK_INTERVAL)));
        let own = earlier(earlier(waiting, planning), active);
        earlier(own, earlier(admin, earlier(fleet, ready)))
    }

    /// Handles a timer tick: activates the configuration, resumes held requests that are due,
    /// flushes counts, and sets the timer for the next tick. Returns the requests that the caller
    /// must decide again.
    pub fn tick(&mut self, host: &dyn Host) -> Vec<Redecision> {
        let now = host.now();
        if self.start_at(host, now).is_none() {
            return Vec::new();
        }
        let mut again = Vec::new();
        if let Some(active) = &mut self.active {
            let configuration = &self.configuration;
            active.keep_current(host, &configuration.file, now);
            active.plan(host, &self.waiting, &mut self.planning, now);
            let mut resumed: usize = 0;
            while resumed < MAX_RELEASED
                && let Some((ticket, held)) = self.waiting.next_due(now, self.planning.next)
            {
                resumed = resumed.saturating_add(1);
                if held.is_undecided {
                    again.push(Redecision::expired(ticket));
                    continue;
                }
                if let Some(reservations) = &held.reservations
                    && active.is_banned(host, reservations, now)
                {
                    active.postpone(host, reservations, now);
                    again.push(Redecision::overdue(&held));
                    continue;
                }
                active.mark_passed(host, held.reservations.as_ref(), now);
                active.store_metrics.held_for(host, now.since(held.since));
                host.resume(ticket.stream);
            }
            active.store_metrics.waited(host, resumed);
            active.tick(host, now);
            if let (Some(fleet), false) = (&mut self.fleet, again.is_empty()) {
                fleet.expect_local(host);
            }
            again.extend(self.take_late(host, MAX_RELEASED.saturating_sub(resumed), now));
            let most = MAX_RELEASED.saturating_sub(resumed.saturating_add(again.len()));
            again.extend(self.take_ready(host, most));
        }
        self.tick_fleet(host, now);
        self.request_leases(host, now);
        self.tick_admin(host, now);
        self.timer.fired(host, self.next_tick(now), now);
        again
    }

    /// Returns the cleanup to perform if the VM panics.
    pub fn cleanup(&self) -> PanicCleanup {
        let share = self.configuration.share();
        self.waiting.cleanup(share, &self.is_alone)
    }

    /// Returns true if the request is still held.
    pub fn waits(&self, hold_state: &HoldState) -> bool {
        hold_state
            .ticket
            .is_some_and(|ticket| self.waiting.holds(ticket))
    }

    /// Releases a request's resources when it ends. The request may have completed or failed, or
    /// its client may have disconnected while it was held.
    pub fn end(&mut self, host: &dyn Host, hold_state: &HoldState) {
        let Some(active) = &mut self.active else {
            return;
        };
        let left = hold_state
            .ticket
            .is_some_and(|ticket| self.waiting.cancel(ticket));
        if left {
            active.store_metrics.waited(host, 1);
        }
        if hold_state.reservations.is_none() && !hold_state.is_watched {
            return;
        }
        let now = host.now();
        let configuration = &self.configuration;
        let mut owing = Vec::new();
        if let Some(reservations) = &hold_state.reservations {
            active.keep_current(host, &configuration.file, now);
            owing = active.give_back(host, reservations, left, now);
        }
        if hold_state.is_watched {
            active.see_response(host, configuration.share(), now);
        }
        if let (Some(fleet), false) = (&mut self.fleet, owing.is_empty()) {
            // Other Envoys learn about a key's debt only through the engine, so the key must be
            // included in the next relay call.
            fleet.decided(host, false, &owing, now);
            self.timer.fire_by(host, self.next_tick(now), now);
        }
    }

    /// Reads those headers of the current response that the rules use to compute the request's
    /// final cost.
    pub fn responded(&self, host: &dyn Host, hold_state: &HoldState) {
        if let (Some(active), Some(reservations)) = (&self.active, &hold_state.reservations) {
            reservations.respond(active.read_response(host, reservations));
        }
    }

    /// Decides the current request, which belongs to `stream`. Regardless of the outcome, the
    /// caller must pass the returned hold state to [`Self::end`] when the request ends.
    pub fn decide(
        &mut self,
        host: &dyn Host,
        stream: u32,
        has_body: bool,
    ) -> (RequestOutcome, HoldState) {
        let now = host.now();
        self.start_at(host, now);
        let configuration = &self.configuration;
        let Some(active) = &mut self.active else {
            let refusal = refusal_without_store(host, &configuration.file.rules, now);
            let outcome = refusal.map_or(RequestOutcome::Pass(Vec::new()), RequestOutcome::Refuse);
            return (outcome, HoldState::default());
        };
        active.keep_current(host, &configuration.file, now);
        if active.is_back(host, configuration.share(), now) {
            configuration.roll_back(host, active, now);
        }
        if let Some(held) = self.hold_for_changes(host, stream, has_body, now) {
            return held;
        }
        let (configuration, Some(active)) = (&self.configuration, &mut self.active) else {
            return (RequestOutcome::Pass(Vec::new()), HoldState::default());
        };
        let incoming = IncomingRequest {
            now,
            room: self.waiting.room(&configuration.file.store.waiting),
            has_body,
            waited: Nanos::ZERO,
            fleet: self.fleet.as_ref().map(|fleet| fleet.view(Phase::First)),
        };
        let decided = active.decide(host, &configuration.file, &incoming);
        let decision = self.enter(host, stream, decided, (now, Nanos::MAX));
        // If the request is not held and no fleet is configured, the only due time the decision can
        // affect is [`Active`]'s.
        let needed = if self.fleet.is_none() && !matches!(decision.0, RequestOutcome::Hold(_)) {
            self.active.as_ref().and_then(Active::due)
        } else {
            self.next_tick(now)
        };
        self.timer.fire_by(host, needed, now);
        decision
    }

    /// Applies the verdict by passing, holding or refusing the request. A request that needs a
    /// lease waits until `latest` at most.
    fn enter(
        &mut self,
        host: &dyn Host,
        stream: u32,
        mut decided: Decided,
        (now, latest): (Nanos, Nanos),
    ) -> (RequestOutcome, HoldState) {
        let Some(active) = &mut self.active else {
            return (RequestOutcome::Pass(Vec::new()), HoldState::default());
        };
        let is_watched = matches!(decided.verdict, Verdict::Pass(..)) && active.watches();
        if let Verdict::Pass(due, headers) = &mut decided.verdict
            && *due <= now
            && decided.reservations.is_empty()
            && self.fleet.is_none()
        {
            let hold_state = HoldState {
                is_watched,
                ..HoldState::default()
            };
            return (RequestOutcome::Pass(mem::take(headers)), hold_state);
        }
        let reservations = Reservations::of(decided.reservations);
        let mut hold_state = HoldState {
            ticket: None,
            reservations,
            is_watched,
        };
        let mut held = Held {
            bytes: decided.bytes,
            reservations: hold_state.reservations.clone(),
            since: decided.since,
            latest: now.saturating_add(decided.patience),
            ..Held::default()
        };
        let outcome = match decided.verdict {
            Verdict::Pass(due, headers) if due > now => {
                active.store_metrics.waits(host);
                hold_state.ticket = Some(self.waiting.enter(stream, due, held));
                RequestOutcome::Hold(headers)
            }
            Verdict::Pass(_, headers) => RequestOutcome::Pass(headers),
            Verdict::Refuse(reply) => RequestOutcome::Refuse(reply),
            Verdict::Wait(wanted) => {
                active.store_metrics.waits(host);
                held.is_undecided = true;
                let ticket = self.waiting.enter(stream, wanted.until.min(latest), held);
                hold_state.ticket = Some(ticket);
                if let Some(fleet) = &mut self.fleet {
                    fleet.hold(host, &wanted, ticket);
                }
                RequestOutcome::Hold(Vec::new())
            }
        };
        if let Some(fleet) = &mut self.fleet {
            fleet.decided(host, decided.is_local, &decided.refills, now);
        }
        self.request_leases(host, now);
        (outcome, hold_state)
    }
}

/// Returns the response that refuses the current request when shared data cannot be used at all, or
/// `None` if the request passes. Each rule is evaluated as if its bucket could not be read. A rule
/// therefore refuses the request if its `on_error` is `refuse`, if an override bans the key, or if
/// it refuses requests without a usable key.
fn refusal_without_store(host: &dyn Host, rules: &[Rule], now: Nanos) -> Option<Reply> {
    let mut request = HostRequest::new(host);
    for rule in rules {
        if rule.mode != Mode::Enforce {
            continue;
        }
        let reach = rule.reach(&mut request);
        if reach == Reach::No || rule.when.is_some() && request.cluster().is_none() {
            continue;
        }
        let key = match reach {
            Reach::Refuse => return Some(Refusal::value_too_long(rule).reply(host)),
            Reach::Yes | Reach::No => rule.key_of(&mut request),
        };
        let refusal = match key {
            Key::Skip => continue,
            Key::Refuse => Some(Refusal::key_missing(rule)),
            Key::Ambiguous => Some(Refusal::key_ambiguous(rule)),
            Key::Bucket(key) if rule.overrides.get(&key) == Some(&Override::Banned) => {
                Some(Refusal::banned(rule, Ban::ENDLESS, now))
            }
            Key::Bucket(_) if rule.on_error == OnError::Refuse => {
                Some(Refusal::store_gave_up(rule))
            }
            Key::Bucket(_) => None,
        };
        if let Some(refusal) = refusal {
            return Some(refusal.reply(host));
        }
        if rule.stop {
            break;
        }
    }
    if rules.iter().any(|rule| rule.respond.explain_header) {
        explain::no_decision(host);
    }
    None
}

impl DataPlane {
    /// Embeds the admin API, for deployments that cannot provide a listener for the admin role. The
    /// API is served under a configured path, and only on loopback connections. Requests to this
    /// path are exempt from the rules.
    #[must_use]
    pub fn with_admin(mut self, admin: AdminPlane) -> Self {
        self.admin = Some(Box::new(admin));
        self
    }

    /// Returns true if the admin API is embedded.
    pub const fn has_admin(&self) -> bool {
        self.admin.is_some()
    }

    /// Returns the next step for a request to the embedded admin API. Returns `None` for other
    /// requests.
    #[cold]
    pub fn call(&mut self, host: &dyn Host, has_body: bool) -> Option<Begin> {
        let admin = self.admin.as_mut().filter(|admin| admin.is_asked(host))?;
        let begin = admin.begin_if_local(host, has_body);
        self.timer.fire_by(host, admin.due(), host.now());
        Some(begin)
    }

    fn tick_admin(&mut self, host: &dyn Host, now: Nanos) {
        if let Some(admin) = &mut self.admin
            && admin.due().is_some_and(|due| due <= now)
        {
            admin.tick(host);
        }
    }
}

impl DataPlane {
    /// Activates the configuration immediately if doing so does not change the rules in force. A
    /// process's first configuration is thus active before the listeners accept connections, and
    /// the admin API can show its rules. A later configuration must wait, because Envoy may still
    /// reject it, and does not notify filters when it does.
    pub fn configured(&mut self, host: &dyn Host) {
        let now = host.now();
        if self.configuration.may_start(host, now) {
            self.start_at(host, now);
        }
    }

    /// Prepares the fleet before the first decision: applies the changes that were waiting for this
    /// configuration, and requests new changes from the relay.
    fn start_fleet(&mut self, host: &dyn Host, now: Nanos) {
        if let (Some(active), Some(fleet)) = (&self.active, &mut self.fleet) {
            active.apply_waiting(host, now);
            let ready = fleet.start(host, active, now);
            self.put_ready(ready);
        }
    }

    /// Holds the current request until the fleet's changes are known, because one of them may ban
    /// the request's key. Returns `None` if the request must be decided immediately, because the
    /// changes are already known, the wait for them is over, no enforced rule matches the request,
    /// or the request cannot be held.
    fn hold_for_changes(
        &mut self,
        host: &dyn Host,
        stream: u32,
        has_body: bool,
        now: Nanos,
    ) -> Option<(RequestOutcome, HoldState)> {
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
        let ready = fleet.hold_for_changes(host, active, ticket, now);
        self.put_ready(ready);
        self.timer.fire_by(host, self.next_tick(now), now);
        let hold_state = HoldState {
            ticket: Some(ticket),
            ..HoldState::default()
        };
        Some((RequestOutcome::Hold(Vec::new()), hold_state))
    }
}

#[cfg(test)]
mod tests;
