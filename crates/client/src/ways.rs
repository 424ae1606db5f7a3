//! Chooses how to send a call's JSON: in the body, or in a header if Envoy does not pass bodies to
//! the filter.
//!
//! Each response from the filter states which of the two it accepts. Until the first response, and
//! for short JSON, the client uses the header, because a call with a body would hang on a listener
//! without `allow_on_headers_stop_iteration`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use loudou_api::{BODY_HEADER, BodyWays, MAX_BODY_HEADER};
use serde::de::DeserializeOwned;
use serde_json::Value;
use ureq::http::Response;
use ureq::typestate::WithBody;
use ureq::{Body, RequestBuilder};

use super::{Client, ClientError};

/// Maximum size of JSON in a header, in bytes, unless the filter accepts only headers. Proxies
/// between the client and Envoy may reject larger headers.
const SHORT: usize = 8 * 1024;

/// A way to send JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Header,
    Body,
}

/// The ways of sending JSON that the filter said it accepts in its most recent response. Shared by
/// all clones.
#[derive(Clone, Debug, Default)]
pub(super) struct Ways(Arc<AtomicU8>);

impl Ways {
    /// No response has been received yet.
    #[cfg(test)]
    const UNKNOWN: u8 = 0;
    const ANY: u8 = 1;
    const ONLY_HEADER: u8 = 2;
    /// The filter does not accept JSON in a header.
    const ONLY_BODY: u8 = 3;

    /// Records which ways of sending JSON the filter accepts, as stated in a response.
    pub(super) fn note(&self, answer: &Response<Body>) {
        let named = answer.headers().get(BODY_HEADER);
        let named = named.and_then(|name| BodyWays::parse(name.to_str().ok()?));
        let ways = match named {
            None => Self::ONLY_BODY,
            Some(BodyWays::Any) => Self::ANY,
            Some(BodyWays::Header) => Self::ONLY_HEADER,
        };
        self.0.store(ways, Ordering::Relaxed);
    }

    /// Returns how to send JSON of this length (when serialized as ASCII).
    pub(super) fn way(&self, bytes: usize) -> Way {
        let most = match self.0.load(Ordering::Relaxed) {
            Self::ONLY_BODY => return Way::Body,
            Self::ONLY_HEADER => MAX_BODY_HEADER,
            _ => SHORT,
        };
        if bytes <= most {
            Way::Header
        } else {
            Way::Body
        }
    }

    /// Returns true if the filter accepts JSON only in a header.
    pub(super) fn is_only_header(&self) -> bool {
        self.0.load(Ordering::Relaxed) == Self::ONLY_HEADER
    }
}

impl Client {
    /// Returns true if the most recent response came from a listener that accepts JSON only in a
    /// header.
    pub fn has_no_bodies(&self) -> bool {
        self.ways.is_only_header()
    }

    /// Sends a request with `json`. If the filter rejects the request and its response shows that
    /// it accepts JSON only the other way, sends the request again that way.
    pub(super) fn send<T: DeserializeOwned>(
        &self,
        request: impl Fn() -> RequestBuilder<WithBody>,
        json: &Value,
    ) -> Result<T, ClientError> {
        let text = ascii(json);
        let send = |way: Way| match way {
            Way::Header => self.answer(request().header(BODY_HEADER, &text).send_empty()),
            Way::Body => {
                let request = request().content_type("application/json");
                self.answer(request.send(&text)).map_err(of_body)
            }
        };
        let way = self.ways.way(text.len());
        let answer = send(way);
        let other = self.ways.way(text.len());
        let is_misread = matches!(&answer, Err(error) if error.status() == Some(400));
        if is_misread && other != way {
            return send(other);
        }
        answer
    }
}

/// Marks an error as coming from a request with a body.
fn of_body(error: ClientError) -> ClientError {
    match error {
        ClientError::TimedOut { url, after, .. } => ClientError::TimedOut {
            url,
            after,
            had_body: true,
        },
        error => error,
    }
}

/// Serializes JSON as visible ASCII. Other characters are escaped.
pub(super) fn ascii(json: &Value) -> String {
    let mut text = String::new();
    for character in json.to_string().chars() {
        if matches!(character, ' '..='~') {
            text.push(character);
            continue;
        }
        let mut units = [0; 2];
        for unit in character.encode_utf16(&mut units) {
            text.extend([format!("\\u{unit:04x}")]);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_in_a_header_is_the_same_json() {
        for value in [
            json!({ "reason": "café 漏斗 \u{1f680} \u{7f} \n \" \\" }),
            json!(["", "é", "\u{ffff}"]),
        ] {
            let text = ascii(&value);
            assert!(text.bytes().all(|b| matches!(b, b' '..=b'~')), "{text}");
            assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), value);
        }
    }

    #[test]
    fn short_texts_go_into_a_header_that_is_taken() {
        let ways = Ways::default();
        let of = |state: u8, bytes: usize| {
            ways.0.store(state, Ordering::Relaxed);
            ways.way(bytes)
        };
        for state in [Ways::UNKNOWN, Ways::ANY] {
            assert_eq!(of(state, SHORT), Way::Header);
            assert_eq!(of(state, SHORT + 1), Way::Body);
        }
        assert_eq!(of(Ways::ONLY_HEADER, MAX_BODY_HEADER), Way::Header);
        assert_eq!(of(Ways::ONLY_HEADER, MAX_BODY_HEADER + 1), Way::Body);
        assert_eq!(of(Ways::ONLY_BODY, 1), Way::Body);
    }
}
