//! What responses carry.

use alloc::string::String;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use crate::decimal::Decimal;

/// What responses carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Respond {
    /// Which rate-limit headers.
    pub ratelimit_headers: RateLimitHeaders,
    /// At most how much longer than the real wait `Retry-After` is, as a share of it: clients that
    /// were refused together do not come back together.
    pub retry_after_jitter: Decimal,
    /// Whether upstreams and access logs are told what the rule decided, and clients how long a
    /// request was held: for debugging.
    pub explain_header: bool,
}

impl Respond {
    /// As in a rule file.
    fn to_value(self) -> Value {
        let mut fields = Map::new();
        let mut put = |name: &str, value: Value| fields.insert(String::from(name), value);
        put("ratelimit_headers", self.ratelimit_headers.name().into());
        if self.retry_after_jitter != Decimal::default() {
            let jitter = serde_json::to_value(self.retry_after_jitter);
            put("retry_after_jitter", jitter.unwrap_or_default());
        }
        if self.explain_header {
            put("explain_header", true.into());
        }
        Value::Object(fields)
    }
}

impl Serialize for Respond {
    /// By way of a value: rules are serialised in several ways, and this is the same for all.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_value().serialize(serializer)
    }
}

/// Which rate-limit headers responses get. `Retry-After` comes with any of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RateLimitHeaders {
    /// `RateLimit` and `RateLimit-Policy` of the IETF draft 11, on refusals only.
    #[default]
    Refused,
    /// The same on admitted responses, too.
    Draft11,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`, on all responses.
    Legacy,
    /// Those of the draft and the legacy ones, on all responses.
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

    /// Whether a response gets those of the draft.
    pub const fn draft11(self, refused: bool) -> bool {
        match self {
            Self::Refused => refused,
            Self::Draft11 | Self::Both => true,
            Self::Legacy | Self::None => false,
        }
    }

    /// Whether responses get the legacy ones.
    pub const fn legacy(self) -> bool {
        matches!(self, Self::Legacy | Self::Both)
    }
}
