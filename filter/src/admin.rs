//! The admin role: the HTTP API that the terminal uses. A data role can answer it, too, below a path of its own.
//!
//! Requests arrive at any worker, and no answer occupies it for long: lists are cut by work done.
//! All answers come from shared data and metrics, so they are the same on every worker. The calls are in
//! one table ([`routes`]).

use std::rc::Rc;

use loudou_api::{Access, BODY_HEADER, BodyWays, Event};
use loudou_limiter::Nanos;
use loudou_rules::config::{self, Problem};
pub use loudou_rules::config::{AdminSettings as Settings, EmbeddedAdmin as Embedded};
use serde_json::Value;

use crate::ban_ends::{self, Change};
use crate::current;
use crate::events;
use crate::fleet::Pulse;
use crate::host::{Host, Reply};
use crate::metrics::{Registry, StoreMetrics};
use crate::record::{Bases, Record, RecordError, Records, Shelves};
use crate::waiting::Timer;

mod answer;
mod auth;
mod bans;
mod bucket;
mod buckets;
mod call;
mod edit;
mod explain;
mod if_match;
mod pace;
mod refused;
mod routes;
mod rules;
mod search;
mod status;
mod top;
mod warnings;

use answer::Failure;
use call::Target;
pub use call::{Call, Route};
use pace::Pace;
use refused::Refused;
pub use routes::ROUTES;

/// The period at which the admin role looks for bans that have ended, until it knows the next end.
pub const START_TICK_MS: u32 = 1_000;
/// The largest body of a request, in bytes.
pub const MAX_BODY: usize = 64 * 1024;

/// One worker's admin role.
#[derive(Debug)]
pub struct AdminPlane {
    settings: Settings,
    registry: Registry,
    records: Records,
    pace: Pace,
    refused: Refused,
    /// When bans are looked through next.
    due: Option<Nanos>,
    /// The worker's timer, unless that is the data role's.
    timer: Option<Timer>,
    /// The path below which a data role answers it; empty for the admin role.
    at: String,
}

/// The next step for a request after its headers.
#[derive(Debug)]
pub enum Begin {
    /// Answer it now.
    Answer(Reply),
    /// Wait for its body, then call [`AdminPlane::finish`] with this.
    AwaitBody(Box<Call>),
}

/// The settings of the admin role in its configuration.
pub fn role(document: &Value) -> Result<Settings, Vec<Problem>> {
    config::parse_admin(document)
}

/// The settings of the API that a data role answers, if it does.
pub fn embedded(admin: Option<Embedded>) -> Result<Option<Embedded>, Vec<Problem>> {
    Ok(admin)
}

impl AdminPlane {
    /// An admin role with these settings.
    pub fn new(settings: Settings) -> Self {
        Self {
            records: Records::new(&settings.store.namespace, Bases::default()),
            settings,
            registry: Registry::default(),
            pace: Pace::default(),
            refused: Refused::default(),
            due: None,
            timer: Some(Timer::default()),
            at: String::new(),
        }
    }

    /// The part of a data role that answers the API, from `now` on. Its timer is the data role's.
    pub fn embedded(admin: Embedded, now: Nanos) -> Self {
        let look = Nanos::from_millis(START_TICK_MS.into());
        Self {
            due: Some(now.saturating_add(look)),
            timer: None,
            at: admin.at,
            ..Self::new(admin.settings)
        }
    }

    /// Whether the current request is for the API at a path of the data role's.
    pub fn is_asked(&self, host: &dyn Host) -> bool {
        let path = host.request_header(":path").unwrap_or_default();
        let below = path.strip_prefix(self.at.as_bytes());
        below.is_some_and(|below| matches!(below.first(), None | Some(b'/' | b'?')))
    }

    /// The step for such a request. A connection to another address than loopback finds nothing here, nor does one
    /// from another: where connections come through a tunnel (HBONE), its client names the address that they are to.
    pub fn begin_if_local(&mut self, host: &dyn Host, has_body: bool) -> Begin {
        let reached = auth::address_of(host, auth::DESTINATION);
        let is_local = reached.is_some_and(|address| address.is_loopback());
        if is_local && auth::is_source_loopback(host) {
            return self.begin(host, has_body);
        }
        Begin::Answer(Reply {
            status: 404,
            details: "loudou_admin_not_on_loopback".to_owned(),
            ..Reply::default()
        })
    }

    /// What it is, for the log.
    pub fn about(&self) -> String {
        if self.at.is_empty() {
            format!("admin role, {} tokens", self.settings.tokens.len())
        } else {
            format!("admin API at {}, on loopback", self.at)
        }
    }

    /// When its timer is needed next.
    pub const fn due(&self) -> Option<Nanos> {
        self.due
    }

    /// The same, sharing what it reads with the other plugins of the sandbox.
    #[must_use]
    pub fn sharing(mut self, shelves: &mut Shelves) -> Self {
        self.records.sharing(shelves);
        self
    }

    /// The timer's work: reports bans that have ended.
    pub fn tick(&mut self, host: &dyn Host) {
        let now = host.now();
        self.due = self.report_bans(host, None, now);
        if let Some(timer) = &mut self.timer {
            timer.fired(host, self.due, now);
        }
    }

