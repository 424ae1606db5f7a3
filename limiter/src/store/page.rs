//! A page: up to [`SLOTS`] buckets in one value of the store.
//!
//! ```text
//! page  "LP" | version u8 | slots u8 | origins u32 | slot…                 8 bytes + slots
//! slot  fingerprint u64 | rule tag u32 | version u32 | last ns u64         59 or 67 bytes for a funnel
//!       idle at ms u40 | admitted u40 | refused u40 | flags u8
//!       origin u32 | given u40 | words u16
//!       conduct: banned until ms u40 | since ms u40 | clean at ms u40      only with its flag
//!                strikes u16 | bans u8
//!       line: ns u64                                                       only with its flag
//!       word u64…
//! ```
//! Little endian; words that are zero at the end of a bucket are left out. A slot carries when it will
//! be as good as new, so that eviction needs neither the rule nor the limits that wrote it. Its origin
//! numbers the beginning of its state, which is new when a bucket comes to be and when an edit converts
//! it: what was taken before that is not given back after it. Old and new code overlap while Envoy
//! drains, and pages are never deleted: each version has pages of its own ([`KIND`]), and a reader that
//! does not know the version leaves the page alone.

use alloc::vec::Vec;
use core::borrow::Borrow;

use crate::ban::Conduct;
use crate::limit::{Bucket, GIVEN, MAX_BUCKET_WORDS, Words};
use crate::time::Nanos;

mod patch;

pub(super) use patch::PageBytes;

/// The most buckets in a page.
pub const SLOTS: usize = 16;
/// The bytes of a page before its slots.
pub const PAGE_HEAD: usize = 8;
/// The bytes of a slot without its words.
const SLOT_HEAD: usize = 51;
/// [`SLOTS`] as it stands in a page.
const MAX_COUNT: u8 = 16;
const MAGIC: [u8; 2] = *b"LP";
const VERSION: u8 = 5;
/// What the keys of pages have in front of their number. With the version in it, no page of another one is
/// in the way: it would be there until Envoy restarts, and its buckets go by `on_error`.
pub const KIND: u8 = VERSION;
/// The largest number in five bytes.
const MAX_U40: u64 = (1 << 40) - 1;

/// Never evicted while it is banned: an operator's ban. Those of penalties are not, since whoever can make
/// many keys could fill the store with them.
pub const FLAG_PINNED: u8 = 2;
/// Forgetting it when it is as good as new loses something: a full token bucket that started with
/// less than its capacity.
pub const FLAG_KEEPS_GAIN: u8 = 4;

/// Only in bytes: the slot's conduct is there.
const FLAG_CONDUCT: u8 = 8;
/// The bytes of a conduct.
const CONDUCT: usize = 18;
/// Only in bytes: the end of its line is there.
const FLAG_LINE: u8 = 16;
/// The bytes of the end of a line.
const LINE: usize = 8;

/// The most bytes of a slot with so many words, unless its key is or may soon be banned, requests wait in
/// it, or a log in it lost capacity.
pub const fn slot_bytes(words: usize) -> usize {
    words
        .saturating_mul(size_of::<u64>())
        .saturating_add(SLOT_HEAD)
}

/// One bucket in a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Which bucket: a hash of rule and key.
    pub fingerprint: u64,
    /// Which rule.
    pub rule_tag: u32,
    /// Which version of the rule wrote the words.
    pub version: u32,
    /// From when on it is as good as new, in milliseconds, rounded up.
    pub idle_at_ms: u64,
    /// Requests admitted.
    pub admitted: u64,
    /// Requests refused.
    pub refused: u64,
    /// [`FLAG_PINNED`] and [`FLAG_KEEPS_GAIN`].
    pub flags: u8,
    /// Which of the page's origins its state goes back to.
    pub origin: u32,
    /// Bans, and what leads to them.
    pub conduct: Conduct,
    /// When it was last touched, and the state of the limits.
    pub bucket: Bucket,
}

/// The buckets of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// How often a state began in this page; it wraps around.
    pub origins: u32,
    /// At most [`SLOTS`].
    pub slots: Vec<Slot>,
}

/// Bytes that are no page this code can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownPage;

