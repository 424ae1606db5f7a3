//! The admin role: the HTTP API that the terminal uses.
//!
//! Requests arrive at any worker, and no answer occupies it for long: lists are cut by work done.
//! All answers come from shared data and metrics, so they are the same on every worker. The calls are in
//! one table ([`routes`]).

use std::rc::Rc;

use loudou_api::{Access, Event};
use loudou_limiter::Nanos;
use loudou_rules::config::AdminSettings;

use crate::ban_ends::{self, Change};
use crate::current;
use crate::events;
use crate::fleet::Pulse;
use crate::host::{Host, Reply};
use crate::metrics::{Registry, StoreMetrics};
use crate::record::{Bases, Record, Records, Shelves};
use crate::timer::Timer;

mod answer;
mod auth;
mod bans;
mod bucket;
mod buckets;
mod call;
mod change;
mod edit;
mod explain;
mod if_match;
mod leased;
mod named_host;
mod pace;
mod refused;
mod routes;
mod rules;
mod search;
mod status;
mod top;
mod warnings;

use answer::Failure;
pub use call::Call;
use call::Target;
pub(crate) use change::describe;
pub(crate) use edit::check;
use pace::Pace;
use refused::Refused;

/// The period at which the admin role looks for bans that have ended, until it knows the next end.
pub const START_TICK_MS: u32 = 1_000;
/// The largest body of a request, in bytes.
pub const MAX_BODY: usize = 64 * 1024;

/// One worker's admin role.
#[derive(Debug)]
pub struct AdminPlane {
    settings: AdminSettings,
    registry: Registry,
    records: Records,
    pace: Pace,
    refused: Refused,
    timer: Timer,
}

/// The next step for a request after its headers.
#[derive(Debug)]
pub enum Begin {
    /// Answer it now.
    Answer(Reply),
    /// Wait for its body, then call [`AdminPlane::finish`] with this.
    AwaitBody(Box<Call>),
}

impl AdminPlane {
    /// An admin role with these settings.
    pub fn new(settings: AdminSettings) -> Self {
        Self {
            records: Records::new(&settings.store.namespace, Bases::default()),
            settings,
            registry: Registry::default(),
            pace: Pace::default(),
            refused: Refused::default(),
            timer: Timer::default(),
        }
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
        let next = self.report_bans(host, None, now);
        self.timer.fired(host, next, now);
    }

    /// Notes the change of a ban's end and reports bans that have ended, now and when the next one ends.
    fn note_ban(&mut self, host: &dyn Host, change: Option<Change<'_>>, now: Nanos) {
        let next = self.report_bans(host, change, now);
        self.timer.fire_by(host, next, now);
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
                Begin::Answer(self.refused.note(host, metrics, refused).reply())
            }
            Ok(call) if has_body => Begin::AwaitBody(Box::new(call)),
            Ok(mut call) => Begin::Answer(self.answer(host, &mut call)),
        }
    }

    /// Answers a call whose body is complete.
    pub fn finish(&mut self, host: &dyn Host, mut call: Box<Call>) -> Reply {
        let body = host.request_body(MAX_BODY.saturating_add(1));
        call.body = body.unwrap_or_default();
        if call.body.len() > MAX_BODY {
            return too_large().reply();
        }
        if !call.body.is_empty() && !call.route.takes_body {
            let detail = "this call takes no body: send its parameters in the query";
            return Failure::bad(detail).reply();
        }
        self.answer(host, &mut call)
    }

    /// The call of the current request, if its caller may make it.
    fn read(&self, host: &dyn Host, has_body: bool) -> Result<Call, Failure> {
        let caller = auth::authorize(host, &self.settings)?;
        let target = Target::read(host)?;
        if has_body {
            let length = host.request_header("content-length");
            let length = length.and_then(|n| String::from_utf8(n).ok()?.parse::<usize>().ok());
            if length.is_some_and(|length| length > MAX_BODY) {
                return Err(too_large());
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
        Call::new(host, caller, target, route)
    }

    fn answer(&mut self, host: &dyn Host, call: &mut Call) -> Reply {
        call.clock = host.clock_at(host.now());
        call.fleet = Pulse::find(host, self.share()).map(Pulse::view);
        let answer = (call.route.handler)(self, host, call);
        answer.unwrap_or_else(Failure::reply)
    }

    /// The rules at the time of a call.
    fn record(&mut self, host: &dyn Host, call: &Call) -> Result<Rc<Record>, Failure> {
        let share = &self.settings.store.namespace;
        let metrics = StoreMetrics::define(host, &mut self.registry, share);
        Ok(current::recent(
            host,
            &self.records,
            &metrics,
            call.clock.now,
        )?)
    }

    fn share(&self) -> &str {
        &self.settings.store.namespace
    }
}

fn too_large() -> Failure {
    Failure::new(413, "Body too large", format!("at most {MAX_BODY} bytes"))
}

#[cfg(test)]
mod tests;
