//! Computes how long a request can be held. The request must be let through before its client stops
//! waiting for a response.
//!
//! The deadline comes from the header `grpc-timeout`, or from `x-envoy-expected-rq-timeout-ms`,
//! which is set by an Envoy in front of this one. If both are present, the shorter timeout applies.
//! A client may send these headers itself, but they can only shorten a wait. Malformed values are
//! ignored.

use loudou_limiter::Nanos;

use crate::request::Request;

/// Maximum number of digits of a gRPC timeout.
const GRPC_DIGITS: usize = 8;
/// Maximum number of digits of a timeout in milliseconds. A timeout with more digits would exceed
/// any wait, so it is ignored.
const MS_DIGITS: usize = 18;
const GRPC_TIMEOUT: &str = "grpc-timeout";
const EXPECTED_MS: &str = "x-envoy-expected-rq-timeout-ms";

/// Reason why a request that would have had to wait was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotHeld {
    /// The wait would end after the request's deadline.
    Deadline,
    /// The worker already holds the maximum number of requests.
    Full,
}

impl NotHeld {
    /// Name of the reason in responses and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Deadline => "deadline",
            Self::Full => "waiting_full",
        }
    }
}

/// Returns the maximum time a request can be held, and the reason for refusing it if it would have
/// to wait longer.
pub(crate) fn patience(request: &mut dyn Request) -> (Nanos, NotHeld) {
    if !request.may_wait() {
        return (Nanos::ZERO, NotHeld::Full);
    }
    let grpc = request.header(GRPC_TIMEOUT).and_then(|text| grpc(&text));
    let expected = request.header(EXPECTED_MS).and_then(|text| expected(&text));
    let deadline = grpc.into_iter().chain(expected).min();
    let deadline = deadline.map(|deadline| deadline.since(request.waited()));
    // A wait must end before the deadline, not exactly at it.
    let patience = deadline.map_or(Nanos::MAX, |deadline| deadline.since(Nanos::new(1)));
    (patience, NotHeld::Deadline)
}

/// Parses a `TimeoutValue` and `TimeoutUnit` as in gRPC over HTTP/2: `100m` is 100 milliseconds.
fn grpc(text: &[u8]) -> Option<Nanos> {
    let (unit, digits) = text.split_last()?;
    let unit: u64 = match unit {
        b'H' => 3_600_000_000_000,
        b'M' => 60_000_000_000,
        b'S' => 1_000_000_000,
        b'm' => 1_000_000,
        b'u' => 1_000,
        b'n' => 1,
        _ => return None,
    };
    number(digits, GRPC_DIGITS).map(|count| Nanos::new(count.saturating_mul(unit)))
}

/// Parses a whole number of milliseconds. Envoy sends 0 if there is no timeout.
fn expected(text: &[u8]) -> Option<Nanos> {
    number(text, MS_DIGITS)
        .filter(|ms| *ms > 0)
        .map(Nanos::from_millis)
}

fn number(digits: &[u8], longest: usize) -> Option<u64> {
    let fits = !digits.is_empty() && digits.len() <= longest;
    let is_number = fits && digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| {
        digits.iter().fold(0_u64, |number, digit| {
            let digit = u64::from(digit.saturating_sub(b'0'));
            number.saturating_mul(10).saturating_add(digit)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_of_grpc() {
        let times: [(&[u8], u64); 8] = [
            (b"100m", 100_000_000),
            (b"2S", 2_000_000_000),
            (b"1H", 3_600_000_000_000),
            (b"3M", 180_000_000_000),
            (b"7u", 7_000),
            (b"9n", 9),
            (b"0m", 0),
            (b"99999999H", u64::MAX),
        ];
        for (text, nanos) in times {
            assert_eq!(grpc(text), Some(Nanos::new(nanos)), "{text:?}");
        }
        let wrong: [&[u8]; 11] = [
            b"",
            b"m",
            b"100",
            b"-1m",
            b"+1m",
            b"1 m",
            b"1s",
            b"1.5S",
            b"123456789m",
            b"\xffm",
            b"1mm",
        ];
        for text in wrong {
            assert_eq!(grpc(text), None, "{text:?}");
        }
    }

    #[test]
    fn timeouts_of_envoy() {
        assert_eq!(expected(b"15000"), Some(Nanos::from_secs(15)));
        assert_eq!(expected(b"999999999999999999"), Some(Nanos::MAX));
        for text in [
            &b""[..],
            b"0",
            b"-5",
            b"15s",
            b"1e3",
            b" 7",
            b"9999999999999999999",
        ] {
            assert_eq!(expected(text), None, "{text:?}");
        }
    }
}
