//! A page in its encoded form. A change reads and writes one slot in place and skips the others,
//! which is several times as fast as decoding and encoding the entire page.

use alloc::vec::Vec;
use core::ops::Range;

use loudou_limiter::lease::MAX_LATER_LIMITS;
use loudou_limiter::{MAX_BUCKET_WORDS, Nanos};

use super::codec::{
    ADMITTED_AT, FLAG_HELD, HELD, Head, IDLE_AT, Instant, LAST_AT, REFUSED_AT, REFUSED_TICK_AT,
    from_u40, put, u40,
};
use super::{
    Bytes, Evicted, FLAG_LATER, FLAGS_IN_BYTES, MAX_COUNT, MAX_U40, PAGE_HEAD, Page, PageFull,
    RUN_GAP, SLOT_HEAD, SLOTS, Slot, SlotHead, Standing, Tick, UnknownPage, later_bytes,
    optional_bytes, victim,
};
use crate::attempt::GaveUp;
use crate::shared_data::{CAS_ABSENT, Cas, Patch, SharedData};

/// Offsets of a page's slot count and origin counter.
const COUNT_AT: usize = 3;
const ORIGINS_AT: usize = 4;
/// Size of a word, in bytes.
const WORD: usize = 8;

/// Bytes of a well-formed page.
#[derive(Clone, Debug, Default)]
pub(crate) struct PageBytes {
    bytes: Vec<u8>,
    /// Offset of each slot. Only the first `count` entries are valid.
    starts: [usize; SLOTS],
    count: usize,
}

impl PageBytes {
    /// Reads the page at `key` and returns its version. A missing page has no slots.
    pub(crate) fn read(&mut self, store: &mut dyn SharedData, key: &[u8]) -> Result<Cas, GaveUp> {
        if let Some(cas) = store.get(key, &mut self.bytes)? {
            self.check().map_err(|_unknown| GaveUp::UnknownPage)?;
            Ok(cas)
        } else {
            self.clear();
            Ok(CAS_ABSENT)
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Replaces the contents with an empty page, which has no slots.
    fn clear(&mut self) {
        Page::default().encode(&mut self.bytes);
        self.count = 0;
    }

    /// Locates the slots and checks them as strictly as [`Page::decode`] does.
    fn check(&mut self) -> Result<(), UnknownPage> {
        let mut reader = Bytes(&self.bytes);
        let (count, _origins) = reader.page_head()?;
        self.count = usize::from(count);
        let mut at = PAGE_HEAD;
        for start in self.starts.iter_mut().take(self.count) {
            *start = at;
            at = end_of_slot(&self.bytes, at).ok_or(UnknownPage)?;
        }
        if at == self.bytes.len() {
            Ok(())
        } else {
            Err(UnknownPage)
        }
    }

    /// [`Page::origins`].
    pub(crate) fn origins(&self) -> u32 {
        let origins = self.bytes.get(ORIGINS_AT..);
        let origins = origins.and_then(|origins| origins.first_chunk());
        origins.map_or(0, |origins| u32::from_le_bytes(*origins))
    }

    /// Assigns the next origin in this page and returns it.
    pub(crate) fn new_origin(&mut self) -> u32 {
        let origin = self.origins().wrapping_add(1);
        self.set_origins(origin);
        origin
    }

    /// Writes [`Page::origins`].
    pub(crate) fn set_origins(&mut self, origins: u32) {
        let place = self.bytes.get_mut(ORIGINS_AT..);
        if let Some(place) = place.and_then(|place| place.first_chunk_mut()) {
            *place = origins.to_le_bytes();
        }
    }

    /// Returns a bucket's index and slot.
    pub(crate) fn find(&self, fingerprint: u64) -> Option<(usize, Slot)> {
        let index = self.index_of(fingerprint)?;
        let slot = self.bytes.get(self.range(index))?;
        Some((index, Bytes(slot).slot().ok()?))
    }

    /// Returns a bucket's slot for in-place changes, if it is a plain slot.
    pub(crate) fn find_fast(&mut self, fingerprint: u64) -> Option<FastSlot<'_>> {
        let range = self.range(self.index_of(fingerprint)?);
        FastSlot::of(self.bytes.get_mut(range)?)
    }

    fn index_of(&self, fingerprint: u64) -> Option<usize> {
        let own = fingerprint.to_le_bytes();
        let mut starts = self.starts.iter().take(self.count);
        starts.position(|start| {
            let slot = self.bytes.get(*start..);
            slot.and_then(|slot| slot.first_chunk()) == Some(&own)
        })
    }

    /// Returns true if the page has no slots.
    pub(crate) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Iterates over the heads of the slots.
    pub(crate) fn heads(&self) -> impl Iterator<Item = SlotHead> + '_ {
        (0..self.count).filter_map(|index| {
            let slot = self.bytes.get(self.range(index))?;
            SlotHead::read(slot).ok()
        })
    }

