//! Heavy hitters: finds the keys with the highest recent counts of refused or admitted requests, in
//! bounded memory.
//!
//! [`Summary`] contains the counters. Each worker counts requests in its own [`Tally`] and
//! regularly adds these counts to the counts shared by all workers, which [`recent()`] reads.

use alloc::collections::BinaryHeap;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;

use loudou_limiter::Nanos;
use serde::{Deserialize, Serialize};

use crate::names::MAX_KEY;
use crate::shared_data::{SharedData, StoreFailed};
use crate::swap::{Swapped, swap};

/// Maximum number of keys with a counter, for each [`By`] and each half of the covered time span.
pub const COUNTERS: usize = 256;
/// Maximum time before a worker's counts are flushed.
pub const FLUSH_AFTER: Nanos = Nanos::from_millis(250);
/// Length of one half of the covered time span. Counts cover the entire previous half, and the
/// current half up to now.
pub const HALF: Nanos = Nanos::from_secs(60);

/// Kinds of counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// Refused requests, including requests that a rule in shadow mode would have refused.
    #[default]
    Refused,
    /// Admitted requests, whether immediately or after a wait.
    Admitted,
}

impl By {
    /// All kinds.
    pub const ALL: [Self; 2] = [Self::Refused, Self::Admitted];
    /// Names of the kinds in requests and responses.
    pub const NAMES: [&'static str; 2] = ["refused", "admitted"];

    /// Name of the kind.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Admitted => "admitted",
        }
    }

    /// Returns the kind with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|by| by.name() == name)
    }
}

/// Recent counts.
#[derive(Clone, Debug)]
pub struct Recent {
    /// Start of the time span covered by the counts, accurate to [`crate::top::FLUSH_AFTER`].
    pub since: Nanos,
    /// The counts.
    pub counts: Summary,
}

/// Returns the recent counts of `namespace`.
pub fn recent(
    store: &mut dyn SharedData,
    namespace: &str,
    by: By,
    now: Nanos,
) -> Result<Recent, StoreFailed> {
    let mut bytes = Vec::new();
    store.get(&key(namespace), &mut bytes)?;
    let shared = Shared::read(&bytes).unwrap_or_default();
    // Another worker's clock may be ahead, so that worker may already have started the next half.
    let shared = shared.at(half(now));
    let before = shared.half.saturating_sub(1);
    // There is room for all keys from both halves, so no key is dropped.
    let mut counts = Summary::new(COUNTERS.saturating_mul(2));
    let mut halves = Vec::from([shared.half]);
    if before != shared.half {
        halves.push(before);
    }
    for half in halves {
        if let Some(part) = Summary::decode(shared.part(half, by), COUNTERS) {
            counts.merge(&part);
        }
    }
    Ok(Recent {
        since: Nanos::new(before.saturating_mul(HALF.get())),
        counts,
    })
}

// One worker's counts before they are added to the shared counts.
//
// Counting modifies only the worker's own memory. The counts are flushed to the shared value once
// they are [`FLUSH_AFTER`] old. All counts in a flush are added to the half in which the oldest of
// them was counted.

/// A worker's counts.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Store key of the shared value.
    key: Vec<u8>,
    /// Counts of refused requests.
    refused: Summary,
    admitted: Summary,
    /// Number of the [`HALF`] in which the requests were counted.
    half: u64,
    /// Time of the next flush; `None` if there are no counts.
    due: Option<Nanos>,
}

impl Tally {
    /// Creates an empty tally for `namespace`.
    pub fn new(namespace: &str) -> Self {
        Self {
            key: key(namespace),
            refused: Summary::new(COUNTERS),
            admitted: Summary::new(COUNTERS),
            half: 0,
            due: None,
        }
    }

    /// Counts a request. `fingerprint` is the hash that identifies the request's key in the bucket
    /// table.
    pub fn count(&mut self, by: By, rule_tag: u32, fingerprint: u64, key: &str, now: Nanos) {
        if self.due.is_none() {
            self.start(now);
        }
        let summary = match by {
            By::Refused => &mut self.refused,
            By::Admitted => &mut self.admitted,
        };
        summary.add(rule_tag, fingerprint, key, 1);
    }

    fn start(&mut self, now: Nanos) {
        self.half = half(now);
        self.due = Some(now.saturating_add(FLUSH_AFTER));
    }

    /// Returns the time at which the tally must be flushed, or `None` if the tally is empty.
    pub const fn due(&self) -> Option<Nanos> {
        self.due
    }

