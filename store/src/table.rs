//! The table of all buckets: which page a bucket is in, and how it is changed.
//!
//! One read and one compare-and-swap per decision. A conflict is tried again with a fresh read, a
//! bounded number of times; then the rule's `on_error` decides. The number of pages is fixed by the
//! first worker of the process that opens the table, because a bucket has to be in one place for
//! all.

use alloc::vec::Vec;

use loudou_limiter::Nanos;
use loudou_limiter::hash::HashSeed;

use crate::gave_up::GaveUp;
use crate::names::Names;
use crate::page::{self, Page, PageBytes, SLOTS, Slot};
use crate::shared_data::{CAS_ABSENT, SharedData, Written};
use crate::swap::{retry, swap};

const HEAD_VERSION: u8 = 1;

/// Where all buckets of one share are.
#[derive(Clone, Debug)]
pub struct Table {
    share: Vec<u8>,
    seed: HashSeed,
    pages: u32,
    started: Nanos,
}

/// One bucket's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketId {
    /// The tag of its rule.
    pub rule_tag: u32,
    /// Its name within the page.
    pub fingerprint: u64,
    /// Its page.
    pub page: u32,
}

impl Table {
    /// Opens the table of `share`, or creates it with room for `buckets` and the seed `random`. An
    /// existing table keeps its size and seed.
    pub fn open(
        store: &mut dyn SharedData,
        share: &str,
        buckets: u32,
        random: [u8; 16],
        now: Nanos,
    ) -> Result<Self, GaveUp> {
        let pages = buckets.div_ceil(u32::try_from(SLOTS).unwrap_or(1)).max(1);
        let mut head = Vec::from([HEAD_VERSION]);
        head.extend_from_slice(&pages.to_le_bytes());
        head.extend_from_slice(&now.get().to_le_bytes());
        head.extend_from_slice(&random);
        let key = [share.as_bytes(), b":head"].concat();
        store.set(&key, &head, CAS_ABSENT)?;
        Self::find(store, share)?.ok_or(GaveUp::Failed)
    }

    /// The table of `share`, if there is one.
    pub fn find(store: &mut dyn SharedData, share: &str) -> Result<Option<Self>, GaveUp> {
        let key = [share.as_bytes(), b":head"].concat();
        let mut head = Vec::new();
        if store.get(&key, &mut head)?.is_none() {
            return Ok(None);
        }
        Self::read_head(share, &head)
            .map(Some)
            .ok_or(GaveUp::UnknownPage)
    }

    fn read_head(share: &str, head: &[u8]) -> Option<Self> {
        let (version, rest) = head.split_first()?;
        let (pages, rest) = rest.split_first_chunk::<4>()?;
        let (started, rest) = rest.split_first_chunk::<8>()?;
        let seed = <[u8; 16]>::try_from(rest).ok()?;
        let pages = u32::from_le_bytes(*pages);
        (*version == HEAD_VERSION && pages > 0).then(|| Self {
            share: share.as_bytes().to_vec(),
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

    /// The hard bound on buckets.
    pub fn buckets(&self) -> u64 {
        u64::from(self.pages).saturating_mul(u64::try_from(SLOTS).unwrap_or(1))
    }

    /// When the table was created.
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

    pub(crate) fn page_key(&self, page: u32) -> Vec<u8> {
        self.key(page::KIND, page)
    }

    pub(crate) fn key(&self, kind: u8, page: u32) -> Vec<u8> {
        let mut key = Vec::with_capacity(self.share.len().saturating_add(6));
        key.extend_from_slice(&self.share);
        key.extend_from_slice(&[b':', kind]);
        key.extend_from_slice(&page.to_le_bytes());
        key
    }

    /// The bucket as it is, if there is one.
    pub fn look(&self, store: &mut dyn SharedData, id: BucketId) -> Result<Option<Slot>, GaveUp> {
        let mut page = PageBytes::new();
        page.read(store, &self.page_key(id.page))?;
        Ok(page.find(id.fingerprint).map(|(_, slot)| slot))
    }

    /// Forgets a bucket: the next request meets a new one. The bucket as it was.
    pub fn reset(&self, store: &mut dyn SharedData, id: BucketId) -> Result<Option<Slot>, GaveUp> {
        let key = self.page_key(id.page);
        let mut page = PageBytes::new();
        retry(&mut || {
            let cas = page.read(store, &key)?;
            let Some((index, slot)) = page.find(id.fingerprint) else {
                return Ok(Some(None));
            };
            page.remove(index);
            let written = store.set(&key, page.bytes(), cas)?;
            Ok((written == Written::Done).then_some(Some(slot)))
        })
    }

    /// All buckets of a page with their names; `None` when the page was never written.
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
        store.get(&self.key(b'n', index), &mut bytes)?;
        Ok(Some((page, Names::decode(&bytes))))
    }

    /// Writes the printable key of a new bucket. Failing only costs the name.
    pub(crate) fn add_name(
        &self,
        store: &mut dyn SharedData,
        id: BucketId,
        key: &str,
        page: &[u8],
    ) {
        let name_key = self.key(b'n', id.page);
        let _named = swap(store, &name_key, &mut |found| {
            let mut names = Names::decode(found.unwrap_or_default());
            if names.get(id.fingerprint) == Some(key) {
                return None;
            }
            // Only where something has to go does it matter what is still there.
            let lives = names.is_full().then(|| Page::decode(page).ok()).flatten();
            names.add(id.fingerprint, key, &lives.unwrap_or_default());
            let mut bytes = Vec::new();
            names.encode(&mut bytes);
            Some(bytes)
        });
    }
}
