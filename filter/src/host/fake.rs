//! An in-memory implementation of [`Host`] for unit tests.
//!
//! The fake host stores shared data in a [`MemoryStore`]. A unit test uses `shared_data_is_sound`
//! to check that [`MemoryStore`] has the semantics that the filter requires from a real host.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use loudou_limiter::Nanos;
use loudou_store::memory::MemoryStore;
use loudou_store::{Cas, SharedData, StoreFailed, Written};

use super::{Host, LogLevel, MetricId, MetricKind, Outgoing, Reply};
use crate::header_lines::{self, HeaderLines};

/// Header names and values, one pair per line.
type Lines = Vec<(String, Vec<u8>)>;

/// A fake host. Tests set its inputs and read its outputs.
#[derive(Default)]
pub(crate) struct FakeHost {
    /// Seed for the random bytes. Hosts with the same seed return the same bytes.
    pub(crate) chance: Cell<u8>,
    pub(crate) now: Cell<u64>,
    /// Number of nanoseconds by which each reading advances the clock.
    pub(crate) runs_by: Cell<u64>,
    /// Number of single-header reads.
    pub(crate) header_reads: Cell<u32>,
    /// Number of times all headers were read at once.
    pub(crate) headers_read: Cell<u32>,
    pub(crate) headers: RefCell<Lines>,
    /// Names of the headers that were read.
    pub(crate) names_read: RefCell<Vec<String>>,
    pub(crate) properties: RefCell<BTreeMap<String, Vec<u8>>>,
    /// Number of property reads.
    pub(crate) properties_read: Cell<u32>,
    pub(crate) body: RefCell<Vec<u8>>,
    pub(crate) replies: RefCell<Vec<Reply>>,
    pub(crate) response_headers: RefCell<Vec<(String, String)>>,
    pub(crate) store: RefCell<MemoryStore>,
    pub(crate) store_fails: Cell<bool>,
    pub(crate) metrics: RefCell<Vec<(String, i64)>>,
    pub(crate) records: RefCell<Vec<(String, u64)>>,
    /// Paused streams that were resumed or received a response.
    pub(crate) resumed: RefCell<Vec<u32>>,
    pub(crate) timer_ms: Cell<u32>,
    /// HTTP requests sent to other services. The index of a request is its call ID.
    pub(crate) calls: RefCell<Vec<Sent>>,
    /// True if all attempts to send HTTP requests to other services fail.
    pub(crate) has_no_cluster: Cell<bool>,
    /// Headers and body of the response to a call.
    pub(crate) called: RefCell<(Lines, Vec<u8>)>,
    /// Request headers of each paused stream.
    pub(crate) paused: RefCell<BTreeMap<u32, Lines>>,
    pub(crate) logs: RefCell<Vec<String>>,
    /// Number of writes to shared data so far.
    pub(crate) writes: Cell<u32>,
    pub(crate) writes_before_logs: RefCell<Vec<u32>>,
    /// Log lines at level [`LogLevel::Warn`].
    pub(crate) warnings: RefCell<Vec<String>>,
}

/// An HTTP request that was sent to another service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) cluster: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) timeout_ms: u32,
}

impl FakeHost {
    pub(crate) fn request(&self, method: &str, path: &str, headers: &[(&str, &[u8])]) {
        let mut all = vec![
            (":method".to_owned(), method.as_bytes().to_vec()),
            (":path".to_owned(), path.as_bytes().to_vec()),
        ];
        all.extend(
            headers
                .iter()
                .map(|(name, value)| ((*name).to_owned(), value.to_vec())),
        );
        *self.headers.borrow_mut() = all;
        self.response_headers.borrow_mut().clear();
        self.properties.borrow_mut().remove("wasm.loudou");
    }

    /// Returns true if the header has been read.
    pub(crate) fn has_read(&self, name: &str) -> bool {
        self.names_read.borrow().iter().any(|read| read == name)
    }

    pub(crate) fn metric(&self, name: &str) -> i64 {
        self.metrics
            .borrow()
            .iter()
            .find(|(other, _)| other == name)
            .map_or(0, |(_, value)| *value)
    }

    pub(crate) fn pass(&self, time: Nanos) {
        self.now.set(self.now.get() + time.get());
    }
}

impl Host for FakeHost {
    fn now(&self) -> Nanos {
        let now = self.now.get();
        self.now.set(now + self.runs_by.get());
        Nanos::new(now)
    }

    fn unix(&self) -> Nanos {
        Nanos::from_millis(1_700_000_000_000).saturating_add(Nanos::new(self.now.get()))
    }

    fn random(&self) -> [u8; 16] {
        [self.chance.get().wrapping_add(7); 16]
    }

    fn request_header(&self, name: &str) -> Option<Vec<u8>> {
        self.header_reads.set(self.header_reads.get() + 1);
        self.names_read.borrow_mut().push(name.to_owned());
        let headers = self.headers.borrow();
        headers
            .iter()
            .find(|(other, _)| other == name)
            .map(|(_, value)| value.clone())
    }

    fn request_headers(&self) -> Option<HeaderLines> {
        self.headers_read.set(self.headers_read.get() + 1);
        let headers = self.headers.borrow();
        let pairs = headers.iter();
        let pairs = pairs.map(|(name, value)| (name.as_bytes(), value.as_slice()));
        Some(HeaderLines::new(header_lines::serialized(pairs)))
    }

    fn request_headers_size(&self) -> u64 {
        let headers = self.headers.borrow();
        let sizes = headers.iter().map(|(name, value)| name.len() + value.len());
        sizes.sum::<usize>().try_into().unwrap_or(u64::MAX)
    }

