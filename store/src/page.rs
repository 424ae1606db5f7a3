//! A page: up to [`SLOTS`] buckets in one value of the store.
//!
//! ```text
//! page  "LP" | version u8 | slots u8 | origins u32 | slot…                 8 bytes + slots
//! slot  fingerprint u64 | rule tag u32 | version u32 | last ns u64         59 or 67 bytes for a funnel
//!       idle at ms u40 | admitted u40 | refused u40 | flags u8
//!       origin u32 | given u40 | words u16
//!       conduct: banned until ms u40 | since ms u40 | clean at ms u40      only with its flag
//!                strikes u16 | bans u8
//!       held until ms u40                                                  only with its flag
//!       line: ns u64                                                       only with its flag
//!       word u64…
//! ```
//! Little endian; zero words at the end of a bucket are left out. A slot stores the time from which it is
//! idle, and until when it holds permits of requests in flight, so that eviction needs neither the rule nor
//! the limits that wrote it ([`mod@victim`]). Its origin numbers the beginning of its state, which is new
//! when a bucket is created and when an edit converts it: cost taken earlier is not given back later. Old
//! and new code overlap while Envoy drains, and pages are never deleted: each version has separate pages
//! ([`KIND`]), and a reader that does not know the version does not touch the page.

use alloc::vec::Vec;

use loudou_limiter::ban::Conduct;
use loudou_limiter::{Bucket, BucketDecision, GIVEN, Limits, MAX_BUCKET_WORDS, Nanos, Words};

mod head;
mod patch;
mod victim;

pub use head::SlotHead;
pub(crate) use patch::PageBytes;
use victim::{Standing, victim};

/// The maximum number of buckets in a page.
pub const SLOTS: usize = 16;
/// The size of a page's head, in bytes.
pub const PAGE_HEAD: usize = 8;
/// The size of a slot without its words, in bytes.
const SLOT_HEAD: usize = 51;
/// [`SLOTS`] as it stands in a page.
const MAX_COUNT: u8 = 16;
const MAGIC: [u8; 2] = *b"LP";
const VERSION: u8 = 5;
/// The prefix of the keys of pages. It includes the version, so that pages of another version do not
/// interfere: they would stay until Envoy restarts, and their buckets would fall back to `on_error`.
pub const KIND: u8 = VERSION;
/// The largest number in five bytes.
const MAX_U40: u64 = (1 << 40) - 1;

/// Set for an operator's ban: the bucket is never evicted while it is banned. Bans of penalties are not
/// pinned, since a client that can make up many keys could fill the store with them.
pub const FLAG_PINNED: u8 = 2;
/// Set if evicting the idle bucket loses something: a full token bucket that started with
/// less than its capacity.
pub const FLAG_KEEPS_GAIN: u8 = 4;

/// Only in the encoded form: the slot's conduct is present.
const FLAG_CONDUCT: u8 = 8;
/// The size of a conduct, in bytes.
const CONDUCT: usize = 18;
/// Only in the encoded form: the end of the slot's permits is present.
const FLAG_HELD: u8 = 16;
/// The size of the instant until which a slot holds permits, in bytes.
const HELD: usize = 5;
/// Only in the encoded form: the end of the slot's queue is present.
const FLAG_LINE: u8 = 32;
/// The size of the end of a queue, in bytes.
const LINE: usize = 8;
/// The flags that are only in the encoded form.
const FLAGS_IN_BYTES: u8 = FLAG_CONDUCT | FLAG_HELD | FLAG_LINE;

/// The maximum size of a slot with this many words, unless its key is or may soon be banned, has requests
/// in flight or held, or has a log that lost capacity.
pub const fn slot_bytes(words: usize) -> usize {
    words
        .saturating_mul(size_of::<u64>())
        .saturating_add(SLOT_HEAD)
}

/// Whether a full bucket of these limits is worth more than a new one.
pub(crate) fn gain_flag(limits: &Limits) -> u8 {
    if limits.forgets_losslessly() {
        0
    } else {
        FLAG_KEEPS_GAIN
    }
}

/// One bucket in a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The bucket: a hash of rule and key.
    pub fingerprint: u64,
    /// The tag of the rule.
    pub rule_tag: u32,
    /// The version of the rule that wrote the words.
    pub version: u32,
    /// The time from which the bucket is idle, in milliseconds, rounded up.
    pub idle_at_ms: u64,
    /// The time until which requests in flight hold permits, in milliseconds, rounded up; 0 without
    /// permits. A lost return expires by then, whatever other limits are in the bucket.
    pub held_until_ms: u64,
    /// Requests admitted.
    pub admitted: u64,
    /// Requests refused.
    pub refused: u64,
    /// [`FLAG_PINNED`] and [`FLAG_KEEPS_GAIN`].
    pub flags: u8,
    /// The page's origin at which the state began.
    pub origin: u32,
    /// Bans and strikes.
    pub conduct: Conduct,
    /// The time of the last touch, and the state of the limits.
    pub bucket: Bucket,
}