    /// Adds the counts to the shared value if a flush is due. If the counts cannot be written, they
    /// are kept and flushed again later, like new counts.
    pub fn flush(&mut self, store: &mut dyn SharedData, now: Nanos) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        let flushed = swap(store, &self.key, &mut |bytes| {
            Some(self.added_to(bytes.unwrap_or_default()))
        });
        if flushed == Ok(Swapped::Done) {
            self.refused.clear();
            self.admitted.clear();
            self.due = None;
        } else {
            self.start(now);
        }
    }

    /// Returns the shared value with this worker's counts added.
    fn added_to(&self, bytes: &[u8]) -> Vec<u8> {
        let mut shared = Shared::read(bytes).unwrap_or_default().at(self.half);
        let part =
            |by, own: &Summary| (!own.is_empty()).then(|| merged(shared.part(self.half, by), own));
        let refused = part(By::Refused, &self.refused);
        let admitted = part(By::Admitted, &self.admitted);
        shared.put(self.half, [refused.as_deref(), admitted.as_deref()]);
        let mut out = Vec::new();
        shared.write(&mut out);
        out
    }
}

/// Returns the encoded `part` with this worker's counts added.
fn merged(part: &[u8], own: &Summary) -> Vec<u8> {
    let found = Summary::decode(part, COUNTERS);
    let mut all = found.unwrap_or_else(|| Summary::new(COUNTERS));
    all.merge(own);
    let mut out = Vec::new();
    all.encode(&mut out);
    out
}

// Counts shared by all workers, in a single value of the store.
//
// ```text
// "LT" | version u8 | half u64 | part, four times      part  length u32 | summary
// ```
//
// `half` is the number of the current [`HALF`]. The parts of the current half come first (refused,
// then admitted), followed by the parts of the previous half. A value with a different version is
// ignored. This is safe, because counts are only displayed and do not affect any decision.

const MAGIC: [u8; 3] = *b"LT\x01";
/// Number of parts: each of the two halves has one part for each [`By`].
const PARTS: usize = 4;

/// Maximum size of the value if keys are up to `key` bytes long.
pub const fn shared_bytes(key: usize) -> usize {
    let part = bytes(COUNTERS, key).saturating_add(size_of::<u32>());
    let head = MAGIC.len().saturating_add(size_of::<u64>());
    part.saturating_mul(PARTS).saturating_add(head)
}

/// A value read from the store, with its summaries still encoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Shared<'a> {
    /// Number of the current [`HALF`] when the value was written.
    half: u64,
    parts: [&'a [u8]; PARTS],
}

/// Returns the number of the [`HALF`] that contains `now`.
const fn half(now: Nanos) -> u64 {
    match now.get().checked_div(HALF.get()) {
        Some(half) => half,
        None => 0,
    }
}

/// Returns the store key of the counts of `namespace`.
fn key(namespace: &str) -> Vec<u8> {
    [namespace.as_bytes(), b":top"].concat()
}

