//! The table of all buckets, which locates each bucket's page and changes buckets.
//!
//! Each decision requires one read and one compare-and-swap. After a conflict, the decision is
//! retried with a fresh read. If the maximum number of retries is reached, the rule's `on_error`
//! decides. All workers must look for a given bucket in the same page. The first worker in the
//! process to open the table therefore sets the number of pages for all workers.

use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::fmt;

use loudou_limiter::ban::Ban;
use loudou_limiter::hash::HashSeed;
use loudou_limiter::{Bucket, Clock, Limits, Nanos, Penalty, Taken};
use smallvec::SmallVec;

use crate::attempt::{GaveUp, StoreStats};
use crate::change::PageChange;
use crate::names::Names;
use crate::page::{Page, PageBytes, SLOTS, Slot};
use crate::shared_data::{CAS_ABSENT, CAS_OVERWRITE, SharedData, Written};
use crate::{names, page};

/// Maximum number of retries when writing a name. The limit is lower than
/// [`MAX_RETRIES`](crate::MAX_RETRIES), because a lost name does not affect any decision.
const MAX_NAME_RETRIES: u32 = 8;
const HEAD_VERSION: u8 = 1;
/// Maximum number of buckets in a table. A table head with a larger number is considered corrupt.
/// The number is limited because every search reads all pages.
pub const MAX_BUCKETS: u32 = 1 << 24;

/// Key of a value in the store. In most namespaces, keys are short enough to be stored inline,
/// without a heap allocation.
pub(crate) type StoreKey = SmallVec<[u8; 32]>;

/// Size of the kind and page number at the end of a key.
const KEY_END: usize = 5;

/// Table of all buckets in one namespace.
#[derive(Clone, Debug)]
pub struct Table {
    /// Store key with zeros in place of the kind and the page number.
    any_key: Vec<u8>,
    seed: HashSeed,
    pages: u32,
    started: Nanos,
}

/// A bucket's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BucketId {
    /// The bucket's rule tag.
    pub rule_tag: u32,
    /// Identifier of the bucket within its page.
    pub fingerprint: u64,
    /// Number of the bucket's page.
    pub page: u32,
}

/// A function that computes the replacement for a bucket's slot. Its arguments are the old slot and
/// the origin of the new slot. It returns `None` to remove the bucket.
type Replacement<'a> = dyn Fn(&Slot, u32) -> Result<Option<Slot>, GaveUp> + 'a;

/// Result of a bucket reset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reset {
    /// The bucket before the reset.
    pub before: Slot,
    /// True if the old bucket was replaced by a new bucket, because requests are waiting in it.
    /// Otherwise, the bucket was removed.
    pub stays: bool,
}

impl Table {
    /// Opens the table of `namespace`, or creates it with room for `buckets` and the seed `random`.
    /// An existing table keeps its size and seed. `buckets` is limited to [`MAX_BUCKETS`].
    pub fn open(
        store: &mut dyn SharedData,
        namespace: &str,
        buckets: u32,
        random: [u8; 16],
        now: Nanos,
    ) -> Result<Self, GaveUp> {
        let pages = pages_of(buckets.min(MAX_BUCKETS)).max(1);
        let mut head = Vec::from([HEAD_VERSION]);
        head.extend_from_slice(&pages.to_le_bytes());
        head.extend_from_slice(&now.get().to_le_bytes());
        head.extend_from_slice(&random);
        let key = [namespace.as_bytes(), b":head"].concat();
        store.set(&key, &head, CAS_ABSENT)?;
        Self::find(store, namespace)?.ok_or(GaveUp::Failed)
    }

    /// Returns the table of `namespace`, if it exists.
    pub fn find(store: &mut dyn SharedData, namespace: &str) -> Result<Option<Self>, GaveUp> {
        let key = [namespace.as_bytes(), b":head"].concat();
        let mut head = Vec::new();
        if store.get(&key, &mut head)?.is_none() {
            return Ok(None);
        }
        Self::read_head(namespace, &head)
            .map(Some)
            .ok_or(GaveUp::UnknownPage)
    }

    fn read_head(namespace: &str, head: &[u8]) -> Option<Self> {
        let (version, rest) = head.split_first()?;
        let (pages, rest) = rest.split_first_chunk::<4>()?;
        let (started, rest) = rest.split_first_chunk::<8>()?;
        let seed = <[u8; 16]>::try_from(rest).ok()?;
        let pages = u32::from_le_bytes(*pages);
        let most = pages_of(MAX_BUCKETS);
        let is_sound = *version == HEAD_VERSION && (1..=most).contains(&pages);
        is_sound.then(|| Self {
            any_key: [namespace.as_bytes(), b":", &[0; KEY_END]].concat(),
            seed: HashSeed::new(seed),
            pages,
            started: Nanos::new(u64::from_le_bytes(*started)),
        })
    }

