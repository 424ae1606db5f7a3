//! What Envoy knows of a request that has ended, as far as its cost depends on it.

use std::borrow::Cow;

use loudou_limiter::Nanos;
use loudou_rules::metadata::each_text;
use loudou_rules::rule::{End, Ended, Settlement};

use crate::host::Host;

/// Envoy's response flags, as bits, of a whole response: the request was delayed on purpose, its retries were used up,
/// or a cache has answered.
const WHOLE: u64 = 0x200 | 0x8000 | 0x10_0000;
/// Flags of a request that no upstream received: no healthy upstream, a failed connection, an open circuit breaker,
/// and no route.
const UNSENT: u64 = 0x2 | 0x20 | 0x80 | 0x100;

/// The head of the upstream's response, as far as costs depend on it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct UpstreamResponse {
    /// True if an upstream has sent it.
    has_come: bool,
    status: Option<u16>,
    /// Values of headers by their names.
    headers: Vec<(String, Vec<u8>)>,
}

impl UpstreamResponse {
    /// Reads the head of the current response, which may be that of another filter.
    pub(crate) fn read<'a>(
        host: &dyn Host,
        settlements: impl Iterator<Item = &'a Settlement>,
    ) -> Self {
        let details = host.property("response\0code_details");
        if details.is_none_or(|details| details != b"via_upstream") {
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

/// The current request, which has ended.
pub(crate) struct EndedRequest<'a> {
    host: &'a dyn Host,
    response: UpstreamResponse,
    /// The dynamic metadata in protobuf form, if they were read.
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
    fn end(&mut self) -> End {
        let flags = self.number("response\0flags").unwrap_or(0);
        if self.response.has_come {
            return if flags & !WHOLE == 0 {
                End::Whole
            } else {
                End::Cut
            };
        }
        if flags & UNSENT != 0 {
            return End::Unsent;
        }
        match self.host.property("upstream\0address") {
            Some(address) if !address.is_empty() => End::Cut,
            _ => End::Unsent,
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
        let whole = self
            .metadata
            .get_or_insert_with(|| host.property("metadata").unwrap_or_default());
        let mut first = None;
        each_text(whole, path, &mut |value| {
            first.get_or_insert_with(|| value.to_vec());
        });
        first.map(Cow::Owned)
    }

    fn response_header(&mut self, name: &str) -> Option<Cow<'_, [u8]>> {
        self.response.header(name).map(Cow::Borrowed)
    }

    fn response_bytes(&mut self) -> Option<u64> {
        self.number("response\0size")
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

    #[test]
    fn ends_by_flags_and_addresses() {
        for (flags, has_response, address, expected) in [
            (0, true, "10.0.0.1:80", End::Whole),
            // A delay on purpose, and an error after all retries.
            (0x200, true, "10.0.0.1:80", End::Whole),
            (0x8000, true, "10.0.0.1:80", End::Whole),
            // The client left, resets by the upstream, time-outs, and errors of the protocol.
            (0x4000, true, "10.0.0.1:80", End::Cut),
            (0x10, true, "10.0.0.1:80", End::Cut),
            (0x40, true, "10.0.0.1:80", End::Cut),
            (0x1_0000, true, "10.0.0.1:80", End::Cut),
            (0x80_0000, true, "10.0.0.1:80", End::Cut),
            (0x4000 | 0x8000, true, "10.0.0.1:80", End::Cut),
            // There was no response, although the upstream may have worked.
            (0, false, "10.0.0.1:80", End::Cut),
            (0x4, false, "10.0.0.1:80", End::Cut),
            (0x4000, false, "10.0.0.1:80", End::Cut),
            // Nothing was sent to an upstream.
            (0, false, "", End::Unsent),
            (0x4000, false, "", End::Unsent),
            (0x2, false, "", End::Unsent),
            (0x20, false, "10.0.0.1:80", End::Unsent),
            (0x80, false, "10.0.0.1:80", End::Unsent),
            (0x100, false, "", End::Unsent),
        ] {
            let host = FakeHost::default();
            set(&host, "response\0flags", &u64::to_le_bytes(flags));
            set(&host, "upstream\0address", address.as_bytes());
            let response = UpstreamResponse {
                has_come: has_response,
                ..UpstreamResponse::default()
            };
            let end = EndedRequest::new(&host, response).end();
            assert_eq!(end, expected, "{flags:x} {has_response} {address}");
        }
        let host = FakeHost::default();
        assert_eq!(
            EndedRequest::new(&host, UpstreamResponse::default()).end(),
            End::Unsent
        );
    }

    /// Only the upstream's own response tells what a request cost.
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
