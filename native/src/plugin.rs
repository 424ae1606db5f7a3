//! A filter configuration in Envoy, with one role per worker and one on the main thread.
//!
//! As in Wasm, each worker has its own role, which only the worker's thread uses while the worker is busy. If timed
//! work is due while the worker is idle, the role does the work on the main thread, under the role's lock. The main
//! thread's own role activates the configuration, and does its timed work even if no worker receives requests.
//!
//! Everything in a role that is not thread-safe, including its requests, is in one [`Worker`] behind one lock. That
//! lock is released before any call of an Envoy function that may call back before it returns.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use loudou_filter::RecordCaches;
use loudou_filter::by_context::ByContext;
use loudou_filter::data::Redecision;
use loudou_filter::host::{Host as _, LogLevel, MetricId, MetricKind, Outgoing, Reply};
use loudou_filter::plugin::{self, Plugin};
use loudou_filter::role::{Action, Role, Stream};
use loudou_limiter::Nanos;
use loudou_rules::config;

use crate::abi::{self, EnvoyConfig, EnvoyStream, Lines, Scheduler};
use crate::clock;
use crate::host::{Effect, Facts, NativeHost, Response, log};
use crate::metrics::{self, EnvoyMetrics};
use crate::timer::{self, Set};
use crate::values::Values;

/// Names in Envoy's configuration that select a role.
const DATA: &str = "loudou";
const ADMIN: &str = "loudou-admin";
/// Counter of caught panics.
const PANICS: &str = "loudou.panics";
/// Scheduler event that makes the main thread send the queued calls. Event `n + 1` wakes the role of worker `n`.
const SEND_CALLS: u64 = 0;

/// A configuration of the filter.
#[derive(Debug)]
pub(crate) struct Configuration {
    own: Weak<Self>,
    envoy: EnvoyConfig,
    plugin: Plugin,
    /// Envoy's metrics, set once all metrics are defined.
    metrics: OnceLock<EnvoyMetrics>,
    /// The namespace's values, set once a configuration with the data role has opened them.
    values: OnceLock<&'static Values>,
    /// Collects Envoy's metrics while the configuration is created.
    defined: Mutex<EnvoyMetrics>,
    panics: OnceLock<MetricId>,
    /// Schedules callbacks on the main thread; `None` after the configuration has ended. The lock is held while the
    /// scheduler is used, so that the main thread cannot delete the scheduler at the same time.
    scheduler: Mutex<Option<Scheduler>>,
    /// One slot per worker, followed by the slot of the main thread.
    slots: Vec<Slot>,
    calls: Mutex<Calls>,
}

/// The state of one worker.
#[derive(Debug, Default)]
struct Slot {
    worker: Mutex<Worker>,
    /// Schedulers that call back held requests on their worker, keyed by request number.
    wakers: Mutex<BTreeMap<u32, Scheduler>>,
    /// Responses to the role's calls, which the role has not yet handled.
    responses: Mutex<VecDeque<(u32, Response)>>,
    /// True from the time a held request is woken until Envoy calls it back. If that request ends first, another
    /// request must be woken.
    is_woken: AtomicBool,
}

/// A worker's role and its requests.
#[derive(Debug, Default)]
struct Worker {
    role: Option<Role>,
    caches: RecordCaches,
    requests: ByContext<Request>,
    /// Number of the latest request. Numbers increase, because requests that become due at the same time are released
    /// in number order.
    latest: u32,
    timer: Timer,
    /// Requests that became due while the role ran on the main thread, and that the worker must decide again.
    again: VecDeque<Redecision>,
    resumed: Vec<u32>,
}

impl Worker {
    /// Returns a number for a new request. Numbers wrap after four billion requests, and a very long stream may still
    /// use an old number.
    fn next_number(&mut self) -> u32 {
        loop {
            self.latest = self.latest.wrapping_add(1).max(1);
            if self.requests.get_mut(self.latest).is_none() {
                return self.latest;
            }
        }
    }

    /// Returns true if timed work is due or if requests are waiting to be resumed or decided again.
    fn has_work(&self) -> bool {
        self.timer.is_due() || !self.again.is_empty() || !self.resumed.is_empty()
    }
}

