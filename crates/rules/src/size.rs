//! The memory that a rule file takes in Envoy: the part that all workers share, and the part of each.
//!
//! The shared part is computed from the implementation of Envoy's shared data, an `unordered_map` of libc++:
//! each value takes a node with key and version, a share of the bucket array, and a string that is
//! allocated anew, at its exact length, by each write. The allocator (tcmalloc) rounds every allocation up
//! to one of its size classes. `tests/tests/memory.rs` compares the sum with Envoy's own count of allocated
//! memory. The sum excludes freed blocks that the allocator keeps: after a flood of new keys, the
//! process was larger by a third of the shared part with keys of 24 bytes, and by as much again with 100.
//!
//! The part of a worker is the memory of its sandbox, which never shrinks: enough to read its configuration.
//! Edits need less, since only what they change is read again. The constants are fitted to the sandboxes'
//! memory in Envoy; the same test compares them. Earlier versions of limits, which are kept after edits for
//! live buckets, are not included.

use alloc::vec::Vec;

use loudou_limiter::Limits;
use loudou_store::names::MAX_KEY;
use loudou_store::page::{PAGE_HEAD, SLOTS, lease_bytes, slot_bytes};
use loudou_store::{names, top, upstreams};
use serde::Serialize;

use crate::config::scaled;
use crate::rule::{Mode, Override, Rule, RuleFile, Scope};

/// The assumed length of a key if nothing is known about the keys.
pub const USUAL_KEY: usize = 24;

/// The size classes of the allocator in Envoy 1.40, in bytes, as `/memory/tcmalloc` lists them.
const CLASSES: &[usize] = &[
    8, 16, 32, 64, 80, 96, 112, 128, 160, 176, 208, 256, 288, 352, 448, 512, 576, 704, 896, 1024,
    1152, 1408, 1792, 2048, 2688, 3456, 4096, 4736, 6144, 8192, 9472, 12288, 16384, 20480, 28672,
    32768, 40960, 49152, 65536, 73728, 81920, 98304, 114_688, 131_072, 155_648, 204_800, 262_144,
];
/// Larger allocations take whole pages of this size.
const PAGE_OF_ALLOCATOR: usize = 8192;
/// A node of the map: 72 bytes with hash, key, string and version. Loudou's keys are short enough to fit inline.
const NODE: usize = 80;
/// The bucket array of the map has one to two pointers per value.
const INDEX: usize = 16;
/// The longest string that needs no allocation.
const INLINE: usize = 22;
/// The maximum additional bytes of a slot whose key is banned or has strikes.
const CONDUCT: usize = 18;
/// The additional bytes of a slot with the beginning of a run of refusals, besides the units given back.
const REFUSED_SINCE: usize = 5;
/// The most bytes of an event that is kept.
pub const EVENT: usize = 1_024;
/// The number of operators' actions that are kept.
pub const EVENTS_OF_OPERATORS: usize = 1_024;
/// The number of the filter's own events that are kept.
pub const EVENTS_OF_FILTER: usize = 256;
/// The number of events in a value of shared data.
pub const EVENTS_OF_SEGMENT: usize = 64;
/// The number and the length of an event, before it.
const EVENT_HEAD: usize = 16;
/// The number of bans whose ends are kept, to report when they expire.
pub const BAN_ENDS: usize = 1_024;
/// The most bytes of such an end, with the names of key, rule and author.
const BAN_END: usize = 32 + MAX_KEY + 2 * 63;
/// The most bytes of the changes that a fleet shares: of 8 192 changes the names, values and makers, and the
/// longest answer that the last of them can be in; and 80 bytes beside each.
pub const FLEET_CHANGES: usize = (4 << 20) + (512 << 10) + 8_192 * 80;
/// The number of copies of a plugin's configuration that Envoy itself keeps.
const CONFIGURATIONS: usize = 4;
/// The counters of a rule, with their names, in Envoy's statistics.
const METRICS: usize = 3_000;

// Bytes of a sandbox, from the resident part of its linear memory after eight edits: with 256 rules of one
// and of eight limits, with and without a regular expression, and with 3 072 to 16 384 overrides of each kind.

/// A sandbox with no rules.
const SANDBOX: usize = 170 << 10;
/// The memory of a worker that counts for `loudou top`, with the longest keys, and of adding its counts up.
const TOP: usize = 640 << 10;
/// A rule without its limits and overrides.
const RULE: usize = 5_000;
/// A limit, of a rule or an override.
const LIMIT: usize = 930;
/// The factor by which the text of a match grows in memory.
const MATCH: usize = 16;
/// The number of copies of a regular expression's tables.
const REGEX: usize = 3;
/// Each override: `banned` and `unlimited` take no more.
const WORD: usize = 136;
/// Each byte of an override's key: the number of its copies.
const KEY: usize = 3;
/// The additional memory of an override with a scale,
const SCALE: usize = 420;
/// and, once for each different scale, for each limit of its rule.
const SCALED: usize = 270;
/// The additional memory of an override with limits, besides these.
const OWN: usize = 290;

