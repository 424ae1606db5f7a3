//! A plain slot: only a head and words, as the slots of most decisions are. It is read and written in place, at
//! fixed offsets: decoding a slot and encoding it again is several times as much code for each request.
#![expect(
    clippy::inline_always,
    reason = "with its offset, each access is one instruction; as a call it is dozens"
)]

use loudou_limiter::Nanos;

use super::{FLAGS_IN_BYTES, MAX_U40, SLOT_HEAD, Tick};

/// The offsets of numbers in the head of a slot, see [`super`].
const VERSION_AT: usize = 12;
pub(super) const LAST_AT: usize = 16;
const IDLE_AT: usize = 24;
const ADMITTED_AT: usize = 29;
const REFUSED_AT: usize = 34;
const REFUSED_TICK_AT: usize = 39;
pub(super) const FLAGS_AT: usize = 42;
const ORIGIN_AT: usize = 43;
pub(super) const WORDS_AT: usize = 47;

/// A slot without any of the optional parts.
pub(crate) struct PlainSlot<'a> {
    head: &'a mut [u8; SLOT_HEAD],
    words: &'a mut [[u8; size_of::<u64>()]],
}

impl<'a> PlainSlot<'a> {
    /// The slot with these bytes, which are well-formed; `None` if it has optional parts.
    pub(super) fn of(slot: &'a mut [u8]) -> Option<Self> {
        let (head, words) = slot.split_first_chunk_mut()?;
        let (words, _) = words.as_chunks_mut();
        let slot = Self { head, words };
        (slot.byte(FLAGS_AT) & FLAGS_IN_BYTES == 0).then_some(slot)
    }

    /// [`super::Slot::version`].
    pub(crate) fn version(&self) -> u32 {
        u32::from_le_bytes(self.bytes(VERSION_AT))
    }

    /// [`super::Slot::flags`].
    pub(crate) fn flags(&self) -> u8 {
        self.byte(FLAGS_AT)
    }

    /// [`super::Slot::origin`].
    pub(crate) fn origin(&self) -> u32 {
        u32::from_le_bytes(self.bytes(ORIGIN_AT))
    }

    /// The last touch of its bucket.
    pub(crate) fn last(&self) -> Nanos {
        Nanos::new(u64::from_le_bytes(self.bytes(LAST_AT)))
    }

    /// Copies the words of its bucket to the beginning of `words`; their number, unless there are more.
    pub(crate) fn read(&self, words: &mut [u64]) -> Option<usize> {
        let words = words.get_mut(..self.words.len())?;
        for (word, bytes) in words.iter_mut().zip(self.words.iter()) {
            *word = u64::from_le_bytes(*bytes);
        }
        Some(words.len())
    }

    /// Whether the words of its bucket can be replaced by these in place: there are as many without zeros at the
    /// end.
    pub(crate) fn has_room_for(&self, words: &[u64]) -> bool {
        let (own, more) = words.split_at(self.words.len().min(words.len()));
        own.len() == self.words.len()
            && own.last().is_none_or(|last| *last > 0)
            && more.iter().all(|word| *word == 0)
    }

    /// Writes words for which there is room.
    pub(crate) fn write(&mut self, words: &[u64]) {
        for (bytes, word) in self.words.iter_mut().zip(words) {
            *bytes = word.to_le_bytes();
        }
    }

    /// Notes the last touch, the time from which the bucket is idle, and one more decision.
    pub(crate) fn note(&mut self, last: Nanos, idle_at_ms: u64, is_refused: bool) {
        self.put(LAST_AT, last.get().to_le_bytes());
        self.put_number(IDLE_AT, idle_at_ms);
        let counter = if is_refused {
            self.put(REFUSED_TICK_AT, Tick::of(last).to_bytes());
            REFUSED_AT
        } else {
            ADMITTED_AT
        };
        self.put_number(counter, self.number(counter).saturating_add(1));
    }

    // The offsets are constants, so the bounds of the head are checked when this is compiled.

    #[inline(always)]
    fn bytes<const N: usize>(&self, at: usize) -> [u8; N] {
        let bytes = self.head.get(at..).and_then(<[u8]>::first_chunk);
        bytes.copied().unwrap_or([0; N])
    }

    #[inline(always)]
    fn byte(&self, at: usize) -> u8 {
        let [byte] = self.bytes(at);
        byte
    }

    #[inline(always)]
    fn number(&self, at: usize) -> u64 {
        let low = u64::from(u32::from_le_bytes(self.bytes(at)));
        low | u64::from(self.byte(at.saturating_add(4))) << 32
    }

    #[inline(always)]
    fn put<const N: usize>(&mut self, at: usize, bytes: [u8; N]) {
        let place = self.head.get_mut(at..).and_then(<[u8]>::first_chunk_mut);
        if let Some(place) = place {
            *place = bytes;
        }
    }

    #[inline(always)]
    fn put_number(&mut self, at: usize, number: u64) {
        let bytes = number.min(MAX_U40).to_le_bytes();
        if let Some(five) = bytes.first_chunk::<5>() {
            self.put(at, *five);
        }
    }
}
