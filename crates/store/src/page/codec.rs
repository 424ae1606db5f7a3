//! Encoded form of a slot. This file defines the offsets of the numbers in the head and the sizes
//! of the optional parts. All code that reads or writes parts of a slot uses these definitions.

#![expect(
    clippy::inline_always,
    reason = "with its offset, each access is one instruction; as a call it is dozens"
)]

use alloc::boxed::Box;
use alloc::vec::Vec;

use loudou_limiter::ban::BanHistory;
use loudou_limiter::lease::{LEASE_WORDS, Lease, MAX_LATER_LIMITS};
use loudou_limiter::{Bucket, GIVEN, MAX_BUCKET_WORDS, Nanos, Words};

use super::{MAGIC, MAX_COUNT, MAX_U40, SLOT_HEAD, Slot, Tick, UnknownPage, VERSION};

/// Offsets of the numbers in the head of a slot; see [`super`].
const FINGERPRINT_AT: usize = 0;
const RULE_TAG_AT: usize = 8;
const VERSION_AT: usize = 12;
pub(super) const LAST_AT: usize = 16;
pub(super) const IDLE_AT: usize = 24;
pub(super) const ADMITTED_AT: usize = 29;
pub(super) const REFUSED_AT: usize = 34;
pub(super) const REFUSED_TICK_AT: usize = 39;
pub(super) const FLAGS_AT: usize = 42;
const ORIGIN_AT: usize = 43;
pub(super) const WORDS_AT: usize = 47;

/// Flag used only in the encoded form. Set if the slot records units that were given back to the
/// bucket.
pub(super) const FLAG_GIVEN: u8 = 1;
/// Encoded size of the record of units given back, in bytes.
pub(super) const GIVEN_BYTES: usize = 5;
/// Flag used only in the encoded form. Set if the slot contains a ban history: strikes or bans.
pub(super) const FLAG_BAN_HISTORY: u8 = 8;
/// Encoded size of a ban history, in bytes.
const BAN_HISTORY: usize = 18;
/// Flag used only in the encoded form. Set if the slot contains an [`Instant`].
pub(super) const FLAG_HELD: u8 = 16;
/// Encoded size of an [`Instant`], in bytes.
pub(super) const HELD: usize = 5;
/// Flag used only in the encoded form. Set if the slot contains the end time of its queue.
const FLAG_QUEUE_END: u8 = 32;
/// Encoded size of a queue's end time, in bytes.
const QUEUE_END: usize = 8;
/// Flag used only in the encoded form. Set if the slot contains a lease.
pub(super) const FLAG_LEASE: u8 = 64;
/// Encoded size of a lease, in bytes, excluding the list of remaining units for the limits after
/// the first.
const LEASE: usize = LEASE_WORDS * size_of::<u64>();
/// Flag used only in the encoded form. Set if the lease is followed by a list of remaining units
/// for the limits after the first. This flag is set only together with [`FLAG_LEASE`].
pub(super) const FLAG_LATER: u8 = 128;
/// All flags used only in the encoded form.
pub(super) const FLAGS_IN_BYTES: u8 =
    FLAG_GIVEN | FLAG_BAN_HISTORY | FLAG_HELD | FLAG_QUEUE_END | FLAG_LEASE | FLAG_LATER;

/// Maximum encoded size of a lease for a bucket with this many limits, in bytes.
pub const fn lease_bytes(limits: usize) -> usize {
    match limits {
        0 | 1 => LEASE,
        more => LEASE.saturating_add(later_bytes(more.saturating_sub(1))),
    }
}

/// Encoded size, in bytes, of the list of remaining units for this many limits after the first.
pub(super) const fn later_bytes(limits: usize) -> usize {
    limits.saturating_mul(size_of::<u32>()).saturating_add(1)
}