// SAFETY: a role is not `Send` because it contains non-atomic reference counts. All references are in the role, its
// caches and its requests, and therefore in one `Worker`, which only the thread that holds the lock of its slot can
// reach.
#[expect(unsafe_code, reason = "see above")]
unsafe impl Send for Worker {}

#[derive(Debug)]
struct Request {
    envoy: EnvoyStream,
    stream: Stream,
    /// True if the request has ever been held; it may then have a waker.
    was_held: bool,
    facts: Facts,
}

/// What the hook must know about a request after its headers were processed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    pub(crate) action: Action,
    /// True if the module must process the response headers.
    pub(crate) needs_response: bool,
    /// True if the cost of the request may depend on how it ends; the module then counts the bytes of the response.
    pub(crate) settles: bool,
}

/// The timer of a role.
#[derive(Debug, Default)]
struct Timer {
    period_ms: u32,
    next: Option<Set>,
}

/// HTTP calls to other services.
#[derive(Debug, Default)]
struct Calls {
    latest: u32,
    unsent: Vec<Call>,
    /// Worker and call number of each call in flight, keyed by Envoy's call number.
    in_flight: HashMap<u64, (usize, u32)>,
}

#[derive(Debug)]
struct Call {
    worker: usize,
    number: u32,
    cluster: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    timeout_ms: u32,
}

impl Timer {
    fn is_due(&self) -> bool {
        self.next.is_some_and(|next| next.is_due(clock::instant()))
    }

    /// Sets the timer to the period that the role requested. If the role requested none, only restarts a timer that has
    /// fired.
    fn set(&mut self, configuration: &Configuration, worker: usize, period_ms: Option<u32>) {
        if let Some(period_ms) = period_ms {
            self.next.take().into_iter().for_each(timer::cancel);
            self.period_ms = period_ms;
        }
        if self.next.is_none() && self.period_ms > 0 {
            let delay = Duration::from_millis(self.period_ms.into());
            self.next = Some(timer::set(Weak::clone(&configuration.own), worker, delay));
        }
    }
}

impl Configuration {
    /// Creates a configuration from its JSON text. Returns `None` if the configuration is invalid, and logs the
    /// problems. Must be called on the main thread.
    pub(crate) fn new(envoy: EnvoyConfig, name: &[u8], json: &[u8]) -> Option<Arc<Self>> {
        let plugin = match read(name, json) {
            Ok(plugin) => plugin,
            Err(problems) => {
                for problem in &problems {
                    log(LogLevel::Error, &format!("configuration: {problem}"));
                }
                let count = problems.len();
                let line = format!("configuration refused: {count} problem(s), see above");
                log(LogLevel::Error, &line);
                return None;
            }
        };
        if !timer::start() {
            log(
                LogLevel::Error,
                "the system refuses a thread, which the module needs as its timer",
            );
            return None;
        }
        let slots = abi::concurrency().saturating_add(1);
        let configuration = Arc::new_cyclic(|own| Self {
            own: Weak::clone(own),
            envoy,
            plugin,
            metrics: OnceLock::new(),
            values: OnceLock::new(),
            panics: OnceLock::new(),
            defined: Mutex::default(),
            scheduler: Mutex::new(Some(Scheduler::of_config(envoy))),
            slots: (0..slots).map(|_| Slot::default()).collect(),
            calls: Mutex::default(),
        });
        if !abi::only_validates()
            && let Plugin::Data(file, _) = &configuration.plugin
        {
            let _first = configuration.values.set(Values::open(file)?);
        }
        configuration.define_metrics();
        // Create all roles now: a role that was created later, by the first request of its worker, could mistake an old
        // configuration for a new one.
        if !abi::only_validates() {
            for worker in 0..slots {
                configuration.with(worker, |_, _| {});
            }
        }
        Some(configuration)
    }

    fn define_metrics(&self) {
        let host = NativeHost::new(self, 0);
        self.plugin.define_metrics(&host);
        if let Some(id) = host.define_metric(MetricKind::Counter, PANICS) {
            let _first = self.panics.set(id);
        }
        let defined = mem::take(&mut *lock(&self.defined));
        let _first = self.metrics.set(defined);
    }

