//! The response to refused requests.

use alloc::string::String;
use alloc::vec::Vec;

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

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
