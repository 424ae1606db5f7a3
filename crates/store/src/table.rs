//! The table of all buckets: it finds the page of a bucket, and changes buckets.
//!
//! One read and one compare-and-swap per decision. A conflict is retried with a fresh read, a
//! bounded number of times; then the rule's `on_error` decides. The first worker of the process that
//! opens the table fixes the number of pages, because a bucket has to be in the same page for all
//! workers.

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

/// The maximum number of retries of a name. It is lower than [`MAX_RETRIES`](crate::MAX_RETRIES), because a lost name
/// costs no decision.
const MAX_NAME_RETRIES: u32 = 8;
const HEAD_VERSION: u8 = 1;
/// The most buckets of a table. A head that says more is damaged; every search goes through all pages.
pub const MAX_BUCKETS: u32 = 1 << 24;

/// A key of the store. Those of most namespaces need no memory of their own.
pub(crate) type StoreKey = SmallVec<[u8; 32]>;

/// The size of the kind and the page at the end of a key.
const KEY_END: usize = 5;

/// The table of all buckets of one namespace.
#[derive(Clone, Debug)]
pub struct Table {
    /// A key of the store with zeros in place of its kind and page.
    any_key: Vec<u8>,
    seed: HashSeed,
    pages: u32,
    started: Nanos,
}

/// One bucket's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BucketId {
    /// The tag of its rule.
    pub rule_tag: u32,
    /// The bucket's identifier within the page.
    pub fingerprint: u64,
    /// Its page.
    pub page: u32,
}

/// Gets a bucket and the origin of the one that takes its place, which it returns; `None` to remove the bucket.
type Anew<'a> = dyn Fn(&Slot, u32) -> Result<Option<Slot>, GaveUp> + 'a;

/// A bucket that was reset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reset {
    /// The bucket as it was.
    pub before: Slot,
    /// Whether a new one is in its place: requests wait in it.
    pub stays: bool,
}

impl Table {
    /// Opens the table of `namespace`, or creates it with room for `buckets` and the seed `random`. An
    /// existing table keeps its size and seed. More than [`MAX_BUCKETS`] are that many.
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

    /// The table of `namespace`, if it exists.
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

    /// The seed of this process.
    pub const fn seed(&self) -> &HashSeed {
        &self.seed
    }

    /// The number of pages.
    pub const fn pages(&self) -> u32 {
        self.pages
    }

    /// The maximum number of buckets.
    pub fn buckets(&self) -> u64 {
        u64::from(self.pages).saturating_mul(u64::try_from(SLOTS).unwrap_or(1))
    }

    /// The time of the table's creation.
    pub const fn started(&self) -> Nanos {
        self.started
    }

    /// The address of a bucket.
    pub fn id(&self, rule_tag: u32, key: &str) -> BucketId {
        let mut hasher = self.seed.hasher();
        hasher.write(&rule_tag.to_le_bytes());
        hasher.write(key.as_bytes());
        let (fingerprint, place) = hasher.finish();
        // Lemire's range reduction: any number of pages, without a division.
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

    /// The current bucket, if it exists.
    pub fn look(&self, store: &mut dyn SharedData, id: BucketId) -> Result<Option<Slot>, GaveUp> {
        let mut page = PageBytes::default();
        page.read(store, &self.page_key(id.page))?;
        Ok(page.find(id.fingerprint).map(|(_, slot)| slot))
    }

    /// The ban of a bucket at `now`, if there is one.
    pub fn ban_of(
        &self,
        store: &mut dyn SharedData,
        id: BucketId,
        now: Nanos,
    ) -> Result<Option<Ban>, GaveUp> {
        let slot = self.look(store, id)?;
        Ok(slot.and_then(|slot| slot.conduct.ban(now.max(slot.bucket.last))))
    }

    /// Resets a bucket: the next request gets a new one. Returns the bucket as it was.
    pub fn reset(&self, store: &mut dyn SharedData, id: BucketId) -> Result<Option<Slot>, GaveUp> {
        let reset = self.replace(store, id, &|_, _| Ok(None))?;
        Ok(reset.map(|reset| reset.before))
    }

    /// The same for a rule whose requests may wait in the bucket of `key`: those keep their places, and those that come
    /// later are behind them.
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
            Ok(slot.anew_behind(rule, key, (id, origin), clock))
        })
    }

    /// Replaces or removes a bucket.
    fn replace(
        &self,
        store: &mut dyn SharedData,
        id: BucketId,
        anew: &Anew<'_>,
    ) -> Result<Option<Reset>, GaveUp> {
        // The bucket is not new, so that its name stays.
        let mut change = PageChange::new(self, id, "");
        loop {
            change.read(store)?;
            let page = &mut change.page;
            let origin = page.origins().wrapping_add(1);
            let Some((index, before)) = page.find(id.fingerprint) else {
                return Ok(None);
            };
            let anew = anew(&before, origin)?;
            match &anew {
                None => page.remove(index),
                Some(slot) => {
                    page.set_origins(origin);
                    page.replace(index, slot);
                }
            }
            if change.write(store, &mut StoreStats::default())? == Written::Done {
                let stays = anew.is_some();
                return Ok(Some(Reset { before, stays }));
            }
        }
    }

    /// All buckets of a page with their names; `None` if the page was never written.
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

    /// Writes the printable key of a new bucket. A failure only loses the name.
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
            // The page's buckets only matter if a name has to be replaced.
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

// The store's view of a rule: the limits of its keys, through time.

/// A rule in force, as its buckets see it.
pub trait LiveRule {
    /// A number that distinguishes the rule's buckets from those of other rules.
    fn tag(&self) -> u32;

    /// The version in force; each written bucket gets it.
    fn version(&self) -> u32;

    /// How a bucket's version is related to the one in force.
    fn age(&self, version: u32) -> Age;

    /// The limits of a key's bucket.
    fn limits_of(&self, key: &str) -> &Limits;

    /// Converts the bucket of `key` from its version to the one in force, in which it has `limits`; `None` if
    /// nothing changes.
    fn bring_forward(
        &self,
        of: (&str, &Limits),
        bucket: (&Bucket, u32),
        clock: Clock,
    ) -> Option<Bucket>;

    /// Converts what a waiting request took from the bucket of `key` as [`LiveRule::bring_forward`] converts
    /// the bucket; `None` if nothing changes, or if the version is not known any more.
    fn bring_taken_forward(
        &self,
        of: (&str, &Limits),
        taken: (&Taken, u32),
        clock: Clock,
    ) -> Option<Taken>;

    /// The penalty for keys that are refused too often.
    fn penalty(&self) -> Option<&Penalty>;

    /// The bucket of a key in a slot, as it is under the version in force.
    fn bucket_of(&self, key: &str, slot: &Slot, clock: Clock) -> Bucket {
        let limits = self.limits_of(key);
        self.bring_forward((key, limits), (&slot.bucket, slot.version), clock)
            .unwrap_or_else(|| slot.bucket.clone())
    }
}

// Not a supertrait: it would link the text of every part of a rule into the filter.
impl fmt::Debug for dyn LiveRule + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule {:08x} version {}", self.tag(), self.version())
    }
}

/// How the version of a bucket is related to the one in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// The bucket has the version in force.
    Current,
    /// The bucket has to be converted.
    Older,
    /// The bucket has a newer version: this worker's rule is out of date.
    Newer,
}
