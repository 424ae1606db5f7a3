//! The time after which a refused request may be repeated.

use loudou_limiter::{Decimal, Decision, Limit, Nanos};

use super::jitter::jittered;
use super::text::Digits;
use crate::host::Header;

/// The time until a repeated request may be admitted.
#[derive(Clone, Copy)]
pub(super) enum Wait {
    /// After this time.
    For(Nanos),
    /// After other requests have ended, or after the store has recovered.
    Unknown,
    /// Never: the same request is never admitted.
    Never,
}

impl Wait {
    /// The time until the slowest of the limits that refused would admit.
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
    pub(super) fn header(self) -> Option<Header> {
        match self {
            Self::For(wait) => Some((
                "retry-after".into(),
                Digits::of(wait.secs_ceil()).as_str().to_owned(),
            )),
            Self::Unknown | Self::Never => None,
        }
    }

    /// The same, made longer at random.
    pub(super) fn longer_by(self, jitter: Decimal, now: Nanos) -> Self {
        match self {
            Self::For(wait) => Self::For(jittered(wait, jitter, now)),
            other => other,
        }
    }
}
