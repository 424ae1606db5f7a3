//! The admin role of the filter, which serves the HTTP API that the terminal UI calls. A filter in
//! the data role can also serve the API, under a separate path.
//!
//! Any worker may receive a request, and all workers return the same response, because they build
//! it from shared data and metrics. No response ties up a worker for long, because long lists are
//! paginated. [`routes`] lists all endpoints.

use std::rc::Rc;

use loudou_api::{Access, BODY_HEADER, BodyWays, Event};
use loudou_limiter::Nanos;
use loudou_rules::config::{self, Problem};
pub use loudou_rules::config::{AdminSettings as Settings, EmbeddedAdmin as Embedded};
use serde_json::Value;

use crate::ban_ends::{self, Change};
use crate::current;
use crate::events;
use crate::fleet::Heartbeat;
use crate::host::{Host, Reply};
use crate::metrics::{Registry, StoreMetrics};
use crate::record::{Bases, Record, RecordCaches, RecordError, Records};
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
mod refused;
mod routes;
mod rules;
mod search;
mod status;
mod top;
mod warnings;
mod work_budget;

use answer::Failure;
use call::Target;
pub use call::{Call, Route};
use refused::Refused;
pub use routes::ROUTES;
use work_budget::WorkBudget;

/// Initial timer period in milliseconds; the first check for expired bans then reschedules the
/// timer.
pub const START_TICK_MS: u32 = 1_000;
/// Maximum size of a request body, in bytes.
pub const MAX_BODY: usize = 64 * 1024;

/// Per-worker state of the admin API.
#[derive(Debug)]
pub struct AdminPlane {
    settings: Settings,
    registry: Registry,
    records: Records,
    work_budget: WorkBudget,
    refused: Refused,
    /// Time of the next check for expired bans.
    due: Option<Nanos>,
    /// The admin role's timer. `None` if the API is served by a data role, which has its own timer.
    timer: Option<Timer>,
    /// Path prefix under which a data role serves the API. Empty for the admin role.
    at: String,
}

/// What to do next once the headers of an API request have been read.
#[derive(Debug)]
pub enum Begin {
    /// Send this response now.
    Answer(Reply),
    /// Wait for the complete request body, then pass this call to [`AdminPlane::finish`].
    AwaitBody(Box<Call>),
}

/// Parses the admin role's settings.
pub fn role(document: &Value) -> Result<Settings, Vec<Problem>> {
    config::parse_admin(document)
}

/// Returns the settings of the embedded admin API, if it is configured.
pub fn embedded(admin: Option<Embedded>) -> Result<Option<Embedded>, Vec<Problem>> {
    Ok(admin)
}

/// Returns the namespace of the bucket store that the API manages.
pub fn share(settings: &Settings) -> &str {
    &settings.store.namespace
}

impl AdminPlane {
    /// Creates the admin API for the admin role.
    pub fn new(settings: Settings) -> Self {
        Self {
            records: Records::new(&settings.store.namespace, Bases::default()),
            settings,
            registry: Registry::default(),
            work_budget: WorkBudget::default(),
            refused: Refused::default(),
            due: None,
            timer: Some(Timer::default()),
            at: String::new(),
        }
    }

    /// Creates the admin API for a data role, whose timer then also serves the API. The first check
    /// for expired bans is scheduled for [`START_TICK_MS`] milliseconds after `now`.
    pub fn embedded(admin: Embedded, now: Nanos) -> Self {
        let look = Nanos::from_millis(START_TICK_MS.into());
        Self {
            due: Some(now.saturating_add(look)),
            timer: None,
            at: admin.at,
            ..Self::new(admin.settings)
        }
    }

    /// Returns true if the path of the current request belongs to the embedded API.
    pub fn is_asked(&self, host: &dyn Host) -> bool {
        let path = host.request_header(":path").unwrap_or_default();
        let below = path.strip_prefix(self.at.as_bytes());
        below.is_some_and(|below| matches!(below.first(), None | Some(b'/' | b'?')))
    }

    /// Reads the headers of a request to the embedded API. The response is 404 unless both ends of the connection are
    /// loopback addresses. A loopback destination alone does not prove that the client is local, because inside a
    /// tunnel (HBONE) the client chooses the destination address.
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

    /// Returns a description of the admin API for Envoy's log.
    pub fn about(&self) -> String {
        if self.at.is_empty() {
            format!("admin role, {} tokens", self.settings.tokens.len())
        } else {
            format!("admin API at {}, on loopback", self.at)
        }
    }

    /// Returns the time at which the timer must next fire.
    pub const fn due(&self) -> Option<Nanos> {
        self.due
    }

    /// Shares the decoded-rule cache with the other plugins in this VM.
    #[must_use]
    pub fn sharing(mut self, caches: &mut RecordCaches) -> Self {
        self.records.sharing(caches);
        self
    }

    /// Handles a timer tick: adds events for bans that have expired, and sets the timer for the
    /// next expiry.
    pub fn tick(&mut self, host: &dyn Host) {
        let now = host.now();
        self.due = self.report_bans(host, None, now);
        if let Some(timer) = &mut self.timer {
            timer.fired(host, self.due, now);
        }
    }

    /// Stores a ban's changed expiry time, adds events for bans that have expired, and sets the
    /// timer for the next expiry.
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
                // An event without a rule represents bans that [`ban_ends`] counts but does not
                // list.
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

    /// Reads the headers of an API request. Returns the response immediately if the request has no
    /// body or the caller lacks access.
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

    /// Adds the response header that tells clients how to send a JSON body.
    fn with_ways(&self, mut reply: Reply) -> Reply {
        let name = self.ways().name().to_owned();
        reply.headers.push((BODY_HEADER.into(), name));
        reply
    }

    /// Returns the ways in which clients may send a JSON body. A data role accepts JSON only in a
    /// header: `allow_on_headers_stop_iteration` is rarely set on its listener, and without that
    /// setting the filter never receives the request body.
    const fn ways(&self) -> BodyWays {
        if self.at.is_empty() {
            BodyWays::Any
        } else {
            BodyWays::Header
        }
    }

    /// Returns the response to a call whose request body has been fully received.
    pub fn finish(&mut self, host: &dyn Host, mut call: Box<Call>) -> Reply {
        let body = host.request_body(MAX_BODY.saturating_add(1));
        call.body = body.unwrap_or_default();
        if call.body.len() > MAX_BODY {
            return self.with_ways(too_large(MAX_BODY).reply());
        }
        self.answer(host, &mut call)
    }

    /// Parses the headers of the current request, and checks that the caller has access to the
    /// endpoint.
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
        call.fleet = Heartbeat::find(host, self.share()).map(Heartbeat::view);
        let answer = if call.body.is_empty() || call.route.takes_body {
            (call.route.handler)(self, host, call)
        } else {
            let detail = "this call takes no body: send its parameters in the query";
            Err(Failure::bad(detail))
        };
        // The response is based on this record, so all workers must switch to it. The worker that
        // changed the record may not have announced the change yet.
        if self.records.mark_announced() {
            let share = &self.settings.store.namespace;
            StoreMetrics::define(host, &mut self.registry, share).announce_change(host);
        }
        self.with_ways(answer.unwrap_or_else(Failure::reply))
    }

    /// Returns the current rule record.
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
