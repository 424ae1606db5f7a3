//! Counts of the most counted keys, with a fixed number of counters however many keys there are.
//!
//! These are the space-saving counters of Metwally, Agrawal and El Abbadi ("Efficient computation of
//! frequent and top-k elements in data streams", 2005), merged as Agarwal, Cormode, Huang, Phillips,
//! Wei and Yi do ("Mergeable summaries", 2012). New keys get a counter each until there are twice
//! as many as places, and then only the most counted half stays: this is a merge with the keys of
//! the meantime, so the average cost of a new key does not depend on the number of counters.
//!
//! With K places, a total count of N, and merges in any order:
//! - `count - error <= truth <= count` for a key with a counter;
//! - `truth <= floor` for a key without one;
//! - `error <= floor <= N / K`. So every key with more than N / K has a counter, and with at most K
//!   keys in all, counts are exact.
//!
//! An entry may carry a mark: any other data that is counted for its key, since it has its counter. The
//! filter uses none; a replay uses it to distinguish kinds of requests.
//!
//! The last bound holds because `K * floor + Σ (count - floor) <= N`: counting adds the same to both sides,
//! merging adds both, and when the floor rises by n, more than K counters lose n of their height.

use alloc::collections::BinaryHeap;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::names::MAX_KEY;

/// No entry.
const NONE: u16 = u16::MAX;
/// The slots of the index for each place, of which at most two have an entry; four while two summaries of
/// one size are merged. If another size has left entries out of a full index, the cut corrects that.
const INDEX_PER_PLACE: usize = 4;

/// The encoded size of a summary with this many entries and keys of this many bytes.
pub(super) const fn bytes(entries: usize, key: usize) -> usize {
    let head = size_of::<u64>().saturating_add(size_of::<u16>());
    // Rule tag, fingerprint, count, error, length.
    let entry = key.saturating_add(4 + 3 * 8 + 1);
    entries.saturating_mul(entry).saturating_add(head)
}

/// A key and its count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry<M = ()> {
    /// The tag of its rule.
    pub rule_tag: u32,
    /// The hash of the key in the table of buckets; collisions are unlikely.
    pub fingerprint: u64,
    /// The key, at most [`MAX_KEY`] bytes of it.
    pub key: String,
    /// The maximum count.
    pub count: u64,
    /// The maximum error of the count.
    pub error: u64,
    /// Other data counted for the key. It covers only `count - error`, so it may be too low.
    pub mark: M,
}

/// The most counted keys.
#[derive(Clone, Debug)]
pub struct Summary<M = ()> {
    places: usize,
    floor: u64,
    /// Entries after the first `used` are only kept for their memory.
    entries: Vec<Entry<M>>,
    used: usize,
    /// A hash table of indices in `entries`, with linear probing.
    index: Vec<u16>,
}

impl<M: Default> Summary<M> {
    /// An empty summary with places for this many keys and a mark for each.
    pub fn marked(places: usize) -> Self {
        // The index would lose an entry without a number for it.
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

    /// The maximum count of a key without a counter.
    pub const fn floor(&self) -> u64 {
        self.floor
    }

    /// The keys with a counter, in no particular order.
    pub fn entries(&self) -> &[Entry<M>] {
        self.entries.get(..self.used).unwrap_or_default()
    }

    /// Whether the summary is empty.
    pub const fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Forgets everything, but keeps its memory.
    pub fn clear(&mut self) {
        self.floor = 0;
        self.used = 0;
        self.index.fill(NONE);
    }

    /// Counts a key `times` times, and updates its mark.
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

    /// The most counted entries that are `wanted`, in descending order; equal ones by rule and key.
    pub fn most(&self, wanted: impl Fn(&Entry<M>) -> bool) -> Vec<&Entry<M>> {
        let all = self.entries().iter().enumerate();
        let found = all.filter(|(_, entry)| wanted(entry)).map(|(place, e)| {
            let rank = (Reverse(e.count), e.rule_tag, e.key.as_str());
            (rank, place)
        });
        // With a heap: the library's sorts are several KiB each, and the filter's module has to be small.
        let ranked = found.collect::<BinaryHeap<_>>().into_sorted_vec();
        let entries = ranked.into_iter();
        entries
            .filter_map(|(_, place)| self.entries.get(place))
            .collect()
    }

    /// Keeps only as many counters as there are places: the largest.
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

    /// The largest count without a place: the smallest one that is exceeded by at most as many counts as there
    /// are places. Found by bisection, in bounded time and few bytes of code.
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

    /// The entry of a key, or the slot of the index for its insertion.
    fn find(&mut self, rule_tag: u32, fingerprint: u64) -> Result<&mut Entry<M>, usize> {
        let place = self.probe(rule_tag, fingerprint)?;
        self.entries.get_mut(place).ok_or(usize::MAX)
    }

    fn probe(&self, rule_tag: u32, fingerprint: u64) -> Result<usize, usize> {
        let mask = self.index.len().saturating_sub(1);
        // The lower half is enough for a table of this size.
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

    /// Gives a key a counter; `slot` is its free slot of the index.
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
        // At most this long, so that the longest keys bound the size of an entry.
        entry.key.reserve_exact(end);
        entry.key.push_str(key.get(..end).unwrap_or_default());
        (entry.count, entry.error) = (count, error);
        entry.mark = mark;
        self.used = place.saturating_add(1);
        self.point(slot, place);
    }
}

impl Summary {
    /// An empty summary with places for this many keys.
    pub fn new(places: usize) -> Self {
        Self::marked(places)
    }

    /// Counts a key `times` times.
    pub fn add(&mut self, rule_tag: u32, fingerprint: u64, key: &str, times: u64) {
        self.add_marked(rule_tag, fingerprint, key, times, |()| {});
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Self) {
        let (own, others) = (self.floor, other.floor);
        // A key without a counter in `other` was counted there up to its floor; other keys are corrected below.
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

    /// Reads the output of [`Summary::encode`] with at most this many places; `None` for anything else.
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
