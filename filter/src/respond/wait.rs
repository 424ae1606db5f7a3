//! When the client of a refused request may come back.

use loudou_limiter::{Decimal, Decision, Limit, Nanos};

use super::jitter::jittered;

/// When to come back.
#[derive(Clone, Copy)]
pub(super) enum Wait {
    /// After this time.
    For(Nanos),
    /// When other requests have ended, or the store works again.
    Unknown,
    /// Never: the same request is never admitted.
    Never,
}

impl Wait {
    /// Until the slowest of the limits that refused is ready.
    pub(super) fn of<'a>(refusing: impl Iterator<Item = (&'a Limit, &'a Decision)>) -> Self {
        refusing.fold(Self::For(Nanos::ZERO), |longest, (limit, decision)| match (
            longest,
            decision.retry_after,
        ) {
            (Self::Never, _) => Self::Never,
            (Self::For(longest), Some(wait)) => Self::For(longest.max(wait)),
            (Self::Unknown, Some(_)) => Self::Unknown,
            (_, None) if limit.algorithm().holds_until_end() => Self::Unknown,
            (_, None) => Self::Never,
        })
    }

    /// The header `retry-after`.
    pub(super) fn header(self) -> Option<(&'static str, String)> {
        match self {
            Self::For(wait) => Some(("retry-after", wait.secs_ceil().to_string())),
            Self::Unknown | Self::Never => None,
        }
    }

    /// The same, made longer by chance.
    pub(super) fn longer_by(self, jitter: Decimal, now: Nanos) -> Self {
        match self {
            Self::For(wait) => Self::For(jittered(wait, jitter, now)),
            other => other,
        }
    }
}
