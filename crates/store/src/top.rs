//! Heavy hitters: the keys that were refused most, and admitted most, in recent time and bounded memory.
//!
//! [`summary`] has the counters. A worker counts in its [`Tally`], whose counts are added to those of all workers, which
//! [`recent()`] reads.

use alloc::vec::Vec;

use loudou_limiter::Nanos;
use serde::{Deserialize, Serialize};

use crate::shared_data::{SharedData, StoreFailed};
use crate::swap::{Swapped, swap};

pub use summary::{Entry, Summary};

pub mod summary;

/// The number of keys with a counter, in each half of the covered time, for each [`By`].
pub const COUNTERS: usize = 256;
/// The maximum time for which counts stay in a worker.
pub const FLUSH_AFTER: Nanos = Nanos::from_millis(250);
/// The length of a half. Counts cover the current half and the whole previous one.
pub const HALF: Nanos = Nanos::from_secs(60);

/// The kinds of counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// Refused requests, including those that a rule in shadow mode would have refused.
    #[default]
    Refused,
    /// Admitted requests, at once or after a wait.
    Admitted,
}

impl By {
    /// All kinds.
    pub const ALL: [Self; 2] = [Self::Refused, Self::Admitted];
    /// The names in requests and responses.
    pub const NAMES: [&'static str; 2] = ["refused", "admitted"];

    /// The name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Admitted => "admitted",
        }
    }

    /// The kind of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|by| by.name() == name)
    }
}

/// Recent counts.
#[derive(Clone, Debug)]
pub struct Recent {
    /// The start of the covered time, within [`crate::top::FLUSH_AFTER`].
    pub since: Nanos,
    /// The counts.
    pub counts: Summary,
}

/// The recent counts of `namespace`.
pub fn recent(
    store: &mut dyn SharedData,
    namespace: &str,
    by: By,
    now: Nanos,
) -> Result<Recent, StoreFailed> {
    let mut bytes = Vec::new();
    store.get(&key(namespace), &mut bytes)?;
    let shared = Shared::read(&bytes).unwrap_or_default();
    // Another worker may have begun a half that this worker's clock has not reached yet.
    let shared = shared.at(half(now));
    let before = shared.half.saturating_sub(1);
    // Room for all keys of both halves, so none is dropped.
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

// The counts of one worker, until it adds them to those of all workers.
//
// Counting only touches the worker's own memory. Its counts are flushed into the shared value when they
// are [`FLUSH_AFTER`] old, so they are never older than that, and are added to the half in which
// the oldest of them was counted.

/// The counts of a worker.
#[derive(Clone, Debug)]
pub struct Tally {
    /// The key of the shared value.
    key: Vec<u8>,
    /// By [`By`].
    refused: Summary,
    admitted: Summary,
    /// The half that the counts belong to.
    half: u64,
    /// The time of the next flush, if there are counts.
    due: Option<Nanos>,
}

impl Tally {
    /// An empty tally for `namespace`.
    pub fn new(namespace: &str) -> Self {
        Self {
            key: key(namespace),
            refused: Summary::new(COUNTERS),
            admitted: Summary::new(COUNTERS),
            half: 0,
            due: None,
        }
    }

    /// Counts a request of a key, whose hash in the table of buckets is `fingerprint`.
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

    /// When it has to be flushed, if there is anything to flush.
    pub const fn due(&self) -> Option<Nanos> {
        self.due
    }

    /// Adds the counts to the shared value if that is due. Counts that cannot be written are kept, and
    /// retried as if they had been counted now.
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

    /// The shared value with this worker's counts added.
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

/// A part with `own` added.
fn merged(part: &[u8], own: &Summary) -> Vec<u8> {
    let found = Summary::decode(part, COUNTERS);
    let mut all = found.unwrap_or_else(|| Summary::new(COUNTERS));
    all.merge(own);
    let mut out = Vec::new();
    all.encode(&mut out);
    out
}

// The joint counts of all workers, in one value of the store.
//
// ```text
// "LT" | version u8 | half u64 | part, four times      part  length u32 | summary
// ```
// `half` is the number of the current half; its parts come first, refused and admitted, then those of the
// previous one. A value of another version is ignored: counts are for people, not for decisions.

const MAGIC: [u8; 3] = *b"LT\x01";
/// Both halves of both [`By`].
const PARTS: usize = 4;

/// The size of a value with all counters in use, and keys of this many bytes.
pub const fn shared_bytes(key: usize) -> usize {
    let part = summary::bytes(COUNTERS, key).saturating_add(size_of::<u32>());
    let head = MAGIC.len().saturating_add(size_of::<u64>());
    part.saturating_mul(PARTS).saturating_add(head)
}

/// A value that was read: its summaries are still bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Shared<'a> {
    /// The current half at the time of writing.
    half: u64,
    parts: [&'a [u8]; PARTS],
}

/// The number of the half that `now` is in.
const fn half(now: Nanos) -> u64 {
    match now.get().checked_div(HALF.get()) {
        Some(half) => half,
        None => 0,
    }
}

/// The key of the counts of `namespace`.
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

    /// The same value with `half` as the current half: counts before the previous half are forgotten.
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

    /// The counts of a half; nothing unless it is the current or the previous one.
    fn part(&self, half: u64, by: By) -> &'a [u8] {
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
