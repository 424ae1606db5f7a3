//! What refused requests are answered.

use alloc::collections::BTreeMap;
use alloc::string::String;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// What refused requests are answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refuse {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub body: RefuseBody,
    /// More headers: names in lower case, and their values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The status of gRPC calls.
    pub grpc: GrpcStatus,
}

impl Default for Refuse {
    fn default() -> Self {
        Self {
            status: 429,
            body: RefuseBody::default(),
            headers: BTreeMap::new(),
            grpc: GrpcStatus::default(),
        }
    }
}

impl Refuse {
    /// Whether nothing differs from what holds without it.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The body of the answer to a refused request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RefuseBody {
    /// A problem document (RFC 9457) that says which limits, and when to come back.
    #[default]
    Problem,
    /// None.
    None,
    /// This text.
    Text {
        /// The text.
        text: String,
        /// Its content type.
        content_type: String,
    },
}

impl Serialize for RefuseBody {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Problem => serializer.serialize_str("problem"),
            Self::None => serializer.serialize_str("none"),
            Self::Text { text, content_type } => {
                let mut map = serializer.serialize_map(Some(2))?;
                map.serialize_entry("text", text)?;
                map.serialize_entry("content_type", content_type)?;
                map.end()
            }
        }
    }
}

/// The status of a refused gRPC call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GrpcStatus {
    /// 8: what gRPC calls a quota that is used up.
    #[default]
    ResourceExhausted,
    /// 14: what many clients retry by themselves.
    Unavailable,
}

impl GrpcStatus {
    /// Its number.
    pub const fn code(self) -> u8 {
        match self {
            Self::ResourceExhausted => 8,
            Self::Unavailable => 14,
        }
    }
}
