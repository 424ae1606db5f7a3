//! Connects the proxy-wasm callbacks to the two roles. No other module depends on proxy-wasm.
//!
//! This module contains no decision logic. [`exports`] contains the functions that Envoy calls, and
//! [`abi`] wraps the host functions that Envoy provides. The functions in both modules must not
//! panic, because a panic would kill the VM and with it every request on the worker. Plugins with
//! different roles may share a VM, so this module uses the context ID to find the plugin or request
//! that each callback is for.

use self::abi::EnvoyHost;
use crate::RecordCaches;
use crate::by_context::ByContext;
use crate::data::Redecision;
#[cfg(feature = "trap-for-tests")]
use crate::host::MetricKind;
use crate::host::{Host, LogLevel};
use crate::memory::Recycled;
use crate::plugin::{self, Plugin};
use crate::role::{self, Role};
use loudou_rules::config::FILE_IN_WASM;

mod abi;
mod exports;

/// Talc is half the size of the standard library's allocator, which adds 7 KiB to the Wasm module.
#[global_allocator]
static MEMORY: Recycled<talc::wasm::WasmDynamicTalc> =
    Recycled::new(talc::wasm::new_wasm_dynamic_allocator());

/// What Envoy should do after a callback. The values are defined by the ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Action {
    /// Continue with the next filter.
    Continue = 0,
    /// Pause the stream until the filter resumes it or sends a response.
    Pause = 1,
}

impl From<role::Action> for Action {
    fn from(action: role::Action) -> Self {
        match action {
            role::Action::Continue => Self::Continue,
            role::Action::Pause | role::Action::AwaitBody => Self::Pause,
        }
    }
}

/// State of the VM.
#[derive(Default)]
struct Vm {
    /// Root contexts by context ID. There are only a few of them, so a list is as fast as a map.
    roots: Vec<(u32, Root)>,
    streams: ByContext<Stream>,
    /// Decoded rules, shared by all plugins in this VM.
    caches: RecordCaches,
}

/// A root context, which represents a plugin on this worker. `None` until the plugin is configured.
type Root = Option<Role>;

/// A stream context, which represents a request.
#[derive(Default)]
struct Stream {
    root: u32,
    request: role::Stream,
}

/// Rejects settings that are not supported in Wasm.
fn in_wasm(read: (Plugin, Vec<String>)) -> Result<(Plugin, Vec<String>), Vec<String>> {
    match &read.0 {
        Plugin::Data(file, _) if file.store.file.is_some() => {
            Err(vec![format!("store.file: {FILE_IN_WASM}")])
        }
        _ => Ok(read),
    }
}

impl Vm {
    /// Creates a context. If `root` is 0, creates a root context; otherwise, creates a stream
    /// context for the plugin `root`.
    fn create(&mut self, context: u32, root: u32) {
        if root == 0 {
            self.put(context, None);
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

    /// Configures a plugin. Returns true if the configuration is valid.
    fn configure(&mut self, root: u32) -> bool {
        let host = EnvoyHost;
        let bytes = abi::plugin_configuration().unwrap_or_default();
        match plugin::read(&bytes).and_then(in_wasm) {
            Ok((plugin, warnings)) => {
                for warning in warnings {
                    host.log(LogLevel::Warn, &format!("configuration: {warning}"));
                }
                let mut role = Role::new(plugin, &mut self.caches, &host);
                role.cleanup()
                    .into_iter()
                    .for_each(exports::register_cleanup);
                role.configured(&host);
                self.put(root, Some(role));
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
            Some(Some(role)) => {
                let again = role.tick(&EnvoyHost);
                self.decide_again(&again);
            }
            Some(None) | None => abi::set_tick_period_ms(0),
        }
    }

    /// Delivers the response or failure of an HTTP call to the plugin that made the call.
    fn called(&mut self, root: u32, call: u32, size: u32) {
        if let Some(Some(role)) = self.root(root) {
            let size = usize::try_from(size).unwrap_or(usize::MAX);
            let again = role.called(&EnvoyHost, call, size);
            self.decide_again(&again);
        }
    }

    fn decide_again(&mut self, requests: &[Redecision]) {
        for again in requests {
            let context = again.stream;
            if let Some((request, role)) = self.find(context)
                && EnvoyHost.focus(context)
            {
                request.decide_again(role, &EnvoyHost, *again);
            }
        }
    }

    /// Returns a request and its plugin's role.
    fn find(&mut self, context: u32) -> Option<(&mut role::Stream, &mut Role)> {
        let stream = self.streams.get_mut(context)?;
        let mut roots = self.roots.iter_mut();
        let (_, root) = roots.find(|(other, _)| *other == stream.root)?;
        Some((&mut stream.request, root.as_mut()?))
    }

    fn request_headers(&mut self, context: u32, end_of_stream: bool) -> Action {
        #[cfg(feature = "trap-for-tests")]
        trap_on_request();
        let Some((request, role)) = self.find(context) else {
            return Action::Continue;
        };
        let action = request.request_headers(role, &EnvoyHost, context, !end_of_stream);
        action.into()
    }

    fn request_body(&mut self, context: u32, size: u32, end_of_stream: bool) -> Action {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let Some((request, role)) = self.find(context) else {
            return Action::Continue;
        };
        let action = request.request_body(role, &EnvoyHost, size, end_of_stream);
        action.into()
    }

    fn request_trailers(&mut self, context: u32) -> Action {
        let Some((request, role)) = self.find(context) else {
            return Action::Continue;
        };
        request.request_trailers(role, &EnvoyHost).into()
    }

    fn response_headers(&mut self, context: u32) -> Action {
        let Some(stream) = self.streams.get_mut(context) else {
            return Action::Continue;
        };
        if stream.request.response_headers(&EnvoyHost)
            && let Some((request, role)) = self.find(context)
        {
            request.responded(role, &EnvoyHost);
        }
        Action::Continue
    }

    /// Handles the end of a context: a request that has completed or failed, or a plugin that is
    /// being replaced.
    fn done(&mut self, context: u32) {
        if let Some(stream) = self.streams.remove(context) {
            if let Some(Some(role)) = self.root(stream.root) {
                stream.request.end(role, &EnvoyHost);
            }
        } else {
            if let Some(Some(role)) = self.root(context) {
                role.close(&EnvoyHost);
            }
            self.roots.retain(|(own, _)| *own != context);
            abi::set_tick_period_ms(0);
        }
    }
}

/// Panics or corrupts the shared rules if a test requests this with a header. The header is only
/// read in builds with the `trap-for-tests` feature.
#[cfg(feature = "trap-for-tests")]
fn trap_on_request() {
    match EnvoyHost.request_header("x-loudou-trap").as_deref() {
        Some(b"damage") => damage(),
        trap => assert!(trap.is_none(), "a test requested it"),
    }
}

/// Overwrites the shared rules with an unreadable value and announces the change.
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
