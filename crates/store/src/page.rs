//! A page: up to [`SLOTS`] buckets in one value of the store.
//!
//! ```text
//! page  "LP" | version u8 | slots u8 | origins u32 | slot…                 8 bytes + slots
//! slot  fingerprint u64 | rule tag u32 | version u32 | last ns u64         57 or 65 bytes for a funnel
//!       idle at ms u40 | admitted u40 | refused u40 | refused at tick u24
//!       flags u8 | origin u32 | words u16
//!       given u40                                                          only with its flag
//!       conduct: banned until ms u40 | since ms u40 | clean at ms u40      only with its flag
//!                strikes u16 | bans u8
//!       held until ms u40, or refused since ms u40                         only with its flag
//!       line: ns u64                                                       only with its flag
//!       lease: word u64 × 11                                               only with its flag
//!       left at its later limits: count u8 | units u32…                    only with its flag
//!       word u64…
//! ```
//! Little endian; zeros at the end of a bucket's words and of those units are left out. Permits end after the last
//! touch, and a run of refusals begins at it or before it, so one instant has room for either ([`codec::Instant`]).
//! A slot stores the time from which it is idle, and until when it holds permits of requests in flight, so that
//! eviction needs neither the rule nor the limits that wrote it ([`mod@victim`]). Its origin numbers the beginning
//! of its state, which is new when a bucket is created and when an edit converts it: cost taken earlier is not
//! given back later. Old and new code overlap while Envoy drains, and pages are never deleted: each version has
//! separate pages ([`KIND`]), and a reader that does not know the version does not touch the page.

use alloc::boxed::Box;
use alloc::vec::Vec;

use codec::{
    Bytes, FLAG_CONDUCT, FLAG_LATER, FLAGS_IN_BYTES, GIVEN_BYTES, Head, Instant, later_bytes,
    optional_bytes,
};
use loudou_limiter::ban::Conduct;
use loudou_limiter::lease::Lease;
use loudou_limiter::{Bucket, BucketDecision, Limits, Nanos};
use victim::{Standing, victim};

pub use codec::lease_bytes;
pub(crate) use patch::PageBytes;

mod codec;
mod patch;
mod victim;

/// The maximum number of buckets in a page.
pub const SLOTS: usize = 16;
/// The size of a page's head, in bytes.
pub const PAGE_HEAD: usize = 8;
/// The size of a slot without its words and all that is only there with a flag, in bytes.
const SLOT_HEAD: usize = 49;
/// [`SLOTS`] as it stands in a page.
const MAX_COUNT: u8 = 16;
const MAGIC: [u8; 2] = *b"LP";
const VERSION: u8 = 9;
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

/// How long a debt keeps its slot from being evicted after it was last touched.
const DEBT_KEPT: Nanos = Nanos::from_secs(60);

/// A refusal that comes later than this after the one before it begins a new run of refusals, give or take a
/// [`Tick`]. Admitted requests in between do not end a run: a key just over its limit is admitted and refused in turn.
pub const RUN_GAP: Nanos = Nanos::from_secs(60);

