//! Reads the data needed to compute a request's actual cost when the request ends.

use std::borrow::Cow;

use loudou_limiter::Nanos;
use loudou_rules::metadata::each_text;
use loudou_rules::rule::{End, Ended, Settlement};

use crate::host::Host;

/// Envoy response flags that do not indicate an incomplete response. Three of them may stem from a different attempt,
/// which found no healthy upstream, failed to connect, or hit an open circuit breaker. The others indicate that a delay
/// was injected, that the retry limit was reached, or that the response came from a cache.
const WHOLE: u64 = 0x2 | 0x20 | 0x80 | 0x200 | 0x8000 | 0x10_0000;

/// Status of the upstream response, and the headers needed to compute the final cost.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct UpstreamResponse {
    /// True if the response came from an upstream.
    has_come: bool,
    status: Option<u16>,
    /// Names and values of headers.
    headers: Vec<(String, Vec<u8>)>,
}

impl UpstreamResponse {
    /// Reads the current response. If it did not come from an upstream, returns the default.
    pub(crate) fn read<'a>(
        host: &dyn Host,
        settlements: impl Iterator<Item = &'a Settlement>,
    ) -> Self {
        if !is_upstream(host) {
            return Self::default();
        }
        let status = host.response_header(":status");
        let mut response = Self {
            has_come: true,
            status: status.and_then(|status| std::str::from_utf8(&status).ok()?.parse().ok()),
            headers: Vec::new(),
        };
        for name in settlements.flat_map(Settlement::response_headers) {
            if response.header(name).is_none()
                && let Some(value) = host.response_header(name)
            {
                response.headers.push((name.to_owned(), value));
            }
        }
        response
    }

    fn header(&self, name: &str) -> Option<&[u8]> {
        let found = self.headers.iter().find(|(own, _)| own == name);
        found.map(|(_, value)| &**value)
    }
}

/// Returns true if the current response came from an upstream and Envoy has neither replaced nor aborted it.
fn is_upstream(host: &dyn Host) -> bool {
    let details = host.property("response\0code_details");
    details.is_some_and(|details| details == b"via_upstream")
}

/// The current request, after it has ended.
pub(crate) struct EndedRequest<'a> {
    host: &'a dyn Host,
    response: UpstreamResponse,
    /// Result of the last read of dynamic metadata, encoded as protobuf.
    metadata: Option<Vec<u8>>,
}

impl<'a> EndedRequest<'a> {
    pub(crate) const fn new(host: &'a dyn Host, response: UpstreamResponse) -> Self {
        Self {
            host,
            response,
            metadata: None,
        }
    }

    fn number(&self, path: &str) -> Option<u64> {
        let bytes = self.host.property(path)?;
        bytes.try_into().ok().map(u64::from_le_bytes)
    }
}

