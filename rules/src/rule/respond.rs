//! What responses carry.

use loudou_limiter::Decimal;
use serde::Serialize;

use super::is_false;

/// What responses carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Respond {
    /// Which rate-limit headers.
    pub ratelimit_headers: RateLimitHeaders,
    /// At most how much longer than the real wait `Retry-After` is, as a share of it: clients that
    /// were refused together do not come back together.
    #[serde(skip_serializing_if = "Decimal::is_zero")]
    pub retry_after_jitter: Decimal,
    /// Whether upstreams and access logs are told what the rule decided, and clients how long a
    /// request was held: for debugging.
    #[serde(skip_serializing_if = "is_false")]
    pub explain_header: bool,
}

/// Which rate-limit headers responses get. `Retry-After` comes with any of them.
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