    /// Returns the values of the namespace. Returns `None` until a configuration with the data role has opened them.
    pub(crate) fn values(&self) -> Option<&'static Values> {
        if let Some(values) = self.values.get() {
            return Some(values);
        }
        let values = Values::find(self.plugin.namespace())?;
        Some(self.values.get_or_init(|| values))
    }

    /// Defines a metric, or returns the existing metric with this name.
    pub(crate) fn define_metric(&self, kind: MetricKind, name: &str) -> Option<MetricId> {
        let id = metrics::define(name)?;
        if self.metrics.get().is_none() {
            lock(&self.defined).define(self.envoy, id, kind, name);
        }
        Some(id)
    }

    /// Closes the configuration. Envoy calls this on the main thread after all requests of the configuration have
    /// ended.
    pub(crate) fn close(&self) {
        lock(&self.scheduler).take();
        for worker in 0..self.slots.len() {
            let Some(mut state) = self.worker(worker) else {
                continue;
            };
            state.timer.next.take().into_iter().for_each(timer::cancel);
            state.timer.period_ms = 0;
            let host = NativeHost::new(self, worker);
            if let Some(mut role) = state.role.take() {
                role.close(&host);
            }
        }
    }

    fn worker(&self, worker: usize) -> Option<MutexGuard<'_, Worker>> {
        let slot = self.slots.get(worker)?;
        Some(lock(&slot.worker))
    }

    /// Calls `f` with the worker's state and a host; creates the worker's role first if necessary. Afterwards applies
    /// the effects that the role has requested, even if `f` panics, because requests that the role has released would
    /// otherwise hang.
    ///
    /// Applying an effect calls Envoy's functions for a stream. So this function may run only on the worker's thread,
    /// or while the worker has no requests.
    fn with<T>(
        &self,
        worker: usize,
        f: impl FnOnce(&mut Worker, &NativeHost<'_>) -> T,
    ) -> Option<T> {
        let host = NativeHost::new(self, worker);
        let result = {
            let mut state = self.worker(worker)?;
            let state = &mut *state;
            let result = catch_unwind(AssertUnwindSafe(|| {
                if state.role.is_none() {
                    let mut role = Role::new(self.plugin.clone(), &mut state.caches, &host);
                    role.configured(&host);
                    state.role = Some(role);
                }
                f(state, &host)
            }));
            if let Some(period_ms) = host.take_timer_ms() {
                state.timer.set(self, worker, Some(period_ms));
            }
            result
        };
        self.cause(worker, host.take_effects());
        Some(result.unwrap_or_else(|panic| resume_unwind(panic)))
    }

    /// Applies effects to requests of the current thread's worker.
    fn cause(&self, worker: usize, effects: Vec<Effect>) {
        for effect in effects {
            let (Effect::Reply(number, _) | Effect::Resume(number)) = &effect;
            // An earlier effect may have ended this request.
            let found = self.worker(worker).and_then(|mut state| {
                let request = state.requests.get_mut(*number)?;
                Some((request.envoy, request.was_held))
            });
            let Some((stream, was_held)) = found else {
                continue;
            };
            if was_held {
                self.forget_waker(worker, *number);
            }
            match effect {
                Effect::Reply(_, reply) => send(stream, &reply),
                Effect::Resume(_) => stream.resume(),
            }
        }
    }

    /// Handles the request headers. Calls `begin` with the number of the request before Envoy can invoke another
    /// callback for it.
    pub(crate) fn request_headers(
        &self,
        worker: usize,
        stream: EnvoyStream,
        has_body: bool,
        begin: impl FnOnce(u32),
    ) -> Begun {
        let started = self.with(worker, |state, host| {
            let number = state.next_number();
            begin(number);
            host.enter(number, stream);
            let mut request = Stream::default();
            let action = match &mut state.role {
                Some(role) => request.request_headers(role, host, number, has_body),
                None => Action::Continue,
            };
            let is_held = action == Action::Pause && !host.has_effects();
            if is_held {
                self.keep_waker(worker, number, stream);
                // Timed work or responses may already be queued for the main thread, which may be busy.
                if state.has_work() || self.has_responses(worker) {
                    self.wake_held(worker);
                }
            }
            let settles = is_held || request.settles();
            let needs_response = settles || request.needs_response_headers();
            let since = if settles { host.now() } else { Nanos::ZERO };
            state.requests.insert(
                number,
                Request {
                    envoy: stream,
                    stream: request,
                    was_held: is_held,
                    facts: Facts {
                        since,
                        response_bytes: 0,
                    },
                },
            );
            Begun {
                action,
                needs_response,
                settles,
            }
        });
        started.unwrap_or(Begun {
            action: Action::Continue,
            needs_response: false,
            settles: false,
        })
    }

    /// Handles a chunk of the request body, or the request trailers.
    pub(crate) fn request_rest(
        &self,
        (worker, number): (usize, u32),
        stream: EnvoyStream,
        is_whole: bool,
    ) -> Action {
        let action = self.with(worker, |state, host| {
            host.enter(number, stream);
            let request = state.requests.get_mut(number)?;
            let role = state.role.as_mut()?;
            let size = match role {
                Role::Data(_) => 0,
                Role::Admin(_) => stream.body_size(),
            };
            Some(request.stream.request_body(role, host, size, is_whole))
        });
        action.flatten().unwrap_or(Action::Continue)
    }

    /// Handles the response headers.
    pub(crate) fn response_headers(&self, (worker, number): (usize, u32), stream: EnvoyStream) {
        self.with(worker, |state, host| {
            host.enter(number, stream);
            let (Some(request), Some(role)) = (state.requests.get_mut(number), state.role.as_ref())
            else {
                return;
            };
            if request.stream.response_headers(host) {
                request.stream.responded(role, host);
            }
        });
    }

    /// Adds the size of a response chunk to the request's byte count.
    pub(crate) fn response_body(&self, (worker, number): (usize, u32), stream: EnvoyStream) {
        let size = stream.response_part_size();
        if let Some(mut state) = self.worker(worker)
            && let Some(request) = state.requests.get_mut(number)
        {
            let bytes = &mut request.facts.response_bytes;
            *bytes = bytes.saturating_add(size);
        }
    }

    /// Ends a request.
    pub(crate) fn end(&self, (worker, number): (usize, u32), stream: EnvoyStream, was_held: bool) {
        if was_held && let Some(slot) = self.slots.get(worker) {
            self.forget_waker(worker, number);
            // The ended request may be the one that was woken. Another request must be woken in its place, but must not
            // run here, because Envoy is destroying a stream.
            if slot.is_woken.swap(false, Ordering::AcqRel) {
                self.wake(worker);
            }
        }
        self.with(worker, |state, host| {
            host.enter(number, stream);
            if let (Some(request), Some(role)) =
                (state.requests.remove(number), state.role.as_mut())
            {
                host.know(request.facts);
                request.stream.end(role, host);
            }
        });
    }

    /// Lets the worker's role do its timed work and handle responses, on the worker's thread. Also resumes requests,
    /// and decides waiting requests again.
    pub(crate) fn serve(&self, worker: usize) {
        if let Some(slot) = self.slots.get(worker) {
            slot.is_woken.store(false, Ordering::Release);
        }
        self.with(worker, |state, host| {
            for number in mem::take(&mut state.resumed) {
                host.resume(number);
            }
            self.work(worker, state, host);
            while let Some(again) = state.again.pop_front() {
                let (Some(request), Some(role)) =
                    (state.requests.get_mut(again.stream), &mut state.role)
                else {
                    continue;
                };
                host.enter(again.stream, request.envoy);
                let decide = || request.stream.decide_again(role, host, again);
                if catch_unwind(AssertUnwindSafe(decide)).is_err() {
                    self.count_panic();
                    host.resume(again.stream);
                }
            }
        });
    }

    /// Lets an idle worker's role do its timed work and handle responses, on the main thread. Requests that become due
    /// are left to the worker, because only its thread may call Envoy's functions for its streams. The role sends
    /// responses to requests only when it decides them, which does not happen here.
    fn serve_idle(&self, worker: usize) {
        let host = NativeHost::new(self, worker);
        let Some(mut state) = self.worker(worker) else {
            return;
        };
        let state = &mut *state;
        let result = catch_unwind(AssertUnwindSafe(|| self.work(worker, state, &host)));
        for effect in host.take_effects() {
            if let Effect::Resume(number) = effect {
                state.resumed.push(number);
            }
        }
        if state.has_work() {
            self.wake_held(worker);
        }
        if let Err(panic) = result {
            resume_unwind(panic);
        }
    }

    /// Passes queued responses to a role, and lets it do its timed work. Requests that must be decided again are added
    /// to `state.again`.
    fn work(&self, worker: usize, state: &mut Worker, host: &NativeHost<'_>) {
        let Some(role) = &mut state.role else {
            return;
        };
        // Takes one response at a time, so that a panic loses only one of them.
        while let Some((call, response)) = self.next_response(worker) {
            let size = response.body.len();
            host.receive(response);
            state.again.extend(role.called(host, call, size));
        }
        if state.timer.is_due() {
            // Restart the timer before the role runs, so that a panic of the role does not stop the timer.
            state.timer.next = None;
            state.timer.set(self, worker, None);
            state.again.extend(role.tick(host));
        }
        state.timer.set(self, worker, host.take_timer_ms());
    }

    fn next_response(&self, worker: usize) -> Option<(u32, Response)> {
        lock(&self.slots.get(worker)?.responses).pop_front()
    }

    fn has_responses(&self, worker: usize) -> bool {
        let slot = self.slots.get(worker);
        slot.is_some_and(|slot| !lock(&slot.responses).is_empty())
    }

    /// Wakes the role of a worker; may be called from any thread. The role runs on its worker if a request is held
    /// there, and otherwise on the main thread, because Envoy can call back only requests on a worker.
    pub(crate) fn wake(&self, worker: usize) {
        if !self.wake_held(worker) {
            self.wake_main(event_of(worker));
        }
    }

    fn wake_main(&self, event: u64) {
        if let Some(scheduler) = &*lock(&self.scheduler) {
            scheduler.wake(event);
        }
    }

    /// Wakes a held request of the worker, so that the role runs on its thread. Returns false if no request is held.
    fn wake_held(&self, worker: usize) -> bool {
        let Some(slot) = self.slots.get(worker) else {
            return false;
        };
        let wakers = lock(&slot.wakers);
        let Some((_, waker)) = wakers.first_key_value() else {
            return false;
        };
        slot.is_woken.store(true, Ordering::Release);
        waker.wake(0);
        true
    }

    fn keep_waker(&self, worker: usize, number: u32, stream: EnvoyStream) {
        if let Some(slot) = self.slots.get(worker) {
            lock(&slot.wakers).insert(number, Scheduler::of_stream(stream));
        }
    }

    fn forget_waker(&self, worker: usize, number: u32) {
        if let Some(slot) = self.slots.get(worker) {
            lock(&slot.wakers).remove(&number);
        }
    }

    /// Handles an event of the configuration's scheduler, on the main thread.
    pub(crate) fn scheduled(&self, event: u64) {
        if event == SEND_CALLS {
            self.send_calls();
            return;
        }
        let worker = usize::try_from(event.saturating_sub(1)).unwrap_or(usize::MAX);
        let is_main = worker.saturating_add(1) == self.slots.len();
        if is_main {
            self.serve(worker);
        } else if !self.wake_held(worker) {
            self.serve_idle(worker);
        }
    }

    /// Queues an HTTP call for a role, and returns the number of the call. The main thread sends the call on behalf of
    /// the configuration, because a call on behalf of a request would be cancelled when the request ends.
    pub(crate) fn post(&self, worker: usize, request: &Outgoing<'_>) -> u32 {
        let own = [
            (":method", "POST"),
            (":path", request.path),
            (":authority", request.cluster),
        ];
        let headers = own.iter().chain(request.headers);
        let headers = headers.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let mut calls = lock(&self.calls);
        let number = calls.latest.wrapping_add(1);
        calls.latest = number;
        calls.unsent.push(Call {
            worker,
            number,
            cluster: request.cluster.to_owned(),
            headers: headers.collect(),
            body: request.body.to_vec(),
            timeout_ms: request.timeout_ms,
        });
        drop(calls);
        self.wake_main(SEND_CALLS);
        number
    }

    fn send_calls(&self) {
        let unsent = mem::take(&mut lock(&self.calls).unsent);
        for call in unsent {
            let sent = self
                .envoy
                .call(&call.cluster, &call.headers, &call.body, call.timeout_ms);
            match sent {
                Some(id) => {
                    let mut calls = lock(&self.calls);
                    calls.in_flight.insert(id, (call.worker, call.number));
                }
                None => self.deliver(call.worker, call.number, Response::default()),
            }
        }
    }

    /// Passes a response to the role that made the call. A failed call has a response without headers.
    pub(crate) fn called(&self, id: u64, headers: Lines, body: Vec<u8>) {
        let call = lock(&self.calls).in_flight.remove(&id);
        if let Some((worker, number)) = call {
            self.deliver(worker, number, Response { headers, body });
        }
    }

    fn deliver(&self, worker: usize, call: u32, response: Response) {
        if let Some(slot) = self.slots.get(worker) {
            lock(&slot.responses).push_back((call, response));
            self.wake(worker);
        }
    }

    /// Adds `offset` to a counter or gauge.
    pub(crate) fn add_to_metric(&self, id: MetricId, offset: i64) {
        metrics::add(id, offset);
        if let Some(metrics) = self.metrics.get() {
            metrics.add(self.envoy, id, offset);
        }
    }

    /// Sets a gauge, or records a value in a histogram.
    pub(crate) fn record(&self, id: MetricId, value: u64) {
        metrics::set(id, value);
        if let Some(metrics) = self.metrics.get() {
            metrics.record(self.envoy, id, value);
        }
    }

    /// Returns true if every request of this configuration is a call of the admin API, whose token other filters must
    /// not see.
    pub(crate) fn is_admin(&self) -> bool {
        matches!(self.plugin, Plugin::Admin(_))
    }

    /// Counts a panic.
    pub(crate) fn count_panic(&self) {
        if let Some(id) = self.panics.get() {
            self.add_to_metric(*id, 1);
        }
    }

    /// Returns the index of the slot for an Envoy worker index. Requests on other threads, such as requests of an
    /// internal listener, use the main thread's slot.
    pub(crate) fn slot_of(&self, worker: usize) -> usize {
        worker.min(self.slots.len().saturating_sub(1))
    }
}