impl Page {
    /// Reads a page.
    pub fn decode(bytes: &[u8]) -> Result<Self, UnknownPage> {
        let mut reader = Bytes(bytes);
        let (count, origins) = reader.page_head()?;
        let slots = (0..count)
            .map(|_| reader.slot())
            .collect::<Result<_, _>>()?;
        if reader.0.is_empty() {
            Ok(Self { origins, slots })
        } else {
            Err(UnknownPage)
        }
    }

    /// Writes a page into `out`, replacing what it held.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&MAGIC);
        out.push(VERSION);
        out.push(
            u8::try_from(self.slots.len())
                .unwrap_or(u8::MAX)
                .min(MAX_COUNT),
        );
        out.extend_from_slice(&self.origins.to_le_bytes());
        for slot in self.slots.iter().take(SLOTS) {
            slot.encode(out);
        }
    }

    /// The slot of a bucket.
    pub fn find(&mut self, fingerprint: u64) -> Option<&mut Slot> {
        self.slots
            .iter_mut()
            .find(|slot| slot.fingerprint == fingerprint)
    }

    /// A place for one more bucket at `now`; what had to go for it. `Err` when nothing may go.
    pub fn make_room(&mut self, now: Nanos) -> Result<Evicted, PageFull> {
        if self.slots.len() < SLOTS {
            return Ok(Evicted::Nothing);
        }
        let (index, evicted) = victim(self.slots.iter(), now).ok_or(PageFull)?;
        self.slots.swap_remove(index);
        Ok(evicted)
    }
}

/// Which of `slots` makes room, and what that costs.
fn victim<S: Borrow<Slot>>(slots: impl Iterator<Item = S>, now: Nanos) -> Option<(usize, Evicted)> {
    let now_ms = now.as_millis();
    let (index, slot) = slots
        .enumerate()
        .filter(|(_, slot)| !slot.borrow().is_pinned(now_ms))
        .min_by_key(|(_, slot)| slot.borrow().worth(now_ms))?;
    let evicted = if slot.borrow().is_idle(now_ms) {
        Evicted::Lossless
    } else {
        Evicted::Lossy
    };
    Some((index, evicted))
}

/// What made room for a new bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evicted {
    /// There was room.
    Nothing,
    /// A bucket that was as good as new.
    Lossless,
    /// A bucket with something taken.
    Lossy,
}

/// Every bucket in the page is banned by an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageFull;

impl Slot {
    /// Whether forgetting it loses nothing.
    pub const fn is_idle(&self, now_ms: u64) -> bool {
        self.idle_at_ms <= now_ms && self.flags & FLAG_KEEPS_GAIN == 0
    }

    /// Whether an operator's ban keeps it.
    const fn is_pinned(&self, now_ms: u64) -> bool {
        self.flags & FLAG_PINNED != 0 && self.conduct.is_banned(now_ms)
    }

    /// What it would cost to forget this bucket; the least goes first. Idle ones cost nothing. One
    /// that never refused costs what is taken from it. One that refused is what a flood of new keys
    /// may want to be rid of, so it goes after those, and the longer it was left alone the sooner.
    /// Banned ones go last, those that are free soonest first.
    fn worth(&self, now_ms: u64) -> (u8, u64) {
        if self.is_idle(now_ms) {
            (0, self.idle_at_ms)
        } else if self.conduct.is_banned(now_ms) {
            (3, self.conduct.banned_until_ms)
        } else if self.refused > 0 {
            (2, self.bucket.last.as_millis())
        } else {
            (1, self.idle_at_ms)
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.fingerprint.to_le_bytes());
        out.extend_from_slice(&self.rule_tag.to_le_bytes());
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&self.bucket.last.get().to_le_bytes());
        for number in [self.idle_at_ms, self.admitted, self.refused] {
            out.extend(number.min(MAX_U40).to_le_bytes().iter().take(5));
        }
        let has_conduct = self.conduct != Conduct::default();
        let conduct_flag = if has_conduct { FLAG_CONDUCT } else { 0 };
        // A line that has passed is none.
        let has_line = self.bucket.line > self.bucket.last;
        let line_flag = if has_line { FLAG_LINE } else { 0 };
        out.push(self.flags & !(FLAG_CONDUCT | FLAG_LINE) | conduct_flag | line_flag);
        out.extend_from_slice(&self.origin.to_le_bytes());
        out.extend((self.bucket.given & GIVEN).to_le_bytes().iter().take(5));
        let words = self.bucket.words();
        let count = u16::try_from(words.len()).unwrap_or(0);
        out.extend_from_slice(&count.to_le_bytes());
        if has_conduct {
            encode_conduct(&self.conduct, out);
        }
        if has_line {
            out.extend_from_slice(&self.bucket.line.get().to_le_bytes());
        }
        for word in words.iter().take(count.into()) {
            out.extend_from_slice(&word.to_le_bytes());
        }
    }
}