impl<'a> Shared<'a> {
    fn read(bytes: &'a [u8]) -> Option<Self> {
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

    /// Returns the counts, moved forward so that `half` is the current half. Drops counts from
    /// before the previous half.
    fn at(self, half: u64) -> Self {
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

    /// Returns the counts of the [`HALF`] with this number. The counts are empty unless this is the
    /// current or the previous half.
    fn part(&self, half: u64, by: By) -> &'a [u8] {
        let place = self.place(half, by);
        let part = place.and_then(|place| self.parts.get(place));
        part.copied().unwrap_or_default()
    }

    /// Returns the index in `parts` of the counts for a half and a [`By`].
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

    /// Replaces the refused and admitted parts of the [`HALF`] with this number. `None` leaves a
    /// part unchanged.
    fn put(&mut self, half: u64, parts: [Option<&'a [u8]>; 2]) {
        for (by, part) in By::ALL.into_iter().zip(parts) {
            let place = self.place(half, by);
            let place = place.and_then(|place| self.parts.get_mut(place));
            if let (Some(place), Some(part)) = (place, part) {
                *place = part;
            }
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
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

// Counts of the most frequent keys. The number of counters is fixed, regardless of how many keys
// there are.
//
// These are the space-saving counters of Metwally, Agrawal and El Abbadi ("Efficient computation of
// frequent and top-k elements in data streams", 2005), with the merge by Agarwal, Cormode, Huang,
// Phillips, Wei and Yi ("Mergeable summaries", 2012). A summary has a fixed number of places, which
// is the number of counters it keeps. Each new key is given a counter until there are twice as many
// counters as places. At that point, only the counters with the largest counts are kept, one for
// each place. This is equivalent to merging the summary with a summary of the new keys. As a
// result, the average cost of adding a key does not depend on the number of counters.
//
// With K places, a total count of N, and any order of merges:
//
// - `count - error <= truth <= count` for a key with a counter;
// - `truth <= floor` for a key without a counter;
// - `error <= floor <= N / K`. Every key whose true count exceeds N / K therefore has a counter. If
//   there are at most K keys in total, the counts are exact.
//
// An entry may carry a mark: additional data collected for the key while it has a counter. The
// filter does not use marks. A replay uses them to distinguish kinds of requests.
//
// The bound on the floor holds because `K * floor + Σ (count - floor) <= N`. Counting a request
// adds the same amount to both sides, and merging two summaries adds their inequalities. If a cut
// raises the floor by n, more than K counters each lose n of their height above the floor.

/// Index value that means "no entry".
const NONE: u16 = u16::MAX;
/// Number of index slots per place. At most two slots per place are in use, or four while two
/// summaries of equal size are being merged. If a merge with a larger summary overfills the index,
/// the cut at the end of the merge rebuilds the index.
const INDEX_PER_PLACE: usize = 4;

/// Encoded size of a summary with this many entries and with keys of this many bytes.
const fn bytes(entries: usize, key: usize) -> usize {
    let head = size_of::<u64>().saturating_add(size_of::<u16>());
    // Rule tag, fingerprint, count, error, key length.
    let entry = key.saturating_add(4 + 3 * 8 + 1);
    entries.saturating_mul(entry).saturating_add(head)
}

/// A key and its count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry<M = ()> {
    /// The key's rule tag.
    pub rule_tag: u32,
    /// The key's hash in the bucket table. Collisions are unlikely.
    pub fingerprint: u64,
    /// The key, truncated to [`MAX_KEY`] bytes.
    pub key: String,
    /// Upper bound on the true count.
    pub count: u64,
    /// Maximum error of the count.
    pub error: u64,
    /// Additional data collected for the key. The mark covers only the `count - error` requests
    /// since the key was given its counter, so totals in the mark may be too low.
    pub mark: M,
}

/// Counters of the most frequent keys.
#[derive(Clone, Debug)]
pub struct Summary<M = ()> {
    places: usize,
    floor: u64,
    /// Entries. Only the first `used` entries are in use. The other entries are kept so that their
    /// memory can be reused.
    entries: Vec<Entry<M>>,
    used: usize,
    /// Hash table of indices into `entries`, with linear probing.
    index: Vec<u16>,
}

impl<M: Default> Summary<M> {
    /// Creates an empty summary with places for this many keys, and with a mark for each key.
    pub fn marked(places: usize) -> Self {
        // The number of places is limited so that each entry has an index below `NONE`.
        let places = places.clamp(1, usize::from(NONE) / INDEX_PER_PLACE);
        let slots = places
            .saturating_mul(INDEX_PER_PLACE)
            .checked_next_power_of_two();
        Self {
            places,
            floor: 0,
            entries: Vec::new(),
            used: 0,
            index: alloc::vec![NONE; slots.unwrap_or(1)],
        }
    }

    /// Upper bound on the true count of a key without a counter.
    pub const fn floor(&self) -> u64 {
        self.floor
    }

    /// Returns the keys with a counter, in no particular order.
    pub fn entries(&self) -> &[Entry<M>] {
        self.entries.get(..self.used).unwrap_or_default()
    }

    /// Returns true if the summary is empty.
    pub const fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Clears all counts, but keeps the memory for reuse.
    pub fn clear(&mut self) {
        self.floor = 0;
        self.used = 0;
        self.index.fill(NONE);
    }

    /// Adds `times` to a key's count, and updates its mark.
    pub fn add_marked(
        &mut self,
        rule_tag: u32,
        fingerprint: u64,
        key: &str,
        times: u64,
        change: impl FnOnce(&mut M),
    ) {
        let error = self.floor;
        let count = error.saturating_add(times);
        match self.find(rule_tag, fingerprint) {
            Ok(entry) => {
                entry.count = entry.count.saturating_add(times);
                change(&mut entry.mark);
            }
            Err(slot) => {
                let mut mark = M::default();
                change(&mut mark);
                self.insert(slot, rule_tag, fingerprint, key, [count, error], mark);
            }
        }
        if self.used >= self.places.saturating_mul(2) {
            self.cut();
        }
    }

    /// Returns the entries for which `wanted` returns true, in descending order of count. Entries with equal counts are
    /// ordered by rule and key.
    pub fn most(&self, wanted: impl Fn(&Entry<M>) -> bool) -> Vec<&Entry<M>> {
        let all = self.entries().iter().enumerate();
        let found = all.filter(|(_, entry)| wanted(entry)).map(|(place, e)| {
            let rank = (Reverse(e.count), e.rule_tag, e.key.as_str());
            (rank, place)
        });
        // Sorts with a heap, because every sort function in the standard library adds several KiB
        // of code, and the filter's module must be small.
        let ranked = found.collect::<BinaryHeap<_>>().into_sorted_vec();
        let entries = ranked.into_iter();
        entries
            .filter_map(|(_, place)| self.entries.get(place))
            .collect()
    }

    /// Keeps only the counters with the largest counts, at most one per place.
    fn cut(&mut self) {
        if self.used <= self.places {
            return;
        }
        let dropped = self.largest_dropped();
        let above = self.entries().iter().filter(|e| e.count > dropped).count();
        let mut equals = self.places.saturating_sub(above);
        let mut kept = 0_usize;
        for place in 0..self.used {
            let count = self.entries.get(place).map_or(0, |entry| entry.count);
            let is_kept = count > dropped || (count == dropped && equals > 0);
            if count == dropped {
                equals = equals.saturating_sub(1);
            }
            if is_kept {
                self.entries.swap(kept, place);
                kept = kept.saturating_add(1);
            }
        }
        self.floor = self.floor.max(dropped);
        self.used = kept;
        self.reindex();
    }

    /// Returns the largest count that would be dropped by a cut. This is the smallest number that
    /// is exceeded by no more counts than there are places. The bisection runs in bounded time and
    /// takes little code.
    fn largest_dropped(&self) -> u64 {
        let counts = self.entries().iter().map(|entry| entry.count);
        let (mut least, mut most) = (self.floor, counts.max().unwrap_or(self.floor));
        while least < most {
            let middle = least.midpoint(most);
            let above = self.entries().iter().filter(|e| e.count > middle);
            if above.count() > self.places {
                least = middle.saturating_add(1);
            } else {
                most = middle;
            }
        }
        least
    }

    fn reindex(&mut self) {
        self.index.fill(NONE);
        for place in 0..self.used {
            let Some(entry) = self.entries.get(place) else {
                return;
            };
            if let Err(slot) = self.probe(entry.rule_tag, entry.fingerprint) {
                self.point(slot, place);
            }
        }
    }

    /// Returns a key's entry, or the index slot in which to insert it.
    fn find(&mut self, rule_tag: u32, fingerprint: u64) -> Result<&mut Entry<M>, usize> {
        let place = self.probe(rule_tag, fingerprint)?;
        self.entries.get_mut(place).ok_or(usize::MAX)
    }

    fn probe(&self, rule_tag: u32, fingerprint: u64) -> Result<usize, usize> {
        let mask = self.index.len().saturating_sub(1);
        // The lower half of the hash is sufficient for a table of this size.
        let [a, b, c, d, ..] = fingerprint.to_le_bytes();
        let start = usize::try_from(u32::from_le_bytes([a, b, c, d])).unwrap_or(0);
        for step in 0..self.index.len() {
            let slot = start.wrapping_add(step) & mask;
            let place = self.index.get(slot).copied().unwrap_or(NONE);
            if place == NONE {
                return Err(slot);
            }
            let entry = self.entries.get(usize::from(place));
            if entry.is_some_and(|e| e.fingerprint == fingerprint && e.rule_tag == rule_tag) {
                return Ok(usize::from(place));
            }
        }
        Err(usize::MAX)
    }

    fn point(&mut self, slot: usize, place: usize) {
        if let (Some(slot), Ok(place)) = (self.index.get_mut(slot), u16::try_from(place)) {
            *slot = place;
        }
    }

    /// Adds a counter for a key. `slot` is the free index slot for the key.
    fn insert(
        &mut self,
        slot: usize,
        rule_tag: u32,
        fingerprint: u64,
        key: &str,
        [count, error]: [u64; 2],
        mark: M,
    ) {
        let place = self.used;
        if place == self.entries.len() {
            self.entries.push(Entry::default());
        }
        let Some(entry) = self.entries.get_mut(place) else {
            return;
        };
        entry.rule_tag = rule_tag;
        entry.fingerprint = fingerprint;
        entry.key.clear();
        let end = key.floor_char_boundary(MAX_KEY);
        // Reserves the exact size, so that an entry's memory is bounded by the maximum key size.
        entry.key.reserve_exact(end);
        entry.key.push_str(key.get(..end).unwrap_or_default());
        (entry.count, entry.error) = (count, error);
        entry.mark = mark;
        self.used = place.saturating_add(1);
        self.point(slot, place);
    }
}

impl Summary {
    /// Creates an empty summary with places for this many keys.
    pub fn new(places: usize) -> Self {
        Self::marked(places)
    }

    /// Adds `times` to a key's count.
    pub fn add(&mut self, rule_tag: u32, fingerprint: u64, key: &str, times: u64) {
        self.add_marked(rule_tag, fingerprint, key, times, |()| {});
    }

    /// Adds the counts of `other` to this summary.
    pub fn merge(&mut self, other: &Self) {
        let (own, others) = (self.floor, other.floor);
        // This loop treats each key as if it had no counter in `other`, where the count of such a
        // key is at most the floor. The next loop corrects this for the keys that have a counter in
        // `other`.
        for entry in self.entries.iter_mut().take(self.used) {
            entry.count = entry.count.saturating_add(others);
            entry.error = entry.error.saturating_add(others);
        }
        for entry in other.entries() {
            match self.find(entry.rule_tag, entry.fingerprint) {
                Ok(found) => {
                    found.count = found.count.saturating_sub(others);
                    found.count = found.count.saturating_add(entry.count);
                    found.error = found.error.saturating_sub(others);
                    found.error = found.error.saturating_add(entry.error);
                }
                Err(slot) => {
                    let numbers = [entry.count, entry.error].map(|n| n.saturating_add(own));
                    self.insert(
                        slot,
                        entry.rule_tag,
                        entry.fingerprint,
                        &entry.key,
                        numbers,
                        (),
                    );
                }
            }
        }
        self.floor = own.saturating_add(others);
        self.cut();
    }

    /// Appends the encoded summary to `out`.
    ///
    /// ```text
    /// summary  floor u64 | entries u16 | entry…
    /// entry    rule tag u32 | fingerprint u64 | count u64 | error u64 | length u8 | key
    /// ```
    pub fn encode(&mut self, out: &mut Vec<u8>) {
        self.cut();
        out.extend_from_slice(&self.floor.to_le_bytes());
        let used = u16::try_from(self.used).unwrap_or(0);
        out.extend_from_slice(&used.to_le_bytes());
        for entry in self.entries() {
            out.extend_from_slice(&entry.rule_tag.to_le_bytes());
            for number in [entry.fingerprint, entry.count, entry.error] {
                out.extend_from_slice(&number.to_le_bytes());
            }
            out.push(u8::try_from(entry.key.len()).unwrap_or(0));
            out.extend_from_slice(entry.key.as_bytes());
        }
    }

    /// Decodes the output of [`Summary::encode`] with at most `places` entries. Returns `None` for
    /// any other input.
    pub fn decode(bytes: &[u8], places: usize) -> Option<Self> {
        let mut summary = Self::new(places);
        let (floor, rest) = bytes.split_first_chunk()?;
        let (count, mut rest) = rest.split_first_chunk()?;
        let count = usize::from(u16::from_le_bytes(*count));
        if count > summary.places {
            return None;
        }
        for _ in 0..count {
            let (tag, tail) = rest.split_first_chunk()?;
            let (numbers, tail) = tail.split_first_chunk::<24>()?;
            let (length, tail) = tail.split_first()?;
            let (key, tail) = tail.split_at_checked(usize::from(*length))?;
            rest = tail;
            let (words, _) = numbers.as_chunks();
            let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
            let (fingerprint, count, error) = (words.next()?, words.next()?, words.next()?);
            let (tag, key) = (u32::from_le_bytes(*tag), core::str::from_utf8(key).ok()?);
            let slot = summary.probe(tag, fingerprint).err()?;
            if error > count {
                return None;
            }
            summary.insert(slot, tag, fingerprint, key, [count, error], ());
        }
        summary.floor = u64::from_le_bytes(*floor);
        rest.is_empty().then_some(summary)
    }
}