    /// This process's hash seed.
    pub const fn seed(&self) -> &HashSeed {
        &self.seed
    }

    /// Number of pages.
    pub const fn pages(&self) -> u32 {
        self.pages
    }

    /// Maximum number of buckets.
    pub fn buckets(&self) -> u64 {
        u64::from(self.pages).saturating_mul(u64::try_from(SLOTS).unwrap_or(1))
    }

    /// Time at which the table was created.
    pub const fn started(&self) -> Nanos {
        self.started
    }

    /// Returns the address of a bucket.
    pub fn id(&self, rule_tag: u32, key: &str) -> BucketId {
        let mut hasher = self.seed.hasher();
        hasher.write(&rule_tag.to_le_bytes());
        hasher.write(key.as_bytes());
        let (fingerprint, place) = hasher.finish();
        // Lemire's range reduction works for any number of pages and requires no division.
        let page = u128::from(place).saturating_mul(u128::from(self.pages)) >> 64;
        BucketId {
            rule_tag,
            fingerprint,
            page: u32::try_from(page).unwrap_or(0),
        }
    }

    pub(crate) fn page_key(&self, page: u32) -> StoreKey {
        self.key(page::KIND, page)
    }

    pub(crate) fn key(&self, kind: u8, page: u32) -> StoreKey {
        let mut key = StoreKey::from_slice(&self.any_key);
        if let Some(end) = key.last_chunk_mut::<KEY_END>() {
            let [first, rest @ ..] = end;
            (*first, *rest) = (kind, page.to_le_bytes());
        }
        key
    }

    /// Returns the current state of a bucket, if the bucket exists.
    pub fn get(&self, store: &mut dyn SharedData, id: BucketId) -> Result<Option<Slot>, GaveUp> {
        let mut page = PageBytes::default();
        page.read(store, &self.page_key(id.page))?;
        Ok(page.find(id.fingerprint).map(|(_, slot)| slot))
    }

    /// Returns the ban of a bucket at `now`, if there is one.
    pub fn ban_of(
        &self,
        store: &mut dyn SharedData,
        id: BucketId,
        now: Nanos,
    ) -> Result<Option<Ban>, GaveUp> {
        let slot = self.get(store, id)?;
        Ok(slot.and_then(|slot| slot.ban_history.ban(now.max(slot.bucket.last))))
    }

    /// Removes a bucket, so that the next request creates a new bucket. Returns the bucket's state
    /// before the reset.
    pub fn reset(&self, store: &mut dyn SharedData, id: BucketId) -> Result<Option<Slot>, GaveUp> {
        let reset = self.replace(store, id, &|_, _| Ok(None))?;
        Ok(reset.map(|reset| reset.before))
    }

    /// Like [`Table::reset`], but for a rule whose requests may be waiting in the bucket of `key`.
    /// Waiting requests keep their places in the queue, and new requests line up behind them.
    pub fn reset_behind(
        &self,
        store: &mut dyn SharedData,
        (rule, key): (&dyn LiveRule, &str),
        clock: Clock,
    ) -> Result<Option<Reset>, GaveUp> {
        let id = self.id(rule.tag(), key);
        self.replace(store, id, &|slot, origin| {
            if rule.age(slot.version) == Age::Newer {
                return Err(GaveUp::Outdated);
            }
            Ok(slot.reset_behind_queue(rule, key, (id, origin), clock))
        })
    }

    /// Replaces or removes a bucket.
    fn replace(
        &self,
        store: &mut dyn SharedData,
        id: BucketId,
        replacement: &Replacement<'_>,
    ) -> Result<Option<Reset>, GaveUp> {
        // The key can be empty here, because it is used only to store the name of a new bucket.
        let mut change = PageChange::new(self, id, "");
        loop {
            change.read(store)?;
            let page = &mut change.page;
            let origin = page.origins().wrapping_add(1);
            let Some((index, before)) = page.find(id.fingerprint) else {
                return Ok(None);
            };
            let replacement = replacement(&before, origin)?;
            match &replacement {
                None => page.remove(index),
                Some(slot) => {
                    page.set_origins(origin);
                    page.replace(index, slot);
                }
            }
            if change.write(store, &mut StoreStats::default())? == Written::Done {
                let stays = replacement.is_some();
                return Ok(Some(Reset { before, stays }));
            }
        }
    }