impl Slot {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let given = self.bucket.given & GIVEN;
        let given_flag = if given > 0 { FLAG_GIVEN } else { 0 };
        let has_ban_history = self.ban_history != BanHistory::default();
        let ban_history_flag = if has_ban_history { FLAG_BAN_HISTORY } else { 0 };
        let instant_ms = self.instant_ms();
        let held_flag = if instant_ms > 0 { FLAG_HELD } else { 0 };
        // A queue's end time is stored only while requests are waiting in the queue.
        let has_queue_end = self.bucket.queue_end > self.bucket.last;
        let queue_end_flag = if has_queue_end { FLAG_QUEUE_END } else { 0 };
        let lease = self.lease.as_deref().filter(|lease| !lease.is_fresh());
        let lease_flag = if lease.is_some() { FLAG_LEASE } else { 0 };
        let later = lease.map(Lease::later_left).unwrap_or_default();
        let later_flag = if later.is_empty() { 0 } else { FLAG_LATER };
        let in_bytes =
            given_flag | ban_history_flag | held_flag | queue_end_flag | lease_flag | later_flag;
        let words = self.bucket.words();
        let count = u16::try_from(words.len()).unwrap_or(0);
        out.extend_from_slice(&self.encode_head(in_bytes, count));
        if given > 0 {
            out.extend_from_slice(&u40(given));
        }
        if has_ban_history {
            encode_ban_history(&self.ban_history, out);
        }
        if held_flag > 0 {
            out.extend_from_slice(&u40(instant_ms));
        }
        if has_queue_end {
            out.extend_from_slice(&self.bucket.queue_end.get().to_le_bytes());
        }
        for word in lease.into_iter().flat_map(Lease::to_words) {
            out.extend_from_slice(&word.to_le_bytes());
        }
        if !later.is_empty() {
            out.push(u8::try_from(later.len()).unwrap_or(0));
        }
        for units in later {
            out.extend_from_slice(&units.to_le_bytes());
        }
        for word in words.iter().take(count.into()) {
            out.extend_from_slice(&word.to_le_bytes());
        }
    }

    /// Returns the [`Instant`] to encode, in milliseconds, or 0 if there is none.
    fn instant_ms(&self) -> u64 {
        let last = self.bucket.last;
        match Instant::of(self.held_until_ms.min(MAX_U40), last) {
            Instant::HeldUntil(ms) => ms,
            // Expired permits are not stored.
            Instant::RefusedSince(_) => self.refused_since_ms.min(last.as_millis()).min(MAX_U40),
        }
    }

    fn encode_head(&self, in_bytes: u8, count: u16) -> [u8; SLOT_HEAD] {
        // Builds the head as a single array, because appending ten values to a vector would be
        // slower.
        let mut head = [0; SLOT_HEAD];
        put(&mut head, FINGERPRINT_AT, self.fingerprint.to_le_bytes());
        put(&mut head, RULE_TAG_AT, self.rule_tag.to_le_bytes());
        put(&mut head, VERSION_AT, self.version.to_le_bytes());
        put(&mut head, LAST_AT, self.bucket.last.get().to_le_bytes());
        put(&mut head, IDLE_AT, u40(self.idle_at_ms.min(MAX_U40)));
        put(&mut head, ADMITTED_AT, u40(self.admitted.min(MAX_U40)));
        put(&mut head, REFUSED_AT, u40(self.refused.min(MAX_U40)));
        put(&mut head, REFUSED_TICK_AT, self.refused_at.to_bytes());
        put(
            &mut head,
            FLAGS_AT,
            [self.flags & !FLAGS_IN_BYTES | in_bytes],
        );
        put(&mut head, ORIGIN_AT, self.origin.to_le_bytes());
        put(&mut head, WORDS_AT, count.to_le_bytes());
        head
    }
}

/// Value of a field that stores one of two times, in milliseconds. Older builds know only the first
/// of the two, [`Slot::held_until_ms`]. They interpret the start of a run of refusals as permits
/// that have already expired, and discard it when they change the slot.
pub(super) enum Instant {
    /// [`Slot::held_until_ms`], which is after the bucket's last touch.
    HeldUntil(u64),
    /// [`Slot::refused_since_ms`], which is at or before the bucket's last touch.
    RefusedSince(u64),
}

impl Instant {
    /// Interprets a stored time, given the time of the bucket's last touch.
    #[inline(always)]
    pub(super) const fn of(ms: u64, last: Nanos) -> Self {
        if Nanos::from_millis(ms).get() > last.get() {
            Self::HeldUntil(ms)
        } else {
            Self::RefusedSince(ms)
        }
    }

    /// Returns [`Slot::held_until_ms`], or 0 if the field stores the other time.
    pub(super) const fn held_until_ms(&self) -> u64 {
        match self {
            Self::HeldUntil(ms) => *ms,
            Self::RefusedSince(_) => 0,
        }
    }

    /// Returns [`Slot::refused_since_ms`], or 0 if the field stores the other time.
    pub(super) const fn refused_since_ms(&self) -> u64 {
        match self {
            Self::HeldUntil(_) => 0,
            Self::RefusedSince(ms) => *ms,
        }
    }
}

/// Writes a number into the head at offset `at`. The offsets are constants, so the compiler can
/// check the bounds.
#[inline(always)]
pub(super) fn put<const N: usize>(head: &mut [u8; SLOT_HEAD], at: usize, bytes: [u8; N]) {
    if let Some(place) = head.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
        *place = bytes;
    }
}

