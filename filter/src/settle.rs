//! Reads the data of an ended request from which its actual cost is computed.

use std::borrow::Cow;

use loudou_limiter::Nanos;
use loudou_rules::metadata::each_text;
use loudou_rules::rule::{End, Ended, Settlement};

use crate::host::Host;

/// Bits of Envoy's response flags that a complete response can have. Another try may have found no healthy upstream, no
/// connection or an open circuit breaker. The request may have been delayed on purpose, its retries may be used up, or
/// a cache may have answered.
const WHOLE: u64 = 0x2 | 0x20 | 0x80 | 0x200 | 0x8000 | 0x10_0000;

/// The status and the headers of the upstream's response that costs depend on.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct UpstreamResponse {
    /// True if an upstream has sent a response.
    has_come: bool,
    status: Option<u16>,
    /// Values of headers by their names.
    headers: Vec<(String, Vec<u8>)>,
}

impl UpstreamResponse {
    /// Reads the current response, which another filter may have sent.
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

/// Returns true if the current response is the upstream's, and nothing has replaced or ended it.
fn is_upstream(host: &dyn Host) -> bool {
    let details = host.property("response\0code_details");
    details.is_some_and(|details| details == b"via_upstream")
}

/// The current request, which has ended.
pub(crate) struct EndedRequest<'a> {
    host: &'a dyn Host,
    response: UpstreamResponse,
    /// The dynamic metadata that were read last, in protobuf form.
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
    /// An upstream received the request if Envoy had a connection to it, which has a local address, or if Envoy tried
    /// more than once. Each try replaces the connection of the previous try.
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

    /// Returns `None` for a response of Envoy itself, whose size does not measure the upstream's work.
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

    /// Returns how a request ended that has these response flags, details and number of tries. `address` is Envoy's end
    /// of the connection to the upstream.
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
            // A delay on purpose, and an error after all tries or after a try that a circuit breaker refused.
            (0x200, "via_upstream", End::Whole),
            (0x8000, "via_upstream", End::Whole),
            (0x80, "via_upstream", End::Whole),
            // The client left, resets by the upstream, time-outs, and errors of the protocol.
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
            // Time-outs, resets and clients that left, after the request was sent.
            (0x4, 1, "10.0.0.1:80", End::Cut),
            (0x40, 1, "10.0.0.1:80", End::Cut),
            (0x4000, 1, "10.0.0.1:80", End::Cut),
            // The first try was sent, and a circuit breaker refused the second one.
            (0x40 | 0x80, 1, "10.0.0.1:80", End::Cut),
            // The first try was sent, and the second one found no connection, or no healthy upstream.
            (0x20 | 0x8000, 2, "", End::Cut),
            (0x2, 2, "", End::Cut),
            // No connection came about, or the client left before it did.
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

    /// Only a response of the upstream itself shows what a request cost.
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
