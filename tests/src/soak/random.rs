//! Random numbers from a seed. Equal seeds give equal numbers on every machine.

/// The generator `SplitMix64`.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Creates a generator. Different streams of one seed are unrelated.
    pub const fn new(seed: u64, stream: u64) -> Self {
        Self(seed.wrapping_add(stream.wrapping_mul(0xd1b5_4a32_d192_ed03)))
    }

    /// Returns the next 64 bits.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number in `least..=most`.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        let span = most.saturating_sub(least).saturating_add(1);
        least + self.next().checked_rem(span).unwrap_or(0)
    }

    /// Returns an index below `count`, which must not be 0.
    pub fn below(&mut self, count: usize) -> usize {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        let index = self.between(0, count.saturating_sub(1));
        usize::try_from(index).unwrap_or(0)
    }

    /// Returns true with this probability in percent.
    pub fn percent(&mut self, share: u64) -> bool {
        self.between(0, 99) < share
    }

    /// Puts a list into random order.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            list.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_itself_and_streams_differ() {
        let first = |seed, stream| {
            let mut random = Random::new(seed, stream);
            [random.next(), random.next()]
        };
        assert_eq!(first(1, 2), first(1, 2));
        assert_ne!(first(1, 2), first(1, 3));
        assert_ne!(first(1, 2), first(2, 2));
    }

    #[test]
    fn bounds_are_within() {
        let mut random = Random::new(7, 0);
        let numbers: Vec<u64> = (0..1_000).map(|_| random.between(3, 5)).collect();
        assert!((3..=5).all(|n| numbers.contains(&n)));
        assert!(numbers.iter().all(|n| (3..=5).contains(n)));
        assert!((0..100).all(|_| random.below(4) < 4));
    }
}