/// Bytes of Envoy's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The memory that all workers share, with every bucket in use: all of the largest rule, with keys of
    /// [`USUAL_KEY`] bytes.
    pub full: u64,
    /// The bound: with the longest keys, each of them banned or with strikes.
    pub most: u64,
    /// The additional memory of each worker and of Envoy's main thread.
    pub worker: u64,
    /// The bound on the memory that held requests take in each worker; 0 if no rule may hold any.
    pub held: u64,
}

/// The maximum bytes of a bucket of these limits in its page.
pub fn bucket_bytes(limits: &Limits) -> usize {
    slot_bytes(limits.words())
}

/// The same with the lease that it has if a fleet shares it.
fn scoped_bytes(limits: &Limits, scope: Scope) -> usize {
    let lease = match scope {
        Scope::Envoy => 0,
        Scope::Fleet => lease_bytes(limits.iter().len()),
    };
    bucket_bytes(limits).saturating_add(lease)
}

/// The maximum bytes of a bucket of a rule with the rule's limits, and of its lease.
pub fn bucket_bytes_of(rule: &Rule) -> usize {
    scoped_bytes(&rule.limits, rule.scope)
}

/// The maximum bytes of a bucket of a rule, whatever its key, without bans and strikes.
fn rule_bytes(rule: &Rule) -> usize {
    let bytes = |limits: &Limits| scoped_bytes(limits, rule.scope);
    let own = rule.overrides.values().map(|own| match own {
        Override::Limits(limits) => bytes(limits),
        Override::Scale(scale) => scaled(&rule.limits, *scale).map_or(0, |limits| bytes(&limits)),
        Override::Unlimited | Override::Banned => 0,
    });
    own.max().unwrap_or(0).max(bytes(&rule.limits))
}

/// The same with the strikes of a penalty.
fn usual_bytes(rule: &Rule) -> usize {
    let strikes = if rule.penalty.is_some() { CONDUCT } else { 0 };
    rule_bytes(rule).saturating_add(strikes)
}

/// The size of an allocation of this many bytes.
fn allocated(bytes: usize) -> usize {
    let class = CLASSES.iter().find(|class| **class >= bytes);
    class.copied().unwrap_or_else(|| {
        let pages = bytes.div_ceil(PAGE_OF_ALLOCATOR);
        pages.saturating_mul(PAGE_OF_ALLOCATOR)
    })
}

/// The memory of a value of shared data with this many bytes.
fn value(bytes: usize) -> usize {
    let string = match bytes {
        0..=INLINE => 0,
        // With a zero at the end, in steps of 16.
        _ => allocated(bytes.saturating_add(1).next_multiple_of(16)),
    };
    string.saturating_add(NODE).saturating_add(INDEX)
}

/// The bytes of a value as JSON.
fn json_bytes(value: &impl Serialize) -> usize {
    serde_json::to_vec(value).map_or(0, |json| json.len())
}

