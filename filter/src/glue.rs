//! The only module that knows proxy-wasm: it connects Envoy's callbacks to the two roles.
//!
//! No decision is made here. [`exports`] has the functions that Envoy calls, and [`abi`] the host
//! functions that Envoy offers. Neither can panic, because a panic would kill this VM and with it
//! every request on the worker. Plugins of both roles may share a VM, so each context is found by
//! its number.

use std::mem;

use self::abi::EnvoyHost;
use crate::RecordCaches;
use crate::admin::{self, AdminPlane, Begin, Call, MAX_BODY};
use crate::by_context::ByContext;
use crate::data::{self, Again, DataPlane, HoldState, RequestOutcome};
#[cfg(feature = "trap-for-tests")]
use crate::host::MetricKind;
use crate::host::{Headers, Host, LogLevel};
use crate::memory::Recycled;
use crate::plugin::{self, Plugin};

mod abi;
mod exports;

/// Talc needs half as much code as the standard library's allocator for this target, which takes 7
/// KiB of the module.
#[global_allocator]
static MEMORY: Recycled<talc::wasm::WasmDynamicTalc> =
    Recycled::new(talc::wasm::new_wasm_dynamic_allocator());

/// Next step of Envoy after a callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Action {
    /// Continue with the next filter.
    Continue = 0,
    /// Pause the stream until it is resumed or answered.
    Pause = 1,
}

/// State of this VM.
#[derive(Default)]
struct Vm {
    /// Root contexts by number. There are only a few, so a list is searched as fast as a map.
    roots: Vec<(u32, Root)>,
    streams: ByContext<Stream>,
    /// Parts of the shared record that the plugins of this VM have already decoded.
    caches: RecordCaches,
}

/// A root context: one plugin on this worker.
enum Root {
    Unconfigured,
    Data(Box<DataPlane>),
    Admin(Box<AdminPlane>),
}

/// A stream context: one request.
#[derive(Default)]
struct Stream {
    root: u32,
    /// Headers to add to the response if the request passes.
    response_headers: Headers,
    /// Resources that the request holds until it ends, including its place in the queue.
    hold_state: HoldState,
    /// True if a body or trailers follow the headers.
    has_body: bool,
    /// Admin API call whose body is still incomplete.
    call: Option<Box<Call>>,
}

impl Vm {
    /// Creates a context. A context without a root is itself a root context, so it becomes a
    /// plugin.
    fn create(&mut self, context: u32, root: u32) {
        if root == 0 {
            self.put(context, Root::Unconfigured);
        } else {
            let stream = Stream {
                root,
                ..Stream::default()
            };
            self.streams.insert(context, stream);
        }
    }

    fn put(&mut self, context: u32, root: Root) {
        match self.root(context) {
            Some(place) => *place = root,
            None => self.roots.push((context, root)),
        }
    }

    fn root(&mut self, context: u32) -> Option<&mut Root> {
        let found = self.roots.iter_mut().find(|(other, _)| *other == context);
        found.map(|(_, root)| root)
    }

    /// Configures a plugin. Returns true if the plugin accepts the configuration.
    fn configure(&mut self, root: u32) -> bool {
        let host = EnvoyHost;
        let bytes = abi::plugin_configuration().unwrap_or_default();
        match plugin::read(&bytes) {
            Ok((plugin, warnings)) => {
                for warning in warnings {
                    host.log(LogLevel::Warn, &format!("configuration: {warning}"));
                }
                let configured = Root::new(plugin, &mut self.caches);
                self.put(root, configured);
                true
            }
            Err(problems) => {
                for problem in &problems {
                    host.log(LogLevel::Error, &format!("configuration: {problem}"));
                }
                let count = problems.len();
                host.log(
                    LogLevel::Error,
                    &format!("configuration refused: {count} problem(s), see above"),
                );
                false
            }
        }
    }

    fn tick(&mut self, root: u32) {
        match self.root(root) {
            Some(Root::Data(plane)) => {
                let again = plane.tick(&EnvoyHost);
                self.decide_again(&again);
            }
            Some(Root::Admin(plane)) => plane.tick(&EnvoyHost),
            Some(Root::Unconfigured) | None => abi::set_tick_period_ms(0),
        }
    }

    /// Passes a call's response, or its failure, to the plugin that made the call.
    fn called(&mut self, root: u32, call: u32, size: u32) {
        if let Some(Root::Data(plane)) = self.root(root) {
            let size = usize::try_from(size).unwrap_or(usize::MAX);
            let again = plane.called(&EnvoyHost, call, size);
            self.decide_again(&again);
        }
    }

    fn decide_again(&mut self, requests: &[Again]) {
        for again in requests {
            let context = again.stream;
            if let Some((stream, Root::Data(plane))) = self.find(context)
                && EnvoyHost.focus(context)
            {
                stream.limit_again(*again, plane);
            }
        }
    }

    /// Returns a stream with its plugin.
    fn find(&mut self, context: u32) -> Option<(&mut Stream, &mut Root)> {
        let stream = self.streams.get_mut(context)?;
        let mut roots = self.roots.iter_mut();
        let (_, root) = roots.find(|(other, _)| *other == stream.root)?;
        Some((stream, root))
    }

