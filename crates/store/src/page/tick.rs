//! The time of a bucket's last refusal, in three bytes.

use loudou_limiter::Nanos;

/// A tick is 2^28 ns, about a quarter of a second, so that a shift makes one of a time.
const TICK_BITS: u32 = 28;
/// Ticks are counted modulo 2^24.
const MASK: u64 = (1 << 24) - 1;

/// An instant, to a quarter of a second, modulo 52 days.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tick([u8; 3]);

impl Tick {
    /// The tick that `at` is in.
    pub fn of(at: Nanos) -> Self {
        let bytes = (at.get() >> TICK_BITS).to_le_bytes();
        Self(bytes.first_chunk().copied().unwrap_or_default())
    }

    /// The latest instant up to `now` at which it began. It may be one of 52 days later, if nothing was refused
    /// since.
    pub fn before(self, now: Nanos) -> Nanos {
        let [a, b, c] = self.0;
        let own = u64::from(u32::from_le_bytes([a, b, c, 0]));
        let last = now.get() >> TICK_BITS;
        // Another worker's clock may be ahead by a moment, and in the next tick.
        let ago = (last.wrapping_add(1).wrapping_sub(own) & MASK).saturating_sub(1);
        Nanos::new(last.saturating_sub(ago) << TICK_BITS)
    }

    /// Whether it ended within `span` before `now`, or not at all.
    pub fn is_within(self, span: Nanos, now: Nanos) -> bool {
        let end = self.before(now).saturating_add(Nanos::new(1 << TICK_BITS));
        now.since(end) < span
    }

    /// The encoded form.
    pub(super) const fn to_bytes(self) -> [u8; 3] {
        self.0
    }

    /// Of the encoded form.
    pub(super) const fn from_bytes(bytes: [u8; 3]) -> Self {
        Self(bytes)
    }
}

#[cfg(test)]
#[expect(clippy::arithmetic_side_effects, reason = "bounded by the strategies")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TICK: u64 = 1 << TICK_BITS;
    const TURN: u64 = (MASK + 1) << TICK_BITS;

    proptest! {
        /// Within a turn of the counter, the instant is known to a tick, and never later than it was.
        #[test]
        fn an_instant_is_known_to_a_tick(at in any::<u64>(), ago in 0..TURN - 2 * TICK) {
            let now = at.saturating_add(ago);
            let read = Tick::of(Nanos::new(at)).before(Nanos::new(now)).get();
            prop_assert!(read <= at && at - read < TICK, "{read} for {at} at {now}");
        }

        /// Of one by a clock that is ahead by a moment, too.
        #[test]
        fn one_tick_ahead_is_now(now in 0..u64::MAX / 2, ahead in 0..TICK) {
            let (at, now) = (Nanos::new(now + ahead), Nanos::new(now));
            prop_assert!(Tick::of(at).is_within(Nanos::new(1), now));
        }

        /// A refusal counts for the whole span, and at most a tick longer.
        #[test]
        fn a_span_is_kept_to_a_tick(at in 0..u64::MAX / 2, ago in 0..TURN - 2 * TICK, span in 1..u64::MAX / 2) {
            let now = Nanos::new(at + ago);
            let is_within = Tick::of(Nanos::new(at)).is_within(Nanos::new(span), now);
            if ago < span {
                prop_assert!(is_within);
            } else if ago >= span.saturating_add(TICK) {
                prop_assert!(!is_within);
            }
        }
    }
}