fn encode_conduct(conduct: &Conduct, out: &mut Vec<u8>) {
    let times = [
        conduct.banned_until_ms,
        conduct.since_ms,
        conduct.clean_at_ms,
    ];
    for time in times {
        out.extend(time.min(MAX_U40).to_le_bytes().iter().take(5));
    }
    out.extend_from_slice(&conduct.strikes.to_le_bytes());
    out.push(conduct.bans);
}

/// How many bytes of conduct and of a line follow a slot's head with these flags.
const fn more_bytes(flags: u8) -> (usize, usize) {
    let conduct = if flags & FLAG_CONDUCT == 0 {
        0
    } else {
        CONDUCT
    };
    let line = if flags & FLAG_LINE == 0 { 0 } else { LINE };
    (conduct, line)
}

struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    /// What a page begins with: how many slots it has, and its origins.
    fn page_head(&mut self) -> Result<(u8, u32), UnknownPage> {
        let [a, b, version, count] = self.take()?;
        let origins = self.u32()?;
        if [a, b] == MAGIC && version == VERSION && count <= MAX_COUNT {
            Ok((count, origins))
        } else {
            Err(UnknownPage)
        }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], UnknownPage> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(UnknownPage)?;
        self.0 = rest;
        Ok(*head)
    }

    fn u32(&mut self) -> Result<u32, UnknownPage> {
        self.take().map(u32::from_le_bytes)
    }

    fn u40(&mut self) -> Result<u64, UnknownPage> {
        let low: [u8; 4] = self.take()?;
        let [high] = self.take()?;
        Ok(u64::from(u32::from_le_bytes(low)) | u64::from(high) << 32)
    }

    fn u64(&mut self) -> Result<u64, UnknownPage> {
        self.take().map(u64::from_le_bytes)
    }

    /// A slot without its words, and how many they are.
    fn head(&mut self) -> Result<(Slot, usize), UnknownPage> {
        let (fingerprint, rule_tag, version) = (self.u64()?, self.u32()?, self.u32()?);
        let last = Nanos::new(self.u64()?);
        let (idle_at_ms, admitted, refused) = (self.u40()?, self.u40()?, self.u40()?);
        let [flags] = self.take()?;
        let (origin, given) = (self.u32()?, self.u40()?);
        let count = usize::from(u16::from_le_bytes(self.take()?));
        let conduct = if flags & FLAG_CONDUCT == 0 {
            Conduct::default()
        } else {
            self.conduct()?
        };
        let line = if flags & FLAG_LINE == 0 {
            Nanos::ZERO
        } else {
            Nanos::new(self.u64()?)
        };
        if flags & FLAG_LINE != 0 && line <= last {
            return Err(UnknownPage);
        }
        let words = Words::new();
        let slot = Slot {
            fingerprint,
            rule_tag,
            version,
            idle_at_ms,
            admitted,
            refused,
            flags: flags & !(FLAG_CONDUCT | FLAG_LINE),
            origin,
            conduct,
            bucket: Bucket {
                last,
                given,
                line,
                words,
            },
        };
        Ok((slot, count))
    }

    fn conduct(&mut self) -> Result<Conduct, UnknownPage> {
        let conduct = Conduct {
            banned_until_ms: self.u40()?,
            since_ms: self.u40()?,
            clean_at_ms: self.u40()?,
            strikes: u16::from_le_bytes(self.take()?),
            bans: u8::from_le_bytes(self.take()?),
        };
        if conduct == Conduct::default() {
            return Err(UnknownPage);
        }
        Ok(conduct)
    }

    fn slot(&mut self) -> Result<Slot, UnknownPage> {
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
