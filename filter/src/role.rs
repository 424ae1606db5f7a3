//! A plugin on one worker and its requests. This code is shared by the Wasm module and the native
//! module.
//!
//! Each of these modules has its own way of finding the plugin and request that a callback is for,
//! and then calls a function in this module.

use std::mem;

use crate::RecordCaches;
use crate::admin::{self, AdminPlane, Begin, Call, MAX_BODY};
use crate::data::{self, DataPlane, HoldState, Redecision, RequestOutcome};
use crate::host::{Headers, Host, LogLevel};
use crate::plugin::Plugin;
use crate::waiting::PanicCleanup;

/// What Envoy should do after a callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Continue with the next filter.
    Continue,
    /// Pause the stream until the filter resumes it or sends a response.
    Pause,
    /// Pause the stream, but continue to pass its body to the filter.
    AwaitBody,
}

/// The role of a plugin on one worker.
#[derive(Debug)]
pub enum Role {
    /// The data role, which limits requests.
    Data(Box<DataPlane>),
    /// The admin role, which serves the admin API.
    Admin(Box<AdminPlane>),
}

impl Role {
    /// Creates the role selected by a plugin configuration and starts its timer.
    pub fn new(plugin: Plugin, caches: &mut RecordCaches, host: &dyn Host) -> Self {
        let about = format!("loudou {} ({})", crate::VERSION, crate::GIT);
        match plugin {
            Plugin::Data(file, admin) => {
                let (rules, store) = (file.rules.len(), &file.store);
                let line = format!(
                    "{about}: data role, {rules} rules, {} buckets, namespace {}",
                    store.buckets, store.namespace
                );
                host.log(LogLevel::Info, &line);
                host.set_timer_ms(data::START_TICK_MS);
                let plane = DataPlane::new(file, host.now()).sharing(caches);
                let Some(admin) = admin else {
                    return Self::Data(Box::new(plane));
                };
                let admin = AdminPlane::embedded(admin, host.now()).sharing(caches);
                host.log(LogLevel::Info, &admin.about());
                Self::Data(Box::new(plane.with_admin(admin)))
            }
            Plugin::Admin(settings) => {
                let plane = AdminPlane::new(settings).sharing(caches);
                let role = plane.about();
                host.log(LogLevel::Info, &format!("{about}: {role}"));
                host.set_timer_ms(admin::START_TICK_MS);
                Self::Admin(Box::new(plane))
            }
        }
    }

    /// The first configuration of a process is activated immediately. Later configurations are activated on a timer
    /// tick or request, because Envoy may still reject them.
    pub fn configured(&mut self, host: &dyn Host) {
        if let Self::Data(plane) = self {
            plane.configured(host);
        }
    }

    /// Returns the cleanup actions to run if the VM panics.
    pub fn cleanup(&self) -> Option<PanicCleanup> {
        match self {
            Self::Data(plane) => Some(plane.cleanup()),
            Self::Admin(_) => None,
        }
    }

    /// Handles a timer tick. Returns the requests for which the caller must make a new decision.
    pub fn tick(&mut self, host: &dyn Host) -> Vec<Redecision> {
        match self {
            Self::Data(plane) => plane.tick(host),
            Self::Admin(plane) => {
                plane.tick(host);
                Vec::new()
            }
        }
    }

    /// Handles the response to a call, or its failure. `size` is the size of the response body in
    /// bytes. Returns the requests for which the caller must make a new decision.
    pub fn called(&mut self, host: &dyn Host, call: u32, size: usize) -> Vec<Redecision> {
        match self {
            Self::Data(plane) => plane.called(host, call, size),
            Self::Admin(_) => Vec::new(),
        }
    }

    /// Handles the replacement of the plugin by a new configuration.
    pub fn close(&mut self, host: &dyn Host) {
        if let Self::Data(plane) = self {
            plane.close(host);
        }
    }
}

/// A request.
#[derive(Debug, Default)]
pub struct Stream {
    /// Headers to add to the response when it arrives.
    response_headers: Headers,
    /// Resources to release when the request ends, including its position in the queue.
    hold_state: HoldState,
    /// True if the headers are followed by a body or trailers.
    has_body: bool,
    /// Admin API call whose body has not been fully received yet.
    call: Option<Box<Call>>,
}