impl Ended for EndedRequest<'_> {
    /// If there is no response, the request is assumed to have reached an upstream in two cases: if Envoy was connected
    /// to the upstream, as indicated by the connection's local address, or if Envoy made more than one attempt. The
    /// number of attempts is checked because Envoy only reports the local address of the last attempt.
    fn end(&mut self) -> End {
        if self.response.has_come {
            let flags = self.number("response\0flags").unwrap_or(0);
            let is_whole = flags & !WHOLE == 0 && is_upstream(self.host);
            return if is_whole { End::Whole } else { End::Cut };
        }
        let tries = self.number("upstream\0request_attempt_count");
        let is_connected = || {
            let own = self.host.property("upstream\0local_address");
            own.is_some_and(|address| !address.is_empty())
        };
        if tries.is_some_and(|tries| tries > 1) || is_connected() {
            End::Cut
        } else {
            End::Unsent
        }
    }

    fn status(&mut self) -> Option<u16> {
        self.response.status
    }

    fn token_usage(&mut self) -> Option<Cow<'_, [u8]>> {
        let usage = "metadata\0typed_filter_metadata\0envoy.ai.token_usage";
        self.host.property(usage).map(Cow::Owned)
    }

    fn metadata(&mut self, path: &[String]) -> Option<Cow<'_, [u8]>> {
        let host = self.host;
        if self.metadata.is_none() || !host.reads_all_metadata() {
            self.metadata = Some(host.metadata(path));
        }
        let read = self.metadata.as_deref().unwrap_or_default();
        let mut first = None;
        each_text(read, path, &mut |value| {
            first.get_or_insert_with(|| value.to_vec());
        });
        first.map(Cow::Owned)
    }

    fn response_header(&mut self, name: &str) -> Option<Cow<'_, [u8]>> {
        self.response.header(name).map(Cow::Borrowed)
    }

    /// Returns `None` if the response did not come from an upstream, because its size then says nothing about how much
    /// work the upstream did.
    fn response_bytes(&mut self) -> Option<u64> {
        let bytes = || self.number("response\0size");
        self.response.has_come.then(bytes).flatten()
    }

    fn duration(&mut self) -> Option<Nanos> {
        self.number("request\0duration").map(Nanos::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

    fn set(host: &FakeHost, path: &str, value: &[u8]) {
        host.properties
            .borrow_mut()
            .insert(path.to_owned(), value.to_vec());
    }

    /// Determines how a request ended from its response flags, response code details and number of attempts. `address`
    /// is the local address of the upstream connection.
    fn end(has_response: bool, flags: u64, details: &str, tries: u64, address: &str) -> End {
        let host = FakeHost::default();
        set(&host, "response\0flags", &u64::to_le_bytes(flags));
        set(&host, "response\0code_details", details.as_bytes());
        set(
            &host,
            "upstream\0request_attempt_count",
            &u64::to_le_bytes(tries),
        );
        set(&host, "upstream\0local_address", address.as_bytes());
        let response = UpstreamResponse {
            has_come: has_response,
            ..UpstreamResponse::default()
        };
        EndedRequest::new(&host, response).end()
    }

    #[test]
    fn responses_are_whole_or_cut() {
        for (flags, details, expected) in [
            (0, "via_upstream", End::Whole),
            // An injected delay, an error response after the last retry, and an error response after an attempt that
            // hit an open circuit breaker.
            (0x200, "via_upstream", End::Whole),
            (0x8000, "via_upstream", End::Whole),
            (0x80, "via_upstream", End::Whole),
            // Client disconnects, upstream resets, timeouts and protocol errors.
            (0x4000, "via_upstream", End::Cut),
            (0x10, "via_upstream", End::Cut),
            (0x40, "via_upstream", End::Cut),
            (0x1_0000, "via_upstream", End::Cut),
            (0x80_0000, "via_upstream", End::Cut),
            (0x4000 | 0x8000, "via_upstream", End::Cut),
            (0, "max_duration_timeout", End::Cut),
        ] {
            assert_eq!(
                end(true, flags, details, 1, "10.0.0.1:80"),
                expected,
                "{flags:x} {details}"
            );
        }
    }

    #[test]
    fn requests_that_an_upstream_received_are_not_free() {
        for (flags, tries, address, expected) in [
            // Timeouts, resets and client disconnects after the request was sent.
            (0x4, 1, "10.0.0.1:80", End::Cut),
            (0x40, 1, "10.0.0.1:80", End::Cut),
            (0x4000, 1, "10.0.0.1:80", End::Cut),
            // The first attempt was sent, and the second was prevented by an open circuit breaker.
            (0x40 | 0x80, 1, "10.0.0.1:80", End::Cut),
            // The first attempt was sent. The second attempt failed to connect or found no healthy upstream.
            (0x20 | 0x8000, 2, "", End::Cut),
            (0x2, 2, "", End::Cut),
            // No connection could be established, or the client disconnected first.
            (0x20, 1, "", End::Unsent),
            (0x4, 1, "", End::Unsent),
            (0x4000, 1, "", End::Unsent),
            (0x80, 1, "", End::Unsent),
            (0x100, 0, "", End::Unsent),
        ] {
            assert_eq!(
                end(false, flags, "", tries, address),
                expected,
                "{flags:x} {tries} {address}"
            );
        }
        let host = FakeHost::default();
        let none = UpstreamResponse::default();
        assert_eq!(EndedRequest::new(&host, none).end(), End::Unsent);
    }

    /// Responses from other filters are ignored, because only upstream responses indicate a request's cost.
    #[test]
    fn responses_of_others_are_not_read() {
        let host = FakeHost::default();
        let read = |host: &FakeHost| UpstreamResponse::read(host, std::iter::empty());
        assert_eq!(read(&host), UpstreamResponse::default());
        host.set_response_header(":status", "401");
        set(&host, "response\0code_details", b"ext_authz_denied");
        assert_eq!(read(&host), UpstreamResponse::default());
        let response = read(&host);
        assert_eq!(EndedRequest::new(&host, response).end(), End::Unsent);
        set(&host, "response\0code_details", b"via_upstream");
        let response = read(&host);
        assert_eq!(EndedRequest::new(&host, response).status(), Some(401));
        host.set_response_header(":status", "many");
        assert_eq!(read(&host).status, None);
    }
}
