//! Random jitter for waits.

use loudou_limiter::{Decimal, Nanos, mix};

/// `wait` plus a random part of `jitter` times `wait`; never less than `wait`. The randomness comes
/// from the instant: nanoseconds that no two requests share, mixed well.
pub(super) fn jittered(wait: Nanos, jitter: Decimal, at: Nanos) -> Nanos {
    // Most rules have none, and a division of 128 bits takes hundreds of instructions.
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
