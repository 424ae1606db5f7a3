//! What a rule adds to responses: headers, and the answer to refused requests.

use alloc::string::String;
use alloc::vec::Vec;

use loudou_limiter::{Decimal, TellsMore};
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use super::is_false;

/// Headers of responses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Respond {
    /// The rate-limit headers.
    pub ratelimit_headers: RateLimitHeaders,
    /// The maximum random increase of `Retry-After`, as a fraction of the wait: clients that
    /// were refused together then retry at different times.
    #[serde(skip_serializing_if = "Decimal::is_zero")]
    pub retry_after_jitter: Decimal,
    /// Whether the rule's decision is passed to upstreams and access logs, and the time for which a
    /// request was held to clients: for debugging.
    #[serde(skip_serializing_if = "is_false")]
    pub explain_header: bool,
}

/// The rate-limit headers of responses. `Retry-After` comes with any of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RateLimitHeaders {
    /// `RateLimit` and `RateLimit-Policy` of the IETF draft 11, on refusals only.
    #[default]
    Refused,
    /// The same on admitted responses, too.
    Draft11,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`, on all responses.
    Legacy,
    /// The headers of the draft and the legacy ones, on all responses.
    Both,
    /// None.
    None,
}

impl RateLimitHeaders {
    /// The name in rule files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Draft11 => "draft11",
            Self::Legacy => "legacy",
            Self::Both => "both",
            Self::None => "none",
        }
    }

    /// Whether a response gets the headers of the draft.
    pub const fn draft11(self, refused: bool) -> bool {
        match self {
            Self::Refused => refused,
            Self::Draft11 | Self::Both => true,
            Self::Legacy | Self::None => false,
        }
    }

    /// Which decisions have to tell when more is there again.
    pub const fn tells_more(self) -> TellsMore {
        match self {
            Self::Refused => TellsMore::IfRefused,
            Self::Draft11 | Self::Legacy | Self::Both => TellsMore::Always,
            Self::None => TellsMore::Never,
        }
    }

    /// Whether responses get the legacy ones.
    pub const fn legacy(self) -> bool {
        matches!(self, Self::Legacy | Self::Both)
    }
}

/// The response to refused requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refuse {
    /// The HTTP status.
    pub status: u16,
    /// The HTTP status for a request without a key, if it is another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status_without_key: Option<u16>,
    /// The body.
    pub body: RefuseBody,
    /// Additional headers: names in lower case, and their values.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "by_name")]
    pub headers: Vec<(String, String)>,
    /// The status of gRPC calls.
    pub grpc: GrpcStatus,
}

impl Default for Refuse {
    fn default() -> Self {
        Self {
            status: 429,
            status_without_key: None,
            body: RefuseBody::default(),
            headers: Vec::new(),
            grpc: GrpcStatus::default(),
        }
    }
}

impl Refuse {
    /// Whether every field has its default.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The body of the response to a refused request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RefuseBody {
    /// A problem document (RFC 9457) with the limits and the time to wait.
    #[default]
    Problem,
    /// No body.
    None,
    /// This text.
    Text {
        /// The text.
        text: String,
        /// Its content type.
        content_type: String,
    },
}

/// The headers as an object.
fn by_name<S: Serializer>(headers: &[(String, String)], serializer: S) -> Result<S::Ok, S::Error> {
    let mut fields = serializer.serialize_map(Some(headers.len()))?;
    for (name, value) in headers {
        fields.serialize_entry(name, value)?;
    }
    fields.end()
}

impl Serialize for RefuseBody {
    /// A word, or an object with the text.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Problem => serializer.serialize_str("problem"),
            Self::None => serializer.serialize_str("none"),
            Self::Text { text, content_type } => {
                let mut fields = serializer.serialize_map(Some(2))?;
                fields.serialize_entry("text", text)?;
                fields.serialize_entry("content_type", content_type)?;
                fields.end()
            }
        }
    }
}

/// The status of a refused gRPC call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GrpcStatus {
    /// 8: gRPC's code for an exhausted quota.
    #[default]
    ResourceExhausted,
    /// 14: many clients retry this automatically.
    Unavailable,
}

impl GrpcStatus {
    /// The name in rule files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ResourceExhausted => "resource_exhausted",
            Self::Unavailable => "unavailable",
        }
    }

    /// The number of the status.
    pub const fn code(self) -> u8 {
        match self {
            Self::ResourceExhausted => 8,
            Self::Unavailable => 14,
        }
    }
}
