//! The joint counts of all workers, in one value of the store.
//!
//! ```text
//! "LT" | version u8 | half u64 | part, four times      part  length u32 | summary
//! ```
//! `half` is the number of the current half; its parts come first, refused and admitted, then those of the
//! previous one. A value of another version is ignored: counts are for people, not for decisions.

use alloc::vec::Vec;

use loudou_limiter::Nanos;

use super::{By, COUNTERS, HALF, summary};

const MAGIC: [u8; 3] = *b"LT\x01";
/// Both halves of both [`By`].
const PARTS: usize = 4;

/// The size of a value with all counters in use, and keys of this many bytes.
pub const fn bytes(key: usize) -> usize {
    let part = summary::bytes(COUNTERS, key).saturating_add(size_of::<u32>());
    let head = MAGIC.len().saturating_add(size_of::<u64>());
    part.saturating_mul(PARTS).saturating_add(head)
}

/// A value that was read: its summaries are still bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shared<'a> {
    /// The current half at the time of writing.
    pub(super) half: u64,
    parts: [&'a [u8]; PARTS],
}

/// The number of the half that `now` is in.
pub(super) const fn half(now: Nanos) -> u64 {
    match now.get().checked_div(HALF.get()) {
        Some(half) => half,
        None => 0,
    }
}

/// The key of the counts of `namespace`.
pub(super) fn key(namespace: &str) -> Vec<u8> {
    [namespace.as_bytes(), b":top"].concat()
}

impl<'a> Shared<'a> {
    pub(super) fn read(bytes: &'a [u8]) -> Option<Self> {
        let (half, mut rest) = bytes.strip_prefix(&MAGIC)?.split_first_chunk()?;
        let mut parts = [<&[u8]>::default(); PARTS];
        for part in &mut parts {
            let (length, tail) = rest.split_first_chunk()?;
            let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
            (*part, rest) = tail.split_at_checked(length)?;
        }
        let half = u64::from_le_bytes(*half);
        rest.is_empty().then_some(Self { half, parts })
    }

    /// The same value with `half` as the current half: counts before the previous half are forgotten.
    pub(super) fn at(self, half: u64) -> Self {
        let [refused, admitted, ..] = self.parts;
        match half.saturating_sub(self.half) {
            0 => self,
            1 => Self {
                half,
                parts: [&[], &[], refused, admitted],
            },
            _ => Self {
                half,
                ..Self::default()
            },
        }
    }

    /// The counts of a half; nothing unless it is the current or the previous one.
    pub(super) fn part(&self, half: u64, by: By) -> &'a [u8] {
        let place = self.place(half, by);
        let part = place.and_then(|place| self.parts.get(place));
        part.copied().unwrap_or_default()
    }

    /// The index among the parts.
    fn place(&self, half: u64, by: By) -> Option<usize> {
        let first = match self.half.checked_sub(half) {
            Some(0) => 0_usize,
            Some(1) => 2,
            _ => return None,
        };
        Some(match by {
            By::Refused => first,
            By::Admitted => first.saturating_add(1),
        })
    }

    /// Replaces the parts of a half: refused and admitted; `None` leaves a part unchanged.
    pub(super) fn put(&mut self, half: u64, parts: [Option<&'a [u8]>; 2]) {
        for (by, part) in By::ALL.into_iter().zip(parts) {
            let place = self.place(half, by);
            let place = place.and_then(|place| self.parts.get_mut(place));
            if let (Some(place), Some(part)) = (place, part) {
                *place = part;
            }
        }
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&self.half.to_le_bytes());
        for part in self.parts {
            let length = u32::try_from(part.len()).unwrap_or(0);
            out.extend_from_slice(&length.to_le_bytes());
            out.extend_from_slice(part);
        }
    }
}
