//! Computes the delay after which a refused request may be retried.

use loudou_limiter::{Decimal, Decision, Limit, Nanos, mix};

use crate::host::Header;
use crate::respond::text::Digits;

/// Delay after which a refused request may be admitted if it is retried.
#[derive(Clone, Copy)]
pub(super) enum Wait {
    /// A retry may be admitted after this time.
    For(Nanos),
    /// The delay is unknown, because it depends on when other requests or a failure will end.
    Unknown,
    /// Retries of the request cannot be admitted.
    Never,
}

impl Wait {
    /// Returns the delay after which all limits that refused the request may admit it.
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

    /// Returns the `retry-after` header, if the delay is known.
    pub(super) fn header(self) -> Option<Header> {
        match self {
            Self::For(wait) => Some((
                "retry-after".into(),
                Digits::of(wait.secs_ceil()).as_str().to_owned(),
            )),
            Self::Unknown | Self::Never => None,
        }
    }

    /// Adds random jitter to the delay.
    pub(super) fn longer_by(self, jitter: Decimal, now: Nanos) -> Self {
        match self {
            Self::For(wait) => Self::For(jittered(wait, jitter, now)),
            other => other,
        }
    }
}

/// Returns `wait` plus a pseudo-random fraction of `jitter` × `wait`. The fraction is a hash of the
/// time in nanoseconds, so that it differs between requests.
pub(crate) fn jittered(wait: Nanos, jitter: Decimal, at: Nanos) -> Nanos {
    // The early return matters because most rules have no jitter, and a 128-bit division takes
    // hundreds of instructions.
    if jitter == Decimal::default() {
        return wait;
    }
    let chance = u128::from(mix(at.get()) >> 32);
    let most = u128::from(wait.get()).saturating_mul(jitter.thousandths().into()) / 1_000;
    let more = most.saturating_mul(chance) >> 32;
    wait.saturating_add(Nanos::new(u64::try_from(more).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_shorter_and_never_much_longer() {
        let wait = Nanos::from_secs(10);
        let tenth = Decimal::from_thousandths(100);
        let waits: Vec<Nanos> = (0..1_000)
            .map(|n| jittered(wait, tenth, Nanos::new(n)))
            .collect();
        let (least, most) = (waits.iter().min(), waits.iter().max());
        let bounds = (Nanos::from_millis(10_010), Nanos::from_millis(10_990));
        assert!(least >= Some(&wait) && least < Some(&bounds.0), "{least:?}");
        assert!(
            most <= Some(&Nanos::from_secs(11)) && most > Some(&bounds.1),
            "{most:?}"
        );
    }

    #[test]
    fn without_jitter_nothing_is_added() {
        let wait = Nanos::from_secs(10);
        for at in 0..100 {
            assert_eq!(jittered(wait, Decimal::default(), Nanos::new(at)), wait);
        }
        let whole = Decimal::from_thousandths(1_000);
        assert_eq!(jittered(Nanos::MAX, whole, Nanos::new(5)), Nanos::MAX);
    }
}
