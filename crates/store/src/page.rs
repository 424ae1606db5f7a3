//! A page stores up to [`SLOTS`] buckets in a single store value.
//!
//! ```text
//! page  "LP" | version u8 | slots u8 | origins u32 | slot…                 8 bytes + slots
//! slot  fingerprint u64 | rule tag u32 | version u32 | last ns u64         57 or 65 bytes for a funnel
//!       idle at ms u40 | admitted u40 | refused u40 | refused at tick u24
//!       flags u8 | origin u32 | words u16
//!       given u40                                                          only with its flag
//!       ban history: banned until ms u40 | since ms u40 | clean at ms u40  only with its flag
//!                strikes u16 | bans u8
//!       held until ms u40, or refused since ms u40                         only with its flag
//!       queue end: ns u64                                                  only with its flag
//!       lease: word u64 × 11                                               only with its flag
//!       left at its later limits: count u8 | units u32…                    only with its flag
//!       word u64…
//! ```
//!
//! Numbers are little-endian. Trailing zeros are omitted both from a bucket's words and from the
//! list of remaining units that follows a lease. One field stores one of two times: the expiry of
//! permits, which is later than the bucket's last touch, or the start of a run of refusals, which
//! is not later ([`codec::Instant`]).
//!
//! A slot records when it becomes idle and how long in-flight requests hold permits. Eviction
//! therefore needs neither the rule nor its limits ([`mod@victim`]).
//!
//! Each slot has an *origin*, a number that is assigned when the bucket is created and again when
//! an edit of the rule converts the bucket's state. A request's receipt stores the origin. If the
//! slot has a different origin when the request ends, the cost is not given back, because the new
//! state does not include it.
//!
//! Old and new code run side by side while Envoy drains, and pages are never deleted. Each format
//! version therefore has its own pages ([`KIND`]), and a reader does not touch pages with an
//! unknown version.

use alloc::boxed::Box;
use alloc::vec::Vec;

use codec::{
    Bytes, FLAG_BAN_HISTORY, FLAG_LATER, FLAGS_IN_BYTES, GIVEN_BYTES, Head, Instant, later_bytes,
    optional_bytes,
};
use loudou_limiter::ban::BanHistory;
use loudou_limiter::lease::Lease;
use loudou_limiter::{Bucket, BucketDecision, Limits, Nanos};
use victim::{Standing, victim};

pub use codec::lease_bytes;
pub(crate) use patch::{FastSlot, PageBytes, patch_of};

mod codec;
mod patch;
mod victim;

/// Maximum number of buckets in a page.
pub const SLOTS: usize = 16;
/// Size of a page head, in bytes.
pub const PAGE_HEAD: usize = 8;
/// Size of a slot without its words and optional parts, in bytes.
const SLOT_HEAD: usize = 49;
/// [`SLOTS`] as encoded in a page.
const MAX_COUNT: u8 = 16;
const MAGIC: [u8; 2] = *b"LP";
const VERSION: u8 = 9;
/// Prefix of the store keys of pages. The prefix includes the format version, so that code versions
/// with different formats use different pages. Otherwise, pages in an unknown format would remain
/// until Envoy restarts, and requests to their buckets would fall back to `on_error`.
pub const KIND: u8 = VERSION;
/// Largest number that fits in five bytes.
const MAX_U40: u64 = (1 << 40) - 1;

/// Flag for an operator's ban. The bucket is never evicted while this ban is in effect. A penalty
/// ban does not pin the bucket, because a client that can make up arbitrary keys could fill the
/// store with pinned buckets.
pub const FLAG_PINNED: u8 = 2;
/// Flag that is set if evicting the bucket would lose units even when its full capacity is
/// available. An example is a token bucket that starts with fewer tokens than its capacity and is
/// now full.
pub const FLAG_KEEPS_GAIN: u8 = 4;

/// How long a debt protects its slot from eviction after the last touch.
const MAX_DEBT_AGE: Nanos = Nanos::from_secs(60);

/// Maximum time between successive refusals in the same run, accurate to one [`Tick`]. A refusal
/// after a longer gap starts a new run. Requests admitted in between do not end a run, because the
/// requests of a key just over its limit are alternately admitted and refused.
pub const RUN_GAP: Nanos = Nanos::from_secs(60);

/// Usual maximum size of a slot with this many words, in bytes. A slot can be larger if it has bans
/// or strikes, in-flight or held requests, a log that lost capacity, or both a refusal and units
/// given back.
pub const fn slot_bytes(words: usize) -> usize {
    words
        .saturating_mul(size_of::<u64>())
        .saturating_add(SLOT_HEAD)
        .saturating_add(GIVEN_BYTES)
}