    /// Like [`Page::make_room`], but for an encoded page.
    pub(crate) fn make_room(&mut self, rule_tag: u32, now: Nanos) -> Result<Evicted, PageFull> {
        if self.count < SLOTS {
            return Ok(Evicted::Nothing);
        }
        let standings = (0..self.count).filter_map(|index| {
            let slot = self.bytes.get(self.range(index))?;
            Standing::read(slot).ok()
        });
        let (index, evicted) = victim(standings, rule_tag, now).ok_or(PageFull)?;
        self.remove(index);
        Ok(evicted)
    }

    /// Removes a slot and moves the last slot into its place.
    pub(crate) fn remove(&mut self, index: usize) {
        let last = self.range(self.count.saturating_sub(1));
        let moved = self.bytes.split_off(last.start.min(self.bytes.len()));
        if index.saturating_add(1) < self.count {
            self.splice(self.range(index), &moved);
        }
        self.set_count(self.count.saturating_sub(1));
    }

    /// Appends a slot. The page must have room for the slot.
    pub(crate) fn push(&mut self, slot: &Slot) {
        let index = self.count;
        if let Some(start) = self.starts.get_mut(index) {
            *start = self.bytes.len();
        }
        slot.encode(&mut self.bytes);
        self.set_count(index.saturating_add(1));
    }

    /// Replaces the slot at `index`.
    pub(crate) fn replace(&mut self, index: usize, slot: &Slot) {
        let end = self.bytes.len();
        slot.encode(&mut self.bytes);
        let range = self.range_until(index, end);
        if self.bytes.len().saturating_sub(end) == range.len() {
            self.bytes.copy_within(end.., range.start);
            self.bytes.truncate(end);
        } else {
            let slot = self.bytes.split_off(end);
            self.splice(range, &slot);
        }
    }

    /// Replaces the slot at `range` with `slot`, and moves the slots after it.
    fn splice(&mut self, range: Range<usize>, slot: &[u8]) {
        let (start, old) = (range.start, range.len());
        let behind = self.bytes.split_off(range.end.min(self.bytes.len()));
        self.bytes.truncate(start);
        self.bytes.extend_from_slice(slot);
        self.bytes.extend_from_slice(&behind);
        for other in self.starts.iter_mut().filter(|other| **other > start) {
            *other = other.saturating_sub(old).saturating_add(slot.len());
        }
    }

    fn set_count(&mut self, count: usize) {
        self.count = count.min(SLOTS);
        if let Some(byte) = self.bytes.get_mut(COUNT_AT) {
            *byte = u8::try_from(count).unwrap_or(MAX_COUNT).min(MAX_COUNT);
        }
    }

    fn range(&self, index: usize) -> Range<usize> {
        self.range_until(index, self.bytes.len())
    }

    fn range_until(&self, index: usize, end: usize) -> Range<usize> {
        let start = self.starts.get(index).copied().unwrap_or(end);
        let next = index.saturating_add(1);
        let next = self.starts.get(next).filter(|_| next < self.count);
        start..next.copied().unwrap_or(end)
    }
}

/// Copies a bucket's slot from a page into a [`Patch`], for an in-place change. Checks the slots only up to and
/// including the bucket's slot.
pub(crate) fn patch_of(page: &[u8], fingerprint: u64) -> Option<Patch> {
    let own = fingerprint.to_le_bytes();
    let (count, _origins) = Bytes(page).page_head().ok()?;
    let mut at = PAGE_HEAD;
    for _ in 0..count {
        let end = end_of_slot(page, at)?;
        if page.get(at..)?.first_chunk() == Some(&own) {
            return Patch::of(page, at..end);
        }
        at = end;
    }
    None
}

/// Returns the end of the slot that begins at `start`, or `None` if it is not well-formed.
fn end_of_slot(bytes: &[u8], start: usize) -> Option<usize> {
    let slot = bytes.get(start..)?;
    let fixed = Head::of(slot).ok()?;
    let (words, flags) = (fixed.words(), fixed.flags());
    let parts = flags & FLAGS_IN_BYTES;
    // In most slots, the words directly follow the head or the start of a run of refusals.
    let words_at = if parts == 0 {
        SLOT_HEAD
    } else if parts == FLAG_HELD {
        if from_u40(*slot.get(SLOT_HEAD..)?.first_chunk()?) == 0 {
            return None;
        }
        SLOT_HEAD.saturating_add(HELD)
    } else {
        let [given, ban_history, held, queue_end, lease] = optional_bytes(flags);
        let ban_history_at = SLOT_HEAD.saturating_add(given);
        let held_at = ban_history_at.saturating_add(ban_history);
        let queue_end_at = held_at.saturating_add(held);
        let lease_at = queue_end_at.saturating_add(queue_end);
        let later_at = lease_at.saturating_add(lease);
        let end = if flags & FLAG_LATER == 0 {
            later_at
        } else {
            end_of_later(slot, later_at).filter(|_| lease > 0)?
        };
        let parts = [
            slot.get(SLOT_HEAD..ban_history_at)?,
            slot.get(ban_history_at..held_at)?,
            slot.get(held_at..queue_end_at)?,
            slot.get(lease_at..end)?,
        ];
        for optional in parts {
            if !optional.is_empty() && optional.iter().all(|byte| *byte == 0) {
                return None;
            }
        }
        let number = |at: usize| {
            slot.get(at..)?
                .first_chunk()
                .copied()
                .map(u64::from_le_bytes)
        };
        if queue_end > 0 && Nanos::new(number(queue_end_at)?) <= fixed.last() {
            return None;
        }
        end
    };
    let length = words_at.saturating_add(words.saturating_mul(WORD));
    let last = slot.get(..length)?.last_chunk::<WORD>()?;
    let is_trimmed = words == 0 || *last != [0; WORD];
    (words <= MAX_BUCKET_WORDS && is_trimmed).then_some(start.saturating_add(length))
}