/// The buckets of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The number of states that began in this page; it wraps around.
    pub origins: u32,
    /// At most [`SLOTS`].
    pub slots: Vec<Slot>,
}

/// Bytes that this code cannot read as a page.
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

    /// Makes room for one more bucket of a rule at `now`; returns what was evicted. `Err` if nothing may be.
    pub fn make_room(&mut self, rule_tag: u32, now: Nanos) -> Result<Evicted, PageFull> {
        if self.slots.len() < SLOTS {
            return Ok(Evicted::Nothing);
        }
        let (index, evicted) =
            victim(self.slots.iter().map(Standing::of), rule_tag, now).ok_or(PageFull)?;
        self.slots.swap_remove(index);
        Ok(evicted)
    }
}

/// The room for a new bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evicted {
    /// The page had a free slot.
    Nothing,
    /// An idle bucket was evicted.
    Lossless,
    /// A bucket with used capacity was evicted.
    Lossy,
}

/// Every bucket that the newcomer could replace is banned by an operator or holds permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageFull;

impl Slot {
    /// Whether evicting the bucket loses nothing.
    pub const fn is_idle(&self, now_ms: u64) -> bool {
        is_idle(self.idle_at_ms, self.flags, now_ms)
    }

    /// Stores the time from which the bucket is idle, and until when it holds permits, from its limits' answer.
    pub(crate) fn note(&mut self, limits: &Limits, answer: &BucketDecision) {
        let after = |span| answer.at().saturating_add(span).millis_ceil();
        let held = limits.held_for(answer);
        self.held_until_ms = held.map_or(0, after);
        self.idle_at_ms = after(answer.reset_after()).max(self.conduct.clean_at_ms);
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
        let held_flag = if self.held_until_ms > 0 { FLAG_HELD } else { 0 };
        // A queue whose end has passed is empty.
        let has_line = self.bucket.line > self.bucket.last;
        let line_flag = if has_line { FLAG_LINE } else { 0 };
        let in_bytes = conduct_flag | held_flag | line_flag;
        out.push(self.flags & !FLAGS_IN_BYTES | in_bytes);
        out.extend_from_slice(&self.origin.to_le_bytes());
        out.extend((self.bucket.given & GIVEN).to_le_bytes().iter().take(5));
        let words = self.bucket.words();
        let count = u16::try_from(words.len()).unwrap_or(0);
        out.extend_from_slice(&count.to_le_bytes());
        if has_conduct {
            encode_conduct(&self.conduct, out);
        }
        if held_flag > 0 {
            out.extend(
                self.held_until_ms
                    .min(MAX_U40)
                    .to_le_bytes()
                    .iter()
                    .take(HELD),
            );
        }
        if has_line {
            out.extend_from_slice(&self.bucket.line.get().to_le_bytes());
        }
        for word in words.iter().take(count.into()) {
            out.extend_from_slice(&word.to_le_bytes());
        }
    }
}

const fn is_idle(idle_at_ms: u64, flags: u8, now_ms: u64) -> bool {
    idle_at_ms <= now_ms && flags & FLAG_KEEPS_GAIN == 0
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

/// The sizes of the conduct, the held time and the queue's end that follow a slot's head with these flags.
const fn optional_bytes(flags: u8) -> (usize, usize, usize) {
    let conduct = if flags & FLAG_CONDUCT == 0 {
        0
    } else {
        CONDUCT
    };
    let held = if flags & FLAG_HELD == 0 { 0 } else { HELD };
    let line = if flags & FLAG_LINE == 0 { 0 } else { LINE };
    (conduct, held, line)
}

struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    /// Reads the head of a page: the number of its slots, and its origins.
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

    /// Reads a slot without its words, and the number of its words.
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
        let held_until_ms = if flags & FLAG_HELD == 0 {
            0
        } else {
            self.held()?
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
            held_until_ms,
            admitted,
            refused,
            flags: flags & !FLAGS_IN_BYTES,
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

    fn held(&mut self) -> Result<u64, UnknownPage> {
        self.u40().and_then(|until_ms| match until_ms {
            0 => Err(UnknownPage),
            until_ms => Ok(until_ms),
        })
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