/// Returns [`FLAG_KEEPS_GAIN`] if a full bucket with these limits holds more units than a new
/// bucket, and 0 otherwise.
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
    /// Hash of the rule and the key, which identifies the bucket.
    pub fingerprint: u64,
    /// Tag of the rule.
    pub rule_tag: u32,
    /// Version of the rule under which the words were written.
    pub version: u32,
    /// Time at which the bucket becomes idle, in milliseconds, rounded up.
    pub idle_at_ms: u64,
    /// Time until which in-flight requests hold permits, in milliseconds, rounded up; 0 if there
    /// are no permits. Permits that are never returned expire at this time at the latest, even if
    /// other limits of the bucket stay busy longer.
    pub held_until_ms: u64,
    /// Number of admitted requests.
    pub admitted: u64,
    /// Number of refused requests.
    pub refused: u64,
    /// Time of the last refusal. Meaningless if `refused` is 0.
    pub refused_at: Tick,
    /// Start of the most recent run of refusals, in milliseconds, rounded down. 0 if unknown. The
    /// start is lost while in-flight requests hold permits, because `held_until_ms` is stored in
    /// the same field of the page.
    pub refused_since_ms: u64,
    /// [`FLAG_PINNED`] and [`FLAG_KEEPS_GAIN`].
    pub flags: u8,
    /// Origin of the slot's state; see the module documentation.
    pub origin: u32,
    /// Bans and strikes.
    pub ban_history: BanHistory,
    /// This Envoy's lease, if the limits are shared by a fleet; `None` while the lease would be
    /// empty.
    pub lease: Option<Box<Lease>>,
    /// Time of the last touch, and the state of the limits.
    pub bucket: Bucket,
}

/// The buckets of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Counter used to assign origins to slots. Wraps around.
    pub origins: u32,
    /// The buckets, at most [`SLOTS`].
    pub slots: Vec<Slot>,
}

/// Error for bytes that cannot be decoded as a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownPage;

impl Slot {
    /// Counts a decision made at `now`.
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

    /// Returns the time of the last refusal, rounded down to a multiple of the tick length. `None`
    /// if no request was refused.
    pub fn refused_before(&self, now: Nanos) -> Option<Nanos> {
        (self.refused > 0).then(|| self.refused_at.before(now))
    }

    /// Returns the start of the current run of refusals. Returns `None` if no run is in progress at
    /// `now`, or if the start of the run is unknown. The result is never after `now`. It is never
    /// before the bucket's first request, because only a refusal by this bucket sets the start.
    pub fn refused_since(&self, now: Nanos) -> Option<Nanos> {
        let is_known = self.refused_since_ms > 0 && self.refused_within(RUN_GAP, now);
        is_known.then(|| Nanos::from_millis(self.refused_since_ms).min(now))
    }

    /// Returns true if a request was refused within `span` before `now`.
    pub fn refused_within(&self, span: Nanos, now: Nanos) -> bool {
        self.refused > 0 && self.refused_at.is_within(span, now)
    }

    /// Returns true if an operator's ban is in effect, which protects the bucket from eviction.
    pub fn is_pinned(&self, now: Nanos) -> bool {
        self.flags & FLAG_PINNED != 0 && self.ban_history.ban(now).is_some()
    }
}

impl Page {
    /// Decodes a page.
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

    /// Encodes the page into `out`, replacing its contents.
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

    /// Returns the slot of a bucket.
    pub fn find(&mut self, fingerprint: u64) -> Option<&mut Slot> {
        self.slots
            .iter_mut()
            .find(|slot| slot.fingerprint == fingerprint)
    }

    /// Makes room for another bucket of a rule at `now`. Returns the kind of eviction, or an error
    /// if no bucket may be evicted.
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

/// Kind of eviction that made room for a new bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evicted {
    /// The page had a free slot.
    Nothing,
    /// An idle bucket was evicted.
    Lossless,
    /// A bucket was evicted before it was idle.
    Lossy,
}

/// Error for a full page in which every bucket that the new bucket could replace is protected by an
/// operator's ban or by permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageFull;

impl Slot {
    /// Returns true if the bucket can be evicted without losing state.
    pub const fn is_idle(&self, now_ms: u64) -> bool {
        is_idle(self.idle_at_ms, self.flags, now_ms)
    }

