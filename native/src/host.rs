//! Implements the host interface of the filter for one callback.

use std::cell::{Cell, RefCell};
use std::mem;
use std::net::{IpAddr, SocketAddr};

use loudou_filter::header_lines::{HeaderLines, serialized};
use loudou_filter::host::{Host, LogLevel, MetricId, MetricKind, Outgoing, Reply};
use loudou_limiter::Nanos;
use loudou_store::{Cas, PlanPatch, StoreFailed, Written};

use crate::abi::{self, Attribute, EnvoyStream, Lines, Map};
use crate::clock;
use crate::metadata;
use crate::metrics;
use crate::plugin::Configuration;

/// An action on a request that the role has requested. Envoy's function for this action may invoke
/// hooks of the module before it returns, so the module calls it only after it has released the
/// role's lock.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Sends a response to the request with this number.
    Reply(u32, Reply),
    /// Resumes the request with this number.
    Resume(u32),
}

/// The response to an HTTP call; it has no headers if the call failed.
#[derive(Debug, Default)]
pub(crate) struct Response {
    pub(crate) headers: Lines,
    pub(crate) body: Vec<u8>,
}

/// Facts about a request that Envoy does not record for modules.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Facts {
    /// Time at which the request headers arrived; zero if no code needs it.
    pub(crate) since: Nanos,
    /// Number of response body bytes so far.
    pub(crate) response_bytes: u64,
}

/// Implements [`Host`] with Envoy's dynamic module functions.
#[derive(Debug)]
pub(crate) struct NativeHost<'a> {
    configuration: &'a Configuration,
    /// Index of the worker whose role is being called.
    worker: usize,
    /// The current request.
    stream: Cell<(u32, EnvoyStream)>,
    /// Facts about the current request.
    facts: Cell<Facts>,
    /// Response to an HTTP call that this callback delivers to the role.
    response: RefCell<Response>,
    effects: RefCell<Vec<Effect>>,
    /// Period in milliseconds that the role has set for its timer in this callback, if any.
    timer_ms: Cell<Option<u32>>,
}

impl<'a> NativeHost<'a> {
    /// Creates the host for a callback that does not belong to a request.
    pub(crate) fn new(configuration: &'a Configuration, worker: usize) -> Self {
        Self {
            configuration,
            worker,
            stream: Cell::new((0, EnvoyStream::NONE)),
            facts: Cell::default(),
            response: RefCell::default(),
            effects: RefCell::default(),
            timer_ms: Cell::default(),
        }
    }

    /// Makes this request the current one.
    pub(crate) fn enter(&self, number: u32, stream: EnvoyStream) {
        self.stream.set((number, stream));
    }

    /// Records facts about the current request.
    pub(crate) fn know(&self, facts: Facts) {
        self.facts.set(facts);
    }

    /// Stores the response that the role reads next.
    pub(crate) fn receive(&self, response: Response) {
        self.response.replace(response);
    }

    /// Takes the effects that the role has requested so far.
    pub(crate) fn take_effects(&self) -> Vec<Effect> {
        mem::take(&mut self.effects.borrow_mut())
    }

    /// Returns true if the role has requested an effect.
    pub(crate) fn has_effects(&self) -> bool {
        !self.effects.borrow().is_empty()
    }

    /// Takes the timer period that the role has set, if any.
    pub(crate) fn take_timer_ms(&self) -> Option<u32> {
        self.timer_ms.take()
    }

    fn current(&self) -> EnvoyStream {
        self.stream.get().1
    }
}