    fn property(&self, path: &str) -> Option<Vec<u8>> {
        self.properties_read.set(self.properties_read.get() + 1);
        if let Some(name) = path.strip_prefix("request\0headers\0") {
            let headers = self.headers.borrow();
            let lines = headers.iter().filter(|(other, _)| other == name);
            let lines: Vec<&[u8]> = lines.map(|(_, line)| line.as_slice()).collect();
            return (!lines.is_empty()).then(|| lines.join(&b','));
        }
        self.properties.borrow().get(path).cloned()
    }

    fn request_body(&self, most: usize) -> Option<Vec<u8>> {
        let body = self.body.borrow();
        Some(body.iter().take(most).copied().collect())
    }

    fn add_response_header(&self, name: &str, value: &str) {
        self.response_headers
            .borrow_mut()
            .push((name.to_owned(), value.to_owned()));
    }

    fn set_request_header(&self, name: &str, value: &str) {
        let mut headers = self.headers.borrow_mut();
        headers.retain(|(other, _)| other != name);
        headers.push((name.to_owned(), value.as_bytes().to_vec()));
    }

    fn set_property(&self, name: &str, value: &str) {
        let mut properties = self.properties.borrow_mut();
        properties.insert(format!("wasm.{name}"), value.as_bytes().to_vec());
    }

    fn response_header(&self, name: &str) -> Option<Vec<u8>> {
        let headers = self.response_headers.borrow();
        let mut headers = headers.iter();
        let found = headers.find(|(other, _)| other == name);
        found.map(|(_, value)| value.as_bytes().to_vec())
    }

    fn set_response_header(&self, name: &str, value: &str) {
        let mut headers = self.response_headers.borrow_mut();
        headers.retain(|(other, _)| other != name);
        headers.push((name.to_owned(), value.to_owned()));
    }

    fn reply(&self, reply: &Reply) {
        self.replies.borrow_mut().push(reply.clone());
    }

    fn reply_to(&self, stream: u32, reply: &Reply) {
        self.resumed.borrow_mut().push(stream);
        self.reply(reply);
    }

    fn resume(&self, stream: u32) {
        self.resumed.borrow_mut().push(stream);
    }

    fn focus(&self, stream: u32) -> bool {
        let headers = self.paused.borrow().get(&stream).cloned();
        let is_there = headers.is_some();
        if let Some(headers) = headers {
            *self.headers.borrow_mut() = headers;
        }
        is_there
    }

    fn call(&self, request: &Outgoing<'_>) -> Option<u32> {
        if self.has_no_cluster.get() {
            return None;
        }
        let mut calls = self.calls.borrow_mut();
        let headers = request.headers.iter();
        calls.push(Sent {
            cluster: request.cluster.to_owned(),
            path: request.path.to_owned(),
            headers: headers
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            body: request.body.to_vec(),
            timeout_ms: request.timeout_ms,
        });
        u32::try_from(calls.len() - 1).ok()
    }

    fn called_header(&self, name: &str) -> Option<Vec<u8>> {
        let called = self.called.borrow();
        let found = called.0.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value.clone())
    }

    fn called_body(&self, most: usize) -> Option<Vec<u8>> {
        let called = self.called.borrow();
        Some(called.1.iter().take(most).copied().collect())
    }

    fn set_timer_ms(&self, period: u32) {
        self.timer_ms.set(period);
    }

    fn shared_get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<Option<Cas>, StoreFailed> {
        if self.store_fails.get() {
            return Err(StoreFailed);
        }
        self.store.borrow_mut().get(key, value)
    }

    fn shared_set(&self, key: &[u8], value: &[u8], expected: Cas) -> Result<Written, StoreFailed> {
        self.writes.set(self.writes.get().saturating_add(1));
        if self.store_fails.get() {
            return Err(StoreFailed);
        }
        self.store.borrow_mut().set(key, value, expected)
    }

    fn define_metric(&self, _kind: MetricKind, name: &str) -> Option<MetricId> {
        let mut metrics = self.metrics.borrow_mut();
        let found = metrics.iter().position(|(other, _)| other == name);
        let index = found.unwrap_or(metrics.len());
        if found.is_none() {
            metrics.push((name.to_owned(), 0));
        }
        u32::try_from(index).ok().map(MetricId)
    }

    fn add_to_metric(&self, id: MetricId, offset: i64) {
        let index = usize::try_from(id.0).unwrap_or(usize::MAX);
        if let Some((_, value)) = self.metrics.borrow_mut().get_mut(index) {
            *value += offset;
        }
    }

    fn record(&self, id: MetricId, value: u64) {
        let index = usize::try_from(id.0).unwrap_or(usize::MAX);
        if let Some((name, _)) = self.metrics.borrow().get(index) {
            self.records.borrow_mut().push((name.clone(), value));
        }
    }

    fn read_metric(&self, id: MetricId) -> Option<u64> {
        let index = usize::try_from(id.0).ok()?;
        let metrics = self.metrics.borrow();
        metrics
            .get(index)
            .and_then(|(_, value)| u64::try_from(*value).ok())
    }

    fn log(&self, level: LogLevel, line: &str) {
        if level == LogLevel::Warn {
            self.warnings.borrow_mut().push(line.to_owned());
        }
        self.logs.borrow_mut().push(line.to_owned());
        let writes = self.writes.get();
        self.writes_before_logs.borrow_mut().push(writes);
    }
}
