//! Creates the gRPC-specific parts of the response to a refused gRPC call.
//!
//! When Envoy sends a local reply to a gRPC request, it converts the reply into a trailers-only
//! response with HTTP status 200 and the headers `grpc-status` and `grpc-message`. The filter adds
//! the retry delay in two forms: as a `google.rpc.RetryInfo` in `grpc-status-details-bin`, and in
//! milliseconds in `grpc-retry-pushback-ms`. Clients with a retry policy (gRFC A6) read the latter
//! header, where a negative number means that the client must not retry.

use super::wait::Wait;
use crate::host::Host;

/// Type URL of the error detail in `grpc-status-details-bin`.
const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Returns true if the current request is a gRPC call according to its content type. Like Envoy,
/// does not treat gRPC-Web requests as gRPC calls.
pub(crate) fn is_call(host: &dyn Host) -> bool {
    let content_type = host.request_header("content-type");
    let rest = content_type
        .as_deref()
        .and_then(|value| value.strip_prefix(b"application/grpc"));
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+')))
}

/// Returns the value of `grpc-retry-pushback-ms`.
pub(super) fn pushback(wait: Wait) -> Option<String> {
    let most = i32::MAX.unsigned_abs().into();
    match wait {
        Wait::For(wait) => Some(wait.millis_ceil().min(most).to_string()),
        Wait::Unknown => None,
        Wait::Never => Some("-1".to_owned()),
    }
}

/// Returns the value of `grpc-status-details-bin`: a base64-encoded `google.rpc.Status` with the
/// retry delay.
pub(super) fn details(code: u8, message: &str, wait: Wait) -> String {
    let mut status = Vec::new();
    varint_field(1, code.into(), &mut status);
    bytes_field(2, message.as_bytes(), &mut status);
    if let Wait::For(wait) = wait {
        let mut duration = Vec::new();
        varint_field(1, wait.get() / 1_000_000_000, &mut duration);
        varint_field(2, wait.get() % 1_000_000_000, &mut duration);
        let mut retry_info = Vec::new();
        bytes_field(1, &duration, &mut retry_info);
        let mut any = Vec::new();
        bytes_field(1, RETRY_INFO.as_bytes(), &mut any);
        bytes_field(2, &retry_info, &mut any);
        bytes_field(3, &any, &mut status);
    }
    base64(&status)
}

fn varint(mut number: u64, out: &mut Vec<u8>) {
    loop {
        let [low, ..] = number.to_le_bytes();
        number >>= 7;
        if number == 0 {
            out.push(low & 0x7f);
            return;
        }
        out.push(low | 0x80);
    }
}

/// Appends a numeric field. A field with value 0 is omitted, because a missing field means 0.
fn varint_field(field: u8, number: u64, out: &mut Vec<u8>) {
    if number > 0 {
        out.push(field << 3);
        varint(number, out);
    }
}

/// Appends a string or message field.
fn bytes_field(field: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.push((field << 3) | 2);
    varint(u64::try_from(bytes.len()).unwrap_or(0), out);
    out.extend(bytes);
}

/// Encodes bytes as base64 without padding, which is how gRPC implementations must send binary
/// headers.
fn base64(bytes: &[u8]) -> String {
    let mut out = String::new();
    for three in bytes.chunks(3) {
        let byte = |n: usize| u32::from(three.get(n).copied().unwrap_or(0));
        let bits = (byte(0) << 16) | (byte(1) << 8) | byte(2);
        for digit in 0..=three.len() {
            let shift = 18_usize.saturating_sub(digit.saturating_mul(6));
            let index = usize::try_from((bits >> shift) & 63).unwrap_or(0);
            out.extend(ALPHABET.get(index).copied().map(char::from));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use loudou_limiter::Nanos;

    use super::*;
    use crate::host::fake::FakeHost;

    #[test]
    fn base64_has_no_padding() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg"),
            ("fo", "Zm8"),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg"),
            ("fooba", "Zm9vYmE"),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[0xfb, 0xff, 0xfe]), "+//+");
    }

    /// Compares the encoding with `protoc`'s output for the same message.
    #[test]
    fn a_status_is_protobuf() {
        let mut expected = b"\x08\x08\x12\x02no\x1a\x33\x0a\x28".to_vec();
        expected.extend(RETRY_INFO.as_bytes());
        // RetryInfo { retry_delay { seconds: 300, nanos: 5 } }
        expected.extend(b"\x12\x07\x0a\x05\x08\xac\x02\x10\x05");
        let wait = Nanos::new(300_000_000_005);
        assert_eq!(details(8, "no", Wait::For(wait)), base64(&expected));
        assert_eq!(details(8, "no", Wait::Never), base64(b"\x08\x08\x12\x02no"));
    }

    #[test]
    fn pushback_is_in_milliseconds_or_never() {
        let pushback = |wait: Wait| pushback(wait).unwrap_or_default();
        assert_eq!(pushback(Wait::For(Nanos::new(1_000_001))), "2");
        assert_eq!(pushback(Wait::For(Nanos::MAX)), i32::MAX.to_string());
        assert_eq!(pushback(Wait::Never), "-1");
        assert_eq!(pushback(Wait::Unknown), "");
    }

    #[test]
    fn only_grpc_is_grpc() {
        let host = FakeHost::default();
        for (content_type, is_grpc) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("application/grpc-web", false),
            ("application/json", false),
            ("", false),
        ] {
            let headers = [("content-type", content_type.as_bytes())];
            host.request("POST", "/", &headers);
            assert_eq!(is_call(&host), is_grpc, "{content_type}");
        }
        host.request("GET", "/", &[]);
        assert!(!is_call(&host));
    }
}
