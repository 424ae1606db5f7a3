//! What refused requests are answered.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

/// What refused requests are answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refuse {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub body: RefuseBody,
    /// More headers: names in lower case, and their values.
    pub headers: Vec<(String, String)>,
    /// The status of gRPC calls.
    pub grpc: GrpcStatus,
}

impl Default for Refuse {
    fn default() -> Self {
        Self {
            status: 429,
            body: RefuseBody::default(),
            headers: Vec::new(),
            grpc: GrpcStatus::default(),
        }
    }
}

impl Refuse {
    /// As in a rule file.
    fn to_value(&self) -> Value {
        let mut fields = Map::new();
        let mut put = |name: &str, value: Value| fields.insert(String::from(name), value);
        put("status", self.status.into());
        put("body", self.body.to_value());
        if !self.headers.is_empty() {
            let headers = self.headers.iter();
            let headers = headers.map(|(name, value)| (name.clone(), value.as_str().into()));
            put("headers", Value::Object(headers.collect()));
        }
        put("grpc", self.grpc.name().into());
        Value::Object(fields)
    }

    /// Whether nothing differs from what holds without it.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Serialize for Refuse {
    /// By way of a value: rules are serialised in several ways, and this is the same for all.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_value().serialize(serializer)
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

impl RefuseBody {
    fn to_value(&self) -> Value {
        match self {
            Self::Problem => "problem".into(),
            Self::None => "none".into(),
            Self::Text { text, content_type } => {
                let pair = |name: &str, value: &String| (String::from(name), value.as_str().into());
                let pairs = [pair("text", text), pair("content_type", content_type)];
                Value::Object(pairs.into_iter().collect())
            }
        }
    }
}

/// The status of a refused gRPC call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GrpcStatus {
    /// 8: what gRPC calls a quota that is used up.
    #[default]
    ResourceExhausted,
    /// 14: what many clients retry by themselves.
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

    /// Its number.
    pub const fn code(self) -> u8 {
        match self {
            Self::ResourceExhausted => 8,
            Self::Unavailable => 14,
        }
    }
}
