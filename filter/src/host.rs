//! The [`Host`] trait: everything that the filter needs from Envoy.
//!
//! Code that uses this trait does not depend on Wasm. No method panics: an unexpected status from
//! the host becomes `None` or [`StoreFailed`].

use std::borrow::Cow;

use loudou_limiter::{Clock, Nanos};
use loudou_store::{Cas, PlanPatch, SharedData, StoreFailed, Written};

use crate::header_lines::HeaderLines;

#[cfg(any(test, feature = "fuzz"))]
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "some of it is only for unit tests")
)]
pub(crate) mod fake;

/// ID that the host assigned to a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricId(pub u32);

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A value that only increases.
    Counter,
    /// A value that can increase and decrease.
    Gauge,
    /// A distribution of recorded values.
    Histogram,
}

/// The level of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// Information.
    Info,
    /// A condition that requires attention.
    Warn,
    /// A failure.
    Error,
}

/// Name and value of a header that the filter adds.
pub type Header = (Cow<'static, str>, String);
/// Headers that the filter adds.
pub type Headers = Vec<Header>;

/// A response that the filter sends instead of forwarding the request to the upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// Response code details for Envoy's access log, without spaces.
    pub details: String,
    /// Headers.
    pub headers: Headers,
    /// Body.
    pub body: Vec<u8>,
    /// gRPC status. If set, Envoy converts the reply to a gRPC response and uses the body as the
    /// gRPC message.
    pub grpc_status: Option<u8>,
}

/// An HTTP request to another service, which Envoy sends on behalf of the plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing<'a> {
    /// Envoy cluster for the service.
    pub cluster: &'a str,
    /// Path.
    pub path: &'a str,
    /// All headers other than method, path and authority.
    pub headers: &'a [(&'a str, &'a str)],
    /// Body.
    pub body: &'a [u8],
    /// Timeout in milliseconds, at least 1.
    pub timeout_ms: u32,
}

/// The host that runs the filter. All methods take `&self`, because the current request and the
/// store borrow the host at the same time.
pub trait Host {
    /// Returns the monotonic time, which is the same for all workers in the process.
    fn now(&self) -> Nanos;
    /// Returns `now` together with the current wall-clock time. Callbacks should read each clock at
    /// most once.
    fn clock_at(&self, now: Nanos) -> Clock {
        Clock {
            now,
            wall: Nanos::from_millis(self.unix_ms()),
        }
    }
    /// Returns the wall-clock time since the Unix epoch.
    fn unix(&self) -> Nanos;
    /// Returns the wall-clock time since the Unix epoch, in milliseconds.
    fn unix_ms(&self) -> u64 {
        self.unix().as_millis()
    }
    /// Returns random bytes that clients cannot predict.
    fn random(&self) -> [u8; 16];

    /// Returns the first line of a request header, which may be empty. For some headers, Envoy has
    /// already joined all lines into one.
    fn request_header(&self, name: &str) -> Option<Vec<u8>>;
    /// Returns all headers of the current request.
    fn request_headers(&self) -> Option<HeaderLines>;
    /// Returns the total size of the current request's header names and values, in bytes.
    fn request_headers_size(&self) -> u64;
    /// Returns a property of the current stream. The segments of `path` are separated by NUL
    /// characters.
    fn property(&self, path: &str) -> Option<Vec<u8>>;
    /// Returns the current stream's dynamic metadata, encoded as protobuf: either all of it or only
    /// the value at `path`.
    fn metadata(&self, _path: &[String]) -> Vec<u8> {
        self.property("metadata").unwrap_or_default()
    }
    /// Returns true if [`Self::metadata`] ignores its path and returns all metadata.
    fn reads_all_metadata(&self) -> bool {
        true
    }
    /// Returns up to `most` bytes from the start of the current request's buffered body.
    fn request_body(&self, most: usize) -> Option<Vec<u8>>;
    /// Adds a response header.
    fn add_response_header(&self, name: &str, value: &str);
    /// Sets a request header. Overwrites any existing value.
    fn set_request_header(&self, name: &str, value: &str);
    /// Sets a property on the current stream, for access logs. Envoy prefixes its name with
    /// `wasm.`.
    fn set_property(&self, name: &str, value: &str);
    /// Returns the first line of a response header.
    fn response_header(&self, name: &str) -> Option<Vec<u8>>;
    /// Sets a response header. Overwrites any existing value.
    fn set_response_header(&self, name: &str, value: &str);
    /// Sends a response to the current request.
    fn reply(&self, reply: &Reply);
    /// Sends a response to a stream's paused request. May only be called as the last action before
    /// the VM dies.
    fn reply_to(&self, stream: u32, reply: &Reply);
    /// Resumes a stream's paused request. May only be called from the timer callback.
    fn resume(&self, stream: u32);
    /// Makes a paused stream the current stream until the callback returns. Returns true if the
    /// stream still exists.
    fn focus(&self, stream: u32) -> bool;
    /// Sends an HTTP request to another service. Returns the call ID, which is later passed to the
    /// response callback. Returns `None` if the request was not sent because the cluster is unknown
    /// or overloaded or has no endpoints.
    fn call(&self, request: &Outgoing<'_>) -> Option<u32>;
    /// Returns a header from the response to a call. May only be called from the response callback.
    fn called_header(&self, name: &str) -> Option<Vec<u8>>;
    /// Returns up to `most` bytes from the start of a call's response body. May only be called from
    /// the response callback.
    fn called_body(&self, most: usize) -> Option<Vec<u8>>;
    /// Sets the timer period, in milliseconds. 0 stops the timer.
    fn set_timer_ms(&self, period: u32);

    /// Reads a value from Envoy's shared data. See [`SharedData::get`].
    fn shared_get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<Option<Cas>, StoreFailed>;
    /// Writes a value to Envoy's shared data. See [`SharedData::set`].
    fn shared_set(&self, key: &[u8], value: &[u8], expected: Cas) -> Result<Written, StoreFailed>;
    /// Atomically modifies part of a shared data value. See [`SharedData::patch`].
    fn shared_patch(&self, _key: &[u8], _plan: &mut PlanPatch<'_>) -> bool {
        false
    }
    /// Returns the reason why shared data is not fully persisted to the configured file. `None` if
    /// it is, or if no file is configured.
    fn store_problem(&self) -> Option<String> {
        None
    }

    /// Defines a metric and returns its ID, or returns the ID of an existing metric with this name.
    fn define_metric(&self, kind: MetricKind, name: &str) -> Option<MetricId>;
    /// Adds `offset` to a counter or gauge. Only gauges accept a negative offset.
    fn add_to_metric(&self, id: MetricId, offset: i64);
    /// Sets a gauge, or records a histogram value.
    fn record(&self, id: MetricId, value: u64);
    /// Reads the value of a counter or gauge.
    fn read_metric(&self, id: MetricId) -> Option<u64>;

    /// Writes a line to Envoy's log.
    fn log(&self, level: LogLevel, line: &str);
}

/// Implements the store's [`SharedData`] trait on top of the host's shared data.
pub(crate) struct HostStore<'a>(pub(crate) &'a dyn Host);

impl SharedData for HostStore<'_> {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<Option<Cas>, StoreFailed> {
        self.0.shared_get(key, value)
    }

    fn set(&mut self, key: &[u8], value: &[u8], expected: Cas) -> Result<Written, StoreFailed> {
        self.0.shared_set(key, value, expected)
    }

    fn patch(&mut self, key: &[u8], plan: &mut PlanPatch<'_>) -> bool {
        self.0.shared_patch(key, plan)
    }
}
