//! Upstream health, shared by all workers. The store contains one value for each pair of an
//! [`UpstreamCondition`] and a cluster.
//!
//! Values in shared data cannot be deleted, so these values share a fixed number of store keys,
//! called *places*. There are [`PLACES`] places, four times as many as the [`PROMISED`] values.
//! Each value has 20 candidate places, each chosen by a separate hash. The search for a value ends
//! at the first candidate place that has never been written. A new value may replace a value whose
//! window is empty. If all candidate places of a cluster are taken by other values, the cluster's
//! responses are not counted.
//!
//! If n places are in use, the probability that a new cluster finds no free place is (n / 4096)^20.
//! For the last of 1 024 clusters, this probability is 9·10⁻¹³. The probability that any of the 1
//! 024 clusters finds no free place is at most Σ (n / 4096)^20 over n < 1024, which is less than
//! 4096 · (1/4)^21 / 21 = 5·10⁻¹¹. Most values are in their first candidate place, so a search
//! takes 1.15 reads on average.

use alloc::vec::Vec;

use loudou_limiter::hash::{mix, tag};
use loudou_limiter::{Decimal, Nanos};
use serde::Serialize;

use crate::attempt::StoreStats;
use crate::health::{HEALTH_BYTES, Health};
use crate::shared_data::{CAS_ABSENT, Cas, MAX_RETRIES, SharedData, StoreFailed, Written};
use crate::table::{StoreKey, Table};

/// Number of values that are practically certain to find a free place.
pub const PROMISED: usize = 1_024;
/// Number of places for values.
pub const PLACES: usize = 4 * PROMISED;
/// Index of the last place. This is also the bit mask for place numbers.
const LAST: u32 = 4_095;
/// Number of candidate places per value.
const TRIES: u64 = 20;
/// Prefix of the store keys of places. An older layout, with 1 024 places and a different search,
/// uses the prefix `u`.
const KIND: u8 = b'U';
/// Maximum size of a stored cluster name, in bytes. Longer names are truncated, because they are
/// only displayed.
const MAX_NAME: usize = 128;
/// Size of a value without its health and name, in bytes.
const HEAD: usize = size_of::<u32>() + size_of::<u64>();

/// Size of the value for a cluster whose name is this many bytes long.
pub const fn bytes(name: usize) -> usize {
    let name = if name < MAX_NAME { name } else { MAX_NAME };
    name.saturating_add(HEALTH_BYTES).saturating_add(HEAD)
}

/// A stored value: the health of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// Tag of the [`UpstreamCondition`] that responses are counted for.
    pub when: u32,
    /// Name of the cluster, truncated if it is long. The name is not necessarily valid UTF-8.
    pub cluster: Vec<u8>,
    /// Health of the upstream.
    pub health: Health,
    fingerprint: u64,
}

/// A place in shared data that either contains the requested value or is free to store it.
struct Found {
    key: StoreKey,
    expected: Cas,
    health: Option<Health>,
}

/// Identity of a value: the [`UpstreamCondition`] and the cluster whose health it contains.
#[derive(Clone, Copy)]
struct Subject<'a> {
    tag: u32,
    cluster: &'a [u8],
    fingerprint: u64,
    /// Seed for the hashes that select the value's candidate places; see [`Subject::place`].
    draw: u64,
}

impl<'a> Subject<'a> {
    fn new(table: &Table, when: &UpstreamCondition, cluster: &'a [u8]) -> Self {
        let tag = when.tag();
        let mut hasher = table.seed().hasher();
        hasher.write(&tag.to_le_bytes());
        hasher.write(cluster);
        let (fingerprint, draw) = hasher.finish();
        Self {
            tag,
            cluster,
            fingerprint,
            draw,
        }
    }

    /// Returns the number of the candidate place that is read in this step of a search for the
    /// value.
    fn place(&self, step: u64) -> u32 {
        let place = mix(self.draw.wrapping_add(step)) & u64::from(LAST);
        u32::try_from(place).unwrap_or(0)
    }

    fn is(&self, upstream: &Upstream) -> bool {
        upstream.fingerprint == self.fingerprint && upstream.when == self.tag
    }
}