/// Head of a slot in its encoded form.
#[derive(Clone, Copy)]
pub(super) struct Head<'a>(pub(super) &'a [u8; SLOT_HEAD]);

impl<'a> Head<'a> {
    /// Returns the head of the slot at the beginning of `slot`.
    pub(super) fn of(slot: &'a [u8]) -> Result<Self, UnknownPage> {
        slot.first_chunk().map(Self).ok_or(UnknownPage)
    }

    #[inline(always)]
    pub(super) fn fingerprint(self) -> u64 {
        u64::from_le_bytes(self.bytes(FINGERPRINT_AT))
    }

    #[inline(always)]
    pub(super) fn rule_tag(self) -> u32 {
        u32::from_le_bytes(self.bytes(RULE_TAG_AT))
    }

    #[inline(always)]
    pub(super) fn version(self) -> u32 {
        u32::from_le_bytes(self.bytes(VERSION_AT))
    }

    #[inline(always)]
    pub(super) fn last(self) -> Nanos {
        Nanos::new(u64::from_le_bytes(self.bytes(LAST_AT)))
    }

    #[inline(always)]
    pub(super) fn idle_at_ms(self) -> u64 {
        self.number(IDLE_AT)
    }

    #[inline(always)]
    pub(super) fn admitted(self) -> u64 {
        self.number(ADMITTED_AT)
    }

    #[inline(always)]
    pub(super) fn refused(self) -> u64 {
        self.number(REFUSED_AT)
    }

    #[inline(always)]
    pub(super) fn refused_at(self) -> Tick {
        Tick::from_bytes(self.bytes(REFUSED_TICK_AT))
    }

    #[inline(always)]
    pub(super) fn flags(self) -> u8 {
        let [flags] = self.bytes(FLAGS_AT);
        flags
    }

    #[inline(always)]
    pub(super) fn origin(self) -> u32 {
        u32::from_le_bytes(self.bytes(ORIGIN_AT))
    }

    /// Number of words in the bucket.
    #[inline(always)]
    pub(super) fn words(self) -> usize {
        u16::from_le_bytes(self.bytes(WORDS_AT)).into()
    }

    /// Reads the five-byte number at this offset.
    #[inline(always)]
    pub(super) fn number(self, at: usize) -> u64 {
        let low = u64::from(u32::from_le_bytes(self.bytes(at)));
        let [high] = self.bytes(at.saturating_add(4));
        low | u64::from(high) << 32
    }

    #[inline(always)]
    fn bytes<const N: usize>(self, at: usize) -> [u8; N] {
        let bytes = self.0.get(at..).and_then(<[u8]>::first_chunk);
        bytes.copied().unwrap_or([0; N])
    }
}

/// Encodes a number up to [`MAX_U40`] in five bytes.
pub(super) fn u40(number: u64) -> [u8; 5] {
    let bytes = number.to_le_bytes();
    bytes.first_chunk().copied().unwrap_or_default()
}

/// Decodes a five-byte number.
#[inline(always)]
pub(super) fn from_u40([low @ .., high]: [u8; 5]) -> u64 {
    u64::from(u32::from_le_bytes(low)) | u64::from(high) << 32
}

fn encode_ban_history(ban_history: &BanHistory, out: &mut Vec<u8>) {
    let times = [
        ban_history.banned_until_ms,
        ban_history.since_ms,
        ban_history.clean_at_ms,
    ];
    for time in times {
        out.extend_from_slice(&u40(time.min(MAX_U40)));
    }
    out.extend_from_slice(&ban_history.strikes.to_le_bytes());
    out.push(ban_history.bans);
}

/// Returns the sizes of the optional parts that follow a slot's head with these flags: units given
/// back, ban history, [`Instant`], end time of the queue, and lease words.
pub(super) const fn optional_bytes(flags: u8) -> [usize; 5] {
    const fn size(flags: u8, flag: u8, size: usize) -> usize {
        if flags & flag == 0 { 0 } else { size }
    }
    [
        size(flags, FLAG_GIVEN, GIVEN_BYTES),
        size(flags, FLAG_BAN_HISTORY, BAN_HISTORY),
        size(flags, FLAG_HELD, HELD),
        size(flags, FLAG_QUEUE_END, QUEUE_END),
        size(flags, FLAG_LEASE, LEASE),
    ]
}