    /// Notes the change of a ban's end and reports bans that have ended, now and when the next one ends.
    fn note_ban(&mut self, host: &dyn Host, change: Option<Change<'_>>, now: Nanos) {
        self.due = self.report_bans(host, change, now);
        if let Some(timer) = &mut self.timer {
            timer.fire_by(host, self.due, now);
        }
    }

    fn report_bans(
        &mut self,
        host: &dyn Host,
        change: Option<Change<'_>>,
        now: Nanos,
    ) -> Option<Nanos> {
        let share = self.settings.store.namespace.as_str();
        let (ended, next) = ban_ends::note(host, share, change, now);
        if !ended.is_empty() {
            let metrics = StoreMetrics::define(host, &mut self.registry, share);
            let record = current::load(host, &self.records, &metrics, now);
            let generation = record.map_or(0, |record| record.generation);
            for event in ended {
                // One without a rule is about bans that are not remembered one by one.
                metrics.unbanned(host, event.rule.is_some().into());
                events::add(
                    host,
                    share,
                    &Event {
                        generation,
                        ..event
                    },
                );
            }
        }
        next
    }

    /// Reads the headers. A request that is not allowed is answered without its body.
    pub fn begin(&mut self, host: &dyn Host, has_body: bool) -> Begin {
        match self.read(host, has_body) {
            Err(refused) => {
                let metrics = (&mut self.registry, self.settings.store.namespace.as_str());
                let reply = self.refused.note(host, metrics, refused).reply();
                Begin::Answer(self.with_ways(reply))
            }
            Ok(call) if has_body => Begin::AwaitBody(Box::new(call)),
            Ok(mut call) => Begin::Answer(self.answer(host, &mut call)),
        }
    }

    /// The answer, which says how calls may bring their JSON.
    fn with_ways(&self, mut reply: Reply) -> Reply {
        let name = self.ways().name().to_owned();
        reply.headers.push((BODY_HEADER.into(), name));
        reply
    }

    /// The ways in which calls may bring their JSON. For a data role's listener, `allow_on_headers_stop_iteration` is
    /// rarely set, without which a body never arrives.
    const fn ways(&self) -> BodyWays {
        if self.at.is_empty() {
            BodyWays::Any
        } else {
            BodyWays::Header
        }
    }

    /// Answers a call whose body is complete.
    pub fn finish(&mut self, host: &dyn Host, mut call: Box<Call>) -> Reply {
        let body = host.request_body(MAX_BODY.saturating_add(1));
        call.body = body.unwrap_or_default();
        if call.body.len() > MAX_BODY {
            return self.with_ways(too_large(MAX_BODY).reply());
        }
        self.answer(host, &mut call)
    }

    /// The call of the current request, if its caller may make it.
    fn read(&self, host: &dyn Host, has_body: bool) -> Result<Call, Failure> {
        let caller = auth::authorize(host, &self.settings)?;
        let target = Target::read(host, &self.at)?;
        let body = call::body_in_header(host, has_body, self.ways())?;
        if has_body {
            let length = host.request_header("content-length");
            let length = length.and_then(|n| String::from_utf8(n).ok()?.parse::<usize>().ok());
            if length.is_some_and(|length| length > MAX_BODY) {
                return Err(too_large(MAX_BODY));
            }
            call::expect_json(host)?;
        }
        let route = routes::find(&target);
        let needed = route.map_or_else(|| target.needs(), |route| route.access);
        if needed == Access::Edit && caller.access == Access::View {
            let detail = format!("token `{}` may only view", caller.name);
            return Err(Failure::new(403, "Forbidden", detail));
        }
        let route = route.ok_or_else(|| routes::not_here(&target))?;
        let mut call = Call::new(host, caller, target, route)?;
        call.body = body;
        Ok(call)
    }

    fn answer(&mut self, host: &dyn Host, call: &mut Call) -> Reply {
        call.clock = host.clock_at(host.now());
        call.fleet = Pulse::find(host, self.share()).map(Pulse::view);
        let answer = if call.body.is_empty() || call.route.takes_body {
            (call.route.handler)(self, host, call)
        } else {
            let detail = "this call takes no body: send its parameters in the query";
            Err(Failure::bad(detail))
        };
        // What an answer shows is in force on every worker, even if who changed it has not announced it yet.
        if self.records.mark_announced() {
            let share = &self.settings.store.namespace;
            StoreMetrics::define(host, &mut self.registry, share).announce_change(host);
        }
        self.with_ways(answer.unwrap_or_else(Failure::reply))
    }

    /// The rules at the time of a call.
    fn record(&mut self, host: &dyn Host, call: &Call) -> Result<Rc<Record>, RecordError> {
        let share = &self.settings.store.namespace;
        let metrics = StoreMetrics::define(host, &mut self.registry, share);
        current::recent(host, &self.records, &metrics, call.clock.now)
    }

    fn share(&self) -> &str {
        &self.settings.store.namespace
    }
}

fn too_large(most: usize) -> Failure {
    Failure::new(413, "Body too large", format!("at most {most} bytes"))
}

#[cfg(test)]
mod tests;