impl Host for NativeHost<'_> {
    fn now(&self) -> Nanos {
        clock::now()
    }

    fn unix(&self) -> Nanos {
        clock::unix()
    }

    fn random(&self) -> [u8; 16] {
        let mut random = [0; 16];
        let filled = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty());
        if filled.is_err() {
            self.log(
                LogLevel::Error,
                "the system has no random bytes, so clients can predict the placement of pages",
            );
        }
        random
    }

    fn request_header(&self, name: &str) -> Option<Vec<u8>> {
        self.current().header(Map::Request, name)
    }

    fn request_headers(&self) -> Option<HeaderLines> {
        let lines = self.current().request_headers();
        let lines = lines
            .iter()
            .map(|(name, value)| (name.as_slice(), value.as_slice()));
        Some(HeaderLines::new(serialized(lines)))
    }

    fn request_headers_size(&self) -> u64 {
        let lines = self.current().request_headers();
        let sizes = lines
            .iter()
            .map(|(name, value)| name.len().saturating_add(value.len()));
        let size = sizes.fold(0, usize::saturating_add);
        u64::try_from(size).unwrap_or(u64::MAX)
    }

    fn property(&self, path: &str) -> Option<Vec<u8>> {
        let stream = self.current();
        let number = |attribute| stream.number(attribute).map(|n| n.to_le_bytes().to_vec());
        match path {
            "source\0address" => {
                let address = stream.text(Attribute::SourceAddress)?;
                Some(with_port(address, stream.number(Attribute::SourcePort)))
            }
            "destination\0address" => {
                let address = stream.text(Attribute::DestinationAddress)?;
                Some(with_port(
                    address,
                    stream.number(Attribute::DestinationPort),
                ))
            }
            "xds\0route_name" => stream.text(Attribute::RouteName),
            "connection\0uri_san_peer_certificate" => stream.text(Attribute::UriSanPeerCertificate),
            "connection\0dns_san_peer_certificate" => stream.text(Attribute::DnsSanPeerCertificate),
            "connection\0id" => number(Attribute::ConnectionId),
            "response\0code" => number(Attribute::ResponseCode),
            "response\0code_details" => stream.text(Attribute::ResponseCodeDetails),
            "response\0flags" => {
                let details = stream.text(Attribute::ResponseCodeDetails)?;
                Some(flags_of(&details).to_le_bytes().to_vec())
            }
            "response\0size" => Some(self.facts.get().response_bytes.to_le_bytes().to_vec()),
            "request\0duration" => {
                let duration = self.now().since(self.facts.get().since);
                Some(duration.get().to_le_bytes().to_vec())
            }
            "upstream\0local_address" => stream.text(Attribute::UpstreamLocalAddress),
            "upstream\0request_attempt_count" => number(Attribute::UpstreamRequestAttemptCount),
            "xds\0cluster_name" => stream.cluster(),
            _ => stream.joined_header(path.strip_prefix("request\0headers\0")?),
        }
    }

    /// Envoy gives a module only one metadata value per call.
    fn metadata(&self, path: &[String]) -> Vec<u8> {
        let Some((namespace, key)) = path.first().zip(path.get(1)) else {
            return Vec::new();
        };
        let value = self.current().metadata_value(namespace, key);
        value.map_or_else(Vec::new, |value| metadata::encode(namespace, key, &value))
    }

    fn reads_all_metadata(&self) -> bool {
        false
    }

    fn request_body(&self, most: usize) -> Option<Vec<u8>> {
        Some(self.current().body(most))
    }

    fn add_response_header(&self, name: &str, value: &str) {
        self.current().add_header(Map::Response, name, value);
    }

    fn set_request_header(&self, name: &str, value: &str) {
        self.current().set_header(Map::Request, name, value);
    }

    /// Stores the value under the name that Envoy uses when a Wasm filter sets a property.
    fn set_property(&self, name: &str, value: &str) {
        self.current()
            .set_filter_state(&format!("wasm.{name}"), value);
    }

    fn response_header(&self, name: &str) -> Option<Vec<u8>> {
        self.current().header(Map::Response, name)
    }

    fn set_response_header(&self, name: &str, value: &str) {
        self.current().set_header(Map::Response, name, value);
    }

    fn reply(&self, reply: &Reply) {
        let effect = Effect::Reply(self.stream.get().0, reply.clone());
        self.effects.borrow_mut().push(effect);
    }

    fn reply_to(&self, stream: u32, reply: &Reply) {
        let effect = Effect::Reply(stream, reply.clone());
        self.effects.borrow_mut().push(effect);
    }

    fn resume(&self, stream: u32) {
        self.effects.borrow_mut().push(Effect::Resume(stream));
    }

    /// The hooks select the request before they call its role, so no other request can be selected
    /// here.
    fn focus(&self, stream: u32) -> bool {
        self.stream.get().0 == stream
    }

    fn call(&self, request: &Outgoing<'_>) -> Option<u32> {
        Some(self.configuration.post(self.worker, request))
    }

    fn called_header(&self, name: &str) -> Option<Vec<u8>> {
        let response = self.response.borrow();
        let mut headers = response.headers.iter();
        let found = headers.find(|(own, _)| own == name.as_bytes());
        found.map(|(_, value)| value.clone())
    }

    fn called_body(&self, most: usize) -> Option<Vec<u8>> {
        let response = self.response.borrow();
        Some(response.body.iter().take(most).copied().collect())
    }

    fn set_timer_ms(&self, period: u32) {
        self.timer_ms.set(Some(period));
    }

    fn shared_get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<Option<Cas>, StoreFailed> {
        let values = self.configuration.values();
        Ok(values.and_then(|values| values.of(key).get(key, value)))
    }

    fn shared_set(&self, key: &[u8], value: &[u8], expected: Cas) -> Result<Written, StoreFailed> {
        let values = self.configuration.values();
        let written = values.and_then(|values| values.of(key).set(key, value, expected));
        written.ok_or(StoreFailed)
    }

    fn shared_patch(&self, key: &[u8], plan: &mut PlanPatch<'_>) -> bool {
        let values = self.configuration.values();
        values.is_some_and(|values| values.of(key).patch(key, plan))
    }

    fn store_problem(&self) -> Option<String> {
        self.configuration.values()?.problem()
    }

    fn define_metric(&self, kind: MetricKind, name: &str) -> Option<MetricId> {
        self.configuration.define_metric(kind, name)
    }

    fn add_to_metric(&self, id: MetricId, offset: i64) {
        self.configuration.add_to_metric(id, offset);
    }

    fn record(&self, id: MetricId, value: u64) {
        self.configuration.record(id, value);
    }

    fn read_metric(&self, id: MetricId) -> Option<u64> {
        metrics::read(id)
    }

    fn log(&self, level: LogLevel, line: &str) {
        log(level, line);
    }
}

