//! The interface to Envoy: everything that the filter needs from its host.
//!
//! Code above this trait does not know that it runs in wasm. No method panics: an unexpected status
//! from the host becomes `None` or [`StoreFailed`].

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

/// An Envoy metric, by the number that the host assigned to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricId(pub u32);

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A value that only rises.
    Counter,
    /// A value that rises and falls.
    Gauge,
    /// Individual values. Envoy keeps their distribution.
    Histogram,
}

/// The level of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// Information.
    Info,
    /// A condition that needs attention.
    Warn,
    /// A failure.
    Error,
}

/// A header that the filter adds: its name and value.
pub type Header = (Cow<'static, str>, String);
/// Headers that the filter adds.
pub type Headers = Vec<Header>;

/// A response that the filter sends instead of the upstream's response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// Envoy's response code details, without spaces.
    pub details: String,
    /// Headers.
    pub headers: Headers,
    /// Body.
    pub body: Vec<u8>,
    /// gRPC status. If set, Envoy turns the reply into a gRPC response, and the body into its
    /// message.
    pub grpc_status: Option<u8>,
}

/// A request to an HTTP service, which Envoy sends for the plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing<'a> {
    /// Envoy cluster of the service.
    pub cluster: &'a str,
    /// Path.
    pub path: &'a str,
    /// Headers, without method, path and authority.
    pub headers: &'a [(&'a str, &'a str)],
    /// Body.
    pub body: &'a [u8],
    /// Timeout in milliseconds, at least 1.
    pub timeout_ms: u32,
}

/// The host. Methods take `&self` because the current request and the store borrow the host at the
/// same time.
pub trait Host {
    /// Returns the monotonic time, which all workers of the process share.
    fn now(&self) -> Nanos;
    /// Returns the instant `now` on both clocks. Each callback reads each clock at most once.
    fn clock_at(&self, now: Nanos) -> Clock {
        Clock {
            now,
            wall: Nanos::from_millis(self.unix_ms()),
        }
    }
    /// Returns the wall-clock time since the Unix epoch. It is used for display and for the age of
    /// a request.
    fn unix(&self) -> Nanos;
    /// Returns the wall-clock time since the Unix epoch, in milliseconds.
    fn unix_ms(&self) -> u64 {
        self.unix().as_millis()
    }
    /// Returns random bytes that outsiders cannot guess.
    fn random(&self) -> [u8; 16];

    /// Returns the first line of a header of the current request. The line may be empty. For some
    /// headers Envoy has already joined all lines.
    fn request_header(&self, name: &str) -> Option<Vec<u8>>;
    /// Returns all headers of the current request.
    fn request_headers(&self) -> Option<HeaderLines>;
    /// Returns the total size of all header names and values of the current request, in bytes.
    fn request_headers_size(&self) -> u64;
    /// Returns a property of the current stream. `path` separates the steps by NUL.
    fn property(&self, path: &str) -> Option<Vec<u8>>;
    /// Returns the dynamic metadata in protobuf form: all of them, or only the value at `path`.
    fn metadata(&self, _path: &[String]) -> Vec<u8> {
        self.property("metadata").unwrap_or_default()
    }
    /// Returns true if [`Self::metadata`] ignores the path and returns all metadata.
    fn reads_all_metadata(&self) -> bool {
        true
    }
    /// Returns the first `most` bytes of the current request's buffered body.
    fn request_body(&self, most: usize) -> Option<Vec<u8>>;
    /// Adds a header to the current response.
    fn add_response_header(&self, name: &str, value: &str);
    /// Sets a header of the current request and replaces an existing value.
    fn set_request_header(&self, name: &str, value: &str);
    /// Sets a property of the current stream for access logs. Envoy puts `wasm.` before its name.
    fn set_property(&self, name: &str, value: &str);
    /// Returns the first line of a header of the current response.
    fn response_header(&self, name: &str) -> Option<Vec<u8>>;
    /// Sets a header of the current response and replaces an existing value.
    fn set_response_header(&self, name: &str, value: &str);
    /// Answers the current request.
    fn reply(&self, reply: &Reply);
    /// Answers the paused request of a stream. Only allowed as the last action before the VM dies.
    fn reply_to(&self, stream: u32, reply: &Reply);
    /// Resumes the paused request of a stream. Only allowed in the timer callback.
    fn resume(&self, stream: u32);
    /// Makes a paused stream the current stream until the callback ends. Returns true if the stream
    /// still exists.
    fn focus(&self, stream: u32) -> bool;
    /// Sends a request to a service. Returns its number, with which the response callback
    /// identifies it. Returns `None` if nothing was sent because the cluster is unknown, overloaded
    /// or without an endpoint.
    fn call(&self, request: &Outgoing<'_>) -> Option<u32>;
    /// Returns a header of a call's response. Only allowed in the callback for that response.
    fn called_header(&self, name: &str) -> Option<Vec<u8>>;
    /// Returns the first `most` bytes of a call's response body. Only allowed in the callback for
    /// that response.
    fn called_body(&self, most: usize) -> Option<Vec<u8>>;
    /// Sets the period of the timer, in milliseconds. 0 stops the timer.
    fn set_timer_ms(&self, period: u32);

    /// Reads a value of Envoy's shared data. See [`SharedData::get`].
    fn shared_get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<Option<Cas>, StoreFailed>;
    /// Writes a value of Envoy's shared data. See [`SharedData::set`].
    fn shared_set(&self, key: &[u8], value: &[u8], expected: Cas) -> Result<Written, StoreFailed>;
    /// Changes a part of a shared data value in one step. See [`SharedData::patch`].
    fn shared_patch(&self, _key: &[u8], _plan: &mut PlanPatch<'_>) -> bool {
        false
    }
    /// Returns the reason why shared data is not completely kept in the configured file. `None` if
    /// it is, or if no file is configured.
    fn store_problem(&self) -> Option<String> {
        None
    }

    /// Defines a metric, or returns the existing metric with this name.
    fn define_metric(&self, kind: MetricKind, name: &str) -> Option<MetricId>;
    /// Adds to a metric. Only gauges accept a negative offset.
    fn add_to_metric(&self, id: MetricId, offset: i64);
    /// Records one histogram value.
    fn record(&self, id: MetricId, value: u64);
    /// Reads a metric.
    fn read_metric(&self, id: MetricId) -> Option<u64>;

    /// Writes a line to Envoy's log.
    fn log(&self, level: LogLevel, line: &str);
}

/// The host's shared data as the interface that the store expects.
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