impl Table {
    /// Returns true if an upstream is failing according to `when`. An unknown upstream is not
    /// failing.
    pub fn fails(
        &self,
        store: &mut dyn SharedData,
        when: &UpstreamCondition,
        cluster: &[u8],
        now: Nanos,
    ) -> Result<bool, StoreFailed> {
        let subject = Subject::new(self, when, cluster);
        let found = self.find_upstream(store, &subject, now)?;
        let Some(mut health) = found.and_then(|found| found.health) else {
            return Ok(false);
        };
        health.advance(when, now);
        Ok(health.fails())
    }

    /// Counts a response from an upstream. Returns the upstream's new health if the response
    /// changes whether it is failing.
    pub fn respond(
        &self,
        store: &mut dyn SharedData,
        when: &UpstreamCondition,
        cluster: &[u8],
        is_error: bool,
        now: Nanos,
        stats: &mut StoreStats,
    ) -> Option<Health> {
        let subject = Subject::new(self, when, cluster);
        let mut bytes = Vec::new();
        for _ in 0..=MAX_RETRIES {
            let Ok(Some(found)) = self.find_upstream(store, &subject, now) else {
                break;
            };
            let mut health = found.health.unwrap_or_else(|| Health::new(when, now));
            let before = (health.fails(), health.since());
            health.respond(when, is_error, now);
            encode(&subject, &health, &mut bytes);
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

    /// Returns all upstreams with a stored value, ordered by cluster name.
    pub fn upstreams(&self, store: &mut dyn SharedData) -> Result<Vec<Upstream>, StoreFailed> {
        let mut seen: Vec<Upstream> = Vec::new();
        let mut bytes = Vec::new();
        for place in 0..=LAST {
            if store.get(&self.key(KIND, place), &mut bytes)?.is_some() {
                let Some(upstream) = decode(&bytes) else {
                    continue;
                };
                // Inserts each upstream at its sorted position. There are few upstreams, and a sort
                // function from the standard library would make up a large part of the module.
                let at = seen.partition_point(|other| other.cluster < upstream.cluster);
                seen.insert(at, upstream);
            }
        }
        Ok(seen)
    }

    /// Returns the place that contains the value of `subject` or, if there is none, a free
    /// candidate place. Returns `None` if all candidate places are taken by other values.
    fn find_upstream(
        &self,
        store: &mut dyn SharedData,
        subject: &Subject<'_>,
        now: Nanos,
    ) -> Result<Option<Found>, StoreFailed> {
        let mut free = None;
        let mut bytes = Vec::new();
        for step in 0..TRIES {
            let key = self.key(KIND, subject.place(step));
            let Some(expected) = store.get(&key, &mut bytes)? else {
                return Ok(free.or(Some(Found {
                    key,
                    expected: CAS_ABSENT,
                    health: None,
                })));
            };
            // A value that cannot be decoded was written by another version, which may still be
            // using it.
            let Some(there) = decode(&bytes) else {
                continue;
            };
            let is_it = subject.is(&there);
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

fn encode(subject: &Subject<'_>, health: &Health, out: &mut Vec<u8>) {
    out.clear();
    health.encode(out);
    out.extend_from_slice(&subject.tag.to_le_bytes());
    out.extend_from_slice(&subject.fingerprint.to_le_bytes());
    out.extend(subject.cluster.iter().take(MAX_NAME));
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

/// Condition of a rule that applies only while an upstream's error rate is too high. For each
/// condition, an upstream is either failing or not failing. There are two thresholds, because with
/// a single threshold, the state would flap while the error rate is close to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct UpstreamCondition {
    /// Error rate above which the rule starts to apply.
    #[serde(rename = "upstream_error_rate_over")]
    pub over: Decimal,
    /// Error rate below which the rule stops applying. At most `over`.
    pub until_under: Decimal,
    /// Length of the time window over which responses are counted.
    pub within: Nanos,
    /// Minimum number of responses in the window before the rule can start to apply.
    pub least: u32,
}

impl UpstreamCondition {
    /// Number that distinguishes this condition's counts from other conditions' counts. Rules with
    /// identical conditions share their counts.
    pub fn tag(&self) -> u32 {
        let numbers = [
            self.over.thousandths().into(),
            self.until_under.thousandths().into(),
            self.least.into(),
            self.within.get(),
        ];
        tag(numbers.map(u64::to_le_bytes).as_flattened())
    }
}
