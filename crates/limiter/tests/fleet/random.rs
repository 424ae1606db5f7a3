//! Random numbers from a seed.

/// The generator `SplitMix64`.
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`, which must be above 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.word() % end
    }

    /// Returns a number from `first` to `last`.
    pub(crate) fn between(&mut self, (first, last): (u64, u64)) -> u64 {
        first + self.below(last - first + 1)
    }

    /// Returns true with this probability, in per mille.
    pub(crate) fn happens(&mut self, per_mille: u64) -> bool {
        self.below(1_000) < per_mille
    }

    pub(crate) fn index(&mut self, len: usize) -> usize {
        let len = u64::try_from(len).expect("few");
        usize::try_from(self.below(len)).expect("few")
    }
}
