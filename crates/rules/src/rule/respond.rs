//! Headers of responses.

use loudou_limiter::{Decimal, TellsMore};
use serde::Serialize;

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