fn wide(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// The memory of a file, by its largest bucket.
pub fn memory(file: &RuleFile) -> Memory {
    let banned = largest(file, rule_bytes).saturating_add(CONDUCT + REFUSED_SINCE);
    let full = store(file, largest(file, usual_bytes), USUAL_KEY);
    let most = store(file, banned, MAX_KEY).saturating_add(wide(audit()));
    let most = most.saturating_add(wide(changes(file)));
    Memory {
        full: full.saturating_add(counts(file, USUAL_KEY, upstreams::PROMISED)),
        most: most.saturating_add(counts(file, MAX_KEY, upstreams::PLACES)),
        worker: worker(file),
        held: held(file),
    }
}

/// The memory that all workers share while this many buckets are in use: the largest ones, with keys of [`USUAL_KEY`]
/// bytes, spread evenly over the pages.
pub fn in_use(file: &RuleFile, buckets: u64) -> u64 {
    let bucket = largest(file, usual_bytes);
    let written = pages(file).min(buckets);
    let each = buckets.checked_div(written).unwrap_or(0);
    let more = buckets.checked_rem(written).unwrap_or(0);
    let of_pages = |count: u64, slots: u64| {
        let slots = usize::try_from(slots).unwrap_or(SLOTS).min(SLOTS);
        count.saturating_mul(page_memory(bucket, slots, (slots, USUAL_KEY)))
    };
    of_pages(written.saturating_sub(more), each)
        .saturating_add(of_pages(more, each.saturating_add(1)))
        .saturating_add(of_rules(file))
        .saturating_add(counts(file, USUAL_KEY, upstreams::PROMISED))
}

/// The bytes of the largest bucket.
fn largest(file: &RuleFile, bytes: fn(&Rule) -> usize) -> usize {
    let buckets = file.rules.iter().map(bytes);
    buckets.max().unwrap_or_else(|| slot_bytes(0))
}

/// The most memory of the events and of the ends of bans, whatever the rules.
pub fn audit() -> usize {
    let segment = EVENTS_OF_SEGMENT.saturating_mul(EVENT.saturating_add(EVENT_HEAD));
    let segments = EVENTS_OF_OPERATORS.saturating_add(EVENTS_OF_FILTER) / EVENTS_OF_SEGMENT;
    // The tail has the open segments of both rings.
    let tail = value(segment.saturating_mul(2));
    let ends = value(BAN_ENDS.saturating_mul(BAN_END));
    value(segment)
        .saturating_mul(segments)
        .saturating_add(tail)
        .saturating_add(ends)
}

/// The most memory of the changes that travel, if any rule is shared by a fleet.
fn changes(file: &RuleFile) -> usize {
    let is_shared = file.rules.iter().any(|rule| rule.scope == Scope::Fleet);
    if is_shared { value(FLEET_CHANGES) } else { 0 }
}

/// The memory of all pages, full, with their names, and of the data of the rules.
fn store(file: &RuleFile, bucket: usize, key: usize) -> u64 {
    // Names of evicted buckets stay until their space is needed: a full store has the maximum of names.
    let page = page_memory(bucket, SLOTS, (names::ENTRIES, key));
    pages(file)
        .saturating_mul(page)
        .saturating_add(of_rules(file))
}

fn pages(file: &RuleFile) -> u64 {
    u64::from(file.store.buckets).div_ceil(wide(SLOTS))
}

/// The memory of a page with these slots, and of its names.
fn page_memory(bucket: usize, slots: usize, (names, key): (usize, usize)) -> u64 {
    let page = bucket.saturating_mul(slots).saturating_add(PAGE_HEAD);
    wide(value(page).saturating_add(value(names::bytes(names, key))))
}

/// The memory of the data of the rules.
fn of_rules(file: &RuleFile) -> u64 {
    let json = json_bytes(file);
    let configured = allocated(json).saturating_mul(CONFIGURATIONS);
    let metrics = file.rules.len().saturating_mul(METRICS);
    let rules = value(json).saturating_add(configured);
    wide(rules.saturating_add(metrics))
}

/// The memory of the counts for `loudou top`, and for `when` with this many upstreams.
fn counts(file: &RuleFile, name: usize, upstreams: usize) -> u64 {
    let watches = file.rules.iter().any(|rule| rule.when.is_some());
    let upstreams = if watches { upstreams } else { 0 };
    let upstreams = value(upstreams::bytes(name)).saturating_mul(upstreams);
    wide(value(top::shared_bytes(name)).saturating_add(upstreams))
}

/// The bound on the memory of held requests in a worker, if any of its rules may hold some.
fn held(file: &RuleFile) -> u64 {
    let may_hold = |rule: &Rule| {
        let own = rule.overrides.values().any(|own| match own {
            Override::Limits(limits) => limits.may_hold(),
            Override::Scale(_) | Override::Unlimited | Override::Banned => false,
        });
        own || rule.limits.may_hold() || waits_for_relay(rule)
    };
    if file.rules.iter().any(may_hold) {
        u64::from(file.store.waiting.memory_mib) << 20
    } else {
        0
    }
}

/// Whether requests wait for tokens of a fleet.
fn waits_for_relay(rule: &Rule) -> bool {
    rule.scope == Scope::Fleet && rule.mode == Mode::Enforce
}

/// The memory of a worker's sandbox.
fn worker(file: &RuleFile) -> u64 {
    let rules = file.rules.iter().map(rule_in_worker);
    rules.fold(wide(SANDBOX.saturating_add(TOP)), |sum, rule| {
        sum.saturating_add(wide(rule))
    })
}

fn rule_in_worker(rule: &Rule) -> usize {
    let limits = rule.limits.iter().len();
    let all_of = |limits: usize| LIMIT.saturating_mul(limits);
    let written = json_bytes(&rule.matches).saturating_mul(MATCH);
    let patterns = rule.matches.patterns();
    let patterns = patterns.iter().map(|(_, pattern)| pattern.bytes());
    let regexes = patterns
        .fold(0, usize::saturating_add)
        .saturating_mul(REGEX);
    let own = RULE
        .saturating_add(all_of(limits))
        .saturating_add(written)
        .saturating_add(regexes);
    let mut different: Vec<u32> = Vec::new();
    rule.overrides.iter().fold(own, |sum, (key, own)| {
        let own = match own {
            Override::Unlimited | Override::Banned => 0,
            Override::Scale(scale) => {
                let place = different.binary_search(&scale.thousandths());
                let scaled = place.map_or_else(
                    |place| {
                        different.insert(place, scale.thousandths());
                        SCALED.saturating_mul(limits)
                    },
                    |_known| 0,
                );
                scaled.saturating_add(SCALE)
            }
            Override::Limits(limits) => all_of(limits.iter().len()).saturating_add(OWN),
        };
        sum.saturating_add(own)
            .saturating_add(WORD)
            .saturating_add(key.len().saturating_mul(KEY))
    })
}

#[cfg(test)]
mod tests;