impl Stream {
    /// Handles the request headers. The request must be the host's current stream, and `number` is
    /// its context ID.
    pub fn request_headers(
        &mut self,
        role: &mut Role,
        host: &dyn Host,
        number: u32,
        has_body: bool,
    ) -> Action {
        let begin = match role {
            Role::Data(plane) => {
                let begin = plane.has_admin().then(|| plane.call(host, has_body));
                let Some(begin) = begin.flatten() else {
                    self.has_body = has_body;
                    let (outcome, hold_state) = plane.decide(host, number, has_body);
                    return self.apply_verdict(host, outcome, hold_state);
                };
                begin
            }
            Role::Admin(plane) => plane.begin(host, has_body),
        };
        match begin {
            Begin::Answer(reply) => {
                host.reply(&reply);
                Action::Pause
            }
            Begin::AwaitBody(call) => {
                self.call = Some(call);
                Action::AwaitBody
            }
        }
    }

    /// Handles a chunk of the request body. `size` is the number of bytes buffered so far.
    pub fn request_body(
        &mut self,
        role: &mut Role,
        host: &dyn Host,
        size: usize,
        is_whole: bool,
    ) -> Action {
        // If the body is too large, it is rejected before it has been fully received.
        self.rest(role, host, is_whole || size > MAX_BODY)
    }

    /// Handles the request trailers.
    pub fn request_trailers(&mut self, role: &mut Role, host: &dyn Host) -> Action {
        self.rest(role, host, true)
    }

    /// Handles the request body and trailers. Pauses them while the request is held, and responds
    /// to an admin API call as soon as its body is complete.
    fn rest(&mut self, role: &mut Role, host: &dyn Host, is_whole: bool) -> Action {
        match role {
            Role::Data(plane) if plane.waits(&self.hold_state) => Action::Pause,
            Role::Data(_) => Action::Continue,
            Role::Admin(plane) => {
                if is_whole && let Some(call) = self.call.take() {
                    host.reply(&plane.finish(host, call));
                }
                Action::AwaitBody
            }
        }
    }

    /// Returns true if the caller must call [`Self::response_headers`] when the response arrives.
    /// The result may change when a new decision is made for the request.
    pub fn needs_response_headers(&self) -> bool {
        !self.response_headers.is_empty() || self.hold_state.awaits_response()
    }

    /// Returns true if the cost of the request must be settled when the request ends. The result
    /// may change when a new decision is made for the request.
    pub fn settles(&self) -> bool {
        self.hold_state.awaits_response()
    }

    /// Handles the response headers by adding the rate-limit headers. Returns true if the caller
    /// must then call [`Self::responded`], which needs the role.
    pub fn response_headers(&mut self, host: &dyn Host) -> bool {
        if !self.response_headers.is_empty() {
            data::put(host, mem::take(&mut self.response_headers));
        }
        self.hold_state.awaits_response()
    }

    /// Reads the response headers that the rules need to compute the request's final cost.
    pub fn responded(&self, role: &Role, host: &dyn Host) {
        if let Role::Data(plane) = role {
            plane.responded(host, &self.hold_state);
        }
    }

    /// Makes a new decision for a held request. The request must be the host's current stream.
    pub fn decide_again(&mut self, role: &mut Role, host: &dyn Host, again: Redecision) {
        let Role::Data(plane) = role else { return };
        let (outcome, hold_state) = plane.decide_again(host, again, self.has_body);
        if self.apply_verdict(host, outcome, hold_state) == Action::Continue {
            host.resume(again.stream);
        }
    }

    /// Releases the resources of a request that has completed or failed.
    pub fn end(&self, role: &mut Role, host: &dyn Host) {
        if let Role::Data(plane) = role {
            plane.end(host, &self.hold_state);
        }
    }

    /// Applies the verdict to the current stream.
    fn apply_verdict(
        &mut self,
        host: &dyn Host,
        outcome: RequestOutcome,
        hold_state: HoldState,
    ) -> Action {
        self.hold_state = hold_state;
        match outcome {
            RequestOutcome::Pass(headers) => {
                self.response_headers = headers;
                Action::Continue
            }
            RequestOutcome::Hold(headers) => {
                self.response_headers = headers;
                Action::Pause
            }
            RequestOutcome::Refuse(reply) => {
                host.reply(&reply);
                Action::Pause
            }
        }
    }
}