/// The maximum size of a slot with this many words, unless its key is or may soon be banned, has requests
/// in flight or held, has a log that lost capacity, or was refused and had units given back.
pub const fn slot_bytes(words: usize) -> usize {
    words
        .saturating_mul(size_of::<u64>())
        .saturating_add(SLOT_HEAD)
        .saturating_add(GIVEN_BYTES)
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
    /// When the last of these was refused; without meaning if there is none.
    pub refused_at: Tick,
    /// When the run of refusals began that this was in, in milliseconds, rounded down; 0 if that is not known. It
    /// is not kept while requests in flight hold permits, because both have the same place in a page.
    pub refused_since_ms: u64,
    /// [`FLAG_PINNED`] and [`FLAG_KEEPS_GAIN`].
    pub flags: u8,
    /// The page's origin at which the state began.
    pub origin: u32,
    /// Bans and strikes.
    pub conduct: Conduct,
    /// The part of this Envoy in limits that many Envoys share; `None` as long as that is nothing.
    pub lease: Option<Box<Lease>>,
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

impl Slot {
    /// Counts a decision that was made at `now`.
    pub(crate) fn count(&mut self, is_refused: bool, now: Nanos) {
        if is_refused {
            let at = now.max(self.bucket.last);
            if !self.refused_within(RUN_GAP, at) {
                self.refused_since_ms = at.as_millis();
            }
            self.refused = self.refused.saturating_add(1);
            self.refused_at = Tick::of(at);
        } else {
            self.admitted = self.admitted.saturating_add(1);
        }
    }

    /// When the last request was refused, up to a tick earlier; `None` if none was.
    pub fn refused_before(&self, now: Nanos) -> Option<Nanos> {
        (self.refused > 0).then(|| self.refused_at.before(now))
    }

    /// When the run of refusals began that lasts at `now`; `None` if none does, or if that is not known. It is never
    /// after `now`, and never before the first request of the bucket, because only a refusal by this bucket sets it.
    pub fn refused_since(&self, now: Nanos) -> Option<Nanos> {
        let is_known = self.refused_since_ms > 0 && self.refused_within(RUN_GAP, now);
        is_known.then(|| Nanos::from_millis(self.refused_since_ms).min(now))
    }

    /// Whether a request was refused within `span` before `now`.
    pub fn refused_within(&self, span: Nanos, now: Nanos) -> bool {
        self.refused > 0 && self.refused_at.is_within(span, now)
    }

    /// Whether a ban by an operator is in force: then nothing evicts it.
    pub fn is_pinned(&self, now: Nanos) -> bool {
        self.flags & FLAG_PINNED != 0 && self.conduct.ban(now).is_some()
    }
}

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
        let held = limits.held_for(answer).map_or(0, after);
        let noted = limits.noted_until(&self.bucket, answer.at());
        self.held_until_ms = held.max(noted.map_or(0, Nanos::millis_ceil));
        let idle = after(answer.reset_after()).max(self.conduct.clean_at_ms);
        self.idle_at_ms = idle.max(self.held_until_ms);
    }

    /// Like [`Slot::note`], but for its lease; called after it. A debt of requests that passed on credit is kept
    /// like permits, because it would be forgotten with the slot. A debt of requests that were admitted alone is
    /// not: in an outage, clients that make up keys could otherwise fill the pages with slots that nothing evicts.
    pub(crate) fn note_lease(&mut self, now: Nanos, keeps_debt: bool) {
        let Some(lease) = self.lease.as_deref() else {
            return;
        };
        let mut idle_at_ms = lease.idle_at().millis_ceil();
        if keeps_debt && lease.debt() > 0 {
            idle_at_ms = MAX_U40;
            let until = now.saturating_add(DEBT_KEPT);
            self.held_until_ms = self.held_until_ms.max(until.millis_ceil());
        }
        self.idle_at_ms = self.idle_at_ms.max(idle_at_ms);
    }
}

const fn is_idle(idle_at_ms: u64, flags: u8, now_ms: u64) -> bool {
    idle_at_ms <= now_ms && flags & FLAG_KEEPS_GAIN == 0
}

/// The beginning of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotHead {
    /// [`crate::page::Slot::fingerprint`].
    pub fingerprint: u64,
    /// [`crate::page::Slot::rule_tag`].
    pub rule_tag: u32,
    /// [`crate::page::Slot::version`].
    pub version: u32,
    /// [`crate::page::Slot::idle_at_ms`].
    pub idle_at_ms: u64,
    /// [`crate::page::Slot::refused_at`]; `None` if no request was refused.
    refused_at: Option<Tick>,
    /// [`crate::page::Slot::flags`].
    pub flags: u8,
    /// Whether the slot has a conduct: strikes, penalties or a ban.
    pub has_conduct: bool,
}

impl SlotHead {
    /// [`crate::page::Slot::is_idle`].
    pub const fn is_idle(&self, now_ms: u64) -> bool {
        is_idle(self.idle_at_ms, self.flags, now_ms)
    }

    /// [`crate::page::Slot::refused_within`].
    pub fn refused_within(&self, span: Nanos, now: Nanos) -> bool {
        self.refused_at
            .is_some_and(|tick| tick.is_within(span, now))
    }

    /// The head of the slot that begins with these bytes.
    fn read(slot: &[u8]) -> Result<Self, UnknownPage> {
        let head = Head::of(slot)?;
        let flags = head.flags();
        Ok(Self {
            fingerprint: head.fingerprint(),
            rule_tag: head.rule_tag(),
            version: head.version(),
            idle_at_ms: head.idle_at_ms(),
            refused_at: (head.refused() > 0).then(|| head.refused_at()),
            flags: flags & !FLAGS_IN_BYTES,
            has_conduct: flags & FLAG_CONDUCT != 0,
        })
    }
}

// The time of a bucket's last refusal, in three bytes.

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
    const fn to_bytes(self) -> [u8; 3] {
        self.0
    }

    /// Of the encoded form.
    const fn from_bytes(bytes: [u8; 3]) -> Self {
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
