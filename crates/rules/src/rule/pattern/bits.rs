//! Rows of bits, which represent sets of positions.

use alloc::vec;
use alloc::vec::Vec;

/// Sets of positions, each with the same number of words.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    words: usize,
    bits: Vec<u64>,
}

impl Rows {
    pub(super) fn new(rows: usize, words: usize) -> Self {
        Self {
            words: words.max(1),
            bits: vec![0; rows.saturating_mul(words.max(1))],
        }
    }

    pub(super) fn row(&self, row: usize) -> &[u64] {
        let mut rows = self.bits.chunks_exact(self.words);
        rows.nth(row).unwrap_or_default()
    }

    fn row_mut(&mut self, row: usize) -> &mut [u64] {
        let mut rows = self.bits.chunks_exact_mut(self.words);
        rows.nth(row).unwrap_or_default()
    }

    /// Adds a position to a row.
    pub(super) fn set(&mut self, row: usize, position: usize) {
        let (word, bit) = place(position);
        if let Some(word) = self.row_mut(row).get_mut(word) {
            *word |= bit;
        }
    }

    /// Returns the number of rows.
    pub(super) fn len(&self) -> usize {
        self.bits.chunks_exact(self.words).len()
    }

    /// Returns the total number of words.
    pub(super) const fn size(&self) -> usize {
        self.bits.len()
    }

    /// Returns the index of a row, and adds the row if it does not exist.
    pub(super) fn index_of(&mut self, row: &[u64]) -> usize {
        let mut rows = self.bits.chunks_exact(self.words);
        rows.position(|own| own == row).unwrap_or_else(|| {
            self.bits.extend_from_slice(row);
            self.len().saturating_sub(1)
        })
    }

    /// Adds the positions in both `set` and `only` to a row.
    pub(super) fn add(&mut self, row: usize, set: &[u64], only: &[u64]) {
        for ((to, bits), only) in self.row_mut(row).iter_mut().zip(set).zip(only) {
            *to |= bits & only;
        }
    }
}

/// Returns the index of the word that contains a position, and the position's bit in that word.
pub(super) fn place(position: usize) -> (usize, u64) {
    let bit = u32::try_from(position & 63).unwrap_or_default();
    (position >> 6, 1_u64.rotate_left(bit))
}

/// Returns the positions common to both sets.
pub(super) fn both(one: &[u64], other: &[u64]) -> impl Iterator<Item = usize> {
    let words = one.iter().zip(other).map(|(one, other)| one & other);
    words.enumerate().flat_map(|(index, mut word)| {
        core::iter::from_fn(move || {
            let bit = usize::try_from(word.trailing_zeros()).ok();
            let bit = bit.filter(|bit| *bit < 64)?;
            word &= word.wrapping_sub(1);
            Some((index << 6) | bit)
        })
    })
}