    /// Returns all buckets in a page and their names, or `None` if the page has never been written.
    pub fn page(
        &self,
        store: &mut dyn SharedData,
        index: u32,
    ) -> Result<Option<(Page, Names)>, GaveUp> {
        let mut bytes = Vec::new();
        if store.get(&self.page_key(index), &mut bytes)?.is_none() {
            return Ok(None);
        }
        let page = Page::decode(&bytes).map_err(|_unknown| GaveUp::UnknownPage)?;
        store.get(&self.key(names::KIND, index), &mut bytes)?;
        Ok(Some((page, Names::decode(&bytes))))
    }

    /// Writes the printable key of a new bucket. If the write fails, only the name is lost.
    pub(crate) fn add_name(
        &self,
        store: &mut dyn SharedData,
        id: BucketId,
        key: &str,
        page: &[u8],
    ) {
        let name_key = self.key(names::KIND, id.page);
        let mut bytes = Vec::new();
        for _ in 0..=MAX_NAME_RETRIES {
            let Ok(cas) = store.get(&name_key, &mut bytes) else {
                return;
            };
            let mut names = Names::decode(&bytes);
            if names.get(id.fingerprint) == Some(key) {
                return;
            }
            // The page is decoded only if a name must be replaced.
            let lives = names.is_full().then(|| Page::decode(page).ok()).flatten();
            names.add(id.fingerprint, key, &lives.unwrap_or_default());
            names.encode(&mut bytes);
            let expected = cas.unwrap_or(CAS_ABSENT);
            debug_assert!(expected != CAS_OVERWRITE, "a version is never 0");
            if store.set(&name_key, &bytes, expected) != Ok(Written::Conflict) {
                return;
            }
        }
    }
}

fn pages_of(buckets: u32) -> u32 {
    buckets.div_ceil(u32::try_from(SLOTS).unwrap_or(1))
}

// The store's view of a rule, with its keys' limits in each version.

/// An active rule, as seen by the store.
pub trait LiveRule {
    /// Number that distinguishes the rule's buckets from buckets of other rules.
    fn tag(&self) -> u32;

    /// Current version of the rule, which is stored in each bucket that is written.
    fn version(&self) -> u32;

    /// Compares a bucket's version with the current version of the rule.
    fn age(&self, version: u32) -> Age;

    /// Returns the limits of a key's bucket.
    fn limits_of(&self, key: &str) -> &Limits;

    /// Returns the current limits of the bucket for `key`. These limits differ from
    /// [`LiveRule::limits_of`] if requests carry numbers for their limits, because the bucket then
    /// stores the numbers of its last request. `bucket` is the bucket with its version, or `None`
    /// for a new bucket.
    fn limits_in(&self, key: &str, _bucket: Option<(&Bucket, u32)>) -> Cow<'_, Limits> {
        Cow::Borrowed(self.limits_of(key))
    }

    /// Converts the bucket for `key` from its own version to the current version. `of` contains the
    /// key and its limits in the current version. Returns `None` if nothing changes.
    fn bring_forward(
        &self,
        of: (&str, &Limits),
        bucket: (&Bucket, u32),
        clock: Clock,
    ) -> Option<Bucket>;

    /// Converts the amount that a waiting request took from the bucket for `key`, just as
    /// [`LiveRule::bring_forward`] converts the bucket. Returns `None` if nothing changes or if the
    /// version is no longer known.
    fn bring_taken_forward(
        &self,
        of: (&str, &Limits),
        taken: (&Taken, u32),
        clock: Clock,
    ) -> Option<Taken>;

    /// Penalty for keys that are refused too often.
    fn penalty(&self) -> Option<&Penalty>;

    /// Returns true if a request's final cost is charged when the request ends. In that case, a request with a cost of
    /// 0 is admitted only if a unit is available, even though the request takes none. The key must therefore pay off
    /// its debt first.
    fn charges_at_end(&self) -> bool {
        false
    }

    /// Returns the bucket in `slot`, converted to the current version.
    fn bucket_of(&self, key: &str, slot: &Slot, clock: Clock) -> Bucket {
        let bucket = (&slot.bucket, slot.version);
        let limits = self.limits_in(key, Some(bucket));
        self.bring_forward((key, &limits), bucket, clock)
            .unwrap_or_else(|| slot.bucket.clone())
    }
}

// `Debug` is not a supertrait, because that would link the `Debug` implementations of all parts of
// a rule into the filter.
impl fmt::Debug for dyn LiveRule + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule {:08x} version {}", self.tag(), self.version())
    }
}

/// Age of a bucket's version, relative to the current version of the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// The bucket has the current version.
    Current,
    /// The bucket has an older version, so it must be converted.
    Older,
    /// The bucket has a newer version, so this worker's rule is out of date.
    Newer,
}
