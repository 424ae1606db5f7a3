//! The interface to Envoy: everything that the filter needs from its host.
//!
//! Code above this trait does not know that it runs in wasm. No method can panic, whatever the host
//! returns: an unexpected status becomes `None` or [`StoreFailed`].

use std::borrow::Cow;

use loudou_limiter::{Clock, Nanos};
use loudou_store::{Cas, SharedData, StoreFailed, Written};

use crate::header_lines::HeaderLines;

#[cfg(any(test, feature = "fuzz"))]
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "some of it is only for unit tests")
)]
pub(crate) mod fake;

/// An Envoy metric, by the number that its definition returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricId(pub u32);

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only rises.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Single values, whose distribution Envoy keeps.
    Histogram,
}

/// The level of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// For information.
    Info,
    /// Something that needs attention.
    Warn,
    /// Something that has failed.
    Error,
}

/// A header that the filter adds: its name and value.
pub type Header = (Cow<'static, str>, String);
/// Headers that the filter adds.
pub type Headers = Vec<Header>;

/// An answer sent instead of the upstream's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// Envoy's response code details, without spaces.
    pub details: String,
    /// The headers.
    pub headers: Headers,
    /// The body.
    pub body: Vec<u8>,
    /// The status for a gRPC call: Envoy turns the reply into a gRPC answer, and its body into the
    /// message.
    pub grpc_status: Option<u8>,
}

/// A request to an HTTP service, which Envoy sends for the plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing<'a> {
    /// Envoy's cluster of the service.
    pub cluster: &'a str,
    /// The path.
    pub path: &'a str,
    /// The headers, besides the method, the path and the authority.
    pub headers: &'a [(&'a str, &'a str)],
    /// The body.
    pub body: &'a [u8],
    /// The time after which Envoy gives up, in milliseconds; at least 1.
    pub timeout_ms: u32,
}

/// The host. Methods take `&self`, because a request and the store are the same host.
pub trait Host {
    /// The process-wide monotonic clock.
    fn now(&self) -> Nanos;
    /// The instant `now` on both clocks. Each callback reads each clock at most once.
    fn clock_at(&self, now: Nanos) -> Clock {
        Clock {
            now,
            wall: Nanos::from_millis(self.unix_ms()),
        }
    }
    /// The wall clock, since the Unix epoch: for display, and for the age of a request.
    fn unix(&self) -> Nanos;
    /// The same in milliseconds.
    fn unix_ms(&self) -> u64 {
        self.unix().as_millis()
    }
    /// Random bytes that outsiders cannot guess.
    fn random(&self) -> [u8; 16];

    /// The first line of a header of the current request, which may be empty. Envoy has joined the lines
    /// of some headers before.
    fn request_header(&self, name: &str) -> Option<Vec<u8>>;
    /// All headers of the current request.
    fn request_headers(&self) -> Option<HeaderLines>;
    /// The size of the names and values of all headers of the current request, in bytes.
    fn request_headers_size(&self) -> u64;
    /// A property of the current stream, by its path with NUL between the steps.
    fn property(&self, path: &str) -> Option<Vec<u8>>;
    /// The buffered body of the current request, at most `most` bytes.
    fn request_body(&self, most: usize) -> Option<Vec<u8>>;
    /// Adds a header to the current response.
    fn add_response_header(&self, name: &str, value: &str);
    /// Sets a header of the current request, in place of what it has under this name.
    fn set_request_header(&self, name: &str, value: &str);
    /// Sets a property of the current stream, for access logs: Envoy puts `wasm.` before its name.
    fn set_property(&self, name: &str, value: &str);
    /// Sets a header of the current response, in place of what it has under this name.
    fn set_response_header(&self, name: &str, value: &str);
    /// Answers the current request.
    fn reply(&self, reply: &Reply);
    /// Answers the paused request of a stream; only as the last action of the sandbox.
    fn reply_to(&self, stream: u32, reply: &Reply);
    /// Resumes the paused request of a stream; only from the timer.
    fn resume(&self, stream: u32);
    /// Makes a paused stream the current one, until the callback ends. Returns whether it still exists.
    fn focus(&self, stream: u32) -> bool;
    /// Sends a request to a service; returns its number, which the answer has, too. `None` if nothing was
    /// sent: the cluster is unknown, or has no room or no endpoint.
    fn call(&self, request: &Outgoing<'_>) -> Option<u32>;
    /// A header of the answer to a call; only in its callback.
    fn called_header(&self, name: &str) -> Option<Vec<u8>>;
    /// The body of the answer to a call, at most `most` bytes; only in its callback.
    fn called_body(&self, most: usize) -> Option<Vec<u8>>;
    /// Sets the period of the timer; 0 stops it.
    fn set_timer_ms(&self, period: u32);

    /// Reads shared data; see [`SharedData::get`].
    fn shared_get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<Option<Cas>, StoreFailed>;
    /// Writes shared data; see [`SharedData::set`].
    fn shared_set(&self, key: &[u8], value: &[u8], expected: Cas) -> Result<Written, StoreFailed>;

    /// Defines a metric, or finds the one of that name.
    fn define_metric(&self, kind: MetricKind, name: &str) -> Option<MetricId>;
    /// Adds to a metric; only gauges take a negative offset.
    fn add_to_metric(&self, id: MetricId, offset: i64);
    /// Records one value of a histogram.
    fn record(&self, id: MetricId, value: u64);
    /// Reads a metric.
    fn read_metric(&self, id: MetricId) -> Option<u64>;

    /// Writes a line to Envoy's log.
    fn log(&self, level: LogLevel, line: &str);
}

/// The host's shared data, as the store needs it.
pub(crate) struct HostStore<'a>(pub(crate) &'a dyn Host);

impl SharedData for HostStore<'_> {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<Option<Cas>, StoreFailed> {
        self.0.shared_get(key, value)
    }

    fn set(&mut self, key: &[u8], value: &[u8], expected: Cas) -> Result<Written, StoreFailed> {
        self.0.shared_set(key, value, expected)
    }
}