/// Reader that consumes bytes from the front.
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl Bytes<'_> {
    /// Reads the head of a page: its slot count and its origin counter.
    pub(super) fn page_head(&mut self) -> Result<(u8, u32), UnknownPage> {
        let [a, b, version, count] = self.take()?;
        let origins = self.u32()?;
        if [a, b] == MAGIC && version == VERSION && count <= MAX_COUNT {
            Ok((count, origins))
        } else {
            Err(UnknownPage)
        }
    }

    pub(super) fn take<const N: usize>(&mut self) -> Result<[u8; N], UnknownPage> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(UnknownPage)?;
        self.0 = rest;
        Ok(*head)
    }

    pub(super) fn u32(&mut self) -> Result<u32, UnknownPage> {
        self.take().map(u32::from_le_bytes)
    }

    pub(super) fn u40(&mut self) -> Result<u64, UnknownPage> {
        self.take().map(from_u40)
    }

    pub(super) fn u64(&mut self) -> Result<u64, UnknownPage> {
        self.take().map(u64::from_le_bytes)
    }

    /// Reads a slot, except for its words. Returns the slot and its number of words.
    pub(super) fn head(&mut self) -> Result<(Slot, usize), UnknownPage> {
        let head: [u8; SLOT_HEAD] = self.take()?;
        let head = Head(&head);
        let (last, flags) = (head.last(), head.flags());
        let given = if flags & FLAG_GIVEN == 0 {
            0
        } else {
            self.present()?
        };
        let ban_history = if flags & FLAG_BAN_HISTORY == 0 {
            BanHistory::default()
        } else {
            self.ban_history()?
        };
        let instant_ms = if flags & FLAG_HELD == 0 {
            0
        } else {
            self.present()?
        };
        let instant = Instant::of(instant_ms, last);
        let queue_end = if flags & FLAG_QUEUE_END == 0 {
            Nanos::ZERO
        } else {
            Nanos::new(self.u64()?)
        };
        if flags & FLAG_QUEUE_END != 0 && queue_end <= last {
            return Err(UnknownPage);
        }
        let lease = if flags & FLAG_LEASE == 0 {
            None
        } else {
            Some(Box::new(self.lease(flags & FLAG_LATER != 0)?))
        };
        if flags & (FLAG_LEASE | FLAG_LATER) == FLAG_LATER {
            return Err(UnknownPage);
        }
        let words = Words::new();
        let slot = Slot {
            fingerprint: head.fingerprint(),
            rule_tag: head.rule_tag(),
            version: head.version(),
            idle_at_ms: head.idle_at_ms(),
            held_until_ms: instant.held_until_ms(),
            admitted: head.admitted(),
            refused: head.refused(),
            refused_at: head.refused_at(),
            refused_since_ms: instant.refused_since_ms(),
            flags: flags & !FLAGS_IN_BYTES,
            origin: head.origin(),
            ban_history,
            lease,
            bucket: Bucket {
                last,
                given,
                queue_end,
                words,
            },
        };
        Ok((slot, head.words()))
    }

    fn ban_history(&mut self) -> Result<BanHistory, UnknownPage> {
        let ban_history = BanHistory {
            banned_until_ms: self.u40()?,
            since_ms: self.u40()?,
            clean_at_ms: self.u40()?,
            strikes: u16::from_le_bytes(self.take()?),
            bans: u8::from_le_bytes(self.take()?),
        };
        if ban_history == BanHistory::default() {
            return Err(UnknownPage);
        }
        Ok(ban_history)
    }

    /// Reads a number that must not be 0, because the encoder omits zeros.
    fn present(&mut self) -> Result<u64, UnknownPage> {
        self.u40().and_then(|number| match number {
            0 => Err(UnknownPage),
            number => Ok(number),
        })
    }

    fn lease(&mut self, has_later: bool) -> Result<Lease, UnknownPage> {
        let mut words = [0; LEASE_WORDS];
        for word in &mut words {
            *word = self.u64()?;
        }
        let mut room = [0; MAX_LATER_LIMITS];
        let later = if has_later {
            let [count] = self.take()?;
            let later = room.get_mut(..count.into()).ok_or(UnknownPage)?;
            for units in &mut *later {
                *units = self.u32()?;
            }
            // The encoder omits trailing zeros, so a final 0 is invalid.
            if later.last().is_none_or(|last| *last == 0) {
                return Err(UnknownPage);
            }
            &*later
        } else {
            &[]
        };
        let lease = Lease::from_words(&words, later);
        if lease.is_fresh() {
            return Err(UnknownPage);
        }
        Ok(lease)
    }

    pub(super) fn slot(&mut self) -> Result<Slot, UnknownPage> {
        let (mut slot, count) = self.head()?;
        if count > MAX_BUCKET_WORDS {
            return Err(UnknownPage);
        }
        for _ in 0..count {
            slot.bucket.words.push(self.u64()?);
        }
        if slot.bucket.words.last() == Some(&0) {
            return Err(UnknownPage);
        }
        Ok(slot)
    }
}