fn event_of(worker: usize) -> u64 {
    u64::try_from(worker)
        .unwrap_or(u64::MAX - 1)
        .saturating_add(1)
}

/// Locks a mutex, and ignores poisoning. A panic that poisoned the mutex has already been caught and counted.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Parses a configuration. Returns its problems as log lines if it is invalid.
fn read(name: &[u8], json: &[u8]) -> Result<Plugin, Vec<String>> {
    let (plugin, warnings) = plugin::read(json)?;
    for warning in warnings {
        log(LogLevel::Warn, &format!("configuration: {warning}"));
    }
    let wanted = match plugin {
        Plugin::Data(..) => DATA,
        Plugin::Admin(_) => ADMIN,
    };
    if name != wanted.as_bytes() {
        let name = String::from_utf8_lossy(name);
        return Err(vec![format!(
            "filter_name: {name:?} does not fit the configuration; allowed: {wanted:?}"
        )]);
    }
    let document = config::parse_json(json);
    let document = document.map_err(|_invalid| vec!["not JSON".to_owned()])?;
    let unsupported = config::unsupported_natively(&document);
    if unsupported.is_empty() {
        Ok(plugin)
    } else {
        Err(unsupported.iter().map(ToString::to_string).collect())
    }
}

/// Sends a response. For a gRPC request, Envoy converts the response to a headers-only response, and sends the body as
/// the gRPC message.
fn send(stream: EnvoyStream, reply: &Reply) {
    let grpc_status = reply.grpc_status.map(|status| status.to_string());
    let headers = reply.headers.iter();
    let headers = headers.map(|(name, value)| (&**name, value.as_str()));
    // Without this header, Envoy would derive the gRPC status from the HTTP status.
    let status = grpc_status.as_deref().map(|status| ("grpc-status", status));
    let headers = headers.chain(status);
    stream.send_response(reply.status, headers, &reply.body, &reply.details);
}
