//! How the upstreams do, as all workers see it: one value for each [`When`] and cluster.
//!
//! There is a fixed number of places, since nothing can be deleted. A value may be in any of a few
//! places behind the one that its hash says, and the search ends at the first that was never written.
//! It takes the place of one that no longer counts, and where there is none, it is not counted.

use alloc::vec::Vec;

use super::attempt::MAX_RETRIES;
use super::table::{StoreStats, Table};
use super::{CAS_ABSENT, Cas, SharedData, StoreFailed, Written};
use crate::health::Health;
use crate::rule::When;
use crate::time::Nanos;

/// How many places there are: a power of two.
const PLACES: u32 = 1024;
/// The last of them; its bits are those of a place.
const LAST: u32 = PLACES - 1;
/// In how many of them a value may be.
const TRIES: u32 = 8;
/// The longest name that is kept, in bytes: it is only for show.
const MAX_NAME: usize = 128;

/// A value: how an upstream does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// For which [`When`], by its tag.
    pub when: u32,
    /// The beginning of the cluster's name; any bytes.
    pub cluster: Vec<u8>,
    /// How it does.
    pub health: Health,
    fingerprint: u64,
}

/// A place in which a value is, or may be written.
struct Found {
    key: Vec<u8>,
    expected: Cas,
    health: Option<Health>,
}

/// Whom a value is about.
#[derive(Clone, Copy)]
struct Whom<'a> {
    tag: u32,
    cluster: &'a [u8],
    fingerprint: u64,
    place: u32,
}

impl<'a> Whom<'a> {
    fn new(table: &Table, when: &When, cluster: &'a [u8]) -> Self {
        let tag = when.tag();
        let mut hasher = table.seed().hasher();
        hasher.write(&tag.to_le_bytes());
        hasher.write(cluster);
        let (fingerprint, place) = hasher.finish();
        Self {
            tag,
            cluster,
            fingerprint,
            place: u32::try_from(place & u64::from(LAST)).unwrap_or(0),
        }
    }

    fn is(&self, upstream: &Upstream) -> bool {
        upstream.fingerprint == self.fingerprint && upstream.when == self.tag
    }
}

impl Table {
    /// Whether an upstream fails, by `when`. One that nothing is known of does not.
    pub fn fails(
        &self,
        store: &mut dyn SharedData,
        when: &When,
        cluster: &[u8],
        now: Nanos,
    ) -> Result<bool, StoreFailed> {
        let whom = Whom::new(self, when, cluster);
        let found = self.find_upstream(store, &whom, now)?;
        let Some(mut health) = found.and_then(|found| found.health) else {
            return Ok(false);
        };
        health.advance(when, now);
        Ok(health.fails())
    }

    /// Counts a response of an upstream. How it does now, if it began or ceased to fail.
    pub fn respond(
        &self,
        store: &mut dyn SharedData,
        when: &When,
        cluster: &[u8],
        is_error: bool,
        now: Nanos,
        stats: &mut StoreStats,
    ) -> Option<Health> {
        let whom = Whom::new(self, when, cluster);
        let mut bytes = Vec::new();
        for _ in 0..=MAX_RETRIES {
            let Ok(Some(found)) = self.find_upstream(store, &whom, now) else {
                break;
            };
            let mut health = found.health.unwrap_or_else(|| Health::new(when, now));
            let before = (health.fails(), health.since());
            health.respond(when, is_error, now);
            encode(&whom, &health, &mut bytes);
            match store.set(&found.key, &bytes, found.expected) {
                Ok(Written::Done) => {
                    let turned = (health.fails(), health.since()) != before;
                    return turned.then_some(health);
                }
                Ok(Written::Conflict) => stats.cas_retries = stats.cas_retries.saturating_add(1),
                Err(StoreFailed) => break,
            }
        }
        stats.lost_responses = stats.lost_responses.saturating_add(1);
        None
    }

    /// Every upstream that was seen, in the order of their names.
    pub fn upstreams(&self, store: &mut dyn SharedData) -> Result<Vec<Upstream>, StoreFailed> {
        let mut seen: Vec<Upstream> = Vec::new();
        let mut bytes = Vec::new();
        for place in 0..PLACES {
            if store.get(&self.key(b'u', place), &mut bytes)?.is_some() {
                let Some(upstream) = decode(&bytes) else {
                    continue;
                };
                // There are few, and a sort would be a large part of the module.
                let at = seen.partition_point(|other| other.cluster < upstream.cluster);
                seen.insert(at, upstream);
            }
        }
        Ok(seen)
    }

    /// The value about `whom`, or else where it may be written.
    fn find_upstream(
        &self,
        store: &mut dyn SharedData,
        whom: &Whom<'_>,
        now: Nanos,
    ) -> Result<Option<Found>, StoreFailed> {
        let mut free = None;
        let mut bytes = Vec::new();
        for step in 0..TRIES {
            let key = self.key(b'u', whom.place.wrapping_add(step) & LAST);
            let Some(expected) = store.get(&key, &mut bytes)? else {
                return Ok(free.or(Some(Found {
                    key,
                    expected: CAS_ABSENT,
                    health: None,
                })));
            };
            // What cannot be read is another version's, and stays.
            let Some(there) = decode(&bytes) else {
                continue;
            };
            let is_it = whom.is(&there);
            if is_it || (free.is_none() && there.health.is_stale(now)) {
                let health = Some(there.health).filter(|_| is_it);
                let found = Found {
                    key,
                    expected,
                    health,
                };
                if is_it {
                    return Ok(Some(found));
                }
                free = Some(found);
            }
        }
        Ok(free)
    }
}

fn encode(whom: &Whom<'_>, health: &Health, out: &mut Vec<u8>) {
    out.clear();
    health.encode(out);
    out.extend_from_slice(&whom.tag.to_le_bytes());
    out.extend_from_slice(&whom.fingerprint.to_le_bytes());
    out.extend(whom.cluster.iter().take(MAX_NAME));
}

fn decode(bytes: &[u8]) -> Option<Upstream> {
    let (health, rest) = Health::decode(bytes)?;
    let (when, rest) = rest.split_first_chunk()?;
    let (fingerprint, cluster) = rest.split_first_chunk()?;
    Some(Upstream {
        when: u32::from_le_bytes(*when),
        cluster: cluster.to_vec(),
        health,
        fingerprint: u64::from_le_bytes(*fingerprint),
    })
}