/// Writes a line to Envoy's log.
pub(crate) fn log(level: LogLevel, line: &str) {
    let level = match level {
        LogLevel::Info => 2,
        LogLevel::Warn => 3,
        LogLevel::Error => 4,
    };
    abi::log(level, line);
}

/// Approximates Envoy's response flags, which a module cannot read. Only upstream failures can be
/// derived from the response code details.
fn flags_of(details: &[u8]) -> u64 {
    /// Envoy's flag for a response without a healthy upstream; stands for every upstream failure
    /// here.
    const FAILED: u64 = 0x2;
    // Envoy appends the failure reason in braces.
    let name = details
        .split(|byte| *byte == b'{')
        .next()
        .unwrap_or_default();
    let is_failure = matches!(
        name,
        b"no_healthy_upstream"
            | b"upstream_reset_before_response_started"
            | b"upstream_reset_after_response_started"
            | b"upstream_response_timeout"
            | b"upstream_per_try_timeout"
            | b"upstream_per_try_idle_timeout"
            | b"upstream_max_stream_duration_reached"
            | b"response_timeout"
            | b"overflow"
            | b"dns_resolution_failure"
    );
    if is_failure { FAILED } else { 0 }
}

/// Formats an address as the Wasm host does: with its port, and with brackets around an IPv6
/// address. Some versions of Envoy give a module the address with its port, others without it.
fn with_port(address: Vec<u8>, port: Option<u64>) -> Vec<u8> {
    let text = str::from_utf8(&address).ok();
    let ip = text.and_then(|text| text.parse::<IpAddr>().ok());
    let port = port.and_then(|port| u16::try_from(port).ok());
    match ip.zip(port) {
        Some((ip, port)) => SocketAddr::new(ip, port).to_string().into_bytes(),
        None => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_by_the_wasm_host() {
        let written = |address: &str, port| {
            let bytes = with_port(address.as_bytes().to_vec(), port);
            String::from_utf8(bytes).expect("a text")
        };
        assert_eq!(written("127.0.0.1", Some(80)), "127.0.0.1:80");
        assert_eq!(written("::1", Some(80)), "[::1]:80");
        assert_eq!(written("::1", None), "::1");
        assert_eq!(written("127.0.0.1:80", Some(80)), "127.0.0.1:80");
        assert_eq!(written("[::1]:80", Some(80)), "[::1]:80");
        assert_eq!(written("@pipe", Some(0)), "@pipe");
    }
}