    /// Updates `idle_at_ms` and `held_until_ms` after a decision made by the bucket's limits.
    pub(crate) fn note(&mut self, limits: &Limits, answer: &BucketDecision) {
        let after = |span| answer.at().saturating_add(span).millis_ceil();
        let held = limits.held_for(answer).map_or(0, after);
        let noted = limits.noted_until(&self.bucket, answer.at());
        self.held_until_ms = held.max(noted.map_or(0, Nanos::millis_ceil));
        let idle = after(answer.reset_after()).max(self.ban_history.clean_at_ms);
        self.idle_at_ms = idle.max(self.held_until_ms);
    }

    /// Like [`Slot::note`], but for the lease. Must be called after `note`. Debt from requests
    /// admitted on credit protects the slot from eviction, as permits do, because evicting the slot
    /// would cancel the debt. Debt from requests admitted during an outage does not protect the
    /// slot. Otherwise, clients that make up keys could fill the pages with slots that cannot be
    /// evicted.
    pub(crate) fn note_lease(&mut self, now: Nanos, keeps_debt: bool) {
        let Some(lease) = self.lease.as_deref() else {
            return;
        };
        let mut idle_at_ms = lease.idle_at().millis_ceil();
        if keeps_debt && lease.debt() > 0 {
            idle_at_ms = MAX_U40;
            let until = now.saturating_add(MAX_DEBT_AGE);
            self.held_until_ms = self.held_until_ms.max(until.millis_ceil());
        }
        self.idle_at_ms = self.idle_at_ms.max(idle_at_ms);
    }
}

const fn is_idle(idle_at_ms: u64, flags: u8, now_ms: u64) -> bool {
    idle_at_ms <= now_ms && flags & FLAG_KEEPS_GAIN == 0
}

/// Head of a slot: the fields that most searches need.
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
    /// True if the slot stores a ban history: strikes or bans.
    pub has_ban_history: bool,
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

    /// Decodes the head of the slot at the beginning of `slot`.
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
            has_ban_history: flags & FLAG_BAN_HISTORY != 0,
        })
    }
}

// Time of a bucket's last refusal, encoded in three bytes.

/// Number of bits to shift a time in nanoseconds by to convert it to ticks. A tick is 2^28 ns,
/// about a quarter of a second.
const TICK_BITS: u32 = 28;
/// Mask for the tick counter, which wraps around at 2^24.
const MASK: u64 = (1 << 24) - 1;

/// A time with a resolution of a quarter of a second, modulo 52 days.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tick([u8; 3]);

impl Tick {
    /// Returns the tick that contains `at`.
    pub fn of(at: Nanos) -> Self {
        let bytes = (at.get() >> TICK_BITS).to_le_bytes();
        Self(bytes.first_chunk().copied().unwrap_or_default())
    }

    /// Returns the most recent time, no later than `now`, at which this tick started. Tick values
    /// repeat every 52 days. If the tick is older than that, the result is too late by a multiple
    /// of 52 days.
    pub fn before(self, now: Nanos) -> Nanos {
        let [a, b, c] = self.0;
        let own = u64::from(u32::from_le_bytes([a, b, c, 0]));
        let last = now.get() >> TICK_BITS;
        // Another worker's clock may be slightly ahead, so the stored tick may be the next tick.
        let ago = (last.wrapping_add(1).wrapping_sub(own) & MASK).saturating_sub(1);
        Nanos::new(last.saturating_sub(ago) << TICK_BITS)
    }

    /// Returns true if the tick ended within `span` before `now` or has not ended yet.
    pub fn is_within(self, span: Nanos, now: Nanos) -> bool {
        let end = self.before(now).saturating_add(Nanos::new(1 << TICK_BITS));
        now.since(end) < span
    }

    /// Returns the encoded form.
    const fn to_bytes(self) -> [u8; 3] {
        self.0
    }

    /// Decodes the encoded form.
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
        /// Checks that, until the counter wraps around, the decoded time is accurate to one tick
        /// and never later than the original time.
        #[test]
        fn an_instant_is_known_to_a_tick(at in any::<u64>(), ago in 0..TURN - 2 * TICK) {
            let now = at.saturating_add(ago);
            let read = Tick::of(Nanos::new(at)).before(Nanos::new(now)).get();
            prop_assert!(read <= at && at - read < TICK, "{read} for {at} at {now}");
        }

        /// Checks that a time from a clock that is slightly ahead is treated as the current time.
        #[test]
        fn one_tick_ahead_is_now(now in 0..u64::MAX / 2, ahead in 0..TICK) {
            let (at, now) = (Nanos::new(now + ahead), Nanos::new(now));
            prop_assert!(Tick::of(at).is_within(Nanos::new(1), now));
        }

        /// Checks that a refusal counts for the entire span, and for at most one tick longer.
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