/// Returns the end of the list of remaining units that follows a lease, or `None` if the list is
/// not well-formed.
fn end_of_later(slot: &[u8], start: usize) -> Option<usize> {
    let count = usize::from(*slot.get(start)?);
    let end = start.saturating_add(later_bytes(count));
    let last = slot.get(start..end)?.last_chunk::<4>()?;
    let fits = (1..=MAX_LATER_LIMITS).contains(&count);
    (fits && *last != [0; 4]).then_some(end)
}

// A plain slot consists of a head, an optional start of a run of refusals, and words. Most
// decisions involve plain slots, which are read and written in place at fixed offsets. Decoding and
// encoding the entire slot would be several times as expensive for each request.

/// A slot whose only optional part, if any, is the start of a run of refusals.
pub(crate) struct FastSlot<'a> {
    head: &'a mut [u8; SLOT_HEAD],
    words: &'a mut [[u8; size_of::<u64>()]],
}

impl<'a> FastSlot<'a> {
    /// Interprets well-formed bytes as a plain slot. Returns `None` if the slot has other optional
    /// parts.
    pub(crate) fn of(slot: &'a mut [u8]) -> Option<Self> {
        let (head, rest) = slot.split_first_chunk_mut()?;
        let words = match Head(head).flags() & FLAGS_IN_BYTES {
            0 => rest,
            FLAG_HELD => {
                let (instant, words) = rest.split_first_chunk_mut::<HELD>()?;
                match Instant::of(from_u40(*instant), Head(head).last()) {
                    Instant::RefusedSince(_) => words,
                    Instant::HeldUntil(_) => return None,
                }
            }
            _ => return None,
        };
        let (words, _) = words.as_chunks_mut();
        Some(Self { head, words })
    }

    /// [`super::Slot::version`].
    pub(crate) fn version(&self) -> u32 {
        Head(self.head).version()
    }

    /// [`super::Slot::flags`].
    pub(crate) fn flags(&self) -> u8 {
        Head(self.head).flags() & !FLAGS_IN_BYTES
    }

    /// [`super::Slot::origin`].
    pub(crate) fn origin(&self) -> u32 {
        Head(self.head).origin()
    }

    /// Time of the bucket's last touch.
    pub(crate) fn last(&self) -> Nanos {
        Head(self.head).last()
    }

    /// Copies the bucket's words to the beginning of `words` and returns their number. Returns
    /// `None` if the words do not fit.
    pub(crate) fn read(&self, words: &mut [u64]) -> Option<usize> {
        let words = words.get_mut(..self.words.len())?;
        for (word, bytes) in words.iter_mut().zip(self.words.iter()) {
            *word = u64::from_le_bytes(*bytes);
        }
        Some(words.len())
    }

    /// Returns true if `words` can replace the bucket's words in place. Apart from trailing zeros,
    /// both must have the same number of words.
    pub(crate) fn has_room_for(&self, words: &[u64]) -> bool {
        let (own, more) = words.split_at(self.words.len().min(words.len()));
        own.len() == self.words.len()
            && own.last().is_none_or(|last| *last > 0)
            && more.iter().all(|word| *word == 0)
    }

    /// Writes the words. [`has_room_for`](Self::has_room_for) must return true for them.
    pub(crate) fn write(&mut self, words: &[u64]) {
        for (bytes, word) in self.words.iter_mut().zip(words) {
            *bytes = word.to_le_bytes();
        }
    }

    /// Returns true if a refusal at `at` would start a new run of refusals, which cannot be
    /// recorded in place.
    pub(crate) fn begins_run(&self, at: Nanos) -> bool {
        let head = Head(self.head);
        head.refused() == 0 || !head.refused_at().is_within(RUN_GAP, at)
    }

    /// Records the last touch and the time at which the bucket becomes idle, and adds one to the
    /// count of admissions or refusals.
    pub(crate) fn note(&mut self, last: Nanos, idle_at_ms: u64, is_refused: bool) {
        put(self.head, LAST_AT, last.get().to_le_bytes());
        put(self.head, IDLE_AT, u40(idle_at_ms.min(MAX_U40)));
        let counter = if is_refused {
            put(self.head, REFUSED_TICK_AT, Tick::of(last).to_bytes());
            REFUSED_AT
        } else {
            ADMITTED_AT
        };
        let count = Head(self.head).number(counter).saturating_add(1);
        put(self.head, counter, u40(count.min(MAX_U40)));
    }
}

#[cfg(test)]
mod tests;