    fn request_headers(&mut self, context: u32, end_of_stream: bool) -> Action {
        #[cfg(feature = "trap-for-tests")]
        trap_on_request();
        let has_body = !end_of_stream;
        let (stream, begin) = match self.find(context) {
            Some((stream, Root::Data(plane))) => {
                let begin = plane.has_admin().then(|| plane.call(&EnvoyHost, has_body));
                let Some(begin) = begin.flatten() else {
                    return stream.limit(context, plane, has_body);
                };
                (stream, begin)
            }
            Some((stream, Root::Admin(plane))) => (stream, plane.begin(&EnvoyHost, has_body)),
            Some((_, Root::Unconfigured)) | None => return Action::Continue,
        };
        match begin {
            Begin::Answer(reply) => EnvoyHost.reply(&reply),
            Begin::AwaitBody(call) => stream.call = Some(call),
        }
        Action::Pause
    }

    fn request_body(&mut self, context: u32, size: u32, end_of_stream: bool) -> Action {
        // A body that is too large is answered at once, without its remainder.
        let too_large = usize::try_from(size).is_ok_and(|size| size > MAX_BODY);
        self.rest(context, end_of_stream || too_large)
    }

    fn request_trailers(&mut self, context: u32) -> Action {
        self.rest(context, true)
    }

    /// Handles the body and trailers of a request. They wait while the request is held, and they
    /// complete the body of an admin API call.
    fn rest(&mut self, context: u32, is_whole: bool) -> Action {
        match self.find(context) {
            Some((stream, Root::Data(plane))) if plane.waits(&stream.hold_state) => Action::Pause,
            Some((stream, Root::Admin(plane))) => {
                if is_whole && let Some(call) = stream.call.take() {
                    EnvoyHost.reply(&plane.finish(&EnvoyHost, call));
                }
                Action::Pause
            }
            Some((_, Root::Data(_) | Root::Unconfigured)) | None => Action::Continue,
        }
    }

    fn response_headers(&mut self, context: u32) -> Action {
        let Some(stream) = self.streams.get_mut(context) else {
            return Action::Continue;
        };
        if !stream.response_headers.is_empty() {
            data::put(&EnvoyHost, mem::take(&mut stream.response_headers));
        }
        if stream.hold_state.awaits_response()
            && let Some((stream, Root::Data(plane))) = self.find(context)
        {
            plane.responded(&EnvoyHost, &stream.hold_state);
        }
        Action::Continue
    }

    /// Ends a context: a request that finished or failed, or a plugin that was replaced.
    fn done(&mut self, context: u32) {
        if let Some(stream) = self.streams.remove(context) {
            if let Some(Root::Data(plane)) = self.root(stream.root) {
                plane.end(&EnvoyHost, &stream.hold_state);
            }
        } else {
            if let Some(Root::Data(plane)) = self.root(context) {
                plane.close(&EnvoyHost);
            }
            self.roots.retain(|(own, _)| *own != context);
            abi::set_tick_period_ms(0);
        }
    }
}

impl Root {
    fn new(plugin: Plugin, caches: &mut RecordCaches) -> Self {
        let host = EnvoyHost;
        let about = format!("loudou {} ({})", crate::VERSION, crate::GIT);
        match plugin {
            Plugin::Data(file, admin) => {
                let (rules, store) = (file.rules.len(), &file.store);
                let line = format!(
                    "{about}: data role, {rules} rules, {} buckets, namespace {}",
                    store.buckets, store.namespace
                );
                host.log(LogLevel::Info, &line);
                abi::set_tick_period_ms(data::START_TICK_MS);
                let mut plane = DataPlane::new(file, host.now()).sharing(caches);
                if let Some(admin) = admin {
                    let admin = AdminPlane::embedded(admin, host.now()).sharing(caches);
                    host.log(LogLevel::Info, &admin.about());
                    plane = plane.with_admin(admin);
                }
                exports::deposit(plane.cleanup());
                plane.configured(&host);
                Self::Data(Box::new(plane))
            }
            Plugin::Admin(settings) => {
                let plane = AdminPlane::new(settings).sharing(caches);
                let role = plane.about();
                host.log(LogLevel::Info, &format!("{about}: {role}"));
                abi::set_tick_period_ms(admin::START_TICK_MS);
                Self::Admin(Box::new(plane))
            }
        }
    }
}

impl Stream {
    fn limit(&mut self, context: u32, plane: &mut DataPlane, has_body: bool) -> Action {
        self.has_body = has_body;
        let (outcome, hold_state) = plane.decide(&EnvoyHost, context, has_body);
        self.meet(outcome, hold_state)
    }

    /// Decides a paused request again. It must be the current request.
    fn limit_again(&mut self, again: Again, plane: &mut DataPlane) {
        let (outcome, hold_state) = plane.decide_again(&EnvoyHost, again, self.has_body);
        if self.meet(outcome, hold_state) == Action::Continue {
            EnvoyHost.resume(again.stream);
        }
    }

    /// Applies the verdict to the current request.
    fn meet(&mut self, outcome: RequestOutcome, hold_state: HoldState) -> Action {
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
                EnvoyHost.reply(&reply);
                Action::Pause
            }
        }
    }
}

/// Panics, or damages the shared rules, at the request of a test. Builds without this feature
/// ignore the header.
#[cfg(feature = "trap-for-tests")]
fn trap_on_request() {
    match EnvoyHost.request_header("x-loudou-trap").as_deref() {
        Some(b"damage") => damage(),
        trap => assert!(trap.is_none(), "a test requested it"),
    }
}

/// Writes rules in a newer, unreadable format and announces the change.
#[cfg(feature = "trap-for-tests")]
fn damage() {
    let host = EnvoyHost;
    let mut bytes = Vec::new();
    if let Ok(Some(cas)) = host.shared_get(b"loudou:rules", &mut bytes) {
        let _written = host.shared_set(b"loudou:rules", b"of another version", cas);
    }
    if let Some(id) = host.define_metric(MetricKind::Gauge, "loudou.generation") {
        host.add_to_metric(id, 1);
    }
}
