//! Runs requests and admin API calls through a single worker on the fake host, optionally with corrupted shared data.
//! `cargo xtask fuzz` uses it.

use std::collections::BTreeMap;

use loudou_limiter::Nanos;
use loudou_rules::config::AdminSettings;
use loudou_rules::rule::RuleFile;
use loudou_store::CAS_OVERWRITE;
use loudou_store::memory::MemoryStore;

use crate::admin::{AdminPlane, Begin};
use crate::data::{self, DataPlane, RequestOutcome};
use crate::host::fake::FakeHost;
use crate::host::{Host as _, MetricKind, Reply};

/// Shared data and clock time that a worker leaves behind when it stops.
#[derive(Clone, Debug)]
pub struct LeftState {
    store: MemoryStore,
    now: Nanos,
}

impl LeftState {
    /// Creates empty shared data.
    pub const fn nothing() -> Self {
        Self {
            store: MemoryStore::new(),
            now: Nanos::from_secs(1),
        }
    }
}

/// A data role and an admin role that operate on the same shared data.
#[expect(missing_debug_implementations, reason = "the fake host is not printed")]
pub struct World {
    host: FakeHost,
    data: DataPlane,
    admin: AdminPlane,
    share: String,
}

impl World {
    /// Creates a worker with these rules that continues from the state left by an earlier worker.
    pub fn new(file: RuleFile, admin: AdminSettings, left: &LeftState) -> Self {
        let host = FakeHost::default();
        host.now.set(left.now.get());
        // Each clock reading advances the clock, so that loops with a time limit terminate.
        host.runs_by.set(1_000);
        *host.store.borrow_mut() = left.store.clone();
        let share = admin.store.namespace.clone();
        let mut data = DataPlane::new(file, Nanos::ZERO);
        data.start(&host);
        Self {
            host,
            data,
            admin: AdminPlane::new(admin),
            share,
        }
    }

    /// Returns the shared data and the current time, so that another worker can continue from this
    /// state.
    pub fn leave(&self) -> LeftState {
        LeftState {
            store: self.host.store.borrow().clone(),
            now: self.host.now(),
        }
    }

    /// Sets the headers, properties and body of the next request.
    pub fn request(
        &self,
        headers: Vec<(String, Vec<u8>)>,
        properties: BTreeMap<String, Vec<u8>>,
        body: &[u8],
    ) {
        *self.host.headers.borrow_mut() = headers;
        *self.host.properties.borrow_mut() = properties;
        *self.host.body.borrow_mut() = body.to_vec();
        self.host.response_headers.borrow_mut().clear();
    }

    /// Advances the clock by `time`, then runs the timer callback.
    pub fn pass(&mut self, time: Nanos) {
        let now = Nanos::new(self.host.now.get()).saturating_add(time);
        self.host.now.set(now.get());
        self.data.tick(&self.host);
    }

    /// Decides and then ends the current request. Returns the response if the request was refused.
    pub fn decide(&mut self, stream: u32) -> Option<Reply> {
        let (outcome, hold_state) = self.data.decide(&self.host, stream, false);
        let reply = match outcome {
            RequestOutcome::Pass(headers) | RequestOutcome::Hold(headers) => {
                data::put(&self.host, headers);
                None
            }
            RequestOutcome::Refuse(reply) => Some(reply),
        };
        self.data.end(&self.host, &hold_state);
        reply
    }

    /// Handles the current request as an admin API call and returns the response.
    pub fn call(&mut self, has_body: bool) -> Reply {
        match self.admin.begin(&self.host, has_body) {
            Begin::Answer(reply) => reply,
            Begin::AwaitBody(call) => self.admin.finish(&self.host, call),
        }
    }

    /// Returns all shared data values, in a stable order.
    pub fn shared(&self) -> Vec<Vec<u8>> {
        let store = self.host.store.borrow();
        store.iter().map(|(_, value)| value.to_vec()).collect()
    }

    /// Replaces the value at `index` in [`Self::shared`], where `index` is taken modulo the number
    /// of values. Then announces a rule change, so that the worker re-reads the rules.
    pub fn damage(&mut self, index: usize, value: &[u8]) {
        let store = self.host.store.borrow();
        let keys: Vec<Vec<u8>> = store.iter().map(|(key, _)| key.to_vec()).collect();
        drop(store);
        let index = index.checked_rem(keys.len()).unwrap_or_default();
        let key = keys.get(index).map(Vec::as_slice).unwrap_or_default();
        if self.host.shared_set(key, value, CAS_OVERWRITE).is_err() {
            return;
        }
        let name = format!("{}.generation", self.share);
        if let Some(id) = self.host.define_metric(MetricKind::Gauge, &name) {
            self.host.add_to_metric(id, 1);
        }
    }

    /// Returns all response headers and log lines.
    pub fn texts(&self) -> Vec<String> {
        let headers = self.host.response_headers.borrow();
        let logs = self.host.logs.borrow();
        let headers = headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}"));
        headers.chain(logs.iter().cloned()).collect()
    }
}
