//! Response settings: the headers that a rule adds, and the response to refused requests.

use alloc::string::String;
use alloc::vec::Vec;

use loudou_limiter::{Decimal, NeedsMoreAfter};
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use super::is_false;

/// Headers that a rule adds to responses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Respond {
    /// Kind of rate-limit headers.
    pub ratelimit_headers: RateLimitHeaders,
    /// Maximum random increase of `Retry-After`, as a fraction of the wait. With jitter, clients
    /// that were refused at the same time retry at different times.
    #[serde(skip_serializing_if = "Decimal::is_zero")]
    pub retry_after_jitter: Decimal,
    /// True if, for debugging, Loudou passes the rule's decision to upstreams and access logs, and
    /// tells clients how long a request was held.
    #[serde(skip_serializing_if = "is_false")]
    pub explain_header: bool,
}

/// Kind of rate-limit headers in responses. All kinds include `Retry-After`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RateLimitHeaders {
    /// `RateLimit` and `RateLimit-Policy` as in IETF draft 11, only in refusals.
    #[default]
    Refused,
    /// `RateLimit` and `RateLimit-Policy` as in IETF draft 11, in all responses.
    Draft11,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`, in all responses.
    Legacy,
    /// Both the draft headers and the legacy headers, in all responses.
    Both,
    /// `X-RateLimit-Limit-Tokens`, `X-RateLimit-Remaining-Tokens` and `X-RateLimit-Reset-Tokens`, in all responses.
    /// `OpenAI` clients read these headers.
    Openai,
    /// No rate-limit headers.
    None,
}

impl RateLimitHeaders {
    /// Name of the kind in rule files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Draft11 => "draft11",
            Self::Legacy => "legacy",
            Self::Both => "both",
            Self::Openai => "openai",
            Self::None => "none",
        }
    }

    /// Returns true if responses include the draft headers.
    pub const fn draft11(self, refused: bool) -> bool {
        match self {
            Self::Refused => refused,
            Self::Draft11 | Self::Both => true,
            Self::Legacy | Self::Openai | Self::None => false,
        }
    }

    /// Returns the decisions for which the response needs the time until more capacity is
    /// available.
    pub const fn needs_more_after(self) -> NeedsMoreAfter {
        match self {
            Self::Refused => NeedsMoreAfter::IfRefused,
            Self::Draft11 | Self::Legacy | Self::Both | Self::Openai => NeedsMoreAfter::Always,
            Self::None => NeedsMoreAfter::Never,
        }
    }

    /// Returns true if responses include headers for the tightest limit only: the legacy or the
    /// `OpenAI` headers.
    pub const fn legacy(self) -> bool {
        matches!(self, Self::Legacy | Self::Both | Self::Openai)
    }
}

/// Response to refused requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refuse {
    /// HTTP status.
    pub status: u16,
    /// HTTP status for requests without a key, if it differs from `status`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status_without_key: Option<u16>,
    /// Body of the response.
    pub body: RefuseBody,
    /// Additional headers, with lower-case names.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "by_name")]
    pub headers: Vec<(String, String)>,
    /// Status for gRPC calls.
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
    /// Returns true if all fields have their default values.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Body of the response to a refused request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RefuseBody {
    /// A problem document (RFC 9457) containing the limits and the time to wait.
    #[default]
    Problem,
    /// No body.
    None,
    /// A string from the rule file.
    Text {
        /// The text.
        text: String,
        /// Content type of the text.
        content_type: String,
    },
}

/// Serialises the headers as an object.
fn by_name<S: Serializer>(headers: &[(String, String)], serializer: S) -> Result<S::Ok, S::Error> {
    let mut fields = serializer.serialize_map(Some(headers.len()))?;
    for (name, value) in headers {
        fields.serialize_entry(name, value)?;
    }
    fields.end()
}

impl Serialize for RefuseBody {
    /// Serialises a word, or an object with the text.
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

/// Status of a refused gRPC call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GrpcStatus {
    /// Status 8, the gRPC code for an exhausted quota.
    #[default]
    ResourceExhausted,
    /// Status 14, on which many clients retry automatically.
    Unavailable,
}

impl GrpcStatus {
    /// Name of the status in rule files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ResourceExhausted => "resource_exhausted",
            Self::Unavailable => "unavailable",
        }
    }

    /// Returns the status number.
    pub const fn code(self) -> u8 {
        match self {
            Self::ResourceExhausted => 8,
            Self::Unavailable => 14,
        }
    }
}
